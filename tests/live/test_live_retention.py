"""Tasks whose time is over are forgotten by the workers, on the real server, store and memory."""

import asyncio
import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from temporalio.client import Client as TemporalClient

from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import ScriptedTaskModel
from tests.support.temporal_platform import (
    TaskSubmitter,
    make_task_request,
    open_activity_deps,
    run_all_workers,
    wait_until,
)
from tests.support.workflow_history import fetch_events, list_timer_summaries
from waystation.config.settings import Settings
from waystation.kernel.temporal_names import make_retention_workflow_id
from waystation.kernel.text import FORGOTTEN
from waystation.runtime.temporal.erasure_client import ensure_retention_workflow
from waystation.testing.doubles import PlainRedactor
from waystation.workers.activity_deps import ActivityDeps

OLD, NEW = make_task_request("old"), make_task_request("new")


async def worked(server: TemporalClient, parts: ActivityDeps, folder: Path) -> tuple[str, str]:
    """A task that ended long ago, and one that has just ended."""
    counter, ids = TaskSubmitter(server, parts.store), list[str]()
    for asked in (OLD, NEW):
        ids.append((await counter.submit(asked)).task_id)
        await server.get_workflow_handle(ids[-1]).result()
    (folder / "reports").mkdir()
    (folder / "reports" / f"{ids[0]}.md").write_text("What was found.")
    # In a thread: what the workers have begun to write ends in this loop.
    await asyncio.to_thread(end_long_ago, next(folder.glob("*.db")), ids[0])
    return ids[0], ids[1]


def end_long_ago(file: Path, task_id: str) -> None:
    with closing(sqlite3.connect(file)) as database, database:
        changed = database.execute("UPDATE tasks SET ended_at = '2026-01-01 00:00:00' WHERE task_id = ?", [task_id])
        assert changed.rowcount == 1


async def test_what_ended_so_many_days_ago_is_forgotten_and_the_log_says_so(
    server: TemporalClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "waystation.activities.removal")
    settings = Settings(home=tmp_path, retention_days=30)
    async with (
        open_activity_deps(tmp_path, PlainRedactor({}), ScriptedTaskModel()) as parts,
        run_all_workers(server, parts, settings=settings),
    ):
        old, new = await worked(server, parts, tmp_path)
        for _ in range(2):  # as two workers that start
            await ensure_retention_workflow(server, await parts.store.get_store_id())
        while not caplog.messages:
            await asyncio.sleep(0.05)
        assert caplog.messages[0].startswith("forgot 1 tasks, 4 passages, ")
        assert (await parts.store.get_task(old, SYSTEM_SCOPE)).request.question == FORGOTTEN
        assert (await parts.store.get_task(new, SYSTEM_SCOPE)).request.question == NEW.question
        assert [*(tmp_path / "reports").iterdir()] == []
        retention = server.get_workflow_handle(make_retention_workflow_id(await parts.store.get_store_id()))

        async def waits() -> bool:
            return list_timer_summaries(await fetch_events(retention)) == ['"wait for the next check"']

        await wait_until(waits)


async def test_without_the_setting_nothing_is_forgotten_and_nobody_looks_again(
    server: TemporalClient, tmp_path: Path
) -> None:
    settings = Settings(home=tmp_path)
    async with (
        open_activity_deps(tmp_path, PlainRedactor({}), ScriptedTaskModel()) as parts,
        run_all_workers(server, parts, settings=settings),
    ):
        old, _ = await worked(server, parts, tmp_path)
        store_id = await parts.store.get_store_id()
        await ensure_retention_workflow(server, store_id)
        await server.get_workflow_handle(make_retention_workflow_id(store_id)).result()
        assert (await parts.store.get_task(old, SYSTEM_SCOPE)).request.question == OLD.question
