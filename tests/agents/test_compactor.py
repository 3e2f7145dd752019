from tests.support.agent_environment import NAME, NAME_PLACEHOLDER, AgentEnvironment, make_tool_use
from tests.support.conversations import make_research_turns
from tests.support.full_context import (
    CONVERSATION_TOKENS_SPENT,
    estimate_request_size,
    list_passage_texts,
    make_conversation,
    make_summary_response,
    run_compaction,
)
from waystation.agents.leg import AgentFinished
from waystation.context.compaction import CompactionStatus
from waystation.context.history import build_model_view
from waystation.context.message_rules import find_violations
from waystation.context.transcript import build_user_message
from waystation.testing.doubles import ScriptedModel, make_scripted_response


async def test_a_summary_stands_for_the_middle_and_makes_room(full_env: AgentEnvironment) -> None:
    before = await estimate_request_size(full_env)
    outcome = await run_compaction(full_env, ScriptedModel([make_summary_response()]))
    assert (outcome.status, outcome.tokens_before) == (CompactionStatus.COMPRESSED, before)
    assert outcome.tokens_after == await estimate_request_size(full_env) <= full_env.terms.target
    transcript = await full_env.load_transcript()
    (record,) = transcript.records
    assert (record.type, record.id) == ("summarised", outcome.compaction_id)
    assert len(transcript.messages) == 27
    shown = build_model_view(transcript)
    assert find_violations(shown) == ()
    assert shown[0] == transcript.messages[0]
    assert shown[-2:] == transcript.messages[-2:]
    assert any("<earlier_conversation>" in message.text for message in shown)


async def test_the_summary_is_charged_to_the_agent_run_that_needs_it(full_env: AgentEnvironment) -> None:
    outcome = await run_compaction(full_env, ScriptedModel([make_summary_response()]))
    assert outcome.totals.spent.tokens == CONVERSATION_TOKENS_SPENT + 9_400
    assert (outcome.totals.turns, outcome.totals.possibly_billed) == (13, 0)


async def test_the_summariser_and_memory_never_see_what_is_replaced(full_env: AgentEnvironment) -> None:
    model = ScriptedModel([make_summary_response()])
    outcome = await run_compaction(full_env, model)
    sent = model.requests[0].model_dump_json()
    assert model.requests[0].model == "small"
    assert NAME not in sent
    assert NAME_PLACEHOLDER in sent
    (record,) = (await full_env.load_transcript()).records
    assert NAME not in record.model_dump_json()
    assert NAME_PLACEHOLDER in record.model_dump_json()
    assert NAME not in "".join(list_passage_texts(full_env))
    assert NAME_PLACEHOLDER in "".join(list_passage_texts(full_env))
    assert outcome.redactions == 2
    assert NAME not in outcome.model_dump_json()


async def test_what_is_hidden_is_in_memory_and_found_again(full_env: AgentEnvironment) -> None:
    outcome = await run_compaction(full_env, ScriptedModel([make_summary_response()]))
    assert outcome.passages == len(full_env.memory.passages) > 0
    assert (outcome.passages_waiting, await full_env.store.count_pending_passages()) == (0, 0)
    assert "kept the harbour" in await full_env.call_tool(make_tool_use("recall", query=f"{NAME} kept"))


async def test_the_agent_goes_on_after_a_compaction(full_env: AgentEnvironment) -> None:
    await run_compaction(full_env, ScriptedModel([make_summary_response()]))
    model = ScriptedModel([make_scripted_response(make_tool_use("submit_findings", "c99", findings=[]))])
    assert isinstance(await full_env.run_leg(model), AgentFinished)
    assert find_violations(model.requests[0].messages) == ()
    assert "<earlier_conversation>" in model.requests[0].model_dump_json()


async def test_a_retry_after_the_commit_makes_no_second_summary_charge_or_passage(
    full_env: AgentEnvironment,
) -> None:
    model = ScriptedModel([make_summary_response()])
    request = full_env.make_compaction_request(await estimate_request_size(full_env))
    full_env.model = model
    first = await full_env.compactor.compact(request)
    stored = dict(full_env.memory.passages)
    again = await full_env.compactor.compact(request)
    assert model.calls == 1
    assert again.replace(redactions=first.redactions) == first
    assert again.redactions == 1  # the one in the summary is not looked for again
    assert full_env.memory.passages == stored
    assert len((await full_env.load_transcript()).records) == 1


