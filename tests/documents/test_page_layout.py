"""The reading order of recognised pieces of text."""

from collections.abc import Sequence
from math import cos, radians, sin

from hypothesis import given
from hypothesis import strategies as st

from waystation.documents.readers.page_layout import Corner, build_page_text

Box = tuple[str, Sequence[Corner]]
LEFT = [f"left column of prose, line {number}" for number in range(4)]
RIGHT = [f"right column of prose, line {number}" for number in range(4)]


def make_box(text: str, left: float, top: float, width: float = 400, height: float = 20) -> Box:
    right, bottom = left + width, top + height
    return text, [(left, top), (right, top), (right, bottom), (left, bottom)]


def turn(box: Box, degrees: float) -> Box:
    text, corners = box
    angle = radians(degrees)
    return text, [(x * cos(angle) - y * sin(angle), x * sin(angle) + y * cos(angle)) for x, y in corners]


def make_columns(top: float = 100) -> list[Box]:
    rows = zip(LEFT, RIGHT, strict=True)
    return [
        box
        for number, (one, other) in enumerate(rows)
        for box in (make_box(one, 0, top + 30 * number), make_box(other, 450, top + 3 + 30 * number))
    ]


def test_columns_of_prose_are_read_one_after_another_below_their_heading() -> None:
    heading, footer = make_box("A heading across", 100, 40, 650), make_box("A footer across both of them", 0, 400, 850)
    assert build_page_text([*make_columns(), footer, heading]) == (
        "A heading across\n\n" + "\n".join(LEFT) + "\n\n" + "\n".join(RIGHT) + "\n\nA footer across both of them"
    )


def test_a_row_of_a_table_is_one_line_with_its_cells_apart() -> None:
    rows = [("1.1", "Dredging of the inner harbour", "7,919.37"), ("1.2", "Repair of the mole after gales", "838.74")]
    boxes = [
        make_box(text, left, 100 + 30 * number, width)
        for number, row in enumerate(rows)
        for text, left, width in zip(row, (0, 100, 700), (40, 420, 90), strict=True)
    ]
    assert build_page_text(boxes[::-1]) == "\n".join(" | ".join(row) for row in rows)


def test_a_skewed_page_is_read_like_a_straight_one() -> None:
    lines = [make_box(f"Line {number} of a page", 0, 30 * number, 900) for number in range(6)]
    words = [make_box("Two", 0, 300, 60), make_box("words", 70, 300, 90)]
    straight = build_page_text([*lines, *words])
    assert straight.endswith("\n\nTwo words")
    for degrees in (-3, 3):
        assert build_page_text([turn(box, degrees) for box in (*lines, *words)]) == straight


def test_paragraphs_are_apart() -> None:
    assert (
        build_page_text([make_box("One", 0, 0), make_box("more", 0, 28), make_box("Two", 0, 80)]) == "One\nmore\n\nTwo"
    )


@given(
    st.lists(
        st.tuples(
            st.integers(0, 900), st.integers(0, 900), st.integers(1, 800), st.integers(1, 60), st.sampled_from([0, 90])
        ),
        max_size=40,
    )
)
def test_every_piece_is_read_exactly_once(places: list[tuple[int, int, int, int, int]]) -> None:
    boxes = [
        turn(make_box(f"<{number} lies on this page>", left, top, width, height), degrees)
        for number, (left, top, width, height, degrees) in enumerate(places)
    ]
    text = build_page_text(boxes)
    assert all(text.count(said) == 1 for said, _ in boxes)
