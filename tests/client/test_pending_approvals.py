"""Requests that wait, as the server and the store have them."""

from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

from tests.support.finished_tasks import as_stored, store_finished_task
from waystation.client.approvals import load_pending_approvals
from waystation.config.settings import Settings
from waystation.kernel.amount import Amount
from waystation.kernel.clock import utc_now
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.task import ApprovalRequest, TaskPhase, build_reader_scope

if TYPE_CHECKING:
    from waystation.runtime.temporal.task_client import TemporalTaskClient


class LateServer:
    """A server that still lists a task as waiting, although it has no workflow of it any more."""

    def __init__(self, task_id: str) -> None:
        self._task_id = task_id

    async def list_waiting_task_ids(self) -> tuple[str, ...]:
        return (self._task_id,)

    async def query_progress(self, task_id: str) -> None:
        assert task_id == self._task_id


async def test_a_request_of_a_task_that_is_over_does_not_wait_although_the_server_still_lists_it(
    without_server: Settings,
) -> None:
    task, reader = await store_finished_task(without_server), build_reader_scope(without_server.tenant)
    server = cast("TemporalTaskClient", LateServer(task))
    asked = ApprovalRequest(
        request_id="r-1", agent="writing", requested=Amount(tokens=100), requested_at=datetime(2026, 11, 30, tzinfo=UTC)
    )
    async with aclosing(await SqlStore.open(without_server.database_url, utc_now)) as store:
        await store.add_audit_entry(task, asked)
        over = await load_pending_approvals(server, store, reader)
        row = await store.get_task(task, reader)
        await store.save_task_progress(task, as_stored(row, TaskPhase.PAUSED))
        paused = await load_pending_approvals(server, store, reader)
    assert over == ()
    assert [one.approval.request_id for one in paused] == ["r-1"]