async def test_a_crash_before_memory_has_the_passages_loses_none(full_env: AgentEnvironment) -> None:
    request = full_env.make_compaction_request(await estimate_request_size(full_env))
    full_env.model = ScriptedModel([make_summary_response()])
    full_env.memory.failing = True
    first = await full_env.compactor.compact(request)
    assert (first.status, first.passages_waiting) == (CompactionStatus.COMPRESSED, first.passages)
    assert first.notes == ("Memory does not answer; passages wait in the store and are added to memory later.",)
    full_env.memory.failing = False
    again = await full_env.compactor.compact(request)
    assert (again.passages, again.passages_waiting, again.notes) == (first.passages, 0, ())
    assert len(full_env.memory.passages) == first.passages
    assert full_env.model.calls == 1


async def test_a_late_attempt_at_what_was_done_takes_the_run_away_from_nobody(
    full_env: AgentEnvironment,
) -> None:
    request = full_env.make_compaction_request(await estimate_request_size(full_env))
    full_env.model = ScriptedModel([make_summary_response()])
    await full_env.compactor.compact(request)
    working = await full_env.make_tool_context()
    await full_env.compactor.compact(request)
    version = (await full_env.load_transcript()).version
    await full_env.store.commit_message(working.fence, version, build_user_message("m28", "Go on."))


async def test_old_results_that_can_be_read_again_are_masked_without_a_summary(env: AgentEnvironment) -> None:
    await env.commit_conversation(make_conversation("read_document", 1000))
    model = ScriptedModel([])
    request = env.make_compaction_request(await estimate_request_size(env))
    env.model = model
    outcome = await env.compactor.compact(request)
    assert (outcome.status, outcome.passages, model.calls) == (CompactionStatus.MASKED, 0, 0)
    assert outcome.tokens_after == await estimate_request_size(env) <= env.terms.target
    assert list_passage_texts(env) == []
    assert await env.compactor.compact(request) == outcome
    assert len((await env.load_transcript()).records) == 1


async def test_a_truncation_is_reported_the_same_by_a_retry(full_env: AgentEnvironment) -> None:
    request = full_env.make_compaction_request(await estimate_request_size(full_env)).replace(skip_summary=True)
    first = await full_env.compactor.compact(request)
    assert first.status is CompactionStatus.TRUNCATED
    assert await full_env.compactor.compact(request) == first


async def test_the_size_that_the_provider_counted_decides_not_the_estimate(env: AgentEnvironment) -> None:
    """A conversation under the trigger by its estimate, of which the provider counted a third more tokens."""
    await env.commit_conversation(make_conversation(result_tokens=700))
    estimated = await estimate_request_size(env)
    assert estimated < env.terms.trigger
    counted = round(estimated * 1.33)
    env.model = ScriptedModel([make_summary_response()])
    outcome = await env.compactor.compact(env.make_compaction_request(counted))
    assert outcome.status is CompactionStatus.COMPRESSED
    assert outcome.tokens_before in {counted, counted + 1}
    assert outcome.tokens_after <= env.terms.target


async def test_a_context_that_is_not_full_is_left_alone(env: AgentEnvironment) -> None:
    await env.commit_conversation(make_conversation(result_tokens=50))
    model = ScriptedModel([])
    outcome = await run_compaction(env, model)
    assert (outcome.status, outcome.compaction_id, model.calls) == (CompactionStatus.NOOP, "", 0)
    assert (await env.load_transcript()).records == ()


async def test_a_second_compaction_covers_the_first_summary_and_stores_only_what_is_newly_hidden(
    full_env: AgentEnvironment,
) -> None:
    await run_compaction(full_env, ScriptedModel([make_summary_response()]))
    before = set(full_env.memory.passages)
    await full_env.commit_conversation(make_research_turns(12, 1_300, tool="recall", start=14))
    model = ScriptedModel([make_summary_response("It silted up again.")])
    outcome = await run_compaction(full_env, model, known_records=1)
    assert outcome.status is CompactionStatus.COMPRESSED
    assert "let it silt up" in model.requests[0].model_dump_json()
    new = [item.passage for key, item in full_env.memory.passages.items() if key not in before]
    assert len(new) == outcome.passages > 0
    assert all("let it silt up" not in passage.text for passage in new)
    shown = build_model_view(await full_env.load_transcript())
    assert sum("<earlier_conversation>" in message.text for message in shown) == 1
    assert find_violations(shown) == ()
