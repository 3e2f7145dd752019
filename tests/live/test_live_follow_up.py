"""A session goes on: a follow-up knows the reports and findings of earlier tasks, and of other sessions if it may."""

from pathlib import Path

from temporalio.client import Client

from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import QUOTED_SENTENCE, ScriptedTaskModel, make_task_config
from tests.support.temporal_platform import TaskSubmitter, make_task_request, open_activity_deps, run_all_workers
from waystation.client.submission import load_session_documents
from waystation.kernel.refs import RunRef
from waystation.memory.indexing import render_recalled_excerpts
from waystation.privacy.ports import Redactor
from waystation.tasks.signals import ContextEditInput
from waystation.tasks.task import make_task_id, session_hash, tenant_hash


def asking(counter_store: str, tenant: str, session: str) -> RunRef:
    """Somebody of this session who recalls."""
    return RunRef(
        store_id=counter_store,
        tenant=tenant_hash(tenant),
        session=session_hash(tenant, session),
        task_id="task-0",
        step_id="harbours",
        role="research",
    )


async def test_a_follow_up_is_told_of_earlier_tasks_and_recalls_their_reports_and_findings(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with open_activity_deps(tmp_path, redactor, ScriptedTaskModel()) as parts, run_all_workers(server, parts):
        counter = TaskSubmitter(server, parts.store)
        await counter.submit(under=make_task_config())
        first = await counter.get_task_handle().result()
        again = make_task_request("second", "And at night?")
        await counter.submit(again, under=make_task_config())
        await counter.get_task_handle("second").result()
        contracts = [
            (await parts.store.load_transcript(f"{make_task_id(again)}/{agent}", SYSTEM_SCOPE)).messages[0].text
            for agent in ("plan", "harbours")
        ]
        own = asking(await parts.store.get_store_id(), "pilots", "autumn")
        found = await parts.memory_recall.find(own, "What did the keeper of the crew write?")
        kinds = {excerpt.best_turn.passage.kind for excerpt in found}
        documents = await load_session_documents(parts.store, "pilots", "autumn")
        points = len(await parts.store.list_passage_ids())
        await counter.edit(ContextEditInput(action="rewind", agent="write", message="m2", keep=False))
        await counter.get_task_handle().result()
        assert len(await parts.store.list_passage_ids()) == points
    for contract in contracts:
        assert f"- {first.task_id} (" in contract
        assert ", done): How is the bar crossed?" in contract
    assert kinds
    assert kinds <= {"report", "finding"}
    assert QUOTED_SENTENCE.split()[-1].rstrip(".") in render_recalled_excerpts(found)
    assert [document.name for document in documents] == ["pilot.md"]


async def test_team_memory_widens_recall_to_the_tenant_with_the_session_named_and_to_no_other_tenant(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with open_activity_deps(tmp_path, redactor, ScriptedTaskModel()) as parts, run_all_workers(server, parts):
        counter = TaskSubmitter(server, parts.store)
        await counter.submit(under=make_task_config())
        await counter.get_task_handle().result()
        store_id, query = await parts.store.get_store_id(), "What did the keeper of the crew write?"
        neighbour, stranger = asking(store_id, "pilots", "winter"), asking(store_id, "smugglers", "autumn")
        alone = await parts.memory_recall.find(neighbour, query)
        team = await parts.memory_recall.find(neighbour, query, scope="team")
        strange = await parts.memory_recall.find(stranger, query, scope="team")
        unasked = await parts.memory_recall.find_relevant(stranger, query, 1_000, "team")
    assert (alone, strange, unasked) == ((), (), ())
    assert team
    assert 'session="autumn"' in render_recalled_excerpts(team)
