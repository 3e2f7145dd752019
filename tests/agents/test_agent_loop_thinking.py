"""How hard an agent's model works, through the loop: what its calls ask for, what they may cost, what stays signed."""

from itertools import count

import pytest

from tests.agents.test_agent_loop_budget import build_first_request
from tests.support.agent_environment import AgentEnvironment, make_tool_use, never_interrupted
from tests.support.conversations import make_filler_text
from tests.support.full_context import make_summary_response, run_compaction
from tests.support.strict_server import Body, StrictServer
from waystation.agents.call_ledger import MeteredModel
from waystation.agents.leg import AgentFinished, BudgetExhausted, ContextFull, LegRequest
from waystation.agents.loop import AgentLoop
from waystation.context.compaction import CompactionStatus
from waystation.context.message_rules import find_violations
from waystation.context.policy import StrategyName
from waystation.context.transcript import Thinking
from waystation.kernel.amount import Limit
from waystation.models.anthropic.model import create_anthropic_model
from waystation.models.ports import ModelResponse
from waystation.testing.doubles import ScriptedModel, make_scripted_response

STAYS: dict[StrategyName, bool] = {"window": True, "snapshot": True, "replace": False, "ends": True}
"""Whether a strategy leaves loops at the end as they are."""
FINDING = {"claim": "It silted up.", "citations": ["[harbour.md:2-2]"]}
SUBMIT = make_scripted_response(make_tool_use("submit_findings", findings=[FINDING]))


def thinking(env: AgentEnvironment, tokens: int) -> AgentEnvironment:
    """As the terms of a task that sets so many tokens of each reply aside."""
    env.terms = env.terms.replace(
        model="claude-opus-4-5",
        effort="high",
        thinking=tokens,
        max_output=tokens + 4_000,
        min_reply_tokens=tokens + 256,
    )
    return env


async def test_every_call_of_an_agent_asks_for_its_effort_and_thinking(env: AgentEnvironment) -> None:
    thought = Thinking(thinking="Hm.", signature="c2ln")
    model = ScriptedModel([make_scripted_response(thought, make_tool_use("list_documents")), SUBMIT])
    assert isinstance(await thinking(env, 2_048).run_leg(model), AgentFinished)
    assert [(call.effort, call.thinking, call.max_output) for call in model.requests] == [("high", 2_048, 6_048)] * 2


async def test_a_call_that_has_no_room_for_its_thinking_and_a_reply_is_not_made(env: AgentEnvironment) -> None:
    counted = await env.model.count_tokens(await build_first_request(thinking(env, 2_048), left=9_999))
    env.limit = Limit(tokens=counted + 2_048 + 256 - 700)
    model = ScriptedModel([SUBMIT])
    stopped = await env.run_leg(model)
    assert isinstance(stopped, BudgetExhausted)
    assert model.calls == 0
    env.limit = env.limit.increase_by(stopped.needed)
    assert isinstance(await env.run_leg(model, 2), AgentFinished)
    assert model.requests[0].max_output >= 2_048 + 256


@pytest.mark.parametrize("model_name", ["claude-opus-4-5", "claude-sonnet-5-5"])
@pytest.mark.parametrize("strategy", STAYS)
async def test_what_a_model_signed_stays_with_its_loop_as_it_was_or_goes_with_it(
    env: AgentEnvironment, strategy: StrategyName, model_name: str
) -> None:
    """And where it is signed over what stands before it, it goes: that was changed."""
    env.terms = env.terms.replace(strategy=strategy, turn_limit=40, model=model_name)
    thoughts = [
        Thinking(thinking=f"  Thought {n}: Größe …\n\u2028{make_filler_text(1_500)}", signature=f"c2ln{n:02}+/==")
        for n in range(30)
    ]
    replies = [
        make_scripted_response(thought, make_tool_use("list_documents", f"c{n}")) for n, thought in enumerate(thoughts)
    ]
    full = await env.run_leg(ScriptedModel(replies))
    assert isinstance(full, ContextFull)
    outcome = await run_compaction(env, ScriptedModel([make_summary_response()]))
    assert outcome.status is CompactionStatus.COMPRESSED
    model = ScriptedModel([SUBMIT])
    assert isinstance(await env.run_leg(model, 2), AgentFinished)
    (sent,) = (request.messages for request in model.requests)
    assert find_violations(sent) == ()
    kept = [message for message in sent if message.role == "assistant" and message.tool_uses]
    goes = model_name == "claude-sonnet-5-5"
    said = [reply.blocks[1:] if goes else reply.blocks for reply in replies]
    assert [message.blocks for message in kept if message.blocks not in said] == []
    signed = [block for message in sent for block in message.blocks if isinstance(block, Thinking)]
    assert signed == [block for message in kept for block in message.blocks if isinstance(block, Thinking)]
    assert (STAYS[strategy], len(kept) < full.state.totals.turns) == (len(kept) > 0, True)


@pytest.mark.parametrize(
    ("model", "tokens", "strategy"),
    [
        ("claude-opus-4-5", 2_048, "window"),
        ("claude-opus-4-5", 2_048, "replace"),
        ("claude-sonnet-5-5", None, "snapshot"),
        ("claude-sonnet-5-5", None, "ends"),
    ],
)
async def test_nothing_that_an_agent_with_a_small_window_sends_is_refused(
    env: AgentEnvironment, model: str, tokens: int | None, strategy: StrategyName
) -> None:
    env = env if tokens is None else thinking(env, tokens)
    env.terms = env.terms.replace(model=model, strategy=strategy, turn_limit=90)
    env.limit = Limit(tokens=10_000_000)
    calls = count()

    def answer(_: Body) -> ModelResponse:
        thought = Thinking(thinking=f"Thought.\n{make_filler_text(1_500)}", signature="")
        return make_scripted_response(thought, make_tool_use("list_documents", f"c{next(calls)}"))

    server = StrictServer(answer)
    client = create_anthropic_model("key", "http://model.test", server.http_client())
    metered = MeteredModel(model=client, store=env.store, clock=env.clock, meter=env.meter)
    loop = AgentLoop(
        model=metered,
        deps=env.agent_deps,
        briefs=env.brief_builder,
        clock=env.clock,
        sleep=env.record_pause,
    )
    for leg in range(1, 4):
        request = LegRequest(run=env.run_ref(), leg=leg, limit=env.limit, config=env.terms, task_spent_share=0.0)
        assert isinstance(await loop.run(request, never_interrupted), ContextFull)
        outcome = await run_compaction(env, ScriptedModel([make_summary_response()]))
        assert outcome.status is CompactionStatus.COMPRESSED
    assert server.refusals == []
    assert server.answered > 3
