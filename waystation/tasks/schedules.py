"""Schedules: recurring questions, their runs, and what the Temporal server may know of them.

The request IDs of a schedule's tasks consist of its ID and the scheduled time: the same time is the same task, however
often it is tried.
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
"""Number of failures after which a schedule pauses itself."""
DEFAULT_CATCH_UP = timedelta(days=1)
"""Runs missed longer ago than this are not made up for."""
DEFAULT_NAME_DIGITS = 8
"""Hexadecimal digits in the name of a schedule without a given name."""

Overlap = Literal["skip", "buffer-one", "buffer-all", "allow-all"]
"""What happens at a scheduled time while an earlier run is in progress, in Temporal's words."""


class ScheduleTiming(Value):
    """When a schedule runs. All of it is in plain text on the Temporal server."""

    cron: str
    zone: str = "UTC"
    overlap: Overlap = "skip"
    catch_up: timedelta = Field(default=DEFAULT_CATCH_UP, ge=timedelta(seconds=10), le=timedelta(days=365))


class ScheduleDefinition(Value):
    """What is asked repeatedly. The store has it; the server has its hash."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,59}$")]
    """Unique in its tenant. In plain text on the server, as a part of IDs."""
    request: TaskRequest
    """Request of each run, without its request ID."""
    paths: tuple[str, ...]
    """Absolute paths on the workers' machines; empty: each run uses the documents of the session's newest task."""
    timing: ScheduleTiming
    monthly: Limit = Limit()
    """Limit of all its runs of a calendar month (UTC) together."""
    failures: int = Field(default=DEFAULT_MAX_FAILURES, ge=1, le=1_000)

    @property
    def schedule_id(self) -> str:
        """ID of the schedule on the server, and prefix of the IDs of its runs."""
        return make_schedule_id(self.request.tenant, self.name)


def make_schedule_id_prefix(tenant: str) -> str:
    """Return the prefix of the IDs of a tenant's schedules."""
    return f"{SCHEDULE_ID_PREFIX}{tenant_hash(tenant)}-"


def make_schedule_id(tenant: str, name: str) -> str:
    """Return the ID of the schedule of this name."""
    return make_schedule_id_prefix(tenant) + name


def make_default_schedule_name(request: TaskRequest, paths: Sequence[str]) -> str:
    """Return the name of a schedule without a given name: the same for the same question, session and files."""
    return short_hash("schedule", request.session, request.question, *paths)[:DEFAULT_NAME_DIGITS]


class MonthlyBudget(Value):
    """Limit of a schedule's runs in a calendar month (UTC), and what the month's runs have spent or may spend."""

    schedule_id: str
    limit: Limit
    at: datetime
    """A time in the month."""
    amounts: Mapping[str, Amount]
    """Amounts by task ID. A run without one was registered meanwhile and counts with its whole budget."""

    def find_overrun_reason(self, rows: Sequence[TaskRow], budget: Limit) -> str:
        """Return why another run with this budget would exceed the limit; empty if not.

        `rows`: tasks of the session.
        """
        own = [
            row
            for row in filter_schedule_rows(rows, self.schedule_id)
            if is_in_month(row, self.at) and not row.was_refused
        ]
        held = [self.amounts.get(row.ref.task_id, row.config.budget.amount) for row in own]
        return find_month_overrun_reason(self.limit, sum(held, Amount()), budget)


class ScheduledRunOrder(Value):
    """One run of a schedule: references and numbers."""

    session_ref: TaskRef
    """Tenant and session of its tasks, with the schedule in the place of a task; owner of the text of `wish`."""
    definition: str
    """Content hash."""
    request_id: str = ""
    """Schedule and scheduled time."""


class ScheduledRunInput(Value):
    """Input of the workflow of one run."""

    order: ScheduledRunOrder
    max_failures: int
    """Number of consecutive failures after which the schedule pauses itself."""
    task: TaskRef | None = None
    """The task that the run waits for, if it continues from an earlier execution."""
    previous_failures: int | None = None
    """Consecutive failures up to the previous run, if it continues from an earlier execution."""


class ScheduledRunOutcome(Value):
    """Outcome of a run that did not fail. A failed run's outcome is its failure."""

    outcome: TaskPhase | Literal["unchanged", "over the month"]
    task_id: str = ""
    reason: str = ""

    @property
    def text(self) -> str:
        """The outcome in words."""
        outcome = "over the monthly budget" if self.outcome == "over the month" else self.outcome
        return ", ".join(filter(None, (outcome, self.task_id, self.reason)))


