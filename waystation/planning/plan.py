"""A task's plan: a small acyclic graph of steps, each carried out by one agent.

A change of a plan at work: steps that have not begun may come, go or get another goal; all others stay.

What looks over the work of a task: revisions of its plan, reviews of its report. Numbers and ids, no text.
"""

from collections.abc import Collection, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import count
from typing import Annotated, NamedTuple

from pydantic import BeforeValidator, Field
from pydantic.json_schema import SkipJsonSchema

from waystation.budgets.budget import RunUsage
from waystation.kernel.amount import Amount, Limit, format_amount, format_limit, parse_limit
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.roles import Role
from waystation.kernel.value import Value

MAX_STEPS = 12
PLANNING_ID = "plan"
"""In the place of a step's id: the agent run that makes the plan."""
STEP_ID_PATTERN = compile_bounded(r"[a-z][a-z0-9-]{0,39}")
"""Ids are shown, and are parts of other ids: they hold no spaces, slashes or markup."""
RESERVED_STEP_ID_PATTERN = compile_bounded(rf"{PLANNING_ID}|(?:revision|review)-\d+")
"""Ids of the agent runs that are no step's."""


MAX_SHARE_CHARACTERS = 40
MAX_PERCENT = 100


def _written(share: object) -> object:
    """YAML reads 40000 as a number."""
    return str(share) if isinstance(share, int) and not isinstance(share, bool) else share


Share = Annotated[SkipJsonSchema[str], BeforeValidator(_written), Field(max_length=MAX_SHARE_CHARACTERS)]
"""What a person gives a step of what there is for all steps: `40k`, `$0.40`, `40k+$0.40`, `25%`. No model sees it."""


class Step(Value):
    """One piece of the work. `goal` is text for the agent and stays in the store; `title` is safe to show."""

    id: str
    role: Role
    title: str
    goal: str = ""
    needs: tuple[str, ...] = ()
    share: Share = ""
    """Empty: an even part of what the others leave. What a person gave is lent to no other step."""


class Plan(Value):
    """Steps in the order in which they are shown."""

    steps: tuple[Step, ...]

    def get_step(self, step_id: str) -> Step:
        """The step of that id."""
        return next(step for step in self.steps if step.id == step_id)

    def list_ready_steps(self, done: frozenset[str], started: frozenset[str]) -> tuple[Step, ...]:
        """The steps that may start now: everything they need is done, and they were not started."""
        return tuple(step for step in self.steps if step.id not in started and done.issuperset(step.needs))

    def list_dependent_ids(self, step_id: str) -> tuple[str, ...]:
        """The steps that build on this one, directly or not, in order."""
        reached = {step_id}
        for step in TopologicalSorter({step.id: step.needs for step in self.steps}).static_order():
            if reached & set(self.get_step(step).needs):
                reached.add(step)
        return tuple(step.id for step in self.steps if step.id in reached - {step_id})

    def without_goals(self) -> "Plan":
        """What may enter workflow history: ids, roles, titles and order, no text for the agents."""
        return Plan(steps=tuple(step.replace(goal="") for step in self.steps))

    def without_shares(self) -> "Plan":
        """As a model may make it: only a person gives shares."""
        return Plan(steps=tuple(step.replace(share="") for step in self.steps))


def anonymise_step_ids(plan: Plan, ids: Collection[str]) -> Plan:
    """The plan with other ids for these steps: role and number, which say nothing."""
    taken = {step.id for step in plan.steps} - set(ids)
    renamed = dict[str, str]()
    for step in plan.steps:
        if step.id in ids:
            free = (f"{step.role}-{number}" for number in count(1))
            renamed[step.id] = next(one for one in free if one not in taken)
            taken.add(renamed[step.id])
    return Plan(
        steps=tuple(
            step.replace(
                id=renamed.get(step.id, step.id),
                needs=tuple(renamed.get(need, need) for need in step.needs),
            )
            for step in plan.steps
        )
    )


