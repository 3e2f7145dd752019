"""Documents of a task change while it works: its agents hear of it at their next turns, once, and read what is new."""

from pathlib import Path

import pytest
from temporalio.client import Client

from tests.live.test_live_fork import FROM_WEIGH, run_fork, submit_fork
from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import (
    SCRIPTED_PLAN,
    CallGate,
    ModelCall,
    ScriptedTaskModel,
    make_task_config,
    make_tight_budget_config,
)
from tests.support.temporal_platform import TaskHandle, TaskSubmitter, run_platform, wait_for_both_requests, wait_until
from tests.support.workflow_history import fetch_events, join_all_strings
from waystation.client.submission import (
    DocumentSetDiff,
    compare_documents,
    is_document_set_unchanged,
    load_changed_documents,
    require_running,
    store_document_set,
)
from waystation.context.transcript import Message
from waystation.documents.documents import Document, DocumentSet
from waystation.kernel.errors import BadInput
from waystation.privacy.ports import Redactor
from waystation.tasks.approvals import APPROVE_BUDGET
from waystation.tasks.signals import UPDATE_DOCUMENTS
from waystation.tasks.task import TaskPhase
from waystation.workflows.task import TaskWorkflow

STEPS = [step.id for step in SCRIPTED_PLAN.steps]
NEWER = "Keep the white beacon to starboard.\nThe bar carries three fathoms.\nThe buoy is adrift.\n"


def write_folder(folder: Path, **texts: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.md").write_text(text)
    return folder


async def submit_document_update(
    counter: TaskSubmitter, task: TaskHandle, folder: Path, *, remove_missing: bool = False
) -> DocumentSetDiff:
    """As the client does it."""
    reader = (await counter.store.get_task(task.id, SYSTEM_SCOPE)).ref.scope
    loaded = await load_changed_documents(await counter.store.list_documents(task.id, reader), [folder])
    again = await compare_documents(counter.store, reader, loaded, remove_missing=remove_missing)
    before = len((await task.query(TaskWorkflow.progress)).document_updates)
    await task.signal(
        UPDATE_DOCUMENTS, {"documents": await store_document_set(counter.store, again, reader), "by": "Ada"}
    )

    async def taken() -> bool:
        updates = (await task.query(TaskWorkflow.progress)).document_updates
        return len(updates) > before and all(one.stored for one in updates)

    await wait_until(taken)
    return again


async def news(counter: TaskSubmitter, task_id: str, agent: str) -> list[Message]:
    return [
        message
        for message in (await counter.store.load_transcript(f"{task_id}/{agent}", SYSTEM_SCOPE)).messages
        if message.documents_update_number
    ]


async def test_every_agent_hears_once_at_its_next_turn_and_a_fork_goes_on_with_what_is_new(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    gate = CallGate(ModelCall("harbours", 3), ModelCall("tides", 3))
    folder = write_folder(tmp_path / "docs", pilot=NEWER, buoys="The buoys of the bar.\n")
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel(before=gate)) as counter:
        await counter.submit(under=make_task_config())
        task = counter.get_task_handle()
        await gate.reached.wait()
        again = await submit_document_update(counter, task, folder)
        reader = (await counter.store.get_task(task.id, SYSTEM_SCOPE)).ref.scope
        loaded = await load_changed_documents(await counter.store.list_documents(task.id, reader), [folder])
        same = await compare_documents(counter.store, reader, loaded, remove_missing=False)
        settled = is_document_set_unchanged(same, await task.query(TaskWorkflow.progress))
        gate.opened.set()
        ended = await task.result()
        heard = {agent: await news(counter, task.id, agent) for agent in STEPS}
        report = await counter.store.get_text(str(ended.report), SYSTEM_SCOPE)
        written = join_all_strings(await fetch_events(task))
        forked = await submit_fork(counter, FROM_WEIGH)
        second = await run_fork(counter, forked)
        in_fork = {agent: await news(counter, forked.ref.task_id, agent) for agent in STEPS}
        documents = [await counter.store.list_documents(one, SYSTEM_SCOPE) for one in (task.id, forked.ref.task_id)]
    assert [(change.name, change.kind) for change in again.changes] == [("pilot.md", "changed"), ("buoys.md", "added")]
    assert settled
    assert ended.phase is TaskPhase.DONE
    assert [one.text for one in ended.document_updates] == ["1 changed, 1 added"]
    assert {agent: len(told) for agent, told in heard.items()} == dict.fromkeys(STEPS, 1)
    assert "- changed: pilot.md (lines 2-3; 3 lines now)\n- added: buoys.md (1 line)" in heard["harbours"][0].text
    assert "The documents were updated while the task ran: 1 changed, 1 added" in report
    assert "buoys" not in written
    assert second.document_updates == ended.document_updates
    assert documents[0] == documents[1]
    assert [one.name for one in documents[0]] == ["pilot.md", "buoys.md"]
    assert {agent: len(told) for agent, told in in_fork.items()} == dict.fromkeys(STEPS, 1)


async def test_an_agent_that_waits_for_money_is_not_woken_and_hears_of_it_when_it_goes_on(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    folder = write_folder(tmp_path / "docs", pilot=NEWER)
    crew = ScriptedTaskModel()
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=make_tight_budget_config())
        task = counter.get_task_handle()
        await wait_for_both_requests(task)
        calls, spent = len(crew.calls), (await task.query(TaskWorkflow.progress)).budget
        await submit_document_update(counter, task, folder)
        quiet = (len(crew.calls), (await task.query(TaskWorkflow.progress)).budget) == (calls, spent)
        waiting = await news(counter, task.id, "harbours")
        for request in ("harbours-1", "tides-1"):
            await task.signal(APPROVE_BUDGET, {"request_id": request, "tokens": 10_000})
        await task.result()
        after = await news(counter, task.id, "harbours")
    assert quiet
    assert waiting == []
    assert [message.documents_update_number for message in after] == [1]


async def test_what_cannot_be_taken_is_refused_and_changes_nothing(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    gate = CallGate(ModelCall("harbours", 1))
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel(before=gate)) as counter:
        await counter.submit(under=make_task_config())
        task = counter.get_task_handle()
        await gate.reached.wait()
        before = await counter.store.list_documents(task.id, SYSTEM_SCOPE)
        nowhere = Document(name="pilot.md", blob="1" * 64, lines=1, characters=1)
        lost = await counter.store.put_text(
            DocumentSet(documents=(nowhere,)).model_dump_json(),
            (await counter.store.get_task(task.id, SYSTEM_SCOPE)).ref.scope,
        )
        for sent in ({}, {"documents": "all"}, {"documents": "0" * 64}, {"documents": lost}):
            await task.signal(UPDATE_DOCUMENTS, sent)

        async def refused() -> bool:
            return len((await task.query(TaskWorkflow.progress)).rejected_messages) == 4

        await wait_until(refused)
        progress = await task.query(TaskWorkflow.progress)
        after = await counter.store.list_documents(task.id, SYSTEM_SCOPE)
        gate.opened.set()
        ended = await task.result()
        row = await counter.store.get_task(task.id, SYSTEM_SCOPE)
    assert before == after
    assert progress.document_updates == ended.document_updates == ()
    reasons = [refusal.reason for refusal in progress.rejected_messages]
    assert sum("send them with `waystation documents`" in reason for reason in reasons) == 2
    with pytest.raises(BadInput, match=f"{task.id} has ended \\(done\\).*submit --session autumn.*waystation rewind"):
        require_running(row, ended.phase)
