import json
from datetime import timedelta
from itertools import pairwise

import pytest

from tests.support.agent_environment import (
    AGENT_CONFIG,
    NAME,
    SECRET,
    SECRET_PLACEHOLDER,
    TENANT,
    AgentEnvironment,
    find_status_texts,
    make_tool_use,
    never_interrupted,
)
from tests.support.scopes import SYSTEM_SCOPE
from waystation.agents.deliverables import Finding, ResearchFindings
from waystation.agents.leg import AgentFinished, ContextFull, Interrupted, LegRequest, TurnLimitReached
from waystation.agents.loop import MAX_LEG_DURATION
from waystation.context.message_rules import find_violations
from waystation.context.tokens import compute_request_upper_bound
from waystation.context.transcript import Text, Thinking
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.errors import ModelUnavailable, RedactionFailed
from waystation.kernel.usage import Usage
from waystation.models.ports import ModelRequest, ModelResponse, StopReason
from waystation.privacy.policy import TextDestination
from waystation.testing.doubles import ScriptedModel, make_scripted_response

FINDING = {"claim": "It silted up.", "citations": ["[harbour.md:2-2]"]}
SUBMIT = make_scripted_response(make_tool_use("submit_findings", "c9", findings=[FINDING]))
READ = make_scripted_response(make_tool_use("read_document", "c1", name="harbour.md"))
NOTE = make_scripted_response(
    Text(text="I keep that."),
    make_tool_use("take_note", "c2", text="It silted up.", document="harbour.md", first_line=2, last_line=2),
    make_tool_use("search_documents", "c3", query="harbour"),
)
IDLE = make_scripted_response(Text(text="Let me think."))


async def test_a_whole_leg_ends_with_what_the_agent_handed_in(env: AgentEnvironment) -> None:
    outcome = await env.run_leg(ScriptedModel([READ, NOTE, SUBMIT]))
    assert isinstance(outcome, AgentFinished)
    assert not outcome.partial
    assert outcome.state.totals.turns == 3
    assert outcome.state.totals.usage == Usage(input=300, output=60)
    assert outcome.state.totals.possibly_billed == 0
    assert outcome.state.totals.cost_micro_usd == 3 * (100 * 2 + 20 * 10)
    finding = Finding(claim="It silted up.", citations=("[harbour.md:2-2]",))
    assert await env.store.get_deliverable("task-1/research-1", SYSTEM_SCOPE) == ResearchFindings(findings=(finding,))
    assert [note.text for note in await env.store.list_notes("task-1", SYSTEM_SCOPE, "task-1/research-1")] == [
        "It silted up."
    ]


async def test_the_transcript_is_legal_and_holds_the_results_in_the_order_of_the_calls(
    env: AgentEnvironment,
) -> None:
    await env.run_leg(ScriptedModel([READ, NOTE, SUBMIT]))
    assert find_violations((await env.load_transcript()).messages) == ()
    talk = await env.load_messages()
    assert [message.id for message in talk] == [f"m{number}" for number in range(1, 8)]
    assert [result.tool_use_id for result in talk[4].tool_results] == ["c2", "c3"]
    assert "2| It silted up within ten years." in talk[2].tool_results[0].content


async def test_calls_of_servers_that_number_those_of_each_reply_anew_are_told_apart(
    env: AgentEnvironment,
) -> None:
    kept = [
        make_scripted_response(
            make_tool_use("take_note", "call_0", text=text, document="harbour.md", first_line=2, last_line=2)
        )
        for text in ("It silted up.", "It was dredged.", "It closed.")
    ]
    await env.run_leg(
        ScriptedModel([*kept, make_scripted_response(make_tool_use("submit_findings", "call_0", findings=[FINDING]))])
    )
    transcript = await env.load_transcript()
    calls = [call.id for message in transcript.messages for call in message.tool_uses]
    assert calls == ["call_0", "call_0_m4", "call_0_m6", "call_0_m8"]
    assert find_violations(transcript.messages) == ()
    assert len(await env.store.list_notes("task-1", SYSTEM_SCOPE, "task-1/research-1")) == len(kept)


