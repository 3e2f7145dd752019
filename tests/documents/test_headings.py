"""A section is found by its heading in any language, whatever its number and its punctuation are."""

import pytest

from waystation.documents.headings import find_heading

GERMAN = ("1. Einleitung", "2. Ergebnisse der Prüfung", "3. Straßen und Wege")
JAPANESE = ("第1章 はじめに", "第2章 調査結果", "３．費用")
ARABIC = ("المقدمة", "النتائج", "التكاليف")
RUSSIAN = ("Введение", "Результаты проверки", "Ещё вопросы")
ENGLISH = ("Causes", "Costs", "3 risks", "Results: 2024")


@pytest.mark.parametrize(
    ("headings", "wanted", "index"),
    [
        (ENGLISH, "Causes", 0),
        (ENGLISH, "## Costs", 1),
        (ENGLISH, "“Costs”", 1),
        (ENGLISH, "2. Costs", 1),
        (ENGLISH, "Section 2: COSTS", 1),
        (ENGLISH, "II. Costs", 1),
        (ENGLISH, "(b) Costs", 1),
        (ENGLISH, "3 risks", 2),
        (ENGLISH, "Results 2024", 3),
        (GERMAN, "Ergebnisse der Prüfung", 1),
        (GERMAN, "Abschnitt 2: „Ergebnisse der Pru\u0308fung“", 1),
        (GERMAN, "STRASSEN UND WEGE", 2),
        (GERMAN, "Kapitel 3 – Straßen und Wege", 2),
        (GERMAN, "2", 1),
        (GERMAN, "Abschnitt 3", 2),
        (JAPANESE, "調査結果", 1),
        (JAPANESE, "「調査結果」", 1),
        (JAPANESE, "第２章　調査結果", 1),
        (JAPANESE, "3. 費用", 2),
        (JAPANESE, "二、調査結果", 1),
        (ARABIC, "النَّتائج", 1),
        (ARABIC, "القسم ٢: النتائج", 1),
        (ARABIC, "«التكاليف»", 2),
        (RUSSIAN, "результаты проверки", 1),
        (RUSSIAN, "Раздел 2. «Результаты проверки»", 1),
        (RUSSIAN, "3) Ещё вопросы.", 2),
    ],
)
def test_the_heading_that_is_meant_is_found(headings: tuple[str, ...], wanted: str, index: int) -> None:
    assert find_heading(headings, wanted) == index


@pytest.mark.parametrize(
    ("headings", "wanted"),
    [
        (ENGLISH, ""),
        (ENGLISH, "4"),
        (ENGLISH, "No section covers costs"),
        (ENGLISH, "Cost"),
        (GERMAN, "Kein Abschnitt nennt die Ergebnisse der Prüfung"),
        (JAPANESE, "調査結果は得られなかった"),
        (RUSSIAN, "Нет данных"),
        (("1. Costs", "2. Costs"), "Costs"),
    ],
)
def test_a_reason_or_an_ambiguous_heading_is_none(headings: tuple[str, ...], wanted: str) -> None:
    assert find_heading(headings, wanted) is None


def test_of_headings_that_differ_in_their_numbers_the_named_one_is_found() -> None:
    assert [find_heading(("1. Costs", "2. Costs"), wanted) for wanted in ("2. Costs", "2) costs")] == [1, 1]
