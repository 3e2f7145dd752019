import pytest
from inline_snapshot import snapshot

from tests.support.agent_environment import TASK, AgentEnvironment, make_tool_use
from tests.support.scopes import SYSTEM_SCOPE
from waystation.agents.deliverables import Analysis, Finding, ReportDraft, ReportSection, ResearchFindings
from waystation.kernel.errors import StaleFenceError

NOTE = {"text": "It silted up.", "document": "harbour.md", "first_line": 2, "last_line": 2}
FINDING = {"claim": "It silted up.", "citations": ["[harbour.md:2-2]"]}


async def test_notes_are_kept_numbered_and_read_again(env: AgentEnvironment) -> None:
    assert await env.call_tool(make_tool_use("read_notes")) == snapshot(
        "You have 0 notes; none has number 1 or higher."
    )
    assert await env.call_tool(make_tool_use("take_note", "c1", **NOTE)) == "note 1 kept"
    assert await env.call_tool(make_tool_use("take_note", "c2", **{**NOTE, "text": "Two\nlines."})) == "note 2 kept"
    assert await env.call_tool(make_tool_use("read_notes")) == snapshot("""\
1. [harbour.md:2-2] It silted up.
2. [harbour.md:2-2] Two lines.\
""")
    assert await env.call_tool(make_tool_use("read_notes", first=2)) == "2. [harbour.md:2-2] Two lines."


async def test_notes_are_read_page_by_page(env: AgentEnvironment) -> None:
    for number in range(3):
        await env.call_tool(make_tool_use("take_note", f"c{number}", **NOTE))
    assert (await env.call_tool(make_tool_use("read_notes", count=2))).endswith("continues at note 3 of 3")


async def test_the_same_call_twice_keeps_one_note(env: AgentEnvironment) -> None:
    for _ in range(2):
        assert await env.call_tool(make_tool_use("take_note", "c1", **NOTE)) == "note 1 kept"


async def test_each_agent_reads_its_own_notes(env: AgentEnvironment) -> None:
    await env.call_tool(make_tool_use("take_note", "c1", **NOTE))
    assert (await env.call_tool(make_tool_use("read_notes"), "research-2")).startswith("You have 0 notes")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"document": "log.md"}, snapshot("ERROR There is no document 'log.md'. list_documents names all documents.")),
        ({"last_line": 3}, snapshot("ERROR Lines 2-3 are not in harbour.md, which has 2 lines.")),
        ({"last_line": 1}, snapshot("ERROR Lines 2-1 are not in harbour.md, which has 2 lines.")),
        (
            {"first_line": 0},
            snapshot("ERROR These arguments cannot be used. first_line: Input should be greater than or equal to 1"),
        ),
    ],
)
async def test_a_note_without_a_place_is_refused(env: AgentEnvironment, change: dict[str, object], error: str) -> None:
    assert await env.call_tool(make_tool_use("take_note", **{**NOTE, **change})) == error
    assert await env.store.list_notes(TASK, SYSTEM_SCOPE) == ()


async def test_findings_are_handed_in(env: AgentEnvironment) -> None:
    handed_in = make_tool_use("submit_findings", findings=[FINDING], open_questions=["Who dug?"])
    assert await env.call_tool(handed_in) == "1 finding submitted\n1 citation checked: all hold."
    finding = Finding(claim="It silted up.", citations=("[harbour.md:2-2]",))
    assert await env.store.get_deliverable(f"{TASK}/research-1", SYSTEM_SCOPE) == ResearchFindings(
        findings=(finding,), open_questions=("Who dug?",)
    )


async def test_an_analysis_is_handed_in(env: AgentEnvironment) -> None:
    handed_in = make_tool_use("submit_analysis", conclusions=[FINDING], gaps=["Nobody says who dug."])
    assert await env.call_tool(handed_in, "analysis") == (
        "analysis with 1 conclusion submitted\n1 citation checked: all hold."
    )
    analysis = await env.store.get_deliverable(f"{TASK}/analysis", SYSTEM_SCOPE)
    assert isinstance(analysis, Analysis)
    assert analysis.gaps == ("Nobody says who dug.",)


async def test_a_report_is_written_section_by_section_and_then_handed_in(env: AgentEnvironment) -> None:
    for number, heading in enumerate(["Causes", "Sources"], 1):
        written = make_tool_use("write_section", heading=heading, markdown="First try.")
        assert await env.call_tool(written, "writing") == f"section {number} kept: {heading}"
    again = make_tool_use("write_section", heading="Causes", markdown="Silt.")
    assert await env.call_tool(again, "writing") == "section 1 kept: Causes"
    handed_in = make_tool_use("submit_report", title="The harbour", summary="Silt.")
    assert await env.call_tool(handed_in, "writing") == "report with 2 sections submitted"
    assert await env.store.get_deliverable(f"{TASK}/writing", SYSTEM_SCOPE) == ReportDraft(
        title="The harbour",
        summary="Silt.",
        sections=(
            ReportSection(heading="Causes", markdown="Silt."),
            ReportSection(heading="Sources", markdown="First try."),
        ),
    )


async def test_a_report_without_a_section_is_not_handed_in(env: AgentEnvironment) -> None:
    handed_in = make_tool_use("submit_report", title="The harbour", summary="Silt.")
    assert await env.call_tool(handed_in, "writing") == snapshot(
        "ERROR The report has no sections yet. Write them with write_section, then submit the report."
    )
    assert await env.store.get_deliverable(f"{TASK}/writing", SYSTEM_SCOPE) is None


async def test_an_attempt_that_lost_its_run_hands_nothing_in(env: AgentEnvironment) -> None:
    lost = await env.make_tool_context()
    await env.make_tool_context()
    toolbox = env.agent_deps.build_role_toolbox("research")
    for call in (make_tool_use("take_note", **NOTE), make_tool_use("submit_findings", findings=[FINDING])):
        with pytest.raises(StaleFenceError):
            await toolbox.run(call, lost)
    assert await env.store.list_notes(TASK, SYSTEM_SCOPE) == ()
    assert await env.store.get_deliverable(f"{TASK}/research-1", SYSTEM_SCOPE) is None
