"""Schedules, on which a question is asked again and again: what is asked is in the store, when it is asked on the
server.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import cast

from waystation.budgets.budget import BudgetMode
from waystation.client.store_queries import require_same_tenant
from waystation.client.submission import prepare_task_row
from waystation.config.settings import Settings
from waystation.documents.text_repository import content_hash
from waystation.kernel.amount import Amount, format_limit
from waystation.kernel.errors import InvalidFieldError, TextNotFoundError
from waystation.kernel.scopes import TenantScope
from waystation.kernel.value import Value
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.temporal.schedule_client import TemporalScheduleClient
from waystation.tasks.schedules import (
    ScheduleDefinition,
    ScheduledRunInput,
    ScheduledRunOrder,
    ScheduleView,
    filter_schedule_rows,
    find_month_overrun_reason,
    format_unit_mismatch,
    make_default_schedule_name,
    make_schedule_id,
    make_schedule_id_prefix,
)
from waystation.tasks.task import TaskPhase, TaskRequest, build_reader_scope, make_own_session_name

LISTED_TASKS = 5
"""Maximum tasks of a schedule that are listed."""
RECENT_TASKS = 100
"""Newest tasks of a session among which they are searched."""


class ScheduledTask(Value):
    """A task that a run of a schedule started."""

    task_id: str
    submitted_at: datetime
    phase: TaskPhase
    """As last stored."""


class ScheduleDescription(Value):
    """A schedule with its question."""

    name: str
    view: ScheduleView
    definition: ScheduleDefinition | None = None
    """None if the store does not have it."""


class ScheduleClient:
    """The schedules of one tenant. Every method raises Unreachable if the server does not answer."""

    def __init__(self, settings: Settings, store: SqlStore, temporal: TemporalScheduleClient) -> None:
        self._settings, self._store, self._temporal = settings, store, temporal
        self._reader: TenantScope = build_reader_scope(settings.tenant)

    async def add(self, definition: ScheduleDefinition, *, repeated: bool = False) -> ScheduleDescription:
        """Create a schedule. Nothing is stored of one that is refused.

        Args:
            definition: What is asked, and when.
            repeated: Whether the same definition may come again, like a form that is sent twice: it is one schedule.

        Raises:
            BadInput: The configuration cannot work, the name is taken, or the times cannot be parsed.
        """
        require_same_tenant(definition.request, self._settings.tenant)
        row = await prepare_task_row(self._settings, self._store, definition.request)
        if not row.config.budget.limits_units_of(definition.monthly):
            mismatch = format_unit_mismatch(definition.monthly, row.config.budget)
            raise InvalidFieldError("monthly", f"{mismatch}: give both in the same unit")
        if find_month_overrun_reason(definition.monthly, Amount(), row.config.budget):
            raise InvalidFieldError(
                "monthly", "the budget of a month is lower than the budget of one run, so no run would ever start"
            )
        text = definition.model_dump_json()
        own = row.ref.replace(task_id=definition.schedule_id)
        order = ScheduledRunOrder(session_ref=own, definition=content_hash(text))
        start = ScheduledRunInput(order=order, max_failures=definition.failures)
        try:
            await self._temporal.create(start, definition.timing)
        except InvalidFieldError as error:
            # The server has the hash of the definition from the first moment, the store its text a moment later.
            if not repeated or error.field != "name" or not await self._is_order(definition.schedule_id, order):
                raise
            known = await self._known(await self._temporal.get_schedule(definition.schedule_id))
            if known.definition is not None:
                return known
        await self._store.put_text(text, own.scope)
        await self._temporal.resume(definition.schedule_id, "added")
        known = await self._known(await self._temporal.get_schedule(definition.schedule_id))
        if known.view.next_run is None:
            await self.remove(definition.name)
            raise InvalidFieldError(
                "cron", f"no date ever matches {definition.timing.cron!r}. The schedule was not added"
            )
        return known

    async def _is_order(self, schedule_id: str, order: ScheduledRunOrder) -> bool:
        found = await self._temporal.find_schedule(schedule_id)
        return found is not None and found.order == order

    async def list(self) -> tuple[ScheduleDescription, ...]:
        """Return all schedules of the tenant in this store, by name. One that was just removed may still be listed."""
        listed = await self._temporal.list_schedule_ids(make_schedule_id_prefix(self._settings.tenant))
        found = [seen for one in listed if (seen := await self._temporal.find_schedule(one)) is not None]
        store_id = await self._store.get_store_id()
        return tuple([await self._known(seen) for seen in found if seen.order.session_ref.store_id == store_id])

    async def get(self, name: str) -> ScheduleDescription:
        """Return one schedule as it is now. Raises BadInput for an unknown name."""
        return await self._known(await self._temporal.get_schedule(self._id(name)))

    async def list_tasks(self, schedule: ScheduleView) -> tuple[ScheduledTask, ...]:
        """Return the newest tasks of a schedule's runs, newest first."""
        reader = schedule.order.session_ref.scope.get_recall_scope("session")
        rows = filter_schedule_rows(await self._store.list_tasks(reader, RECENT_TASKS), schedule.schedule_id)
        return tuple(
            ScheduledTask(
                task_id=row.ref.task_id,
                submitted_at=row.submitted_at,
                phase=row.progress.phase if row.progress is not None else TaskPhase.SUBMITTED,
            )
            for row in rows[:LISTED_TASKS]
        )

    async def pause(self, name: str, note: str) -> None:
        """Pause runs until someone resumes the schedule; a run in progress continues.

        Raises BadInput for an unknown name.
        """
        await self._temporal.pause(self._id(name), note)

    async def resume(self, name: str, note: str) -> None:
        """Resume a paused schedule. Raises BadInput for an unknown name."""
        await self._temporal.resume(self._id(name), note)

    async def trigger(self, name: str) -> bool:
        """Request a run now. Returns False if one is in progress. Raises BadInput for an unknown name."""
        return await self._temporal.run(self._id(name))

    async def remove(self, name: str) -> None:
        """Remove a schedule and its question.

        Tasks stay, and a run in progress continues. Raises BadInput for an unknown name.
        """
        seen = await self._temporal.get_schedule(self._id(name))
        await self._temporal.remove(seen.schedule_id)
        await self._store.release_task_texts(seen.order.session_ref.scope)

    def _id(self, name: str) -> str:
        return make_schedule_id(self._settings.tenant, name)

    async def _known(self, view: ScheduleView) -> ScheduleDescription:
        name = view.schedule_id.removeprefix(make_schedule_id_prefix(self._settings.tenant))
        known = ScheduleDescription(name=name, view=view)
        try:
            text = await self._store.get_text(view.order.definition, self._reader)
        except TextNotFoundError:
            return known
        return known.replace(definition=ScheduleDefinition.model_validate_json(text))


