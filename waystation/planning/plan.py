"""A task's plan: an acyclic graph of steps, each done by one agent; its shares, changes, revisions and reviews.

A change may add, drop or retarget steps that have not begun; all others stay. Revisions and reviews hold numbers and
IDs, no text.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import count
from typing import Annotated, NamedTuple

from pydantic import BeforeValidator, Field
from pydantic.json_schema import SkipJsonSchema

from waystation.budgets.budget import RunUsage
from waystation.kernel.amount import Amount, Limit, format_amount, format_limit, parse_limit
from waystation.kernel.identifiers import Identifier
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.roles import Role
from waystation.kernel.text import format_count
from waystation.kernel.value import Value

MIN_STEPS, MAX_STEPS = 3, 12
MAX_PLAN_CHARACTERS = 200_000
"""Maximum characters of a plan that a person sends."""
PLANNING_ID = "plan"
"""Used as the step ID of the agent run that makes the plan."""
STEP_ID_PATTERN = compile_bounded(r"[a-z][a-z0-9-]{0,39}")
"""IDs are shown and become parts of other IDs, so they contain no spaces, slashes or markup."""
JUDGE_PREFIX = "judge-"
"""Beginning of the ids of agent runs that judge cited sentences."""
RESERVED_STEP_ID_PATTERN = compile_bounded(rf"{PLANNING_ID}|(?:revision|review|judge)-\d+")
"""IDs of agent runs that belong to no step."""


MAX_SHARE_CHARACTERS = 40
MAX_PERCENT = 100


def _written(share: object) -> object:
    """Convert an integer share to text: YAML reads 40000 as a number."""
    return str(share) if isinstance(share, int) and not isinstance(share, bool) else share


Share = Annotated[SkipJsonSchema[str], BeforeValidator(_written), Field(max_length=MAX_SHARE_CHARACTERS)]
"""A person's share for a step of what all steps have: `40k`, `$0.40`, `40k+$0.40`, `25%`. Never shown to a model."""


class Step(Value):
    """One piece of the work. `goal` is text for the agent and stays in the store; `title` is safe to show."""

    id: Identifier = Field(description="Lower-case letters, digits and hyphens, such as research-1.")
    role: Role = Field(description="What the step does.")
    title: str = Field(description="At most six words in the language of the question, without names of persons.")
    goal: str = Field(default="", description="What the agent of this step must do.")
    needs: tuple[Identifier, ...] = Field(
        default=(), description="Ids of the steps whose results the agent of this step receives."
    )
    share: Share = ""
    """Empty: an even part of what the others leave. A person's share is lent to no other step."""


class Plan(Value):
    """Steps in display order."""

    steps: tuple[Step, ...]

    def get_step(self, step_id: str) -> Step:
        """Return the step of this ID."""
        return next(step for step in self.steps if step.id == step_id)

    def list_ready_steps(self, done: frozenset[str], started: frozenset[str]) -> tuple[Step, ...]:
        """Return the steps that may start now: their needs are done, and they have not started."""
        return tuple(step for step in self.steps if step.id not in started and done.issuperset(step.needs))

    def list_dependent_ids(self, step_id: str) -> tuple[str, ...]:
        """Return the IDs of the steps that build on this one, directly or not, in order."""
        reached = {step_id}
        for step in TopologicalSorter({step.id: step.needs for step in self.steps}).static_order():
            if reached & set(self.get_step(step).needs):
                reached.add(step)
        return tuple(step.id for step in self.steps if step.id in reached - {step_id})

    def without_goals(self) -> "Plan":
        """Return the plan for workflow history: IDs, roles, titles and order, no text for the agents."""
        return Plan(steps=tuple(step.replace(goal="") for step in self.steps))

    def without_shares(self) -> "Plan":
        """Return the plan as a model may make it: only a person gives shares."""
        return Plan(steps=tuple(step.replace(share="") for step in self.steps))


def anonymise_step_ids(plan: Plan, ids: Collection[str]) -> Plan:
    """Replace the IDs of these steps by role and number, which reveal nothing."""
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


