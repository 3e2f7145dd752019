import pytest

from waystation.agents.deliverables import Analysis, Finding, ReportDraft, ReportSection, ResearchFindings
from waystation.documents.citations import Citation, FailedCitation
from waystation.reports.report import DraftUnderReview, find_faults, render_fault_list

FOUND = ResearchFindings(
    findings=(
        Finding(claim="It silted up.", citations=("[harbour.md:2-2]",)),
        Finding(claim="It was dug.", citations=("[harbour.md:1-1]",)),
    )
)
DRAFT = ReportDraft(
    title="The harbour",
    summary="Silt closed it [harbour.md:2-2].",
    sections=(ReportSection(heading="Causes", markdown="Silting [harbour.md:2-2]."),),
)


DRAFTED = DraftUnderReview(draft=DRAFT, requirements=("Why did harbours close?",), findings=(FOUND,), analysis=None)


def section(words: int, cited: str = "") -> ReportDraft:
    return DRAFT.with_section(ReportSection(heading="More", markdown=f"{'word ' * words}{cited}"))


def test_a_report_that_covers_and_cites_has_no_fault_and_unused_findings_are_counted() -> None:
    assert find_faults(DRAFTED) == ()
    assert DRAFTED.uncited_finding_count == 1


def test_a_citation_that_fails_is_a_fault() -> None:
    wrong = FailedCitation(citation=Citation(document="log.md", first_line=1, last_line=2), reason="no such document")
    assert (
        render_fault_list(find_faults(DRAFTED.replace(failed=(wrong,)))) == "- citation: [log.md:1-2]: no such document"
    )


def test_a_section_that_says_much_and_cites_nothing_is_a_fault() -> None:
    assert (
        render_fault_list(find_faults(DRAFTED.replace(draft=section(41))))
        == "- uncited: The section 'More' has no citation."
    )
    assert (
        find_faults(DRAFTED.replace(draft=section(40)))
        == find_faults(DRAFTED.replace(draft=section(41, "[a.md:1-1]")))
        == ()
    )


def test_what_was_asked_and_of_which_no_word_is_there_is_a_fault() -> None:
    asked = ("Name every lighthouse keeper", "What closed the harbours?", "Say which were there")
    faults = find_faults(DRAFTED.replace(requirements=asked))
    assert render_fault_list(faults) == "- uncovered: The report does not mention this: Name every lighthouse keeper"


ASKED_AND_SAID = {
    "de": ("Wie tief ist die Hafeneinfahrt?", "Die Hafeneinfahrten sind 4,1 m tief", "Nenne jeden Leuchtturmwärter"),
    "ru": ("Какова глубина гавани?", "Глубиной гавань в 4,1 м", "Назови каждого смотрителя маяка"),
    "ja": ("港の水深はどれくらいか", "水深は4.1メートルである", "灯台守の名前を挙げよ"),
    "ar": ("ما هو عُمق الميناء؟", "عمق ميناء المدينة ٤ أمتار", "اذكر أسماء حراس المنارة"),
}


@pytest.mark.parametrize(("asked", "said", "other"), ASKED_AND_SAID.values(), ids=ASKED_AND_SAID)
def test_what_was_asked_is_looked_for_in_any_language(asked: str, said: str, other: str) -> None:
    draft = ReportDraft(title="T", summary=f"{said} [harbour.md:2-2].")
    drafted = DraftUnderReview(draft=draft, requirements=(asked, other), findings=(FOUND,), analysis=None)
    assert [fault.text for fault in find_faults(drafted)] == [f"The report does not mention this: {other}"]


def test_what_was_asked_in_another_script_than_the_reports_is_not_called_missing() -> None:
    asked = tuple(question for question, _, _ in ASKED_AND_SAID.values() if not question.isascii())[1:]
    assert find_faults(DRAFTED.replace(requirements=asked)) == ()


def test_a_long_section_in_writing_without_spaces_needs_a_citation_too() -> None:
    long = DRAFT.with_section(ReportSection(heading="水深", markdown="港の水深は浅くなった。" * 9))
    assert [fault.kind for fault in find_faults(DRAFTED.replace(draft=long))] == ["uncited"]


def test_a_contradiction_that_the_report_is_silent_about_is_a_fault() -> None:
    told = "Dredging ended in 1811 by the pilot and in 1820 by the keeper"
    weighed = Analysis(conclusions=(), contradictions=(told,))
    assert [fault.kind for fault in find_faults(DRAFTED.replace(analysis=weighed))] == ["contradiction"]
    mentioned = DRAFT.with_section(
        ReportSection(heading="Dredging", markdown="Pilot and keeper disagree when it ended.")
    )
    assert find_faults(DRAFTED.replace(analysis=weighed, draft=mentioned)) == ()


def test_a_report_that_uses_no_finding_at_all_has_a_fault() -> None:
    elsewhere = ReportDraft(title="The harbours", summary="Closed [other.md:1-1].")
    assert [fault.kind for fault in find_faults(DRAFTED.replace(draft=elsewhere))] == ["unsupported"]
    assert find_faults(DRAFTED.replace(draft=elsewhere, findings=())) == ()


def test_whatever_a_citation_or_a_heading_is_called_a_fault_is_one_short_sentence() -> None:
    wrong = FailedCitation(citation=Citation(document="a" * 9_000, first_line=1, last_line=2), reason="x" * 200)
    headed = DRAFT.with_section(ReportSection(heading="\U000e0001" * 200, markdown="word " * 41))
    faults = find_faults(DRAFTED.replace(failed=(wrong,), draft=headed))
    assert [fault.kind for fault in faults] == ["citation", "uncited"]
