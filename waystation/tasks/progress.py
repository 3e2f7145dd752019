"""What people see of a task: its progress and steps, its costs, and the spending of all tasks by day."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Literal, TypeVar

from waystation.agents.agent_run import AgentRun
from waystation.agents.delegation import get_parent_id
from waystation.budgets.budget import BudgetMode, RunUsage, sum_run_usage
from waystation.context.compaction import CompactionTotals
from waystation.context.transcript import CallIntent, Charge
from waystation.kernel.amount import Amount, Limit, format_used_amount
from waystation.kernel.errors import BadInput
from waystation.kernel.refs import TaskRef
from waystation.kernel.text import format_count
from waystation.kernel.usage import Usage
from waystation.kernel.value import Value
from waystation.models.profiles import OFFLINE_MODEL
from waystation.planning.plan import Step
from waystation.privacy.policy import RedactionPolicy, truncate_redacted
from waystation.tasks.reallocation import compute_drawable_budget
from waystation.tasks.state import TaskState
from waystation.tasks.task import (
    ApprovalRequest,
    BudgetProgress,
    ReusedWork,
    StepProgress,
    StepState,
    TaskConfig,
    TaskProgress,
)


def build_waiting_step(step: Step, share: Limit, *, skipped: bool) -> StepProgress:
    """Build the view of a step that was not started, and never will be if skipped. `share`: what is reserved for it."""
    return StepProgress(
        id=step.id,
        role=step.role,
        title=step.title,
        state="skipped" if skipped else "waiting",
        legs=0,
        usage=Usage(),
        limit=share,
    )


def _begun(step: Step, run: AgentRun, *, asked: bool) -> StepProgress:
    """Build the view of a started step. `asked`: whether a person is asked for its budget or for a call."""
    return StepProgress(
        id=step.id,
        role=step.role,
        title=step.title,
        state=_state_of(run, asked=asked),
        legs=run.leg - 1,
        usage=run.totals.usage,
        cost_micro_usd=run.totals.cost_micro_usd,
        limit=run.limit,
        spent=run.totals.spent,
        reason=run.reason,
    )


def render_run_details(run: AgentRun, title: str) -> str:
    """Render a subagent's current details for the Temporal UI: no text from the work."""
    lines = [
        f"**{run.run.step_id}** {title} ({run.run.role}): {_state_of(run, asked=run.phase in {'spent', 'asking'})}",
        "",
        f"- {format_count(run.leg - 1, 'leg')}, {format_used_amount(run.totals.spent, run.limit)}",
        *(f"- {note}" for note in run.notes),
        *([f"- {run.reason}"] if run.reason else []),
    ]
    return "\n".join(lines)


def _state_of(run: AgentRun, *, asked: bool) -> StepState:
    if run.phase == "delivered":
        return "partial" if run.partial else "done"
    if asked:
        return "paused"
    if run.phase == "delegating":
        return "delegating"
    return "compacting" if run.phase == "full" else "working"


def build_task_progress(
    state: TaskState,
    ref: TaskRef,
    config: TaskConfig,
    title: str,
    privacy: RedactionPolicy | None = None,
) -> TaskProgress:
    """Build the progress that people see."""
    runs = state.all_runs
    added_up = {run.run.step_id: run.earlier_compactions for run in runs}
    return TaskProgress(
        task_id=ref.task_id,
        phase=state.phase,
        title=title,
        model=config.default.model,
        models=config.models,
        steps=tuple(_with_drawable(state, step, config.mode) for step in iter_step_progress(state)),
        budget=BudgetProgress(
            limit=state.account.limit,
            spent=state.totals.spent,
            reserved=state.account.limit.restrict_to_limited_units(
                (state.account.total_reserved + state.account.spent).subtract_clamped(state.totals.spent)
            ),
        ),
        totals=state.totals,
        legs=sum(run.leg - 1 for run in runs),
        compactions=tuple(one for run in runs for one in run.agent_compactions),
        earlier_compactions={agent: totals for agent, totals in added_up.items() if totals.count},
        approvals=state.approvals,
        rejected_messages=state.rejected_messages,
        context_edits=tuple(edit for run in runs for edit in run.context_edits),
        task_messages=state.task_messages,
        document_updates=state.document_updates,
        reused=state.reused,
        revisions=state.oversight.revisions,
        reviews=state.oversight.reviews,
        judgements=state.oversight.judgements,
        notes=(*state.notes, *state.shown_warnings),
        privacy=privacy,
        report=state.report,
        reports=state.reports,
    )