class PlanFault(NamedTuple):
    """Something that keeps a plan from running."""

    text: str
    """In words that a model can act on."""
    step: int | None = None
    """Index of the step at fault; None: the plan as a whole."""
    field: str = ""
    """Field of that step."""


def find_plan_errors(plan: Plan) -> tuple[str, ...]:
    """Return everything that keeps the plan from running, in words that a model can act on. Empty: it can run."""
    return tuple(fault.text for fault in find_plan_faults(plan))


def find_plan_faults(plan: Plan) -> tuple[PlanFault, ...]:
    """Return everything that keeps the plan from running, each with its place. Empty: it can run."""
    ids = [step.id for step in plan.steps]
    faults: list[PlanFault] = []
    if not MIN_STEPS <= len(ids) <= MAX_STEPS:
        faults.append(PlanFault(f"a plan has {MIN_STEPS} to {MAX_STEPS} steps, but this one has {len(ids)}"))
    faults += [
        PlanFault(f"step id {step_id!r} is used more than once", ids.index(step_id), "id")
        for step_id in sorted(set(ids))
        if ids.count(step_id) > 1
    ]
    faults += [
        PlanFault(
            f"step id {step_id!r} must have at most 40 lower-case letters, digits and hyphens, and begin with a letter"
            f"; {PLANNING_ID!r} and ids like 'revision-1' and 'review-1' are reserved",
            place,
            "id",
        )
        for place, step_id in enumerate(ids)
        if not STEP_ID_PATTERN.fullmatch(step_id) or RESERVED_STEP_ID_PATTERN.fullmatch(step_id)
    ]
    faults += [
        PlanFault(f"step {step.id!r} has no goal", place, "goal")
        for place, step in enumerate(plan.steps)
        if not step.goal.strip()
    ]
    faults += _unreadable_shares(plan)
    for place, step in enumerate(plan.steps):
        faults += [
            PlanFault(f"step {step.id!r} needs {need!r}, which is not a step of this plan", place, "needs")
            for need in step.needs
            if need not in ids
        ]
    if not any(step.role == "research" for step in plan.steps):
        faults.append(PlanFault("a plan needs at least one research step"))
    if [step.role for step in plan.steps].count("writing") != 1 or plan.steps[-1].role != "writing":
        faults.append(PlanFault("the last step, and only the last one, must have the role `writing`"))
    needed = {need for step in plan.steps for need in step.needs}
    faults += [
        PlanFault(f"step {step.id!r} is not needed by a later step, so nothing would wait for it", place, "needs")
        for place, step in enumerate(plan.steps[:-1])
        if step.id not in needed
    ]
    return (*faults, *_cycle(plan))


def _cycle(plan: Plan) -> tuple[PlanFault, ...]:
    try:
        TopologicalSorter({step.id: step.needs for step in plan.steps}).prepare()
    except CycleError as error:
        return (PlanFault(f"steps depend on each other in a cycle: {' -> '.join(error.args[1])}"),)
    return ()


def build_standard_plan(question: str) -> Plan:
    """Build the plan used if the model's cannot run: two researchers, one analyst, one writer."""
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


def parse_step_share(written: str, remaining: Limit) -> Limit:
    """Convert a share to a limit, given what all steps have. Raises ValueError if it is not a share."""
    share, percent = written.strip(), written.strip().removesuffix("%")
    if percent != share:
        if percent.isascii() and percent.isdecimal() and 0 < int(percent) <= MAX_PERCENT:
            return remaining.compute_percent(int(percent))
        raise ValueError(f"{written!r} is not a whole percentage from 1% to {MAX_PERCENT}%")
    given = parse_limit(share)
    if 0 in {given.tokens, given.micro_usd}:
        raise ValueError(f"{written!r} is zero")
    return given


def _unreadable_shares(plan: Plan) -> Iterator[PlanFault]:
    for place, step in enumerate(plan.steps):
        try:
            if step.share:
                parse_step_share(step.share, Limit())
        except ValueError as error:
            text = f"step {step.id!r} has an invalid share ({error}); write an amount, or a percentage like 25%"
            yield PlanFault(text, place, "share")


