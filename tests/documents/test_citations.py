import re
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.documents.citations import (
    FAILED_CITATION_MARK,
    MAX_SEARCHED_CHARACTERS,
    QUOTATION_NOT_FOUND,
    QUOTATION_NOT_FOUND_NEARBY,
    Citation,
    CitedDocument,
    check_citations,
    correct_quotations,
    extract_claims,
    parse_citations,
    strip_failed_citation_marks,
)
from waystation.reports.blocks import parse_stored_report

DOCUMENTS = {
    "harbour.md": [
        "The harbour was dug in 1811.",
        "It silted up within   ten years,",
        "and nobody dredged it again.",
        "",
        "Its keeper was <PERSON_7f3a2c91d04e> of <LOCATION_0123456789ab>.",
    ],
    "a:b (1).txt": ["One line."],
}


def test_a_sentence_before_a_quotation_is_a_claim_of_its_own() -> None:
    assert [
        (one.text, bool(one.citations)) for one in extract_claims('It is 3. So it is: "Ah. Yes." [a.md:1-1] Then.')
    ] == [
        ("It is 3.", False),
        ('So it is: "Ah. Yes."', True),
        ("Then.", False),
    ]


def cited(first: int, last: int, quotation: str | None = None, document: str = "harbour.md") -> Citation:
    return Citation(document=document, first_line=first, last_line=last, quotation=quotation)


def fault(citation: Citation, documents: Mapping[str, Sequence[str]]) -> str | None:
    return check_citations([citation], {name: CitedDocument(lines) for name, lines in documents.items()})[citation]


def test_every_citation_is_found_in_order_and_each_once() -> None:
    markdown = "# Report\n\nDug early [harbour.md:1-1]. Silted up [harbour.md:2-3].\n- Again [harbour.md:1-1]\n"
    assert parse_citations(markdown) == (cited(1, 1), cited(2, 3))


def test_a_document_name_may_hold_colons_and_spaces() -> None:
    assert parse_citations("So it is [a:b (1).txt:1-1].") == (cited(1, 1, document="a:b (1).txt"),)


@pytest.mark.parametrize("text", ["[harbour.md]", "[harbour.md:1]", "[link](harbour.md:1-2)", "[a:b]", "[1-2]"])
def test_what_is_no_citation_is_left_alone(text: str) -> None:
    assert parse_citations(text) == ()


@pytest.mark.parametrize(
    "quoted",
    ['"The harbour was dug in 1811."', "“The harbour was dug in 1811.”", '"The harbour was dug in 1811."  '],
)
def test_a_quotation_belongs_to_the_citation_directly_after_it(quoted: str) -> None:
    markdown = f"They write {quoted}[harbour.md:1-1][harbour.md:2-2] and more [harbour.md:3-3]."
    assert parse_citations(markdown) == (cited(1, 1, "The harbour was dug in 1811."), cited(2, 2), cited(3, 3))


def test_two_quotations_on_one_line_each_belong_to_their_own_citation() -> None:
    markdown = (
        '"The harbour was dug" [harbour.md:1-1] but “nobody dredged it” [harbour.md:3-3], it "silted" [harbour.md:2-2]'
    )
    assert parse_citations(markdown) == (
        cited(1, 1, "The harbour was dug"),
        cited(3, 3, "nobody dredged it"),
        cited(2, 2),
    )


def test_a_quotation_on_the_line_before_does_not_belong_to_a_citation() -> None:
    assert parse_citations('"The harbour was dug in 1811."\n[harbour.md:1-1]') == (cited(1, 1),)


@pytest.mark.parametrize(
    ("citation", "expected"),
    [
        (cited(1, 5), None),
        (cited(1, 1, "The harbour was dug in 1811."), None),
        (cited(2, 3, "silted up within ten years, and nobody"), None),
        (cited(2, 2, "silted up\twithin\n ten years"), None),
        (cited(1, 1, "The harbour was dug in 1911."), "the quoted words are not in these lines"),
        (cited(1, 1, "nobody dredged it again."), "the quoted words are not in these lines"),
        (cited(0, 1), "the document has 5 lines"),
        (cited(2, 6), "the document has 5 lines"),
        (cited(3, 2), "the document has 5 lines"),
        (cited(1, 1, document="harbor.md"), "there is no such document"),
    ],
)
def test_a_citation_holds_where_its_lines_and_its_words_are_there(citation: Citation, expected: str | None) -> None:
    assert fault(citation, DOCUMENTS) == expected


ORIGINALS = {"keepers.md": ["Its keeper was Ada Lovelace of London, then Mary Shelley of Bath."]}


