"""A session goes on: a follow-up knows the reports and findings of earlier tasks, and of other sessions if it may."""

from pathlib import Path

from temporalio.client import Client

from tests.crew import SAID, Crew, terms
from tests.readers import ANYONE
from tests.running import Counter, opened_parts, request, working
from waystation.client.sessions import load_session_documents
from waystation.kernel.refs import RunRef
from waystation.memory.archive import as_records
from waystation.privacy.ports import Redactor
from waystation.tasks.signals import EditInput
from waystation.tasks.task import session_hash, task_id_of, tenant_hash


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
    async with opened_parts(tmp_path, redactor, Crew()) as parts, working(server, parts):
        counter = Counter(server, parts.store)
        await counter.submit(under=terms())
        first = await counter.task().result()
        again = request("second", "And at night?")
        await counter.submit(again, under=terms())
        await counter.task("second").result()
        contracts = [
            (await parts.store.load(f"{task_id_of(again)}/{agent}", ANYONE)).messages[0].text
            for agent in ("plan", "harbours")
        ]
        own = asking(await parts.store.store_id(), "pilots", "autumn")
        found = await parts.recollection.find(own, "What did the keeper of the crew write?")
        kinds = {excerpt.best.passage.kind for excerpt in found}
        documents = await load_session_documents(parts.store, "pilots", "autumn")
        points = len(await parts.store.passage_ids())
        await counter.edit(EditInput(action="rewind", agent="write", message="m2", keep=False))
        await counter.task().result()
        assert len(await parts.store.passage_ids()) == points
    for contract in contracts:
        assert f"- {first.task_id} (" in contract
        assert ", done): How is the bar crossed?" in contract
    assert kinds
    assert kinds <= {"report", "finding"}
    assert SAID.split()[-1].rstrip(".") in as_records(found)
    assert [document.name for document in documents] == ["pilot.md"]


async def test_team_memory_widens_recall_to_the_tenant_with_the_session_named_and_to_no_other_tenant(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with opened_parts(tmp_path, redactor, Crew()) as parts, working(server, parts):
        counter = Counter(server, parts.store)
        await counter.submit(under=terms())
        await counter.task().result()
        store_id, query = await parts.store.store_id(), "What did the keeper of the crew write?"
        neighbour, stranger = asking(store_id, "pilots", "winter"), asking(store_id, "smugglers", "autumn")
        alone = await parts.recollection.find(neighbour, query)
        team = await parts.recollection.find(neighbour, query, scope="team")
        strange = await parts.recollection.find(stranger, query, scope="team")
        unasked = await parts.recollection.find_relevant(stranger, query, 1_000, "team")
    assert (alone, strange, unasked) == ((), (), ())
    assert team
    assert 'session="autumn"' in as_records(team)
