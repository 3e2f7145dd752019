"""Questions that come back: what is asked again and again, what becomes of each time, and what a server may know of it.

A schedule's id is what its tasks' request ids begin with, and the scheduled time ends them: the same time is the same
task, however often it is tried.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from waystation.documents.documents import Document, SkippedItem, SourceDocument
from waystation.kernel.amount import Amount, Limit, format_amount, format_limit
from waystation.kernel.ids import short_hash
from waystation.kernel.refs import TaskRef
from waystation.kernel.temporal_names import SCHEDULE_ID_PREFIX
from waystation.kernel.text import FORGOTTEN
from waystation.kernel.value import Value
from waystation.tasks.task import TaskConfig, TaskPhase, TaskRequest, TaskRow, tenant_hash

DEFAULT_MAX_FAILURES = 3
"""After so many a schedule pauses itself."""
DEFAULT_CATCH_UP = timedelta(days=1)
"""What was missed longer ago is not made up for."""
DEFAULT_NAME_DIGITS = 8
"""Hexadecimal digits in the name of a schedule that nobody named."""

Overlap = Literal["skip", "buffer-one", "buffer-all", "allow-all"]
"""What happens at a time while an earlier run is under way, in Temporal's words."""


class ScheduleTiming(Value):
    """When a schedule runs. All of it stands on the Temporal server in plain text."""

    cron: str
    zone: str = "UTC"
    overlap: Overlap = "skip"
    catch_up: timedelta = Field(default=DEFAULT_CATCH_UP, ge=timedelta(seconds=10), le=timedelta(days=365))


class ScheduleDefinition(Value):
    """What is asked for again and again. The store has it; the server has its hash."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,59}$")]
    """Unique in its tenant. It stands on the server in plain text, as a part of ids."""
    request: TaskRequest
    """Of each run, but for its request id."""
    paths: tuple[str, ...]
    """Absolute, on the machines of the workers."""
    timing: ScheduleTiming
    monthly: Limit = Limit()
    """What all its runs of a calendar month (UTC) may spend together."""
    failures: int = Field(default=DEFAULT_MAX_FAILURES, ge=1, le=1_000)

    @property
    def schedule_id(self) -> str:
        """Of the schedule on the server, and what the ids of its runs begin with."""
        return make_schedule_id(self.request.tenant, self.name)


def make_schedule_id_prefix(tenant: str) -> str:
    """What the ids of all schedules of a tenant begin with."""
    return f"{SCHEDULE_ID_PREFIX}{tenant_hash(tenant)}-"


def make_schedule_id(tenant: str, name: str) -> str:
    """The schedule of this name."""
    return make_schedule_id_prefix(tenant) + name


def make_default_schedule_name(request: TaskRequest, paths: Sequence[str]) -> str:
    """The name of a schedule that nobody named: that of the same question, in the same session, about the same files is
    the same.
    """
    return short_hash("schedule", request.session, request.question, *paths)[:DEFAULT_NAME_DIGITS]


class MonthlyBudget(Value):
    """What the runs of a schedule may spend in a calendar month (UTC), and what those of it have spent or may spend."""

    schedule_id: str
    limit: Limit
    at: datetime
    """A moment of the month."""
    counted: Mapping[str, Amount]
    """By task id. A run that is not among them was registered meanwhile and counts with its whole budget."""

    def find_overrun_reason(self, rows: Sequence[TaskRow], budget: Limit) -> str:
        """Why another run with this budget would pass the limit, beside these tasks of the session; empty if not."""
        own = [
            row
            for row in filter_schedule_rows(rows, self.schedule_id)
            if is_in_month(row, self.at) and not row.was_refused
        ]
        held = [self.counted.get(row.ref.task_id, row.terms.budget.amount) for row in own]
        return find_month_overrun_reason(self.limit, sum(held, Amount()), budget)


class ScheduledRunOrder(Value):
    """One run of a schedule: references and numbers."""

    own: TaskRef
    """Tenant and session of its tasks, and in the place of a task the schedule, whose text the wish is."""
    wish: str
    """Content hash."""
    request_id: str = ""
    """Schedule and scheduled time."""


class ScheduledRunInput(Value):
    """Input of the workflow of one run."""

    order: ScheduledRunOrder
    failures: int
    """In a row, after which the schedule pauses itself."""
    task: TaskRef | None = None
    """What the run waits for, where it goes on from an earlier execution."""
    before: int | None = None
    """Failures in a row up to the run before, where it goes on so."""


class ScheduledRunOutcome(Value):
    """How a run ended that did not fail. Its failure says how one did."""

    outcome: TaskPhase | Literal["unchanged", "over the month"]
    task_id: str = ""
    reason: str = ""

    @property
    def text(self) -> str:
        """As people read it."""
        return ", ".join(filter(None, (self.outcome, self.task_id, self.reason)))


class ScheduledRunBeginning(Value):
    """What became of a run that was to begin."""

    how: TaskRef | ScheduledRunOutcome
    """Its task, or how it ended without one."""


class ScheduledTaskStatus(Value):
    """A task that a run waits for."""

    over: bool
    phase: TaskPhase | None = None
    """None of one that was terminated."""


class PauseScheduleRequest(Value):
    """Which schedule pauses itself, and after how many failures in a row."""

    schedule_id: str
    failures: int


def format_pause_note(order: PauseScheduleRequest) -> str:
    """What stands on the server in plain text: no word of a question, no path."""
    return f"paused itself after {order.failures} failures in a row: see why in its last run, then resume it"


class ScheduleView(Value):
    """A schedule as the server knows it."""

    schedule_id: str
    order: ScheduledRunOrder
    paused: bool
    note: str = ""
    next_run: datetime | None = None
    last_run: datetime | None = None
    last: str = ""
    """What became of the last run, as far as the server still has it."""
    running: bool = False
    skipped: int = 0
    """Times at which an earlier run was under way."""
    missed: int = 0
    """Times before the catch-up window."""


class ScheduleDocuments(Value):
    """The documents of a schedule as they are now."""

    documents: tuple[SourceDocument, ...]
    left_out: tuple[SkippedItem, ...] = ()


# ------------------------------------------------------------------------------------------------------- decisions


def make_run_request_id(schedule: str, workflow_id: str) -> str:
    """Of the task of one run, whose workflow id is the schedule's with the scheduled time, after the prefix of the
    installation. No name has an @.
    """
    return f"{schedule}@{workflow_id.rpartition(f'{schedule}-')[2]}"


def make_run_workflow_id(schedule: str, request_id: str) -> str:
    """Workflow id of the run that has registered the task of this request: the reverse of `make_run_request_id`."""
    return f"{schedule}-{request_id.removeprefix(f'{schedule}@')}"


def filter_schedule_rows(rows: Sequence[TaskRow], schedule: str) -> tuple[TaskRow, ...]:
    """Those of the session's tasks, newest first, that this schedule has asked for."""
    return tuple(row for row in rows if row.request.request_id.startswith(f"{schedule}@"))