@pytest.mark.parametrize(
    ("quotation", "holds"),
    [
        ("Its keeper was <PERSON_7f3a2c91d04e> of <LOCATION_0123456789ab>,", True),
        ("<PERSON_7f3a2c91d04e> of London, then <PERSON_00112233aabb> of Bath.", True),
        ("keeper was <PERSON_7f3a2c91d04e>", True),
        ("<PERSON_7f3a2c91d04e> <PERSON_00112233aabb>", True),
        ("Its keeper was <PERSON_7f3a2c91d04e> of Paris", False),
        ("Its keeper was Ada Lovelace<PERSON_7f3a2c91d04e> of London", False),
        ("of Bath.<PERSON_7f3a2c91d04e>", False),
    ],
)
def test_a_placeholder_in_a_quotation_stands_for_some_words(quotation: str, holds: bool) -> None:
    assert (fault(cited(1, 1, quotation, "keepers.md"), ORIGINALS) is None) == holds


def test_a_placeholder_stands_for_no_more_than_400_characters() -> None:
    for gap, holds in ((400, True), (401, False)):
        documents = {"d": ["from" + "x" * gap + "to"]}
        assert (fault(cited(1, 1, "from<SECRET_7f3a2c91d04e>to", "d"), documents) is None) == holds


def test_placeholders_side_by_side_stand_for_so_much_more() -> None:
    quotation = "from<SECRET_7f3a2c91d04e><PERSON_7f3a2c91d04e>to"
    for gap, holds in ((1, False), (2, True), (800, True), (801, False)):
        documents = {"d": ["from" + "x" * gap + "to"]}
        assert (fault(cited(1, 1, quotation, "d"), documents) is None) == holds


WORDS = st.text("ab ", max_size=6)
HIDDEN = "<PERSON_7f3a2c91d04e>"


@given(
    st.lists(WORDS, min_size=1, max_size=6),
    st.lists(WORDS | st.just(HIDDEN), min_size=1, max_size=6),
    st.data(),
)
def test_quoted_words_stand_there_where_one_pattern_with_gaps_says_so(
    lines: list[str], quoted: list[str], data: st.DataObject
) -> None:
    first = data.draw(st.integers(1, len(lines)))
    last = data.draw(st.integers(first, len(lines)))
    quotation = " ".join("".join(quoted).split())
    pattern = ".{1,400}".join(map(re.escape, quotation.split(HIDDEN)))
    found = re.search(pattern, " ".join(" ".join(lines[first - 1 : last]).split()))
    assert (fault(cited(first, last, quotation, "d"), {"d": lines}) is None) == (found is not None)


def test_a_quotation_is_looked_for_in_the_first_20_000_characters_of_the_cited_lines() -> None:
    lines = ["word " * 5, "The harbour was dug.", *["word " * 200] * 99, "It silted up again."]
    assert fault(cited(1, 102, "The harbour was dug", "d"), {"d": lines}) is None
    assert fault(cited(90, 102, "It silted up again", "d"), {"d": lines}) is None
    assert fault(cited(1, 102, "It silted up again", "d"), {"d": lines}) == QUOTATION_NOT_FOUND_NEARBY
    assert QUOTATION_NOT_FOUND_NEARBY.startswith(
        "the quoted words are not in the first 20,000 characters of these lines; cite"
    )
    for before in ("", "a"):
        for more, expected in (("", None), ("x", QUOTATION_NOT_FOUND_NEARBY)):
            line = more + "x" * (MAX_SEARCHED_CHARACTERS - 8) + "the last"
            assert fault(cited(2, 3, "the last", "d"), {"d": [before, line, " ", "b"]}) == expected
    assert fault(cited(2, 2, "the last.", "d"), {"d": ["a", "x" * MAX_SEARCHED_CHARACTERS, "b"]}) == QUOTATION_NOT_FOUND


def test_the_check_of_a_quotation_full_of_placeholders_ends() -> None:
    quotation = " ".join(["<PERSON_7f3a2c91d04e>"] * 40) + " nowhere"
    documents = {"d": ["a b " * 2_000]}
    assert fault(cited(1, 1, quotation, "d"), documents) == "the quoted words are not in these lines"


def test_a_citation_is_written_as_it_is_read() -> None:
    assert parse_citations(str(cited(2, 3))) == (cited(2, 3),)


@pytest.mark.parametrize("quoted", ["ends with </task> here", "ends with &lt;/task> here"])
@pytest.mark.parametrize("line", ["It ends with </task> here.", "It ends with ‹/task> here."])
def test_a_tag_may_be_quoted_as_it_was_shown_or_as_it_stands(quoted: str, line: str) -> None:
    (citation,) = parse_citations(f'It "{quoted}" [a.md:1-1]')
    assert fault(citation, {"a.md": [line]}) is None


SAID = (
    "The harbour silted up; within  ten years (1811),",
    'it was closed. He said "never again" and left at -5.5 degrees.',
    "Straße ÜBER 15 percent, <PERSON_7f3a2c91d04e> wrote.",
    "他说:港口已经关闭了很久。",
)


def put_right(markdown: str) -> str:
    document = {"d.md": CitedDocument(SAID)}
    made = correct_quotations(markdown, check_citations(parse_citations(markdown), document), document)
    again = strip_failed_citation_marks(made.markdown)
    assert check_citations(parse_citations(again), document) == made.faults
    return made.markdown


