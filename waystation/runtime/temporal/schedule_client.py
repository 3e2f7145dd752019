"""Schedules on a Temporal server: created, listed, paused, triggered, removed. What they ask is in the store.

The server has in plain text: ids, and so the name; cron, zone, overlap and catch-up; whether it is paused, and its
note.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionExecutionStartWorkflow,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleDescription,
    ScheduleHandle,
    ScheduleInfo,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleState,
    WorkflowExecutionStatus,
    WorkflowFailureError,
)
from temporalio.common import Priority
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from waystation.kernel.errors import BadInput, InvalidFieldError, Unreachable
from waystation.kernel.temporal_names import (
    SCHEDULED_RUN_WORKFLOW,
    SCHEDULED_TASK_PRIORITY,
    WORKFLOWS_QUEUE,
    add_installation_prefix,
)
from waystation.runtime.temporal.connect import RPC_TIMEOUT, TemporalTarget, connect_as_person, describe_latest_run
from waystation.runtime.temporal.installation import get_client_installation_prefix
from waystation.tasks.schedules import Overlap, ScheduledRunInput, ScheduledRunOutcome, ScheduleTiming, ScheduleView

OVERLAPS: Mapping[Overlap, ScheduleOverlapPolicy] = {
    "skip": ScheduleOverlapPolicy.SKIP,
    "buffer-one": ScheduleOverlapPolicy.BUFFER_ONE,
    "buffer-all": ScheduleOverlapPolicy.BUFFER_ALL,
    "allow-all": ScheduleOverlapPolicy.ALLOW_ALL,
}
MAX_JITTER = timedelta(seconds=50)
"""Maximum jitter of a run's start, so that schedules due together spread out. The server derives it from the id."""
BEING_STORED = "the question is being stored"