def find_plan_errors(plan: Plan) -> tuple[str, ...]:
    """Everything that keeps this plan from being run, in words that a model can act on. Empty: it can run."""
    ids = [step.id for step in plan.steps]
    errors: list[str] = []
    if not 3 <= len(ids) <= MAX_STEPS:
        errors.append(f"a plan has 3 to {MAX_STEPS} steps, this one has {len(ids)}")
    errors += [f"step id {step_id!r} is used more than once" for step_id in sorted(set(ids)) if ids.count(step_id) > 1]
    errors += [
        f"step id {step_id!r} is not small letters, digits and hyphens, at most 40, and other than {PLANNING_ID!r}, "
        "'revision-1' or 'review-1'"
        for step_id in ids
        if not STEP_ID_PATTERN.fullmatch(step_id) or RESERVED_STEP_ID_PATTERN.fullmatch(step_id)
    ]
    errors += [f"step {step.id!r} has no goal" for step in plan.steps if not step.goal.strip()]
    errors += _unreadable_shares(plan)
    for step in plan.steps:
        errors += [f"step {step.id!r} needs {need!r}, which is no step" for need in step.needs if need not in ids]
    if not any(step.role == "research" for step in plan.steps):
        errors.append("a plan has at least one research step")
    if [step.role for step in plan.steps].count("writing") != 1 or plan.steps[-1].role != "writing":
        errors.append("the last step, and only the last, has the role writing")
    needed = {need for step in plan.steps for need in step.needs}
    errors += [
        f"step {step.id!r} is needed by no later step, so nobody would wait for it"
        for step in plan.steps[:-1]
        if step.id not in needed
    ]
    return (*errors, *_cycle(plan))


def _cycle(plan: Plan) -> tuple[str, ...]:
    try:
        TopologicalSorter({step.id: step.needs for step in plan.steps}).prepare()
    except CycleError as error:
        return (f"steps need each other in a circle: {' -> '.join(error.args[1])}",)
    return ()


def build_standard_plan(question: str) -> Plan:
    """The plan used when the model's cannot be run: two researchers, one analyst, one writer."""
    research = (
        Step(
            id="research-1",
            role="research",
            title="Direct evidence",
            goal=f"Find the passages that answer this directly: {question}",
        ),
        Step(
            id="research-2",
            role="research",
            title="Exceptions and gaps",
            goal=f"Find exceptions, contradictions and what the documents leave open about: {question}",
        ),
    )
    analysis = Step(
        id="analysis",
        role="analysis",
        title="Weigh the findings",
        goal=f"Weigh the findings against each other and against the question: {question}",
        needs=("research-1", "research-2"),
    )
    writing = Step(
        id="writing",
        role="writing",
        title="Write the report",
        goal=f"Write the report that answers: {question}",
        needs=("analysis",),
    )
    return Plan(steps=(*research, analysis, writing))


def parse_step_share(written: str, left: Limit) -> Limit:
    """What a share is, of what there is for all steps. Raises ValueError for what is none."""
    share, percent = written.strip(), written.strip().removesuffix("%")
    if percent != share:
        if percent.isascii() and percent.isdecimal() and 0 < int(percent) <= MAX_PERCENT:
            return left.compute_percent(int(percent))
        raise ValueError(f"{written!r} is no part: write whole percent, from 1% to {MAX_PERCENT}%")
    given = parse_limit(share)
    if 0 in {given.tokens, given.micro_usd}:
        raise ValueError(f"{written!r} is nothing")
    return given


def _unreadable_shares(plan: Plan) -> Iterator[str]:
    for step in plan.steps:
        try:
            if step.share:
                parse_step_share(step.share, Limit())
        except ValueError as error:
            yield f"step {step.id!r} has an impossible share, which is an amount or percent like 25%: {error}"