def find_share_errors(plan: Plan, remaining: Limit) -> tuple[str, ...]:
    """Return everything that is wrong with a person's (parseable) shares, given what is left for all steps."""
    given = [parse_step_share(step.share, remaining) for step in plan.steps if step.share]
    if not given:
        return ()
    errors, both = list[str](), sum((share.amount for share in given), Amount())
    if remaining.restrict_to_limited_units(both) != both:
        counted = "dollars" if remaining.tokens is None else "tokens"
        errors.append(f"the budget is only in {counted}: give shares in {counted}, or in percent")
    elif not remaining.can_cover(both):
        errors.append(
            f"the shares add up to {format_amount(both)}, but the steps have only {format_limit(remaining)} left"
        )
    rest, others = remaining.remaining_after(both), [step.id for step in plan.steps if not step.share]
    if not errors and others and 0 in {rest.tokens, rest.micro_usd}:
        errors.append(f"the shares leave no budget for {', '.join(others)}")
    return tuple(errors)


def compute_plan_shares(
    plan: Plan, remaining: Limit, agent_budget: Limit, reserves: Mapping[str, Amount]
) -> dict[str, Limit]:
    """Return what each step starts with.

    A person's share, or its part of the rest by `compute_shares_with_reserves`.
    """
    given = {step.id: parse_step_share(step.share, remaining) if step.share else Limit() for step in plan.steps}
    wanted = {step.id: Amount() if step.share else reserves.get(step.role, Amount()) for step in plan.steps}
    tokens = _parts(
        {step_id: share.tokens for step_id, share in given.items()},
        remaining.tokens,
        agent_budget.tokens,
        {step_id: least.tokens for step_id, least in wanted.items()},
    )
    dollars = _parts(
        {step_id: share.micro_usd for step_id, share in given.items()},
        remaining.micro_usd,
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


def compute_even_share(remaining: Limit, agent_budget: Limit, steps: int) -> Limit:
    """Return what each of `steps` agents may start with, in each unit.

    Its own budget, or an even share if that is less.
    """
    return Limit(
        tokens=_share(remaining.tokens, agent_budget.tokens, steps),
        micro_usd=_share(remaining.micro_usd, agent_budget.micro_usd, steps),
    )


def compute_shares_with_reserves(
    remaining: Limit, agent_budget: Limit, roles: Mapping[str, str], reserves: Mapping[str, Amount]
) -> dict[str, Limit]:
    """Return what each agent starts with: `compute_even_share`, or its role's minimum reserve if that is more.

    Args:
        remaining: What can be shared out.
        agent_budget: Maximum that an agent starts with, unless its minimum reserve is more.
        roles: Role by step ID.
        reserves: Minimum that an agent needs, by role. If their total exceeds `remaining`, all are scaled down alike.

    Returns:
        Limits by step ID; together they never exceed `remaining`.
    """
    wanted = {step_id: reserves.get(role, Amount()) for step_id, role in roles.items()}
    tokens = _shares(remaining.tokens, agent_budget.tokens, {step_id: own.tokens for step_id, own in wanted.items()})
    dollars = _shares(
        remaining.micro_usd, agent_budget.micro_usd, {step_id: own.micro_usd for step_id, own in wanted.items()}
    )
    return {step_id: Limit(tokens=tokens[step_id], micro_usd=dollars[step_id]) for step_id in roles}


def _shares(left: int | None, own: int | None, wanted: Mapping[str, int]) -> dict[str, int | None]:
    """Compute shares in one unit. Reserves above an even share are granted first; the others share the rest evenly."""
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

    id: str = Field(description="Id of a step that has not begun.")
    goal: str | None = Field(default=None, description="The new goal, whole.")
    title: str | None = Field(default=None, description="The new title.")
    needs: tuple[str, ...] | None = Field(default=None, description="The new needs, whole: ids of steps.")


class PlanChange(Value):
    """Changes of a plan. If empty, the plan is kept as it is."""

    add: tuple[Step, ...] = Field(
        default=(),
        description="New steps. If no step needs a new research step, code adds it to the needs of the next analysis, "
        "or of the report if no analysis is left. You need not change these needs.",
    )
    drop: tuple[str, ...] = Field(default=(), description="Ids of steps that are not worth doing any more.")
    change: tuple[StepChange, ...] = Field(default=(), description="Steps whose goal, title or needs change.")

    @property
    def is_empty(self) -> bool:
        """Whether it keeps the plan."""
        return not (self.add or self.drop or self.change)


class PlanEdit(Value):
    """A person's plan in place of the one that they were asked about, not read yet."""

    request_id: str
    plan: str
    """Content hash of a `Plan` in the store, including goals."""
    by: str = ""
    note: str = ""
    answer_id: str = ""

    @property
    def made_by(self) -> str:
        """Author of that plan version: the answer to a request, with this content."""
        return f"{self.request_id}/{self.plan}"


class PlanEditResult(Value):
    """Result of a plan edit: the stored plan without goals, or why it cannot run."""

    plan: Plan | None = None
    reason: str = ""


PERSON_EDIT_REASON = "A person sent it."
"""Reason of a plan version that a person sent."""


class PlanVersion(Value):
    """One version of a task's plan, as stored."""

    number: int
    """1 is the plan made by planning."""
    plan: Plan
    """Including goals."""
    made_by: Identifier
    """ID of the agent run (planning or a revision), or the request that a person answered with it."""
    reason: str = ""
    """Why the plan was changed, redacted; empty for the first version."""


def apply_plan_change(plan: Plan, change: PlanChange, begun: frozenset[str]) -> Plan:
    """Apply a change.

    New steps come before the first one that has not begun. The next analysis, or else the report, waits for those that
    no step needs. Dropped steps are removed from all needs.
    """
    changes = {one.id: one for one in change.change}
    kept = [
        step if step.id in begun else _without(_changed(step, changes.get(step.id)), change.drop)
        for step in plan.steps
        if step.id not in change.drop
    ]
    first = next((place for place, step in enumerate(kept) if step.id not in begun), len(kept))
    added = Plan(steps=change.add).without_shares().steps
    return Plan(steps=(*kept[:first], *_with_unneeded(added, kept[first:])))


def _with_unneeded(added: Sequence[Step], later: Sequence[Step]) -> tuple[Step, ...]:
    """Return all steps. The next analysis, or else the report, now needs added research that no step needs."""
    needed = {need for step in (*added, *later) for need in step.needs}
    alone = tuple(dict.fromkeys(step.id for step in added if step.role == "research" and step.id not in needed))
    waiting = next((step.id for role in ("analysis", "writing") for step in later if step.role == role), None)
    return *added, *(step.replace(needs=(*step.needs, *alone)) if step.id == waiting else step for step in later)


def find_plan_change_errors(plan: Plan, change: PlanChange, begun: frozenset[str], room: int) -> tuple[str, ...]:
    """Return everything that keeps the changed plan from running, in words that a model can act on.

    `room`: number of new steps that the budget allows.
    """
    ids = {step.id for step in plan.steps}
    touched = [*change.drop, *(one.id for one in change.change)]
    errors = [f"there is no step {step_id!r} to drop or change" for step_id in touched if step_id not in ids]
    errors += [f"step {step_id!r} has started and cannot be changed" for step_id in touched if step_id in begun]
    if len(change.add) > room:
        errors.append(f"there is budget for {format_count(room, 'new step')}, but the change adds {len(change.add)}")
    return tuple(errors) or find_plan_errors(apply_plan_change(plan, change, begun))


class PlanDiff(NamedTuple):
    """IDs of the steps in which two plans differ."""

    added: tuple[str, ...]
    dropped: tuple[str, ...]
    changed: tuple[str, ...]


def diff_plans(before: Plan, after: Plan) -> PlanDiff:
    """Return how the later plan differs."""
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
    """Return the step ID of the agent run that revises the plan."""
    return f"revision-{number}"


def make_review_id(number: int) -> str:
    """Return the step ID of the agent run that reviews the report."""
    return f"review-{number}"


def make_judge_id(number: int) -> str:
    """Return the step ID of the agent run that judges cited sentences of the report."""
    return f"{JUDGE_PREFIX}{number}"


class PlanRevision(Value):
    """Outcome of one revision after the research, with IDs of steps. It may have left the plan as it was."""

    number: int
    version: int | None = None
    """Version of the plan that it made; None: the plan was kept as it was."""
    added: tuple[Identifier, ...] = ()
    dropped: tuple[Identifier, ...] = ()
    changed: tuple[Identifier, ...] = ()
    reviewed_steps: tuple[Identifier, ...] = ()
    """The research steps whose findings it saw."""

    @property
    def text(self) -> str:
        """The result in a sentence."""
        if self.version is None:
            return f"Revision {self.number}, after the research, left the plan unchanged."
        parts = (("added", self.added), ("dropped", self.dropped), ("changed", self.changed))
        done = "; ".join(f"{what} {', '.join(steps)}" for what, steps in parts if steps)
        return f"Revision {self.number}, after the research, made plan version {self.version}: {done}."


class RevisionResult(Value):
    """Result of a revision."""

    revision: PlanRevision
    plan: Plan | None = None
    """Without goals; None: the plan was kept."""
    totals: RunUsage
    notes: tuple[str, ...] = ()


class ReportReview(Value):
    """A review of the report against the findings."""

    number: int
    faults: int
    sent_back: bool = False
    """Whether its writer was to fix the faults."""
    faults_hash: Identifier | None = None
    """Content hash of the faults."""

    @property
    def text(self) -> str:
        """The result in a sentence."""
        faults = {0: "no fault", 1: "1 fault"}.get(self.faults, f"{self.faults} faults")
        then = "; the report went back to its writer" if self.sent_back else ""
        return f"Review {self.number} of the report found {faults}{then}."


class SentenceJudgement(Value):
    """A model's verdicts on the cited sentences that code could not decide, in numbers.

    Each place of a sentence that stands in several places counts.
    """

    number: int
    supported: int = 0
    unsupported: int = 0
    undecided: int = 0
    """Sentences that the model could not decide either, and those that it was not shown."""
    not_shown: int = 0
    """Of the undecided ones: those that the model was not shown."""
    verdicts_hash: Identifier | None = None
    """Content hash of the verdicts; None: the model was asked nothing, or gave no usable answer."""

    @property
    def text(self) -> str:
        """The result in a sentence."""
        total = self.supported + self.unsupported + self.undecided
        if not total:
            return f"Judgement {self.number} was not needed: code decided every cited sentence."
        asked = f"{format_count(total, 'cited sentence')} that code could not decide"
        if self.verdicts_hash is None:
            return f"Judgement {self.number} brought no verdict on {asked}."
        verdicts = f"{self.supported:,} supported, {self.unsupported:,} not supported, {self.undecided:,} undecided"
        left_out = f" ({self.not_shown:,} of them not shown to the model)" if self.not_shown else ""
        return f"Judgement {self.number} by a model, of {asked}: {verdicts}{left_out}."


class OversightState(Value):
    """State of a task's oversight: revisions of its plan, reviews of its report, and judgements of its sentences."""

    revisions: tuple[PlanRevision, ...] = ()
    reviews: tuple[ReportReview, ...] = ()
    judgements: tuple[SentenceJudgement, ...] = ()
    costs: dict[str, RunUsage] = {}
    """Cost of each of its agent runs, by ID."""
    shares: dict[str, Limit] = {}
    """Initial budgets of the steps that a revision added, by step ID."""
    current_run: str = ""
    """ID of the agent run whose cost is not booked yet."""
    times_sent_back: int = 0
    """How often the report went back to its writer since the task last started or was reopened."""
    fixing_faults: bool = False
    """Whether the writer is fixing what the last review found."""
    fixing_failed: bool = False
    """Whether the writer could not go on fixing."""

    @property
    def totals(self) -> tuple[RunUsage, ...]:
        """Cost so far, per agent run."""
        return tuple(self.costs.values())

    def after_reopening(self, shares: Mapping[str, Limit]) -> "OversightState":
        """Reset for a reopened task. The plan stays as revised; the report is reviewed again.

        Args:
            shares: What each step that works again starts with.
        """
        return self.replace(
            shares=dict(shares), current_run="", times_sent_back=0, fixing_faults=False, fixing_failed=False
        )