class TemporalScheduleClient:
    """Schedules on one server. Every method raises Unreachable if it does not answer."""

    def __init__(self, client: Client, target: TemporalTarget) -> None:
        self._client, self._target = client, target

    @classmethod
    async def connect(cls, target: TemporalTarget, converter: DataConverter) -> "TemporalScheduleClient":
        """Connect as `TemporalTaskClient` does."""
        return cls(await connect_as_person(target, converter), target)

    async def create(self, start: ScheduledRunInput, timing: ScheduleTiming) -> None:
        """Create a schedule, paused: it runs once `resume` is called. Of two concurrent calls the server accepts one.

        Raises:
            BadInput: The name is taken, or the server cannot parse the cron expression or time zone.
        """
        name = start.order.session_ref.task_id
        action = ScheduleActionStartWorkflow(  # pyright: ignore[reportUnknownMemberType]: an overload has a bare ParamSpec
            SCHEDULED_RUN_WORKFLOW,
            start,
            id=name,
            task_queue=WORKFLOWS_QUEUE,
            priority=Priority(priority_key=SCHEDULED_TASK_PRIORITY, fairness_key=start.order.session_ref.tenant),
        )
        schedule = Schedule(
            action=action,
            spec=ScheduleSpec(cron_expressions=[timing.cron], time_zone_name=timing.zone, jitter=MAX_JITTER),
            policy=SchedulePolicy(overlap=OVERLAPS[timing.overlap], catchup_window=timing.catch_up),
            state=ScheduleState(paused=True, note=BEING_STORED),
        )
        try:
            async with self._answering(name):
                await self._client.create_schedule(name, schedule, rpc_timeout=RPC_TIMEOUT)
        except ScheduleAlreadyRunningError:
            raise InvalidFieldError(
                "name",
                "a schedule with this name, or with the same question about the same files, exists already: give "
                "another name, or remove the existing schedule first",
            ) from None
        except RPCError as error:
            if error.status != RPCStatusCode.INVALID_ARGUMENT:
                raise
            raise InvalidFieldError(
                "cron",
                f"the times {timing.cron!r} in the zone {timing.zone!r} cannot be used ({error.message}): give five "
                "fields, like '0 7 * * 1' for Mondays at seven, and a zone like Europe/Oslo",
            ) from None

    async def pause(self, schedule_id: str, note: str) -> None:
        """Pause a schedule. Raises BadInput if there is none."""
        async with self._answering(schedule_id):
            await self._handle(schedule_id).pause(note=note, rpc_timeout=RPC_TIMEOUT)

    async def resume(self, schedule_id: str, note: str) -> None:
        """Resume a schedule. Raises BadInput if there is none."""
        async with self._answering(schedule_id):
            await self._handle(schedule_id).unpause(note=note, rpc_timeout=RPC_TIMEOUT)

    async def run(self, schedule_id: str) -> bool:
        """Request a run now. Returns False if one is in progress: the overlap policy then applies. Raises BadInput."""
        async with self._answering(schedule_id):
            handle = self._handle(schedule_id)
            busy = bool((await handle.describe(rpc_timeout=RPC_TIMEOUT)).info.running_actions)
            await handle.trigger(rpc_timeout=RPC_TIMEOUT)
        return not busy

    async def remove(self, schedule_id: str) -> None:
        """Remove a schedule; a run in progress continues. Raises BadInput if there is none."""
        async with self._answering(schedule_id):
            await self._handle(schedule_id).delete(rpc_timeout=RPC_TIMEOUT)

    async def get_schedule(self, schedule_id: str) -> ScheduleView:
        """Return the schedule as it is now. Raises BadInput if there is none."""
        async with self._answering(schedule_id):
            return await self._seen(schedule_id, await self._handle(schedule_id).describe(rpc_timeout=RPC_TIMEOUT))

    async def find_schedule(self, schedule_id: str) -> ScheduleView | None:
        """Return the schedule as it is now; None if there is none."""
        with suppress(BadInput):
            return await self.get_schedule(schedule_id)
        return None

    async def list_schedule_ids(self, beginning: str) -> tuple[str, ...]:
        """Return ids with this prefix. The list lags a moment behind the server."""
        async with self._answering():
            listed = await self._client.list_schedules(rpc_timeout=RPC_TIMEOUT)
            prefix = get_client_installation_prefix(self._client)
            begins = add_installation_prefix(prefix, beginning)
            return tuple(sorted([one.id.removeprefix(prefix) async for one in listed if one.id.startswith(begins)]))

    def _handle(self, schedule_id: str) -> ScheduleHandle:
        return self._client.get_schedule_handle(schedule_id)

    async def _seen(self, schedule_id: str, described: ScheduleDescription) -> ScheduleView:
        action, info = described.schedule.action, described.info
        assert isinstance(action, ScheduleActionStartWorkflow)
        (start,) = await described.data_converter.decode(list(action.args), [ScheduledRunInput])
        last = info.recent_actions[-1] if info.recent_actions else None
        return ScheduleView(
            schedule_id=schedule_id,
            order=start.order,
            paused=described.schedule.state.paused,
            note=described.schedule.state.note or "",
            next_run=next(iter(info.next_action_times), None),
            last_run=last.scheduled_at if last is not None else None,
            last=await self._last(info),
            running=bool(info.running_actions),
            skipped=info.num_actions_skipped_overlap,
            missed=info.num_actions_missed_catchup_window,
        )

    async def _last(self, info: ScheduleInfo) -> str:
        """Return the outcome of the last run; empty if the server no longer has it."""
        action = info.recent_actions[-1].action if info.recent_actions else None
        if not isinstance(action, ScheduleActionExecutionStartWorkflow):
            return ""
        found = await describe_latest_run(self._client, action.workflow_id)
        if found is None:
            return ""
        if found.status == WorkflowExecutionStatus.RUNNING:
            return "under way"
        handle = self._client.get_workflow_handle(action.workflow_id, result_type=ScheduledRunOutcome)
        with suppress(RPCError):
            try:
                return (await handle.result(rpc_timeout=RPC_TIMEOUT)).text
            except WorkflowFailureError as error:
                cause = error.cause
                return f"failed: {cause.message if isinstance(cause, ApplicationError) else cause}"
        return ""

    @asynccontextmanager
    async def _answering(self, schedule_id: str | None = None) -> AsyncGenerator[None]:
        try:
            yield
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND and schedule_id is not None:
                raise BadInput("there is no schedule with this name: `waystation schedule list` shows all") from error
            if error.status == RPCStatusCode.INVALID_ARGUMENT:
                raise
            raise Unreachable(
                f"the Temporal server at {self._target.address} does not answer ({error.status.name})"
            ) from error


async def pause_schedule(client: Client, schedule_id: str, note: str) -> None:
    """Pause a schedule, unless it was removed. Raises RPCError."""
    try:
        await client.get_schedule_handle(schedule_id).pause(note=note, rpc_timeout=RPC_TIMEOUT)
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
