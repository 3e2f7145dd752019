"""What is found kept, lost and recallable after compactions by the real condenser."""

from tests.agents.audited import DEMAND, talked, told
from tests.agents.full_context import compressed, passages_of
from tests.agents.office import NAME, NAME_PLACEHOLDER, Office
from tests.readers import ANYONE
from tests.unit.histories import research
from waystation.agents.auditor import CompactionAuditor
from waystation.context.audit import CONSTRAINTS, Audit
from waystation.context.history import build_model_view
from waystation.context.outcome import Status
from waystation.memory.passages import render
from waystation.testing import ScriptedModel

URL = "https://harbour.example/logs/1811"


async def audited(office: Office, *, with_memory: bool = True) -> tuple[Audit, ...]:
    passages = await office.store.list_task_passages(office.task_id, ANYONE)
    recollection = office.recollection if with_memory else None
    auditor = CompactionAuditor(redactor=office.redactor, passages=passages, recollection=recollection)
    return await auditor.audit(office.ref, await office.transcript())


def places(audit: Audit, kind: str) -> dict[str, str | None]:
    return {item.text: item.kept for item in audit.items if item.kind == kind}


async def test_a_summary_is_judged_by_the_messages_that_it_hides(office: Office) -> None:
    await talked(office)
    await compressed(office, ScriptedModel([told()]))
    (audit,) = await audited(office)
    assert audit.hidden[0] == "m2"
    assert set(audit.hidden).isdisjoint(message.id for message in build_model_view(await office.transcript()))
    codes = places(audit, "codes")
    assert len(codes) == 160
    assert codes["E4000"] == "summary"
    assert places(audit, "URLs") == {URL: "summary"}
    assert places(audit, CONSTRAINTS) == {DEMAND: "ledger"}
    assert {"ledger", None} <= set(codes.values())


async def test_nothing_that_counts_as_kept_is_missing_from_the_view(office: Office) -> None:
    await talked(office)
    await compressed(office, ScriptedModel([told()]))
    seen = "\n".join(render(message, {}) for message in build_model_view(await office.transcript()))
    (audit,) = await audited(office)
    kept = [item for item in audit.items if item.kept is not None]
    assert kept
    assert [item for item in kept if item.text not in seen] == []
    assert audit.lost
    assert [item for item in audit.lost if item.text in seen] == []


async def test_lost_things_are_recallable_if_what_agents_recall_by_them_has_them(office: Office) -> None:
    await talked(office)
    await compressed(office, ScriptedModel([told()]))
    assert all(item.recallable for item in (await audited(office))[0].lost)
    office.memory.passages.clear()
    assert not any(item.recallable for item in (await audited(office))[0].lost)


async def test_without_memory_the_passages_in_the_store_decide_by_exact_text(office: Office) -> None:
    await talked(office)
    await compressed(office, ScriptedModel([told()]))
    office.memory.passages.clear()
    assert all(item.recallable for item in (await audited(office, with_memory=False))[0].lost)


async def test_what_is_shown_is_as_the_summariser_saw_it(office: Office) -> None:
    """The names of people are replaced on the way to the summariser only: the transcript has them."""
    await talked(office)
    texts = (await office.transcript()).model_dump_json()
    assert NAME in texts
    await compressed(office, ScriptedModel([told()]))
    (audit,) = await audited(office)
    assert NAME not in audit.model_dump_json()
    assert NAME_PLACEHOLDER in "".join(passages_of(office))


async def test_a_second_summary_is_judged_by_the_messages_behind_the_first(office: Office) -> None:
    await talked(office)
    first = await compressed(office, ScriptedModel([told()]))
    (before,) = await audited(office)
    await office.said([*research(12, 1_300, tool="recall", start=14)])
    again = await compressed(office, ScriptedModel([told()]), known_records=1)
    assert again.status is Status.COMPRESSED
    (audit,) = await audited(office)
    assert (audit.id, audit.earlier) == (again.compaction_id, (first.compaction_id,))
    assert set(before.hidden) < set(audit.hidden)
    assert set(places(before, "codes")) <= set(places(audit, "codes"))
    assert places(audit, CONSTRAINTS) == {DEMAND: "ledger"}


async def test_a_marker_is_judged_too(office: Office) -> None:
    await talked(office)
    await compressed(office, ScriptedModel([]), give_up_summary=True)
    (audit,) = await audited(office)
    assert audit.type == "truncated"
    assert places(audit, CONSTRAINTS) == {DEMAND: "ledger"}
    assert places(audit, "URLs") == {URL: None}
