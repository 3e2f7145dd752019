"""The offline model reads what its first message has of earlier steps, and asks for the rest alone."""

from waystation.agents.deliverables import Finding, ReportDraft, ResearchFindings
from waystation.agents.material import list_source_steps, render_material
from waystation.agents.tools.submissions import TaskDeliverables, render_claim
from waystation.planning.plan import Plan, Step
from waystation.plugins.offline.agent_request import AgentRequestView, ToolCallRecord, parse_task_brief
from waystation.plugins.offline.quotes import TOPIC
from waystation.plugins.offline.report import build_analysis_turn, build_writing_turn

RESEARCH = Step(id="research-1", role="research", title='Silt "and" tides', goal="Find silt.")
PLAN = Plan(
    steps=(
        RESEARCH,
        Step(id="analysis", role="analysis", title="Weigh the findings", goal="Weigh.", needs=("research-1",)),
        Step(id="writing", role="writing", title="Write", goal="Write.", needs=("research-1", "analysis")),
    )
)
FINDINGS = ResearchFindings(
    findings=tuple(
        Finding(claim=f'harbour: "Silt came in the year {number}."', citations=(f"[harbour.md:{number}-{number}]",))
        for number in range(1, 31)
    ),
    open_questions=("Who dredged it?",),
)


def view(space: int, step_id: str, exchanges: tuple[ToolCallRecord, ...] = ()) -> AgentRequestView:
    there = TaskDeliverables(PLAN, ReportDraft(), {}, {"research-1": FINDINGS})
    material = render_material(there, list_source_steps(PLAN, PLAN.get_step(step_id)), space)
    needs = "<needs>\n- step research-1 (Silt 'and' tides): 30 findings\n</needs>"
    opening = "\n".join(["<task>", "<question>\nWhat of silt?\n</question>", needs, *material, "</task>"])
    brief = parse_task_brief(opening)
    return AgentRequestView(brief=brief, opening=opening, exchanges=exchanges, max_tokens=8_000)


def test_nothing_is_read_again_that_stands_in_the_first_message() -> None:
    (call,) = build_writing_turn(view(10_000, "writing")).calls
    assert call.name == "write_section"
    markdown = str(call.input["markdown"])
    assert markdown.count("Silt came in the year") == 30
    assert "Who dredged it?" in markdown
    (call,) = build_analysis_turn(view(10_000, "analysis")).calls
    assert (call.name, call.input["gaps"]) == ("submit_analysis", [f"Silt 'and' tides{TOPIC}Who dredged it?"])


def test_what_was_left_out_there_is_read_with_the_tool() -> None:
    (call,) = build_writing_turn(view(600, "writing")).calls
    assert call.name == "read_findings"
    first = call.input["first"]
    assert isinstance(first, int)
    assert 1 < first < 30
    rest = [f"{number}. {render_claim(FINDINGS.findings[number - 1])}" for number in range(first, 31)]
    page = "\n".join([f"findings {first}-30 of 31 of step research-1", *rest])
    read = ToolCallRecord(name="read_findings", input=call.input, result=page)
    (call,) = build_writing_turn(view(600, "writing", (read,))).calls
    assert call.name == "write_section"
    assert str(call.input["markdown"]).count("Silt came in the year") == 30