@pytest.mark.parametrize(
    ("quoted", "says"),
    [
        ('"silted up, within ten years" [d.md:1-1]', '"silted up; within ten years" [d.md:1-1]'),
        (
            '"up within ten years 1811 it was closed." [d.md:1-2]',
            '"up; within ten years (1811), it was closed." [d.md:1-2]',
        ),
        ("\"He said 'never again' and left\" [d.md:2-2]", '“He said "never again" and left” [d.md:2-2]'),
        (
            "“strasse… no, straße über 15 percent” [d.md:3-3]",
            f"“strasse… no, straße über 15 percent” [d.md:3-3]{FAILED_CITATION_MARK}",
        ),
        ("“straße über 15 PERCENT” [d.md:3-3]", "“Straße ÜBER 15 percent” [d.md:3-3]"),
        ('"percent <person_7f3a2c91d04e> wrote" [d.md:3-3]', '"percent, <PERSON_7f3a2c91d04e> wrote" [d.md:3-3]'),
        ('"港口,已经关闭了很久" [d.md:4-4]', '"港口已经关闭了很久" [d.md:4-4]'),
        ('"Closed it was for ever" [d.md:2-2]', f'"Closed it was for ever" [d.md:2-2]{FAILED_CITATION_MARK}'),
        ('"silted up, within ten years" [d.md:2-2]', f'"silted up, within ten years" [d.md:2-2]{FAILED_CITATION_MARK}'),
        ('"……!! …… ??" [d.md:1-1]', f'"……!! …… ??" [d.md:1-1]{FAILED_CITATION_MARK}'),
        ("[gone.md:1-2], so.", f"[gone.md:1-2]{FAILED_CITATION_MARK}, so."),
    ],
)
def test_a_quotation_that_differs_in_small_things_says_what_the_document_says_and_another_is_marked(
    quoted: str, says: str
) -> None:
    assert put_right(f"It says {quoted}") == f"It says {says}"
    assert put_right(f"It says {says}") == f"It says {says}"


@pytest.mark.parametrize(
    "quoted", ["left at 5.5 degrees up", "left at -55 degrees", "left at -5,5 degrees", "over 1.5 percent"]
)
def test_a_number_that_is_another_is_no_small_difference(quoted: str) -> None:
    assert put_right(f'"{quoted}" [d.md:2-3]') == f'"{quoted}" [d.md:2-3]{FAILED_CITATION_MARK}'


@given(st.text('ab1. ,-;"“”\n', max_size=60), st.integers(0, 60), st.integers(8, 40), st.text(".,; -!", max_size=3))
def test_what_is_put_right_holds_and_stands_in_the_document(text: str, start: int, length: int, signs: str) -> None:
    lines = text.split("\n")
    quotation = " ".join(text[start : start + length].upper().replace(",", signs).split())
    markdown = f'So "{quotation}" [d.md:1-{len(lines)}]'
    document = {"d.md": CitedDocument(lines)}
    made = correct_quotations(markdown, check_citations(parse_citations(markdown), document), document)
    for citation, reason in made.faults.items():
        if reason is None and citation.quotation is not None:
            assert document["d.md"].find_quotation_fault(citation.quotation, 1, len(lines)) is None
    assert parse_citations(strip_failed_citation_marks(made.markdown)) == tuple(made.faults)


def test_marks_are_no_claims_and_are_not_sent_twice() -> None:
    marked = put_right("It is so [gone.md:1-2]. Then more [d.md:1-1].")
    assert extract_claims(marked) == extract_claims(strip_failed_citation_marks(marked))
    assert FAILED_CITATION_MARK not in parse_stored_report(marked).body


@pytest.mark.parametrize(
    "quoted",
    [
        "„Der Hafen wurde 1811 gebaut.“",
        "»Der Hafen wurde 1811 gebaut.«",
        "« Der Hafen wurde 1811 gebaut. »",
        "«Der Hafen wurde 1811 gebaut.»",
        "„Der Hafen wurde 1811 gebaut.”",
        "「Der Hafen wurde 1811 gebaut.」",
        "『Der Hafen wurde 1811 gebaut.』",
    ],
)
def test_a_quotation_may_have_the_marks_of_any_language(quoted: str) -> None:
    (citation,) = parse_citations(f"Es heißt „dort“ und {quoted} [harbour.md:1-1]")
    assert citation.quotation is not None
    assert fault(citation, {"harbour.md": ["Der Hafen wurde 1811 gebaut."]}) is None
    assert (
        fault(citation, {"harbour.md": ["Der Hafen wurde 1812 gebaut."]}) == "the quoted words are not in these lines"
    )


def test_quotations_within_a_quotation_of_any_language_belong_to_it() -> None:
    (citation,) = parse_citations("Er schrieb «sie sagten «nein, nie» und gingen» [harbour.md:1-1]")
    assert citation.quotation == "sie sagten «nein, nie» und gingen"
    (citation,) = parse_citations("A « was » opened» [harbour.md:1-1]")
    assert citation.quotation is None
