"""A research agent whose context is full, and compactions of it."""

import json
from collections.abc import Sequence

from tests.agents.office import NAME, Office
from tests.unit.histories import calls, prose, research, results
from waystation.agents.roles import prompt
from waystation.context.history import build_model_view
from waystation.context.outcome import CompactionOutcome
from waystation.context.tokens import estimate_fixed_tokens, estimate_request_tokens
from waystation.context.transcript import Message, Text, build_user_message
from waystation.kernel.amount import Limit
from waystation.kernel.usage import Usage
from waystation.models.ports import ModelResponse, StopReason
from waystation.testing import ScriptedModel, make_scripted_response

SPENT_BEFORE = 13 * 120
"""What the turns of the conversation cost."""


def summary(text: str = f"The keeper {NAME} let it silt up.", stop: StopReason | None = None) -> ModelResponse:
    said = f"{text} {prose(300)}" if text else ""
    return make_scripted_response(Text(text=said), usage=Usage(input=9_000, output=400), stop=stop)


def conversation(tool: str = "recall", result_tokens: int = 1_300) -> Sequence[Message]:
    """Thirteen turns; in the fifth a person is named."""
    turns = research(13, result_tokens, tool=tool)
    turns[8:10] = calls("m10", "c5", tool=tool), results("m11", c5=f"{NAME} kept the harbour. {prose(result_tokens)}")
    return (build_user_message("m1", "Why did it silt up?"), *turns)


async def request_size(office: Office) -> int:
    """Estimated tokens of the next request of the research agent."""
    toolbox = office.desk.toolbox("research")
    tools = json.dumps([spec.model_dump(mode="json") for spec in toolbox.specs])
    return estimate_request_tokens(
        estimate_fixed_tokens(prompt("research"), tools), build_model_view(await office.transcript())
    )


async def compressed(
    office: Office,
    model: ScriptedModel,
    *,
    known_records: int = 0,
    give_up_summary: bool = False,
    limit: Limit | None = None,
) -> CompactionOutcome:
    office.model = model
    request = office.compaction(await request_size(office))
    return await office.condenser.compress(
        request.replace(known_records=known_records, give_up_summary=give_up_summary, limit=limit or office.limit)
    )


def passages_of(office: Office) -> list[str]:
    return [item.passage.text for item in office.memory.passages.values()]
