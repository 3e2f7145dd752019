import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.documents.citations import parse_citations
from waystation.documents.documents import (
    MAX_PLACE_CHARACTERS,
    find_line_place,
    join_with_place_markers,
    parse_place_marker,
    render_place_marker,
)

KINDS = st.sampled_from(["page", "slide", "sheet", "chapter", "section", "attachment"])
MARKED = st.builds("{} {}".format, KINDS, st.text(min_size=1).filter(lambda text: bool(text.split())))


@pytest.mark.parametrize(
    ("place", "marker"),
    [
        ("page 3", "[page 3]"),
        (
            "page 3 (recognised from a picture, confidence 0.93) of attachment scan.pdf",
            "[page 3 (recognised from a picture, confidence 0.93) of attachment scan.pdf]",
        ),
        ("sheet Costs: [2026]", "[sheet Costs- (2026)]"),
        ("page 2 of attachment a\nb.pdf", "[page 2 of attachment a b.pdf]"),
    ],
)
def test_a_marker_is_a_line_of_its_own_without_what_would_end_it(place: str, marker: str) -> None:
    assert render_place_marker(place) == marker
    assert parse_place_marker(marker) == marker[1:-1]


@given(MARKED)
def test_every_marker_is_read_back_and_is_never_a_citation(place: str) -> None:
    marker = render_place_marker(place)
    assert parse_place_marker(marker) == marker[1:-1]
    assert parse_citations(f"Text {marker} [a.pdf:1-2]") == parse_citations("Text [a.pdf:1-2]")
    assert len(marker) <= MAX_PLACE_CHARACTERS + 2


@pytest.mark.parametrize(
    "line", ["", "[1]", "[page]", " [page 3]", "[page 3] ", "[page 3].", "[package 3]", "[a.pdf:1-2]", "[page 3:1-2]"]
)
def test_other_lines_mark_no_place(line: str) -> None:
    assert parse_place_marker(line) is None


def test_parts_stand_under_their_places_and_cannot_claim_other_ones() -> None:
    parts = [
        ("", "Head."),
        ("page 1", "\nOne.  \r\n[page 7]\n"),
        ("page 2", " \n"),
        ("page 3", "Two."),
        ("page 3", "More."),
    ]
    text = join_with_place_markers(parts)
    assert text == "Head.\n\n[page 1]\nOne.\n [page 7]\n\n[page 3]\nTwo.\n\nMore."
    lines = text.splitlines()
    assert [find_line_place(lines, number) for number in (1, 2, 3, 5, 7, 10)] == [
        None,
        None,
        "page 1",
        "page 1",
        "page 3",
        "page 3",
    ]


@given(st.lists(st.tuples(st.just(""), st.text()) | st.tuples(MARKED, st.text())))
def test_whatever_the_parts_say_only_their_own_places_are_marked(parts: list[tuple[str, str]]) -> None:
    marked = {place for line in join_with_place_markers(parts).splitlines() if (place := parse_place_marker(line))}
    assert marked <= {render_place_marker(place)[1:-1] for place, _ in parts if place}
