"""Qdrant stops in the middle of a task, in three ways: the task ends well, and its passages arrive later, once."""

import asyncio
import json
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest
from temporalio.client import Client

from tests.live.test_live_context_edits import (
    LONG,
    CompactingTaskModel,
    make_pausing_task_config,
    query_progress,
    wait_for_edit,
)
from tests.support.qdrant_server import QdrantStub, run_qdrant_server
from tests.support.scopes import SYSTEM_SCOPE
from tests.support.temporal_platform import (
    TENANT,
    TaskSubmitter,
    open_activity_deps,
    run_all_workers,
    wait_for_both_requests,
)
from waystation.cli.main import run
from waystation.context.compaction import CompactionStatus
from waystation.memory.qdrant.collection import QdrantServerConfig
from waystation.memory.qdrant.server import QdrantRetryPolicy, QdrantServerMemory
from waystation.privacy.ports import Redactor
from waystation.tasks.approvals import APPROVE_BUDGET
from waystation.tasks.task import TaskPhase

QUICK = QdrantRetryPolicy(timeout_s=0.5, pauses_s=(0.01,))


def refuses(qdrant: QdrantStub) -> None:
    qdrant.fail_next(10_000, 429)


def hangs(qdrant: QdrantStub) -> None:
    """Its work is done, and its answer comes when nobody waits for it any more."""
    qdrant.delay = 60


def fails(qdrant: QdrantStub) -> None:
    qdrant.fail_next(10_000, 500)


@pytest.mark.parametrize("stops", [refuses, hangs, fails])
async def test_the_task_ends_well_and_the_passages_arrive_afterwards_once(
    stops: Callable[[QdrantStub], None],
    server: Client,
    tmp_path: Path,
    redactor: Redactor,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    monkeypatch.setenv("WAYSTATION_TENANT", TENANT)
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.service_client.config.target_host)

    async def shown(task_id: str) -> dict[str, object]:
        capsys.readouterr()
        assert await asyncio.to_thread(run, ["show", task_id, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    with run_qdrant_server() as qdrant:
        async with open_activity_deps(tmp_path, redactor, CompactingTaskModel()) as local:
            embedder = local.embedder
            place = QdrantServerConfig(url=qdrant.url)
            async with aclosing(QdrantServerMemory.open(place, embedder.name, embedder.dimension, QUICK)) as memory:
                parts = replace(local, memory=memory)
                async with run_all_workers(server, parts):
                    counter = TaskSubmitter(server, parts.store)
                    await counter.submit(under=make_pausing_task_config(), documents=LONG)
                    task = counter.get_task_handle()
                    await wait_for_both_requests(task)
                    assert await memory.count("pilots") == 0  # it is there, until now
                    stops(qdrant)
                    assert (await wait_for_edit(task, action="compact")).state == "done"
                    (made,) = (await query_progress(task)).compactions
                    # The crew counts what it sees, and would begin again.
                    assert (await wait_for_edit(task, action="restore", compaction=made.compaction_id)).state == "done"
                    for request_id in ("harbours-1", "tides-1"):
                        await task.signal(APPROVE_BUDGET, {"request_id": request_id, "by": "Ada"})
                    ended = await task.result()
                    waiting = await parts.store.count_pending_passages()
                    kinds = [passage.kind for passage in await parts.store.list_task_passages(task.id, SYSTEM_SCOPE)]
                    assert (made.status, made.passages, ended.phase) == (
                        CompactionStatus.COMPRESSED,
                        kinds.count("conversation"),
                        TaskPhase.DONE,
                    )
                    assert {*kinds} == {"conversation", "report", "finding"}
                    assert waiting == len(kinds)
                    assert (await shown(task.id))["passages_pending"] == waiting
                    (aside, *_) = [one.id for one in (await parts.store.load_outbox_batch(1)).pending]
                    await parts.store.mark_passages_rejected([aside])
                    with_aside = await shown(task.id)
                    assert (with_aside["passages_pending"], with_aside["passages_rejected"]) == (waiting - 1, [aside])
                    qdrant.recover()
                    assert (await parts.outbox_drainer.drain()).stored == waiting - 1
                    assert (await shown(task.id))["passages_pending"] == 0
                wanted = await parts.store.list_passage_ids()
        points = [str(point.id) for point in qdrant.points("waystation")]
    # A server that hangs may have taken what was put aside; ids make one point of a passage that came twice.
    assert {*points} - {aside} == wanted - {aside}
    assert len(points) == len({*points})
