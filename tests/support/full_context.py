"""A research agent whose context is full, and compactions of it."""

import json
from collections.abc import Sequence

from tests.support.agent_environment import NAME, AgentEnvironment
from tests.support.conversations import make_call_message, make_filler_text, make_research_turns, make_result_message
from waystation.agents.roles import load_prompt
from waystation.context.compaction import CompactionOutcome
from waystation.context.history import build_model_view
from waystation.context.tokens import estimate_fixed_tokens, estimate_request_tokens
from waystation.context.transcript import Message, Text, build_user_message
from waystation.kernel.amount import Limit
from waystation.kernel.usage import Usage
from waystation.models.ports import ModelResponse, StopReason
from waystation.testing.doubles import ScriptedModel, make_scripted_response

CONVERSATION_TOKENS_SPENT = 13 * 120
"""Tokens spent on the turns of the conversation."""


def make_summary_response(
    text: str = f"The keeper {NAME} let it silt up.", stop: StopReason | None = None
) -> ModelResponse:
    said = f"{text} {make_filler_text(300)}" if text else ""
    return make_scripted_response(Text(text=said), usage=Usage(input=9_000, output=400), stop=stop)


def make_conversation(tool: str = "recall", result_tokens: int = 1_300) -> Sequence[Message]:
    """Make thirteen turns; the fifth names a person."""
    turns = make_research_turns(13, result_tokens, tool=tool)
    turns[8:10] = (
        make_call_message("m10", "c5", tool=tool),
        make_result_message("m11", c5=f"{NAME} kept the harbour. {make_filler_text(result_tokens)}"),
    )
    return (build_user_message("m1", "Why did it silt up?"), *turns)


async def estimate_request_size(env: AgentEnvironment) -> int:
    """Estimate the tokens of the research agent's next request."""
    toolbox = env.agent_deps.build_role_toolbox("research")
    tools = json.dumps([spec.model_dump(mode="json", exclude={"strict"}) for spec in toolbox.visible_specs])
    return estimate_request_tokens(
        estimate_fixed_tokens(load_prompt("research"), tools), build_model_view(await env.load_transcript())
    )


async def run_compaction(
    env: AgentEnvironment,
    model: ScriptedModel,
    *,
    known_records: int = 0,
    give_up_summary: bool = False,
    limit: Limit | None = None,
) -> CompactionOutcome:
    env.model = model
    request = env.make_compaction_request(await estimate_request_size(env))
    return await env.compactor.compact(
        request.replace(known_records=known_records, skip_summary=give_up_summary, limit=limit or env.limit)
    )


def list_passage_texts(env: AgentEnvironment) -> list[str]:
    return [item.passage.text for item in env.memory.passages.values()]
