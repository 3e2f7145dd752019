"""How the offline model looks over the work: it adds a step where nothing matched, and says where nothing answers."""

import pytest

from tests.adapters.offline_team import offline_model, spec
from waystation.adapters.offline.plan import NOTHING_ANSWERS
from waystation.adapters.offline.report import NOTHING_CLOSE
from waystation.domain.models import OFFLINE_MODEL
from waystation.domain.plan import Plan, PlanChange, Step, change_errors, changed
from waystation.domain.transcript import ToolUse, user_text
from waystation.ports import ModelRequest

QUESTION = "Which licences do the packages carry, and who maintains them?"
BEGUN = frozenset({"research-1", "research-2"})
PLAN = Plan(
    steps=(
        Step(id="research-1", role="research", title="Licences", goal="Which licences do the packages carry?"),
        Step(id="research-2", role="research", title="Maintainers", goal="Who maintains them?"),
        Step(id="analysis", role="analysis", title="Weigh", goal="Weigh.", needs=("research-1", "research-2")),
        Step(id="writing", role="writing", title="Write", goal="Write.", needs=("research-2", "analysis")),
    )
)
NOTHING = "- open: Nothing in the documents matched: Who maintains them?"


def opening(found: str, room: int = 2, question: str = QUESTION) -> str:
    steps = [
        f"- {step.id} ({step.role}, {'begun' if step.id in BEGUN else 'not begun'}"
        f"{' needs ' + ', '.join(step.needs) if step.needs else ''}) {step.title}: {step.goal}"
        for step in PLAN.steps
    ]
    return "\n".join(
        [
            f"<task>\n<question>\n{question}\n</question>\n</task>",
            "\n".join(["<plan>", *steps, "</plan>"]),
            '<found step="research-1" title="Licences">\n- MIT [a.md:1-1]\n</found>',
            f'<found step="research-2" title="Maintainers">\n{found}\n</found>',
            f"<room>There is budget for {room} new steps.</room>",
        ]
    )


async def asked(text: str, tool: str) -> ToolUse:
    request = ModelRequest(
        model=OFFLINE_MODEL,
        system="Look it over.",
        messages=(user_text("m1", text),),
        tools=(spec(tool),),
        max_output=2_000,
        require_tool=tool,
    )
    (call,) = (block for block in (await offline_model().complete(request)).blocks if isinstance(block, ToolUse))
    return call


async def test_what_nothing_matched_is_looked_for_once_more_with_the_whole_question() -> None:
    call = await asked(opening(NOTHING), "revise_plan")
    assert "Nothing matched the words of research-2" in str(call.input.pop("reason"))
    change = PlanChange.model_validate(call.input)
    assert change_errors(PLAN, change, BEGUN, room=2) == ()
    after = changed(PLAN, change, BEGUN)
    assert after.step("research-again").goal == QUESTION
    assert after.step("writing").needs == ("research-2", "analysis", "research-again")
    assert "research-again" in after.step("analysis").needs


@pytest.mark.parametrize(
    "text",
    [opening("- Ada [a.md:1-1]"), opening(NOTHING, room=0), opening(NOTHING, question="Who maintains them?")],
    ids=["all found something", "no room", "no other words"],
)
async def test_else_the_plan_is_kept(text: str) -> None:
    call = await asked(text, "revise_plan")
    assert set(call.input) == {"reason"}


async def test_no_report_is_judged() -> None:
    assert (await asked("<draft>\nAnything.\n</draft>", "review_report")).input == {"faults": []}


@pytest.mark.parametrize("said", [NOTHING_ANSWERS, NOTHING_CLOSE])
async def test_that_nothing_answers_the_question_is_a_fault(said: str) -> None:
    given = (await asked(f"<draft>\n{said}\n\n- Some words.\n</draft>", "review_report")).input
    assert given == {"faults": [{"kind": "uncovered", "text": said}]}
