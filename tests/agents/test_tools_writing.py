import pytest
from inline_snapshot import snapshot

from tests.agents.office import TASK, Office, use
from tests.readers import ANYONE
from waystation.agents.deliverables import Analysis, Finding, ReportDraft, ResearchFindings, Section
from waystation.kernel.errors import StaleFenceError

NOTE = {"text": "It silted up.", "document": "harbour.md", "first_line": 2, "last_line": 2}
FINDING = {"claim": "It silted up.", "citations": ["[harbour.md:2-2]"]}


async def test_notes_are_kept_numbered_and_read_again(office: Office) -> None:
    assert await office.call(use("read_notes")) == snapshot("You have 0 notes; none from number 1 on.")
    assert await office.call(use("take_note", "c1", **NOTE)) == "note 1 kept"
    assert await office.call(use("take_note", "c2", **{**NOTE, "text": "Two\nlines."})) == "note 2 kept"
    assert await office.call(use("read_notes")) == snapshot("""\
1. [harbour.md:2-2] It silted up.
2. [harbour.md:2-2] Two lines.\
""")
    assert await office.call(use("read_notes", first=2)) == "2. [harbour.md:2-2] Two lines."


async def test_notes_are_read_page_by_page(office: Office) -> None:
    for number in range(3):
        await office.call(use("take_note", f"c{number}", **NOTE))
    assert (await office.call(use("read_notes", count=2))).endswith("continues at note 3 of 3")


async def test_the_same_call_twice_keeps_one_note(office: Office) -> None:
    for _ in range(2):
        assert await office.call(use("take_note", "c1", **NOTE)) == "note 1 kept"


async def test_each_agent_reads_its_own_notes(office: Office) -> None:
    await office.call(use("take_note", "c1", **NOTE))
    assert (await office.call(use("read_notes"), "research-2")).startswith("You have 0 notes")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"document": "log.md"}, snapshot("ERROR There is no document 'log.md'. list_documents names them all.")),
        ({"last_line": 3}, snapshot("ERROR Lines 2-3 are not in harbour.md, which has 2 lines.")),
        ({"last_line": 1}, snapshot("ERROR Lines 2-1 are not in harbour.md, which has 2 lines.")),
        (
            {"first_line": 0},
            snapshot("ERROR These arguments cannot be used. first_line: Input should be greater than or equal to 1"),
        ),
    ],
)
async def test_a_note_without_a_place_is_refused(office: Office, change: dict[str, object], error: str) -> None:
    assert await office.call(use("take_note", **{**NOTE, **change})) == error
    assert await office.store.notes(TASK, ANYONE) == ()


async def test_findings_are_handed_in(office: Office) -> None:
    handed_in = use("submit_findings", findings=[FINDING], open_questions=["Who dug?"])
    assert await office.call(handed_in) == "1 findings handed in"
    finding = Finding(claim="It silted up.", citations=("[harbour.md:2-2]",))
    assert await office.store.get_deliverable(f"{TASK}/research-1", ANYONE) == ResearchFindings(
        findings=(finding,), open_questions=("Who dug?",)
    )


async def test_an_analysis_is_handed_in(office: Office) -> None:
    handed_in = use("submit_analysis", conclusions=[FINDING], gaps=["Nobody says who dug."])
    assert await office.call(handed_in, "analysis") == "analysis with 1 conclusions handed in"
    analysis = await office.store.get_deliverable(f"{TASK}/analysis", ANYONE)
    assert isinstance(analysis, Analysis)
    assert analysis.gaps == ("Nobody says who dug.",)


async def test_a_report_is_written_section_by_section_and_then_handed_in(office: Office) -> None:
    for number, heading in enumerate(["Causes", "Sources"], 1):
        written = use("write_section", heading=heading, markdown="First try.")
        assert await office.call(written, "writing") == f"section {number} kept: {heading}"
    again = use("write_section", heading="Causes", markdown="Silt.")
    assert await office.call(again, "writing") == "section 1 kept: Causes"
    handed_in = use("submit_report", title="The harbour", summary="Silt.")
    assert await office.call(handed_in, "writing") == "report with 2 sections handed in"
    assert await office.store.get_deliverable(f"{TASK}/writing", ANYONE) == ReportDraft(
        title="The harbour",
        summary="Silt.",
        sections=(Section(heading="Causes", markdown="Silt."), Section(heading="Sources", markdown="First try.")),
    )


async def test_a_report_without_a_section_is_not_handed_in(office: Office) -> None:
    handed_in = use("submit_report", title="The harbour", summary="Silt.")
    assert await office.call(handed_in, "writing") == snapshot(
        "ERROR The report has no section yet. Write them with write_section, then hand it in."
    )
    assert await office.store.get_deliverable(f"{TASK}/writing", ANYONE) is None


async def test_an_attempt_that_lost_its_run_hands_nothing_in(office: Office) -> None:
    lost = await office.site()
    await office.site()
    toolbox = office.desk.toolbox("research")
    for call in (use("take_note", **NOTE), use("submit_findings", findings=[FINDING])):
        with pytest.raises(StaleFenceError):
            await toolbox.run(call, lost)
    assert await office.store.notes(TASK, ANYONE) == ()
    assert await office.store.get_deliverable(f"{TASK}/research-1", ANYONE) is None