def _with_drawable(state: TaskState, step: StepProgress, mode: BudgetMode) -> StepProgress:
    run = state.runs.get(step.id)
    if run is None or run.phase == "delivered" or state.is_ending:
        return step
    return step.replace(drawable=compute_drawable_budget(state, step.id, mode))


MAX_PROGRESS_BYTES = 160_000
"""Maximum size, as JSON, of what a task's workflow returns from a query and as its result."""
MAX_SHOWN_NOTE_CHARACTERS = 200
"""Maximum characters of a person's note in a bounded view."""
TRUNCATION_NOTE = (
    "The task is large, so this view leaves out the oldest of its closed requests, edits of contexts, notes, messages "
    "and finished subagents. All of them are stored when the task ends; `waystation show --json` then lists them."
)


_EntryT = TypeVar("_EntryT")


def truncate_progress(progress: TaskProgress, max_bytes: int = MAX_PROGRESS_BYTES) -> TaskProgress:
    """Return the progress if its JSON has at most `max_bytes` bytes.

    Otherwise only the newest entries of its lists, with a note. Even that is larger if nothing more can be left out.
    """
    if _size(progress) <= max_bytes:
        return progress
    shorter = progress
    for count in (200, 100, 50, 25, 10, 5, 0):
        shorter = _newest(progress, count)
        if _size(shorter) <= max_bytes:
            return shorter
    while shorter.steps or shorter.approvals:  # only open requests and running agents are left
        earlier = {"": sum(shorter.earlier_compactions.values(), CompactionTotals())}
        shorter = shorter.replace(
            earlier_compactions=earlier,
            approvals=shorter.approvals[: len(shorter.approvals) // 2],
            steps=_half(shorter.steps),
        )
        if _size(shorter) <= max_bytes:
            break
    return shorter


def _size(progress: TaskProgress) -> int:
    return len(progress.model_dump_json().encode())


def _half(steps: tuple[StepProgress, ...]) -> tuple[StepProgress, ...]:
    return steps[: len(steps) // 2]


def _newest(progress: TaskProgress, count: int) -> TaskProgress:
    dropped = progress.compactions[: max(0, len(progress.compactions) - count)]
    earlier = dict(progress.earlier_compactions)
    for one in dropped:
        earlier[one.agent] = earlier.get(one.agent, CompactionTotals()) + CompactionTotals.from_outcomes((one,))
    finished = [step.id for step in progress.steps if get_parent_id(step.id) and step.state in {"done", "partial"}]
    gone = frozenset(finished[: max(0, len(finished) - count)])
    return progress.replace(
        compactions=progress.compactions[len(dropped) :],
        earlier_compactions=earlier,
        steps=tuple(step for step in progress.steps if step.id not in gone),
        approvals=_newest_closed(progress.approvals, count),
        rejected_messages=_last(progress.rejected_messages, count),
        context_edits=tuple(edit.replace(note=_cut(edit.note)) for edit in _last(progress.context_edits, count)),
        task_messages=_last(progress.task_messages, count),
        document_updates=_last(progress.document_updates, count),
        reports=_last(progress.reports, max(1, count)),
        revisions=_last(progress.revisions, count),
        reviews=_last(progress.reviews, count),
        judgements=_last(progress.judgements, count),
        notes=(*map(_cut, _last(progress.notes, count)), TRUNCATION_NOTE),
    )


def _newest_closed(approvals: tuple[ApprovalRequest, ...], count: int) -> tuple[ApprovalRequest, ...]:
    closed = [approval.request_id for approval in approvals if approval.decision != "pending"]
    gone = frozenset(closed[: max(0, len(closed) - count)])
    return tuple(
        approval.replace(note=_cut(approval.note)) for approval in approvals if approval.request_id not in gone
    )


def _cut(text: str) -> str:
    return truncate_redacted(text, MAX_SHOWN_NOTE_CHARACTERS, " …")


def _last(entries: tuple[_EntryT, ...], count: int) -> tuple[_EntryT, ...]:
    return entries[max(0, len(entries) - count) :]


def apply_stored_usage(progress: TaskProgress, spent: Mapping[str, RunUsage]) -> TaskProgress:
    """Update the progress with the store's usage of its agents, by step ID.

    The workflow learns of usage at the end of a leg, and then knows which calls will never be answered: what it has
    counted never decreases.
    """
    known, totals = progress.totals, sum_run_usage(tuple(spent.values()))
    totals = totals.replace(
        possibly_billed=max(known.possibly_billed, totals.possibly_billed),
        possibly_billed_micro_usd=max(known.possibly_billed_micro_usd, totals.possibly_billed_micro_usd),
    )
    budget = progress.budget
    held = (budget.reserved + budget.spent).subtract_clamped(totals.spent)
    return progress.replace(
        totals=totals,
        budget=budget.replace(spent=totals.spent, reserved=budget.limit.restrict_to_limited_units(held)),
        steps=tuple(_spent(step, spent[step.id]) if step.id in spent else step for step in progress.steps),
    )


def _spent(step: StepProgress, totals: RunUsage) -> StepProgress:
    spent = Amount(
        tokens=max(step.spent.tokens, totals.spent.tokens), micro_usd=max(step.spent.micro_usd, totals.spent.micro_usd)
    )
    return step.replace(usage=totals.usage, cost_micro_usd=totals.cost_micro_usd, spent=spent)


def iter_step_progress(state: TaskState) -> Iterator[StepProgress]:
    """Yield the plan's steps, each followed by its subagents."""
    for step in state.plan.steps if state.plan else ():
        yield _step(state, step)
        yield from _subagents(state, step.id)


def _subagents(state: TaskState, parent: str) -> Iterator[StepProgress]:
    run = state.runs.get(parent)
    for order in run.subagent_orders if run is not None else ():
        if order.id in state.runs:
            yield _step(state, Step(id=order.id, role=order.role, title=order.title))
            yield from _subagents(state, order.id)


def _step(state: TaskState, step: Step) -> StepProgress:
    run = state.runs.get(step.id)
    if run is None:
        return build_waiting_step(
            step, state.get_unborrowed_share(step.id) or Limit(), skipped=state.phase.over or state.cancelled
        )
    return _begun(step, run, asked=any(approval.agent == step.id for approval in state.pending_approvals))


class AgentCharge(Value):
    """A charge and its agent run."""

    agent: str
    """ID of the step, or of planning."""
    charge: Charge


class UnansweredCall(Value):
    """A call whose reply was never committed: it may have been billed, at most for its worst case."""

    agent: str
    intent: CallIntent


class CostLine(Value):
    """Calls of one kind. `cost_micro_usd` is None if one of them has no known price; it is never a guess."""

    agent: str
    model: str
    kind: str
    calls: int
    usage: Usage
    cost_micro_usd: int | None
    answered_by: tuple[str, ...] = ()
    """Models named in replies, if they differ from the requested one."""
    dropped_thinking: int = 0
    """Number of thinking blocks that the provider dropped from requests, lost to the model."""
    cache_misses: dict[str, int] = {}
    """Number of cache misses of the last request's prefix, by the provider's reason."""
    waited_ms: int = 0
    """How long the calls waited because of the provider's rate limit, in milliseconds, added up."""


class TemporalActionCounts(Value):
    """Actions of a task's workflow and its child workflows, as Temporal Cloud charges them, counted in histories.

    No history has queries, heartbeats or actions of the session's workflow.
    """

    workflows: int = 0
    """Starts and continuations; the start of a child workflow is two actions."""
    activities: int = 0
    """Attempts of activities."""
    updates: int = 0
    signals: int = 0
    """Signals to other workflows, and received signals that no workflow sent."""
    timers: int = 0
    search_attribute_updates: int = 0
    complete: bool = True
    """Whether no history has been removed, so that the numbers are not too low."""

    @property
    def total(self) -> int:
        """All actions."""
        return (
            self.workflows + self.activities + self.updates + self.signals + self.timers + self.search_attribute_updates
        )


class CostBreakdown(Value):
    """What a task has cost so far."""

    lines: tuple[CostLine, ...]
    """By agent, model and kind; agents in the order of their first call."""
    compactions: tuple[CostLine, ...]
    """The summaries one by one, with the charge's key as `kind`. Also included in `lines`."""
    total: CostLine
    possibly_billed: tuple[UnansweredCall, ...] = ()
    reused: ReusedWork | None = None
    """Work of another task that counts as done here. That task has its cost."""

    @property
    def held(self) -> Amount:
        """Maximum cost of calls without a reply; it counts as spent."""
        return sum((call.intent.worst_case for call in self.possibly_billed), Amount())

    @property
    def counted(self) -> Amount:
        """What counts against the task's budget, as shown as spent. Cache reads do not count as tokens."""
        return self.held + Amount(tokens=self.total.usage.fresh, micro_usd=self.total.cost_micro_usd or 0)

    @property
    def model_substitutions(self) -> list[str]:
        """Requested models and the models that answered instead, in words."""
        named: dict[str, dict[str, None]] = {}
        for line in self.lines:
            if line.answered_by:
                named.setdefault(line.model, {}).update(dict.fromkeys(line.answered_by))
        return [
            f"the model {asked} was requested, but the replies name {', '.join(names)}"
            for asked, names in named.items()
        ]

    @property
    def unpriced_models(self) -> tuple[str, ...]:
        """Models without a known price, including those of calls without a reply.

        A model that was ever priced is excluded.
        """
        priced = {OFFLINE_MODEL, *(line.model for line in self.lines if line.cost_micro_usd is not None)}
        charged = [line.model for line in self.lines if line.cost_micro_usd is None]
        silent = [call.intent.model for call in self.possibly_billed if not call.intent.worst_case.micro_usd]
        return tuple(dict.fromkeys([*charged, *(model for model in silent if model not in priced)]))


class TaskCharges(Value):
    """All calls of a task that were or may have been paid for, in store order."""

    paid: tuple[AgentCharge, ...] = ()
    unanswered: tuple[UnansweredCall, ...] = ()
    reused: ReusedWork | None = None
    """Work of another task that counts as done in this one."""

    @property
    def cost_breakdown(self) -> CostBreakdown:
        """The cost breakdown of these charges."""
        return build_cost_breakdown(self.paid, self.unanswered).replace(reused=self.reused)


def build_cost_breakdown(paid: Sequence[AgentCharge], unanswered: Sequence[UnansweredCall] = ()) -> CostBreakdown:
    """Build the cost breakdown of these charges, in commit order."""
    groups: dict[tuple[str, str, str], list[Charge]] = {}
    for entry in paid:
        groups.setdefault((entry.agent, entry.charge.model, entry.charge.kind), []).append(entry.charge)
    agents = list(dict.fromkeys(entry.agent for entry in paid))
    in_order = sorted(groups.items(), key=lambda group: agents.index(group[0][0]))
    summaries = [entry for entry in paid if entry.charge.kind == "summary"]
    return CostBreakdown(
        lines=tuple(_line(*key, charges) for key, charges in in_order),
        compactions=tuple(
            _line(entry.agent, entry.charge.model, entry.charge.key, [entry.charge]) for entry in summaries
        ),
        total=_line("", "", "", [entry.charge for entry in paid]),
        possibly_billed=tuple(unanswered),
    )


def _line(agent: str, model: str, kind: str, charges: Sequence[Charge]) -> CostLine:
    costs = [charge.cost_micro_usd for charge in charges]
    return CostLine(
        agent=agent,
        model=model,
        kind=kind,
        calls=len(charges),
        usage=sum((charge.usage for charge in charges), Usage()),
        cost_micro_usd=None if None in costs else sum(cost or 0 for cost in costs),
        answered_by=tuple(dict.fromkeys(charge.answered_by for charge in charges if model and charge.answered_by)),
        dropped_thinking=sum(charge.dropped_thinking for charge in charges),
        cache_misses=dict(Counter(charge.cache_miss for charge in charges if charge.cache_miss)),
        waited_ms=sum(charge.waited_ms for charge in charges),
    )


DEFAULT_DAYS, MAX_DAYS = 30, 366
MAX_SPENDING_LINES = 20_000


class DayRange(Value):
    """A range of days in UTC, with both ends included."""

    since: date
    until: date

    @classmethod
    def resolve(cls, since: date | None, until: date | None, today: date) -> "DayRange":
        """Resolve the given days; by default the last thirty up to today, or up to `until`. Raises BadInput."""
        last = today if until is None else min(until, today)
        earliest = max(0, last.toordinal() - DEFAULT_DAYS)
        first = date.fromordinal(earliest + 1) if since is None else since
        if first > last:
            raise BadInput(f"the first day, {first}, is after the last day, {last}: give an earlier first day")
        if (last - first).days >= MAX_DAYS:
            raise BadInput(f"{first} to {last} is more than {MAX_DAYS} days: request fewer days")
        return cls(since=first, until=last)

    @property
    def start_time(self) -> datetime:
        """Start of the first day."""
        return datetime(self.since.year, self.since.month, self.since.day, tzinfo=UTC)

    @property
    def end_time(self) -> datetime:
        """End of the last day (exclusive)."""
        return self.start_time + timedelta(days=len(self.dates))

    @property
    def dates(self) -> tuple[date, ...]:
        """All days, in order."""
        return tuple(map(date.fromordinal, range(self.since.toordinal(), self.until.toordinal() + 1)))


class SpendingLine(Value):
    """What the agents of one role in one task have spent on one model in one day."""

    day: date
    task_id: str
    role: str
    model: str
    calls: int = 0
    usage: Usage = Usage()
    cost_micro_usd: int = 0
    """Cost of the calls whose price is known."""
    unpriced_calls: int = 0
    """Number of calls without a known price, which are not in the cost."""
    possibly_billed: Amount = Amount()
    """Maximum cost of calls whose reply was never committed. In no other number here."""
    session: str = ""
    """Name of the task's session."""

    def __add__(self, other: "SpendingLine") -> "SpendingLine":
        """Return the sum, with the names of the first."""
        return self.replace(
            calls=self.calls + other.calls,
            usage=self.usage + other.usage,
            cost_micro_usd=self.cost_micro_usd + other.cost_micro_usd,
            unpriced_calls=self.unpriced_calls + other.unpriced_calls,
            possibly_billed=self.possibly_billed + other.possibly_billed,
        )


class SpendingReport(Value):
    """What the tasks of a tenant or of a session have spent in a range of days."""

    days: DayRange
    lines: tuple[SpendingLine, ...]
    """By day, task, role and model, in this order."""
    titles: Mapping[str, str]
    """The redacted questions, shortened, by task ID."""
    total: SpendingLine


SpendingGrouping = Literal["task", "agent", "model", "session"]
_Key = TypeVar("_Key", str, tuple[date, str, str, str])


def group_spending(lines: Iterable[SpendingLine], by: SpendingGrouping) -> dict[str, SpendingLine]:
    """Add up the lines by task ID, role, model or session."""
    return _added_up(
        lines,
        lambda line: {"task": line.task_id, "agent": line.role, "model": line.model, "session": line.session}[by],
    )


def list_spending_groups(lines: Iterable[SpendingLine], by: SpendingGrouping) -> list[tuple[str, SpendingLine]]:
    """Return the sums of `group_spending`, the highest cost first."""
    return sorted(
        group_spending(lines, by).items(), key=lambda item: (-item[1].cost_micro_usd, -item[1].usage.fresh, item[0])
    )


def _added_up(lines: Iterable[SpendingLine], key: Callable[[SpendingLine], _Key]) -> dict[_Key, SpendingLine]:
    found: dict[_Key, SpendingLine] = {}
    for line in lines:
        found[of] = found[of] + line if (of := key(line)) in found else line
    return found


def build_spending_report(days: DayRange, spent: Sequence[SpendingLine], titles: Mapping[str, str]) -> SpendingReport:
    """Build the report: one line per day, task, role and model. Raises BadInput for more than can be shown."""
    if len(spent) > MAX_SPENDING_LINES:
        raise BadInput(
            f"from {days.since} to {days.until} there are more than {MAX_SPENDING_LINES:,} lines of spending: "
            "request fewer days, or one session"
        )
    found = _added_up(spent, lambda line: (line.day, line.task_id, line.role, line.model))
    total = sum(found.values(), SpendingLine(day=days.since, task_id="", role="", model=""))
    return SpendingReport(days=days, lines=tuple(found[key] for key in sorted(found)), titles=titles, total=total)


class SessionSummary(Value):
    """A session, with what its tasks have spent together."""

    session: str
    """Its name."""
    first_title: str = ""
    """Title of its first task."""
    id: str
    """Its ID in search attributes and workflow IDs."""
    tasks: int
    """Number of tasks, without rejected ones."""
    refused: int = 0
    """Number of tasks that it rejected."""
    last_at: datetime
    """When the newest task was submitted."""
    spent: Amount
    """Fresh tokens, and cost where the price is known."""
    held: Amount = Amount()
    """Reserved for its running tasks; what they have spent of it is also in `spent`."""
    limit: Limit = Limit()
    """Limit of all its tasks together."""
    unpriced_calls: int