class ScheduleJson(Value):
    """A schedule for programs. If the store does not have its question, the texts are empty."""

    name: str
    question: str
    session: str
    documents: tuple[str, ...]
    servers: tuple[str, ...] | None
    """None if each run uses those of the session's newest task."""
    procedures: tuple[str, ...]
    """Names of the procedures that agents follow, including skills."""
    cron: str
    zone: str
    budget: str
    mode: BudgetMode | None
    """What happens when the budget is spent; None if the settings of the workers decide."""
    monthly: str
    paused: bool
    note: str
    next_run: datetime | None
    last_run: datetime | None
    last: str
    running: bool
    skipped: int
    missed: int


def build_schedule_json(schedule: ScheduleDescription) -> ScheduleJson:
    """Build the JSON, with stable keys."""
    definition, view = schedule.definition, schedule.view
    return ScheduleJson(
        name=schedule.name,
        question=definition.request.question if definition is not None else "",
        session=definition.request.session if definition is not None else "",
        documents=definition.paths if definition is not None else (),
        servers=definition.request.servers if definition is not None else None,
        procedures=tuple(one.name for one in definition.request.procedures) if definition is not None else (),
        cron=definition.timing.cron if definition is not None else "",
        zone=definition.timing.zone if definition is not None else "",
        budget=format_run_budget(definition),
        mode=definition.request.mode if definition is not None else None,
        monthly=format_limit(definition.monthly) if definition is not None else "",
        paused=view.paused,
        note=view.note,
        next_run=view.next_run,
        last_run=view.last_run,
        last=view.last,
        running=view.running,
        skipped=view.skipped,
        missed=view.missed,
    )


def format_run_budget(definition: ScheduleDefinition | None) -> str:
    """Format the budget of each run; empty if it is unknown."""
    if definition is None:
        return ""
    return format_limit(definition.request.budget) if definition.request.budget is not None else "the default budget"


OWN_SESSION = "a session of its own"
"""Stands for the session of a schedule for which none was named."""


def build_schedule_definition(given: Mapping[str, object], request: TaskRequest) -> ScheduleDefinition:
    """Build a schedule, in a session of its own if the request has `OWN_SESSION`.

    Args:
        given: Fields of the schedule. A name of None is made from question, session and paths.
        request: Request of each run.

    Raises:
        ValidationError: A field cannot be used.
    """
    paths = given["paths"]
    name = given["name"]
    if name is None and isinstance(paths, tuple):
        name = make_default_schedule_name(request, [str(path) for path in cast("tuple[object, ...]", paths)])
    own = make_own_session_name(f"schedule {name}")
    session = own if request.session == OWN_SESSION else request.session
    return ScheduleDefinition.model_validate({**given, "name": name, "request": request.replace(session=session)})
