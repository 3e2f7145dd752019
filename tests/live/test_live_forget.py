"""Forgetting on the real server, store and memory: nothing of it is found, and nothing of it lies in the files."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client as TemporalClient

from tests.support.scopes import SYSTEM_SCOPE
from tests.support.store_values import NOON, make_summary
from tests.support.task_model import QUOTED_SENTENCE, CallGate, ModelCall, ScriptedTaskModel
from tests.support.temporal_platform import (
    SESSION,
    TaskSubmitter,
    make_task_request,
    open_activity_deps,
    run_all_workers,
)
from waystation.client import Client
from waystation.client.erasure import TaskSelection, forget_selected_tasks, select_task_ids
from waystation.config.settings import Settings
from waystation.documents.documents import SourceDocument
from waystation.erasure.erasure import ForgetCounts
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput
from waystation.kernel.refs import RunRef
from waystation.memory.passages import Passage
from waystation.tasks.task import make_task_id
from waystation.testing.doubles import PlainRedactor
from waystation.workers.activity_deps import ActivityDeps

QUESTION, DOCUMENT, REMEMBERED = "canary-question", "canary-document", "canary-passage"
ASKED = make_task_request(question=f"How is {QUESTION} crossed?")
DOCUMENTS = (SourceDocument(name="pilot.md", text=f"Keep {DOCUMENT} to starboard.\nThe bar carries two fathoms.\n"),)


async def store_in_memory(parts: ActivityDeps, run: RunRef, text: str) -> None:
    """Have a compaction put this into memory."""
    fence = await parts.store.acquire_fence(run.run_id)
    kept = Passage(
        id="0b9f4c3e-8d55-5d0c-9d0b-1f2d6c0a7e11",
        tenant=run.tenant,
        session=run.session,
        task_id=run.task_id,
        step_id=run.step_id,
        run_id=run.run_id,
        first_message="m1",
        last_message="m2",
        text=text,
        content_hash="hash",
        created=NOON,
    )
    version = (await parts.store.load_transcript(run.run_id, SYSTEM_SCOPE)).version
    await parts.store.commit_compaction(fence, version, make_summary(), [kept], None)
    await parts.outbox_drainer.drain()


def find_canaries_in_files(folder: Path, *canaries: str) -> list[str]:
    """Canaries that lie in the database, its log, or the memory."""
    content = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    return [words for words in canaries if words.encode() in content]


async def test_of_a_task_that_is_forgotten_nothing_is_found_and_no_file_has_a_word(
    server: TemporalClient, tmp_path: Path, settings: Settings
) -> None:
    canaries = (QUESTION, DOCUMENT, REMEMBERED, QUOTED_SENTENCE)
    async with (
        open_activity_deps(tmp_path, PlainRedactor({}), ScriptedTaskModel()) as parts,
        run_all_workers(server, parts),
        await Client.connect(settings) as client,
    ):
        counter = TaskSubmitter(server, parts.store)
        task_id = (await counter.submit(ASKED, documents=DOCUMENTS)).task_id
        await counter.get_task_handle().result()
        run = RunRef(
            **(await parts.store.get_task(task_id, SYSTEM_SCOPE)).ref.model_dump(), step_id="harbours", role="research"
        )
        await store_in_memory(parts, run, f"The {REMEMBERED} lies in the bay.")
        assert await parts.memory_recall.find(run, REMEMBERED) != ()
        assert find_canaries_in_files(tmp_path, *canaries) == list(canaries)
        results = sum(
            passage.kind != "conversation" for passage in await parts.store.list_task_passages(task_id, SYSTEM_SCOPE)
        )
        task_ids = await select_task_ids(client, settings, TaskSelection(session=SESSION))
        gone = await forget_selected_tasks(settings, task_ids, everything=True)
        assert (gone.removed.passages, gone.removed.documents, gone.histories) == (1 + results, 1, 1)
        assert await parts.memory_recall.find(run, REMEMBERED) == ()
        assert await parts.memory.count(run.tenant) == 0
        assert find_canaries_in_files(tmp_path, *canaries) == []


async def test_a_task_that_runs_is_not_forgotten(server: TemporalClient, tmp_path: Path, settings: Settings) -> None:
    gate = CallGate(ModelCall("harbours", 2))
    async with (
        open_activity_deps(tmp_path, PlainRedactor({}), ScriptedTaskModel(before=gate)) as parts,
        run_all_workers(server, parts),
        await Client.connect(settings) as client,
    ):
        counter = TaskSubmitter(server, parts.store)
        await counter.submit(ASKED)
        await gate.reached.wait()
        with pytest.raises(BadInput, match=rf"^{make_task_id(ASKED)} is running: stop it with `waystation cancel"):
            await select_task_ids(client, settings, TaskSelection(all_of_tenant=True))
        gate.opened.set()
        await counter.get_task_handle().result()
        assert await select_task_ids(client, settings, TaskSelection(all_of_tenant=True)) == (make_task_id(ASKED),)


async def test_two_orders_at_once_count_what_went_once(
    server: TemporalClient, tmp_path: Path, settings: Settings
) -> None:
    async with (
        open_activity_deps(tmp_path, PlainRedactor({}), ScriptedTaskModel()) as parts,
        run_all_workers(server, parts),
        await Client.connect(settings) as client,
    ):
        counter = TaskSubmitter(server, parts.store)
        task_id = (await counter.submit(ASKED, documents=DOCUMENTS)).task_id
        await counter.get_task_handle().result()
        task_ids = await select_task_ids(client, settings, TaskSelection(task=task_id))
        both = await asyncio.gather(*(forget_selected_tasks(settings, task_ids, everything=True) for _ in range(2)))
        assert sorted(gone.removed.tasks for gone in both) == [0, 1]
        assert sorted(gone.removed.documents for gone in both) == [0, 1]
        assert (await forget_selected_tasks(settings, task_ids, everything=True)).removed == ForgetCounts()


async def test_what_ended_before_a_moment_is_chosen_and_what_runs_has_not_ended(
    server: TemporalClient, tmp_path: Path, settings: Settings
) -> None:
    gate = CallGate(ModelCall("harbours", 2))
    async with (
        open_activity_deps(tmp_path, PlainRedactor({}), ScriptedTaskModel(before=gate)) as parts,
        run_all_workers(server, parts),
        await Client.connect(settings) as client,
    ):
        counter = TaskSubmitter(server, parts.store)
        await counter.submit(ASKED)
        await gate.reached.wait()
        tomorrow = utc_now() + timedelta(days=1)
        with pytest.raises(BadInput, match="all matching tasks are still running"):
            await select_task_ids(client, settings, TaskSelection(ended_before=tomorrow))
        gate.opened.set()
        await counter.get_task_handle().result()
        assert await select_task_ids(client, settings, TaskSelection(ended_before=tomorrow)) == (make_task_id(ASKED),)
