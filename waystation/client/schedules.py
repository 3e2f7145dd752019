"""Schedules, on which a question is asked again and again: what is asked is in the store, when it is asked on the
server.
"""

from waystation.client.store_queries import require_same_tenant
from waystation.client.submission import prepare_task_row
from waystation.config.settings import Settings
from waystation.documents.text_repository import content_hash
from waystation.kernel.amount import Amount
from waystation.kernel.errors import BadInput, TextNotFoundError
from waystation.kernel.scopes import TenantScope
from waystation.kernel.value import Value
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.temporal.schedule_client import TemporalScheduleClient
from waystation.tasks.schedules import (
    ScheduleDefinition,
    ScheduledRunInput,
    ScheduledRunOrder,
    ScheduleView,
    find_month_overrun_reason,
    format_unit_mismatch,
    make_schedule_id,
    make_schedule_id_prefix,
)
from waystation.tasks.task import build_reader_scope


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

    async def add(self, definition: ScheduleDefinition) -> ScheduleDescription:
        """Create a schedule. Nothing is stored of one that is refused.

        Raises:
            BadInput: The configuration cannot work, the name is taken, or the times cannot be parsed.
        """
        require_same_tenant(definition.request, self._settings.tenant)
        row = await prepare_task_row(self._settings, self._store, definition.request)
        if not row.config.budget.limits_units_of(definition.monthly):
            raise BadInput(
                f"{format_unit_mismatch(definition.monthly, row.config.budget)}: give --budget in the unit of --monthly"
            )
        if find_month_overrun_reason(definition.monthly, Amount(), row.config.budget):
            raise BadInput("--monthly is lower than --budget, which each run may spend: no run would ever start")
        text = definition.model_dump_json()
        own = row.ref.replace(task_id=definition.schedule_id)
        order = ScheduledRunOrder(session_ref=own, definition=content_hash(text))
        await self._temporal.create(ScheduledRunInput(order=order, max_failures=definition.failures), definition.timing)
        await self._store.put_text(text, own.scope)
        await self._temporal.resume(definition.schedule_id, "added")
        known = await self._known(await self._temporal.get_schedule(definition.schedule_id))
        if known.view.next_run is None:
            await self.remove(definition.name)
            raise BadInput(
                f"--cron {definition.timing.cron!r} names a time that never comes. The schedule was not added"
            )
        return known

    async def list(self) -> tuple[ScheduleDescription, ...]:
        """Return all schedules of the tenant in this store, by name. One that was just removed may still be listed."""
        listed = await self._temporal.list_schedule_ids(make_schedule_id_prefix(self._settings.tenant))
        found = [seen for one in listed if (seen := await self._temporal.find_schedule(one)) is not None]
        store_id = await self._store.get_store_id()
        return tuple([await self._known(seen) for seen in found if seen.order.session_ref.store_id == store_id])

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
        try:
            text = await self._store.get_text(view.order.definition, self._reader)
        except TextNotFoundError:
            return ScheduleDescription(name=name, view=view)
        return ScheduleDescription(name=name, view=view, definition=ScheduleDefinition.model_validate_json(text))