def is_in_month(row: TaskRow, now: datetime) -> bool:
    """Whether the task was handed in in the calendar month of that moment."""
    return (row.submitted_at.year, row.submitted_at.month) == (now.year, now.month)


def format_unit_mismatch(monthly: Limit, budget: Limit) -> str:
    """Why a ceiling cannot be held: of a run without a limit in its unit, nobody knows what it may spend."""
    return (
        f"a month's ceiling of {format_limit(monthly)} needs a budget of each run in the same unit, and that is "
        f"{format_limit(budget)}"
    )


def find_month_overrun_reason(monthly: Limit, spent: Amount, budget: Limit) -> str:
    """Why a run with this budget would take the month over its ceiling; empty where it fits."""
    if not budget.limits_units_of(monthly):
        return format_unit_mismatch(monthly, budget)
    if monthly.can_cover(spent + budget.amount):
        return ""
    return (
        f"this month's runs have spent or hold {format_amount(spent)}, and another {format_limit(budget)} would pass "
        "the "
        f"ceiling of {format_limit(monthly)} a month"
    )


def find_last_reported_task(rows: Sequence[TaskRow], question: str) -> TaskRow | None:
    """The newest of these, newest first, whose report the next one is compared with: it is about the same question."""
    return next((row for row in rows if _readable(row) and row.request.question == question), None)


def would_repeat(last: TaskRow, new: TaskRow, listed: Sequence[Document], given: Sequence[SourceDocument]) -> bool:
    """Whether a new task would do what the last one did: same request, terms and documents, and that one is done."""
    return (
        last.progress is not None
        and last.progress.phase is TaskPhase.DONE
        and _asked(last) == _asked(new)
        and {(one.name, one.blob) for one in listed} == {(one.name, _digest(one.text)) for one in given}
    )


def _readable(row: TaskRow) -> bool:
    return row.title != FORGOTTEN and row.progress is not None and row.progress.shown_report is not None


def _asked(row: TaskRow) -> tuple[TaskRequest, TaskConfig]:
    """But for what is different each time: its id, the report before it, a floor that grows with earlier reports."""
    request = row.request.replace(request_id="", since=None)
    return request, row.terms.replace(floor=None)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