async def test_what_the_model_is_sent(env: AgentEnvironment) -> None:
    model = ScriptedModel([READ, SUBMIT])
    await env.run_leg(model)
    first, second = model.requests
    assert first.model == "claude-sonnet-5-5"
    assert first.system == second.system
    assert first.tools == second.tools
    assert (first.max_output, first.require_tool) == (4_000, None)
    assert find_status_texts(second.messages) == [
        "<status>budget left 100,000 tokens (when it is spent, the system asks a person for more)</status>",
        "<status>budget left 80,000 tokens (when it is spent, the system asks a person for more)</status>",
    ]
    assert second.messages[: len(first.messages)] == first.messages
    assert [message.id for message in second.messages] == ["m1", "s1", "m2", "m3", "s2"]


async def test_a_status_is_sent_again_as_it_was_until_there_is_another_one_to_say(env: AgentEnvironment) -> None:
    env.limit = Limit(tokens=90_000)
    model = ScriptedModel(
        [READ, *[make_scripted_response(make_tool_use("list_documents", f"l{n}")) for n in range(8)], SUBMIT]
    )
    await env.run_leg(model)
    assert find_status_texts(model.requests[-1].messages) == [
        "<status>budget left 80,000 tokens (when it is spent, the system asks a person for more)</status>",
    ]
    for earlier, later in pairwise(model.requests):
        assert later.messages[: len(earlier.messages)] == earlier.messages
        assert (later.system, later.tools) == (earlier.system, earlier.tools)


async def test_a_status_counts_in_what_its_call_may_cost(env: AgentEnvironment) -> None:
    model = ScriptedModel([ModelUnavailable("cut", possibly_billed=True)])
    with pytest.raises(ModelUnavailable):
        await env.run_leg(model)
    (sent,) = model.requests
    tools = json.dumps([tool.model_dump(mode="json") for tool in sent.tools])
    assert sent.messages[-1].is_status
    worst = compute_request_upper_bound(sent.system, tools, sent.messages) + sent.max_output
    assert (await env.store.get_run_usage("task-1/research-1")).possibly_billed == worst


async def test_in_mode_hard_the_agent_is_not_told_that_more_is_asked_for(env: AgentEnvironment) -> None:
    env.terms = AGENT_CONFIG.replace(hard_budget=True)
    model = ScriptedModel([READ, SUBMIT])
    await env.run_leg(model)
    assert find_status_texts(model.requests[-1].messages) == [
        "<status>budget left 100,000 tokens</status>",
        "<status>budget left 80,000 tokens; submit before less than 5,000 tokens are left</status>",
    ]


async def test_the_status_counts_what_the_task_could_lend(env: AgentEnvironment) -> None:
    model = ScriptedModel([SUBMIT])
    env.model = model
    request = LegRequest(
        run=env.run_ref(), leg=1, limit=env.limit, config=env.terms, available_from_task=Amount(tokens=60_000)
    )
    await env.agent_loop.run(request, never_interrupted)
    assert (
        "budget left 160,000 tokens (when it is spent, the system asks"
        in find_status_texts(model.requests[-1].messages)[-1]
    )


async def test_a_full_context_ends_the_leg_before_the_call(env: AgentEnvironment) -> None:
    env.terms = AGENT_CONFIG.replace(trigger=4_800, target=2_400)
    model = ScriptedModel([make_scripted_response(Text(text="word " * 1_500), usage=Usage(input=4_500, output=2_000))])
    outcome = await env.run_leg(model)
    assert isinstance(outcome, ContextFull)
    assert outcome.request_tokens >= 4_800
    assert model.calls == 1


async def test_the_estimate_is_corrected_by_what_the_provider_counted(env: AgentEnvironment) -> None:
    env.terms = AGENT_CONFIG.replace(turn_limit=1)
    outcome = await env.run_leg(
        ScriptedModel([make_scripted_response(Text(text="Hm."), usage=Usage(input=1_500, cache_read=3_500, output=5))])
    )
    assert isinstance(outcome, TurnLimitReached)
    assert 1.0 < outcome.state.token_ratio <= 2.0


