from hypothesis import given
from hypothesis import strategies as st

from waystation.documents.documents import DocumentPassage
from waystation.documents.search import MAX_PASSAGE_CHARACTERS, MAX_PASSAGE_LINES, OVERLAP, split_into_passages

LINES = st.lists(
    st.one_of(st.just(""), st.just("   "), st.just("# Heading"), st.text("abc ", min_size=1), st.just("x" * 4_500))
)


def places(text: str) -> list[tuple[int, int]]:
    return [(passage.first_line, passage.last_line) for passage in split_into_passages("a.md", text)]


@given(LINES)
def test_passages_hold_every_line_with_text_once_and_stay_in_bounds(lines: list[str]) -> None:
    passages = list(split_into_passages("a.md", "\n".join(lines)))
    for passage in passages:
        assert passage.last_line - passage.first_line < MAX_PASSAGE_LINES
        assert 0 < len(passage.text) <= MAX_PASSAGE_CHARACTERS
        assert passage.text.count("\n") == passage.last_line - passage.first_line
    joined = "".join(_new(passage) for passage in passages).replace("\n", "")
    assert joined == "".join(line.rstrip() for line in lines)
    numbers = [(passage.first_line, passage.last_line) for passage in passages]
    assert numbers == sorted(numbers)


def _new(passage: DocumentPassage) -> str:
    """Without what it shares with the part of the line before."""
    return passage.text[OVERLAP:] if passage.first_character > 1 else passage.text


@given(st.integers(0, 5_900), st.integers(1, OVERLAP))
def test_of_a_long_line_every_phrase_is_whole_in_one_part_which_says_where_it_is(start: int, length: int) -> None:
    line = "".join(f"{number:04d}" for number in range(1_600))
    phrase = line[start : start + length]
    parts = list(split_into_passages("a.json", f"before\n{line}\nafter"))[1:-1]
    assert any(phrase in part.text for part in parts)
    for part in parts:
        begin = part.first_character - 1
        assert (part.first_line, part.last_line) == (2, 2)
        assert line[begin : begin + len(part.text)] == part.text


def test_no_placeholder_is_parted_at_the_end_of_a_part() -> None:
    placeholder = "<PERSON_7f3a2c91d04e>"
    line = "x" * (MAX_PASSAGE_CHARACTERS - 10) + placeholder + "y" * 1_000
    assert all(part.text.count("<PERSON") == part.text.count(placeholder) for part in split_into_passages("a.md", line))


def test_small_paragraphs_are_put_together_and_never_torn() -> None:
    paragraph = "one\ntwo\nthree\n\n"
    assert places(paragraph * 5) == [(1, 11), (13, 19)]


def test_a_long_paragraph_is_cut_at_the_line_limit() -> None:
    assert places("line\n" * 30) == [(1, 12), (13, 24), (25, 30)]


def test_a_heading_starts_a_passage_and_headings_in_a_row_stay_together() -> None:
    assert places("intro\n\n# Part\n\n## Chapter\n\ntext\n\n## Next\ntext") == [(1, 1), (3, 7), (9, 10)]


def test_a_passage_knows_the_heading_above_it() -> None:
    passages = list(split_into_passages("a.md", "# Part\n" + "line\n" * 15))
    assert [(passage.first_line, passage.heading) for passage in passages] == [(1, ""), (13, "# Part")]


def test_a_line_that_is_too_long_is_cut_into_passages_with_its_number() -> None:
    passages = list(split_into_passages("a.json", "{}\n" + "x" * 4_500 + "\n{}"))
    assert [(p.first_line, p.last_line, len(p.text)) for p in passages] == [
        (1, 1, 2),
        (2, 2, 2_000),
        (2, 2, 2_000),
        (2, 2, 900),
        (3, 3, 2),
    ]


def test_a_marked_place_starts_a_passage_and_keeps_the_headings_under_it() -> None:
    text = "[page 1]\n# Part\n\none\n[page 2]\n[page 3]\ntwo\n\n[three]"
    passages = list(split_into_passages("a.pdf", text))
    assert [(passage.first_line, passage.last_line) for passage in passages] == [(1, 4), (5, 5), (6, 9)]
    assert [passage.heading for passage in passages] == ["", "# Part", "# Part"]