def find_share_errors(plan: Plan, left: Limit) -> tuple[str, ...]:
    """Everything that is wrong with the shares that a person gave, which can be read, of what is left for all steps."""
    given = [parse_step_share(step.share, left) for step in plan.steps if step.share]
    if not given:
        return ()
    errors, both = list[str](), sum((share.amount for share in given), Amount())
    if left.restrict_to_limited_units(both) != both:
        counted = "dollars" if left.tokens is None else "tokens"
        errors.append(f"the budget is in {counted} alone: give shares in {counted}, or in percent")
    elif not left.can_cover(both):
        errors.append(f"the shares come to {format_amount(both)}, and {format_limit(left)} are left for the steps")
    rest, others = left.remaining_after(both), [step.id for step in plan.steps if not step.share]
    if not errors and others and 0 in {rest.tokens, rest.micro_usd}:
        errors.append(f"the shares leave nothing for {', '.join(others)}")
    return tuple(errors)


def compute_plan_shares(
    plan: Plan, left: Limit, agent_budget: Limit, reserves: Mapping[str, Amount]
) -> dict[str, Limit]:
    """What each step starts with: the share that a person gave it, which fits, and of the rest in each unit what
    `compute_shares_with_reserves` says.
    """
    given = {step.id: parse_step_share(step.share, left) if step.share else Limit() for step in plan.steps}
    wanted = {step.id: Amount() if step.share else reserves.get(step.role, Amount()) for step in plan.steps}
    tokens = _parts(
        {step_id: share.tokens for step_id, share in given.items()},
        left.tokens,
        agent_budget.tokens,
        {step_id: least.tokens for step_id, least in wanted.items()},
    )
    dollars = _parts(
        {step_id: share.micro_usd for step_id, share in given.items()},
        left.micro_usd,
        agent_budget.micro_usd,
        {step_id: least.micro_usd for step_id, least in wanted.items()},
    )
    return {step_id: Limit(tokens=tokens[step_id], micro_usd=dollars[step_id]) for step_id in given}


def _parts(
    given: Mapping[str, int | None], left: int | None, own: int | None, wanted: Mapping[str, int]
) -> dict[str, int | None]:
    rest = None if left is None else left - sum(part or 0 for part in given.values())
    others = {step_id: wanted[step_id] for step_id, part in given.items() if part is None}
    return {**given, **_shares(rest, own, others)}


def compute_even_share(left: Limit, agent_budget: Limit, steps: int) -> Limit:
    """What each of `steps` agents may start with, in each unit: its own budget, or an even share of what there is."""
    return Limit(
        tokens=_share(left.tokens, agent_budget.tokens, steps),
        micro_usd=_share(left.micro_usd, agent_budget.micro_usd, steps),
    )


def compute_shares_with_reserves(
    left: Limit, agent_budget: Limit, roles: Mapping[str, str], reserves: Mapping[str, Amount]
) -> dict[str, Limit]:
    """What each agent starts with: an even share as `compute_even_share` has it, or its role's minimum reserve if
    that is more.

    Args:
        left: What can be shared out.
        agent_budget: What an agent starts with at most, unless its minimum reserve is more.
        roles: By id of the step, its role.
        reserves: By role, what an agent of it needs at least. Where all of them together pass `left`, each gets the
            same part of its reserve.

    Returns:
        By id of the step; all together never pass `left`.
    """
    wanted = {step_id: reserves.get(role, Amount()) for step_id, role in roles.items()}
    tokens = _shares(left.tokens, agent_budget.tokens, {step_id: own.tokens for step_id, own in wanted.items()})
    dollars = _shares(
        left.micro_usd, agent_budget.micro_usd, {step_id: own.micro_usd for step_id, own in wanted.items()}
    )
    return {step_id: Limit(tokens=tokens[step_id], micro_usd=dollars[step_id]) for step_id in roles}


