"""Whether a report meets its criteria is found in any language."""

import pytest

from waystation.agents.deliverables import ReportDraft, ReportSection, check_criteria

CITED = "[harbour.md:1-1]"


@pytest.mark.parametrize(
    ("criterion", "heading", "where"),
    [
        ("Gives the depth", "Depth", "Section 1: “Depth”"),
        ("Nennt die Tiefe", "1. Ergebnisse der Prüfung", "Ergebnisse der Prüfung"),
        ("深さを示す", "第1章 調査結果", "「調査結果」"),
        ("يذكر العمق", "١. النتائج", "النَّتائج"),
        ("Указана глубина", "1. Результаты проверки", "Раздел 1: «результаты проверки»"),
    ],
)
def test_a_criterion_is_met_by_the_section_that_its_writer_means(criterion: str, heading: str, where: str) -> None:
    sections = (ReportSection(heading=heading, markdown=f"4,1 m {CITED}."),)
    draft = ReportDraft(title="T", sections=sections, criteria=(where,))
    (met,) = check_criteria([criterion], draft, {CITED}, set())
    assert (met.state, met.heading, met.citations) == ("met", heading, (CITED,))
    (wrong,) = check_criteria([criterion], draft, set(), {CITED})
    assert wrong.state == "not met"


@pytest.mark.parametrize(
    ("heading", "why_not"),
    [
        ("Ergebnisse", "Kein Abschnitt nennt die Ergebnisse"),
        ("調査結果", "調査結果には深さがない"),
        ("النتائج", "لا توجد بيانات في النتائج"),
        ("Результаты", "В результатах нет глубины"),
    ],
)
def test_a_reason_that_names_a_section_is_no_section(heading: str, why_not: str) -> None:
    sections = (ReportSection(heading=heading, markdown=f"4,1 m {CITED}."),)
    (result,) = check_criteria(["?"], ReportDraft(title="T", sections=sections, criteria=(why_not,)), {CITED}, set())
    assert (result.state, result.why_not) == ("not met", f"because the report's writer says: {why_not}")