class ScheduledRunBeginning(Value):
    """Result of starting a run."""

    result: TaskRef | ScheduledRunOutcome
    """Its task, or the outcome without one."""


class ScheduledTaskStatus(Value):
    """Status of a task that a run waits for."""

    over: bool
    phase: TaskPhase | None = None
    """None for a terminated task."""


class PauseScheduleRequest(Value):
    """Which schedule pauses itself, and after how many consecutive failures."""

    schedule_id: str
    max_failures: int


def format_pause_note(order: PauseScheduleRequest) -> str:
    """Format the note, in plain text on the server: no word of a question, no path."""
    return (
        f"paused after {order.max_failures} failures in a row: look for the cause in the last run, then resume the "
        "schedule"
    )


class ScheduleView(Value):
    """A schedule as the server knows it."""

    schedule_id: str
    order: ScheduledRunOrder
    paused: bool
    note: str = ""
    next_run: datetime | None = None
    last_run: datetime | None = None
    last: str = ""
    """Outcome of the last run, while the server still has it."""
    running: bool = False
    skipped: int = 0
    """Number of times skipped because an earlier run was in progress."""
    missed: int = 0
    """Number of times missed beyond the catch-up window."""


class ScheduleDocuments(Value):
    """The current documents of a schedule."""

    documents: tuple[SourceDocument, ...]
    skipped_items: tuple[SkippedItem, ...] = ()


def make_run_request_id(schedule: str, workflow_id: str) -> str:
    """Return the request ID of a run's task.

    The workflow ID is the schedule's with the scheduled time, after the prefix of the installation. Names contain no
    `@`.
    """
    return f"{schedule}@{workflow_id.rpartition(f'{schedule}-')[2]}"


def make_run_workflow_id(schedule: str, request_id: str) -> str:
    """Return the workflow ID of the run that registered the task of this request.

    The inverse of `make_run_request_id`.
    """
    return f"{schedule}-{request_id.removeprefix(f'{schedule}@')}"


def filter_schedule_rows(rows: Sequence[TaskRow], schedule: str) -> tuple[TaskRow, ...]:
    """Return the session's tasks of this schedule, newest first."""
    return tuple(row for row in rows if row.request.request_id.startswith(f"{schedule}@"))


def is_in_month(row: TaskRow, now: datetime) -> bool:
    """Return whether the task was submitted in the calendar month of `now`."""
    return (row.submitted_at.year, row.submitted_at.month) == (now.year, now.month)


def format_unit_mismatch(monthly: Limit, budget: Limit) -> str:
    """Explain why a monthly limit cannot be held: a run without a limit in its unit may spend any amount."""
    return (
        f"with a monthly budget of {format_limit(monthly)}, each run needs a budget in the same unit, but its "
        f"budget is {format_limit(budget)}"
    )


def find_month_overrun_reason(monthly: Limit, spent: Amount, budget: Limit) -> str:
    """Return why a run with this budget would exceed the month's limit; empty if it fits."""
    if not budget.limits_units_of(monthly):
        return format_unit_mismatch(monthly, budget)
    if monthly.can_cover(spent + budget.amount):
        return ""
    return (
        f"this month's runs have spent or reserved {format_amount(spent)}, and another run with a "
        f"budget of {format_limit(budget)} would exceed the monthly budget of {format_limit(monthly)}"
    )


def find_last_reported_task(rows: Sequence[TaskRow], question: str) -> TaskRow | None:
    """Return the newest task (of newest first) whose report the next one is compared with: about the same question."""
    return next((row for row in rows if _readable(row) and row.request.question == question), None)


def would_repeat(last: TaskRow, new: TaskRow, listed: Sequence[Document], documents: Sequence[SourceDocument]) -> bool:
    """Return whether a new task would repeat the last one.

    The request, configuration and documents are the same, and the last one is done.
    """
    return (
        last.progress is not None
        and last.progress.phase is TaskPhase.DONE
        and _asked(last) == _asked(new)
        and {(one.name, one.blob) for one in listed} == {(one.name, _digest(one.text)) for one in documents}
    )


def _readable(row: TaskRow) -> bool:
    return row.title != FORGOTTEN and row.progress is not None and bool(row.progress.report_versions)


def _asked(row: TaskRow) -> tuple[TaskRequest, TaskConfig]:
    """Ignore what differs each time: the ID, the previous report, and a reserve that grows with earlier reports."""
    request = row.request.replace(request_id="", since=None)
    return request, row.config.replace(minimum_reserve=None)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
