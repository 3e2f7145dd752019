"""What is found kept, lost and recallable after compactions by the real condenser."""

from tests.support.agent_environment import NAME, NAME_PLACEHOLDER, AgentEnvironment
from tests.support.audited_conversation import DEMAND, commit_audited_conversation, make_audited_summary
from tests.support.conversations import make_research_turns
from tests.support.full_context import list_passage_texts, run_compaction
from tests.support.scopes import SYSTEM_SCOPE
from waystation.agents.auditor import CompactionAuditor
from waystation.context.audit import CONSTRAINTS, CompactionAudit
from waystation.context.compaction import CompactionStatus
from waystation.context.history import build_model_view
from waystation.memory.passage_builder import render_message
from waystation.testing.doubles import ScriptedModel

URL = "https://harbour.example/logs/1811"


async def audited(env: AgentEnvironment, *, with_memory: bool = True) -> tuple[CompactionAudit, ...]:
    passages = await env.store.list_task_passages(env.task_id, SYSTEM_SCOPE)
    recollection = env.memory_recall if with_memory else None
    auditor = CompactionAuditor(redactor=env.redactor, passages=passages, memory_recall=recollection)
    return await auditor.audit(env.ref, await env.load_transcript())


def places(audit: CompactionAudit, kind: str) -> dict[str, str | None]:
    return {item.text: item.kept for item in audit.items if item.kind == kind}


async def test_a_summary_is_judged_by_the_messages_that_it_hides(env: AgentEnvironment) -> None:
    await commit_audited_conversation(env)
    await run_compaction(env, ScriptedModel([make_audited_summary()]))
    (audit,) = await audited(env)
    assert audit.hidden[0] == "m2"
    assert set(audit.hidden).isdisjoint(message.id for message in build_model_view(await env.load_transcript()))
    codes = places(audit, "codes")
    assert len(codes) == 160
    assert codes["E4000"] == "summary"
    assert places(audit, "URLs") == {URL: "summary"}
    assert places(audit, CONSTRAINTS) == {DEMAND: "ledger"}
    assert {"ledger", None} <= set(codes.values())


async def test_nothing_that_counts_as_kept_is_missing_from_the_view(env: AgentEnvironment) -> None:
    await commit_audited_conversation(env)
    await run_compaction(env, ScriptedModel([make_audited_summary()]))
    seen = "\n".join(render_message(message, {}) for message in build_model_view(await env.load_transcript()))
    (audit,) = await audited(env)
    kept = [item for item in audit.items if item.kept is not None]
    assert kept
    assert [item for item in kept if item.text not in seen] == []
    assert audit.lost
    assert [item for item in audit.lost if item.text in seen] == []


async def test_lost_things_are_recallable_if_what_agents_recall_by_them_has_them(env: AgentEnvironment) -> None:
    await commit_audited_conversation(env)
    await run_compaction(env, ScriptedModel([make_audited_summary()]))
    assert all(item.recallable for item in (await audited(env))[0].lost)
    env.memory.passages.clear()
    assert not any(item.recallable for item in (await audited(env))[0].lost)


async def test_without_memory_the_passages_in_the_store_decide_by_exact_text(env: AgentEnvironment) -> None:
    await commit_audited_conversation(env)
    await run_compaction(env, ScriptedModel([make_audited_summary()]))
    env.memory.passages.clear()
    assert all(item.recallable for item in (await audited(env, with_memory=False))[0].lost)


async def test_what_is_shown_is_as_the_summariser_saw_it(env: AgentEnvironment) -> None:
    """The names of people are replaced on the way to the summariser only: the transcript has them."""
    await commit_audited_conversation(env)
    texts = (await env.load_transcript()).model_dump_json()
    assert NAME in texts
    await run_compaction(env, ScriptedModel([make_audited_summary()]))
    (audit,) = await audited(env)
    assert NAME not in audit.model_dump_json()
    assert NAME_PLACEHOLDER in "".join(list_passage_texts(env))


async def test_a_second_summary_is_judged_by_the_messages_behind_the_first(env: AgentEnvironment) -> None:
    await commit_audited_conversation(env)
    first = await run_compaction(env, ScriptedModel([make_audited_summary()]))
    (before,) = await audited(env)
    await env.commit_conversation([*make_research_turns(12, 1_300, tool="recall", start=14)])
    again = await run_compaction(env, ScriptedModel([make_audited_summary()]), known_records=1)
    assert again.status is CompactionStatus.COMPRESSED
    (audit,) = await audited(env)
    assert (audit.id, audit.earlier) == (again.compaction_id, (first.compaction_id,))
    assert set(before.hidden) < set(audit.hidden)
    assert set(places(before, "codes")) <= set(places(audit, "codes"))
    assert places(audit, CONSTRAINTS) == {DEMAND: "ledger"}


async def test_a_marker_is_judged_too(env: AgentEnvironment) -> None:
    await commit_audited_conversation(env)
    await run_compaction(env, ScriptedModel([]), give_up_summary=True)
    (audit,) = await audited(env)
    assert audit.type == "truncated"
    assert places(audit, CONSTRAINTS) == {DEMAND: "ledger"}
    assert places(audit, "URLs") == {URL: None}
