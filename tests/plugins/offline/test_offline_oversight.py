"""How the offline model looks over the work: it keeps the plan, and says where nothing answers."""

import pytest

from tests.plugins.offline.plan_runner import make_tool_spec
from waystation.context.transcript import ToolUse, build_user_message
from waystation.models.ports import ModelRequest
from waystation.models.profiles import OFFLINE_MODEL
from waystation.plugins.offline.chat_model import create_offline_model
from waystation.plugins.offline.plan import KEPT, NOTHING_ANSWERS
from waystation.plugins.offline.report import NOTHING_CLOSE


async def asked(text: str, tool: str) -> ToolUse:
    request = ModelRequest(
        model=OFFLINE_MODEL,
        system="Look it over.",
        messages=(build_user_message("m1", text),),
        tools=(make_tool_spec(tool),),
        max_output=2_000,
        require_tool=tool,
    )
    (call,) = (block for block in (await create_offline_model().complete(request)).blocks if isinstance(block, ToolUse))
    return call


async def test_a_plan_is_kept() -> None:
    assert (await asked("<plan>\n- research-1 (research, begun) Tides: When?\n</plan>", "revise_plan")).input == {
        "reason": KEPT
    }


async def test_no_report_is_judged() -> None:
    assert (await asked("<draft>\nAnything.\n</draft>", "review_report")).input == {"faults": []}


@pytest.mark.parametrize("said", [NOTHING_ANSWERS, NOTHING_CLOSE])
async def test_that_nothing_answers_the_question_is_a_fault(said: str) -> None:
    given = (await asked(f"<draft>\n{said}\n\n- Some words.\n</draft>", "review_report")).input
    assert given == {"faults": [{"kind": "uncovered", "text": said}]}
