from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.ocr.__main__ import LEAST_RIGHT, measure_pages
from benchmarks.ocr.score import compute_edit_distance, count_wrong_characters

WORDS = st.text("abc", max_size=12)


def compute_distance_by_table(one: str, other: str) -> int:
    row = [*range(len(other) + 1)]
    for number, sign in enumerate(one, 1):
        above, row[0] = row[0], number
        for place, its in enumerate(other, 1):
            above, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, above + (sign != its))
    return row[-1]


@given(WORDS, WORDS)
def test_the_edit_distance_is_that_of_the_plain_table(one: str, other: str) -> None:
    assert compute_edit_distance(one, other) == compute_distance_by_table(one, other)


def test_marks_of_places_and_cells_are_no_characters_of_a_page() -> None:
    read = "[page 1 (recognised from a picture, confidence 0.93)]\nDredging  |  1.5\n\n“Repair”"
    assert count_wrong_characters('Dredging 1.5 "Repair"', read) == 0
    assert count_wrong_characters("Dredging", "Dredqinq") == 2
    assert count_wrong_characters("Dredging", "") == 8


def test_a_clean_and_a_noisy_page_are_recognised(tmp_path: Path) -> None:
    results, memory = measure_pages(2, tmp_path)
    for result in results:
        assert 1 - result.wrong / result.characters >= LEAST_RIGHT[result.damage]
    assert [result.damage for result in results] == ["clean, 300 dpi", "noisy, 150 dpi"]
    assert memory > 0