def _shares(left: int | None, own: int | None, wanted: Mapping[str, int]) -> dict[str, int | None]:
    """In one unit. Those whose reserve passes an even share get it; the others share the rest evenly."""
    if left is not None and (total := sum(wanted.values())) > left:
        wanted = {step_id: least * left // total for step_id, least in wanted.items()}
    shares, others = dict[str, int | None](), dict(wanted)
    while others:
        even = _share(None if left is None else left - sum(share or 0 for share in shares.values()), own, len(others))
        above = {step_id: least for step_id, least in others.items() if even is not None and least > even}
        if not above:
            return {**shares, **dict.fromkeys(others, even)}
        shares |= above
        others = {step_id: least for step_id, least in others.items() if step_id not in above}
    return shares


def _share(left: int | None, own: int | None, steps: int) -> int | None:
    even = None if left is None else left // max(1, steps)
    return min((share for share in (even, own) if share is not None), default=None)


class StepChange(Value):
    """Another goal, title or order of one step. What is left out stays."""

    id: str
    goal: str | None = None
    title: str | None = None
    needs: tuple[str, ...] | None = None


class PlanChange(Value):
    """What is to be done to a plan. Nothing at all: it is kept as it is."""

    add: tuple[Step, ...] = Field(default=(), description="New steps. A later step must need each of them.")
    drop: tuple[str, ...] = Field(default=(), description="Ids of steps that are not worth doing any more.")
    change: tuple[StepChange, ...] = Field(default=(), description="Steps with another goal, or other needs.")

    @property
    def is_empty(self) -> bool:
        """Whether it keeps the plan."""
        return not (self.add or self.drop or self.change)


class PlanEdit(Value):
    """A plan that a person sent in the place of the one that they were asked about, and that is not read yet."""

    request_id: str
    given: str
    """Content hash of a `Plan` in the store, goals included."""
    by: str = ""
    note: str = ""
    answer_id: str = ""

    @property
    def made_by(self) -> str:
        """Who made that version of the plan: the answer to a request, with these words."""
        return f"{self.request_id}/{self.given}"


class PlanEditResult(Value):
    """What became of it: the plan as the store has it, without goals; or why it cannot be run."""

    plan: Plan | None = None
    reason: str = ""


PERSON_EDIT_REASON = "A person sent it."
"""The reason of a plan that was sent in the place of another one."""


class PlanVersion(Value):
    """One of a task's plans, as the store keeps it."""

    number: int
    """1 is the plan that planning made."""
    plan: Plan
    """With its goals."""
    made_by: str
    """Id of the agent run: of the planning, or of a revision; or the request that a person answered with it."""
    reason: str = ""
    """Redacted. Why the plan was changed; empty for the first."""


def apply_plan_change(plan: Plan, change: PlanChange, begun: frozenset[str]) -> Plan:
    """The plan after the change. New steps stand before the first that has not begun; nobody needs what is dropped."""
    changes = {one.id: one for one in change.change}
    kept = [
        step if step.id in begun else _without(_changed(step, changes.get(step.id)), change.drop)
        for step in plan.steps
        if step.id not in change.drop
    ]
    first = next((place for place, step in enumerate(kept) if step.id not in begun), len(kept))
    return Plan(steps=(*kept[:first], *Plan(steps=change.add).without_shares().steps, *kept[first:]))


def find_plan_change_errors(plan: Plan, change: PlanChange, begun: frozenset[str], room: int) -> tuple[str, ...]:
    """Everything that keeps the changed plan from being run, in words that a model can act on.

    `room`: for how many new steps there is budget.
    """
    ids = {step.id for step in plan.steps}
    touched = [*change.drop, *(one.id for one in change.change)]
    errors = [f"there is no step {step_id!r} to drop or change" for step_id in touched if step_id not in ids]
    errors += [f"step {step_id!r} has begun, and stays as it is" for step_id in touched if step_id in begun]
    if len(change.add) > room:
        errors.append(f"there is budget for {room} new steps, these are {len(change.add)}")
    return tuple(errors) or find_plan_errors(apply_plan_change(plan, change, begun))


class PlanDiff(NamedTuple):
    """Ids of the steps that one plan has otherwise than another."""

    added: tuple[str, ...]
    dropped: tuple[str, ...]
    changed: tuple[str, ...]


def diff_plans(before: Plan, after: Plan) -> PlanDiff:
    """What the later plan has otherwise."""
    old, new = ({step.id: step for step in plan.steps} for plan in (before, after))
    return PlanDiff(
        added=tuple(step_id for step_id in new if step_id not in old),
        dropped=tuple(step_id for step_id in old if step_id not in new),
        changed=tuple(step_id for step_id in new if step_id in old and new[step_id] != old[step_id]),
    )


def _changed(step: Step, change: StepChange | None) -> Step:
    if change is None:
        return step
    return step.replace(
        goal=step.goal if change.goal is None else change.goal,
        title=step.title if change.title is None else change.title,
        needs=step.needs if change.needs is None else change.needs,
    )


def _without(step: Step, dropped: tuple[str, ...]) -> Step:
    return step.replace(needs=tuple(need for need in step.needs if need not in dropped))


def make_revision_id(number: int) -> str:
    """In the place of a step's id: the agent run that revises the plan."""
    return f"revision-{number}"


def make_review_id(number: int) -> str:
    """In the place of a step's id: the agent run that reviews the report."""
    return f"review-{number}"


class PlanRevision(Value):
    """One look at the plan after the research. Steps by their ids."""

    number: int
    version: int | None = None
    """Of the plan that it made; None: the plan was kept as it was."""
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    """The research steps whose findings it saw."""

    @property
    def text(self) -> str:
        """What became of the plan, in a sentence."""
        if self.version is None:
            return f"Revision {self.number}, after the research: the plan was kept as it was."
        parts = (("added", self.added), ("dropped", self.dropped), ("changed", self.changed))
        done = "; ".join(f"{what} {', '.join(steps)}" for what, steps in parts if steps)
        return f"Revision {self.number}, after the research, made plan version {self.version}: {done}."


class RevisionResult(Value):
    """What a revision led to."""

    revision: PlanRevision
    plan: Plan | None = None
    """Without goals; None: it was kept."""
    totals: RunUsage
    notes: tuple[str, ...] = ()


class ReportReview(Value):
    """One look at the report against the findings."""

    number: int
    faults: int
    sent_back: bool = False
    """Whether its writer was to mend them."""
    found: str | None = None
    """Content hash of the faults."""

    @property
    def text(self) -> str:
        """What came of it, in a sentence."""
        faults = {0: "no fault", 1: "1 fault"}.get(self.faults, f"{self.faults} faults")
        then = "; the report went back to its writer" if self.sent_back else ""
        return f"Review {self.number} of the report found {faults}{then}."


class OversightState(Value):
    """How far the oversight of a task is."""

    revisions: tuple[PlanRevision, ...] = ()
    reviews: tuple[ReportReview, ...] = ()
    costs: dict[str, RunUsage] = {}
    """By id, what each of their agent runs has cost."""
    shares: dict[str, Limit] = {}
    """By step id, what the steps that a revision added start with."""
    under_way: str = ""
    """Id of the agent run whose cost is not booked yet."""
    sent_back: int = 0
    """How often the report went back to its writer since the task was last taken up."""
    mending: bool = False
    """The writer works on what the last review found."""
    gave_up: bool = False
    """The writer could not go on mending."""

    @property
    def totals(self) -> tuple[RunUsage, ...]:
        """What it has cost so far."""
        return tuple(self.costs.values())

    def after_reopening(self) -> "OversightState":
        """The task goes on after its end. The plan stays as it was revised; the report is reviewed anew."""
        return self.replace(shares={}, under_way="", sent_back=0, mending=False, gave_up=False)