async def test_the_scale_of_the_request_decides_when_the_context_is_full(env: AgentEnvironment) -> None:
    env.terms = AGENT_CONFIG.replace(trigger=4_800, target=2_000, turn_limit=1)
    env.model = ScriptedModel([IDLE])
    plain = LegRequest(run=env.run_ref(), leg=1, limit=Limit(tokens=100_000), config=env.terms)
    assert isinstance(await env.agent_loop.run(plain.replace(token_ratio=2.0), never_interrupted), ContextFull)
    assert isinstance(await env.agent_loop.run(plain.replace(leg=2), never_interrupted), TurnLimitReached)
    assert env.model.calls == 1


async def test_a_leg_ends_after_its_turns_and_the_next_one_goes_on(env: AgentEnvironment) -> None:
    env.terms = AGENT_CONFIG.replace(turn_limit=2)
    first = await env.run_leg(ScriptedModel([READ, NOTE]))
    assert isinstance(first, TurnLimitReached)
    assert first.state.totals.turns == 2
    second = ScriptedModel([SUBMIT])
    assert isinstance(await env.run_leg(second, 2), AgentFinished)
    assert second.calls == 1


async def test_a_leg_ends_after_its_time(env: AgentEnvironment) -> None:
    def slowly(request: ModelRequest) -> ModelResponse:
        env.clock.advance(MAX_LEG_DURATION / 2 + timedelta(seconds=1))
        return READ if len(request.messages) == 1 else NOTE

    model = ScriptedModel(slowly)
    assert isinstance(await env.run_leg(model), TurnLimitReached)
    assert model.calls == 2


async def test_a_leg_yields_at_a_turn_boundary_when_the_worker_stops(env: AgentEnvironment) -> None:
    env.model = ScriptedModel([READ, NOTE, SUBMIT])
    request = LegRequest(run=env.run_ref(), leg=1, limit=Limit(tokens=100_000), config=AGENT_CONFIG)
    outcome = await env.agent_loop.run(request, lambda: env.model.calls == 2)
    assert isinstance(outcome, Interrupted)
    assert outcome.state.totals.turns == 2
    assert (await env.load_transcript()).messages[-1].tool_results


async def test_an_agent_that_has_handed_in_finishes_even_when_the_worker_stops(env: AgentEnvironment) -> None:
    env.model = ScriptedModel([SUBMIT])
    request = LegRequest(run=env.run_ref(), leg=1, limit=Limit(tokens=100_000), config=AGENT_CONFIG)
    assert isinstance(await env.agent_loop.run(request, lambda: env.model.calls == 1), AgentFinished)


async def test_a_tool_call_that_was_cut_is_not_run(env: AgentEnvironment) -> None:
    cut = make_scripted_response(
        make_tool_use("search_documents", "c1", query="harbour"),
        make_tool_use("submit_findings", "c2", findings=[]),
        stop=StopReason.MAX_TOKENS,
    )
    outcome = await env.run_leg(ScriptedModel([cut, SUBMIT]))
    assert isinstance(outcome, AgentFinished)
    talk = await env.load_messages()
    assert [call.id for call in talk[1].tool_uses] == ["c1"]
    assert "was cut here" in talk[1].text
    assert [result.tool_use_id for result in talk[2].tool_results] == ["c1"]


async def test_three_replies_without_tools_end_the_run_partial(env: AgentEnvironment) -> None:
    model = ScriptedModel([IDLE] * 5)
    outcome = await env.run_leg(model)
    assert isinstance(outcome, AgentFinished)
    assert (outcome.partial, model.calls) == (True, 3)
    assert outcome.reason == "the model gave 3 replies in a row that called no available tool"


async def test_three_replies_that_call_only_tools_that_there_are_not_end_the_run_partial(
    env: AgentEnvironment,
) -> None:
    made_up = [
        make_scripted_response(make_tool_use("no_such_tool", f"c{n}"), make_tool_use("nor_this", f"d{n}"))
        for n in range(9)
    ]
    model = ScriptedModel(made_up)
    outcome = await env.run_leg(model)
    assert isinstance(outcome, AgentFinished)
    assert (outcome.partial, model.calls) == (True, 3)
    assert outcome.reason == "the model gave 3 replies in a row that called no available tool"


async def test_a_call_of_a_tool_that_there_is_beside_made_up_ones_lets_the_run_go_on(
    env: AgentEnvironment,
) -> None:
    search = make_tool_use("search_documents", "c1", query="harbour")
    made_up = [make_scripted_response(make_tool_use("no_such_tool", f"d{n}")) for n in range(4)]
    mixed = make_scripted_response(search, make_tool_use("no_such_tool", "d9"))
    outcome = await env.run_leg(ScriptedModel([*made_up[:2], mixed, *made_up[2:], SUBMIT]))
    assert isinstance(outcome, AgentFinished)
    assert not outcome.partial


async def test_a_tool_call_between_idle_replies_lets_the_run_go_on(env: AgentEnvironment) -> None:
    outcome = await env.run_leg(ScriptedModel([IDLE, IDLE, READ, IDLE, IDLE, SUBMIT]))
    assert isinstance(outcome, AgentFinished)
    assert not outcome.partial
    word = (await env.load_messages())[2]
    assert word.text == "<platform>Go on. When you are done, submit with submit_findings.</platform>"


@pytest.mark.parametrize(
    "blocks", [(), (Text(text=" "),), (Thinking(thinking="Hm.", signature="c2ln"),)], ids=["none", "blank", "thinking"]
)
async def test_an_empty_reply_is_kept_and_the_next_request_is_legal(
    env: AgentEnvironment, blocks: tuple[Text | Thinking, ...]
) -> None:
    model = ScriptedModel([make_scripted_response(*blocks), SUBMIT])
    assert isinstance(await env.run_leg(model), AgentFinished)
    assert find_violations(model.requests[1].messages) == ()


async def test_a_submission_that_fails_does_not_end_the_run(env: AgentEnvironment) -> None:
    bad = make_scripted_response(make_tool_use("submit_findings", "c1", findings="none"))
    outcome = await env.run_leg(ScriptedModel([bad, SUBMIT]))
    assert isinstance(outcome, AgentFinished)
    assert outcome.state.totals.turns == 2


async def test_results_are_redacted_before_they_are_stored(env: AgentEnvironment) -> None:
    await env.run_leg(ScriptedModel([make_scripted_response(make_tool_use("read_document", name="keeper.md")), SUBMIT]))
    stored = (await env.load_transcript()).model_dump_json()
    assert SECRET not in stored
    assert SECRET_PLACEHOLDER in stored
    assert NAME in stored
    assert env.redactor.tenants == {TENANT}


async def test_a_redactor_that_fails_stops_the_leg_and_nothing_of_the_result_is_stored(
    env: AgentEnvironment,
) -> None:
    def answer(_: ModelRequest) -> ModelResponse:
        env.redactor.failing_at = frozenset({TextDestination.TOOL_RESULT})
        return READ

    with pytest.raises(RedactionFailed):
        await env.run_leg(ScriptedModel(answer))
    assert [message.role for message in await env.load_messages()] == ["user", "assistant"]
    env.redactor.failing_at = frozenset()
    again = ScriptedModel([SUBMIT])
    assert isinstance(await env.run_leg(again), AgentFinished)
    assert again.calls == 1


async def test_a_redactor_that_fails_at_the_start_leaves_no_task_brief(env: AgentEnvironment) -> None:
    env.redactor.failing = True
    with pytest.raises(RedactionFailed):
        await env.run_leg(ScriptedModel([]))
    assert (await env.load_transcript()).messages == ()


async def test_memory_that_does_not_answer_is_noted_once_and_stops_nothing(env: AgentEnvironment) -> None:
    env.memory.failing = True
    recalls = make_scripted_response(
        make_tool_use("recall", "c1", query="harbour"), make_tool_use("recall", "c2", query="tide")
    )
    outcome = await env.run_leg(ScriptedModel([recalls, SUBMIT]))
    assert isinstance(outcome, AgentFinished)
    assert outcome.state.notes == (
        "Memory did not answer when an agent started; the agent continued without it.",
        "Memory did not answer a search; the agent continued without it.",
    )
