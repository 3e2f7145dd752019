"""Citations in every usual spelling are the same citation; nothing else of a text changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.documents.citation_spelling import (
    CitableDocuments,
    find_place_lines,
    normalise_citation_string,
    normalise_citations,
)
from waystation.documents.citations import CITATION_PATTERN, CitedDocument, parse_citations

PAPER = [
    "[page 1]",
    "a",
    "b",
    "",
    "[page 2 (recognised from a picture, confidence 0.93)]",
    "c",
    "d",
    "[page 3]",
    "e",
    "[page 3 of attachment x.pdf]",
    "f",
]
SLIDES = ["[slide 1]", "a", "[slide 2]", "b", "[slide 1]", "c"]
LINES = {
    "a.md": 100,
    "b.md": 40,
    "docs/My File (1).txt": 50,
    "report: 2020-2021.md": 30,
    "paper.pdf": len(PAPER),
    "talk.pptx": len(SLIDES),
    "x.y.md": 9,
    "_index.md": 9,
    "Ärger, Teil 2.docx": 20,
    "north/plan.md": 9,
    "south/plan.md": 9,
    "https://example.org/page": 30,
}
CITABLE = CitableDocuments(LINES, {"paper.pdf": find_place_lines(PAPER), "talk.pptx": find_place_lines(SLIDES)})

SPELLINGS = {
    # One line, and ranges with every dash.
    "[a.md:12]": "[a.md:12-12]",
    "[a.md:12-20]": "[a.md:12-20]",
    "[a.md:12–20]": "[a.md:12-20]",
    "[a.md:12—20]": "[a.md:12-20]",
    "[a.md:12−20]": "[a.md:12-20]",
    "[a.md:12‑20]": "[a.md:12-20]",
    "[a.md:12－20]": "[a.md:12-20]",
    "[a.md:12~20]": "[a.md:12-20]",
    "[a.md:12..20]": "[a.md:12-20]",
    "[a.md:12 - 20]": "[a.md:12-20]",
    "[a.md: 12-20]": "[a.md:12-20]",
    "[a.md：12-20]": "[a.md:12-20]",
    "[a.md:12:20]": "[a.md:12-20]",
    "[a.md:12 to 20]": "[a.md:12-20]",
    "[a.md:١٢-٢٠]": "[a.md:12-20]",
    # With words and letters for lines.
    "[a.md:L12]": "[a.md:12-12]",
    "[a.md:L12-L20]": "[a.md:12-20]",
    "[a.md:L12–20]": "[a.md:12-20]",
    "[a.md#L12-L20]": "[a.md:12-20]",
    "[a.md#L12]": "[a.md:12-12]",
    "[a.md:lines 12-20]": "[a.md:12-20]",
    "[a.md, lines 12–20]": "[a.md:12-20]",
    "[a.md lines 12-20]": "[a.md:12-20]",
    "[a.md, line 12]": "[a.md:12-12]",
    "[a.md, ll. 12-20]": "[a.md:12-20]",
    "[a.md (lines 12-20)]": "[a.md:12-20]",
    "[a.md, Zeilen 12–20]": "[a.md:12-20]",
    "[a.md, lignes 12-20]": "[a.md:12-20]",
    "[a.md, строки 12–20]": "[a.md:12-20]",
    "[a.md:12-20行目]": "[a.md:12-20]",
    "[a.md 12-20]": "[a.md:12-20]",
    "[a.md, 12]": "[a.md:12-12]",
    # In other brackets, in code spans and in running text.
    "(a.md:12-20)": "[a.md:12-20]",
    "（a.md：12－20）": "[a.md:12-20]",
    "(a.md, lines 12-20)": "[a.md:12-20]",
    "`a.md:12-20`": "[a.md:12-20]",
    "`[a.md:12]`": "[a.md:12-12]",
    "``a.md:12``": "[a.md:12-12]",
    "[`a.md`:12-20]": "[a.md:12-20]",
    "[**a.md**, lines 12-20]": "[a.md:12-20]",
    "【a.md:12】": "[a.md:12-12]",
    "【a.md†L12-L20】": "[a.md:12-20]",
    "**[a.md:12]**": "**[a.md:12-12]**",
    "See a.md:12-20.": "See [a.md:12-20].",
    "a.md#L12": "[a.md:12-12]",
    "(see a.md:12)": "(see [a.md:12-12])",
    "[see a.md:12]": "[a.md:12-12]",
    "[a.md:12 says so]": "[[a.md:12-12] says so]",
    "[Quelle: a.md:12]": "[a.md:12-12]",
    "| a.md:12 | b.md:3 |": "| [a.md:12-12] | [b.md:3-3] |",
    'They say "dug in 1811" (a.md:12), 5" deep (a.md:13).': (
        'They say "dug in 1811" [a.md:12-12], 5" deep [a.md:13-13].'
    ),
    "„So ist es“ `a.md:12`": "„So ist es“ [a.md:12-12]",
    # Several in one bracket.
    "[a.md:12, 15-20]": "[a.md:12-12] [a.md:15-20]",
    "[a.md:12-13, L15-L20 and 30]": "[a.md:12-13] [a.md:15-20] [a.md:30-30]",
    "[a.md:1-2; b.md:3]": "[a.md:1-2] [b.md:3-3]",
    "[a.md:1-2, b.md:3-4]": "[a.md:1-2] [b.md:3-4]",
    "[a.md:1-2、b.md:3-4]": "[a.md:1-2] [b.md:3-4]",
    "(a.md:1; b.md:3, 5)": "[a.md:1-1] [b.md:3-3] [b.md:5-5]",
    "(a.md:1)(b.md:3)": "[a.md:1-1] [b.md:3-3]",
    # Pages.
    "[paper.pdf, page 2]": "[paper.pdf:6-7]",
    "[paper.pdf, p. 2]": "[paper.pdf:6-7]",
    "[paper.pdf:p2]": "[paper.pdf:6-7]",
    "[paper.pdf#page=2]": "[paper.pdf:6-7]",
    "[paper.pdf, pp. 1–2]": "[paper.pdf:2-7]",
    "[paper.pdf, S. 1, 3]": "[paper.pdf:2-3] [paper.pdf:9-9]",
    "[paper.pdf, page 2, line 6]": "[paper.pdf:6-6]",
    "[talk.pptx, slide 2]": "[talk.pptx:4-4]",
    # Names.
    "[A.MD:12]": "[a.md:12-12]",
    "[./a.md:12]": "[a.md:12-12]",
    "[/data/in/a.md:12]": "[a.md:12-12]",
    r"[C:\data\a.md:12]": "[a.md:12-12]",
    "[a:12]": "[a.md:12-12]",
    "[x․y․md:3]": "[x.y.md:3-3]",
    "[My File (1).txt:3]": "[docs/My File (1).txt:3-3]",
    "(My File (1).txt:3-4)": "[docs/My File (1).txt:3-4]",
    "see docs/my file (1).txt:3": "see [docs/My File (1).txt:3-3]",
    "[report: 2020-2021.md:12]": "[report: 2020-2021.md:12-12]",
    "[Ärger, Teil 2.docx:3; a.md:1]": "[Ärger, Teil 2.docx:3-3] [a.md:1-1]",
    "[A\u0308rger, Teil 2.docx, Zeile 3]": "[Ärger, Teil 2.docx:3-3]",
    "[_index.md:3]": "[_index.md:3-3]",
    "[*a.md:3*]": "[a.md:3-3]",
    "[north/plan.md:3]": "[north/plan.md:3-3]",
    "[https://example.org/page:3]": "[https://example.org/page:3-3]",
}


def test_every_usual_spelling_is_the_same_citation() -> None:
    assert {written: normalise_citations(written, CITABLE).text for written in SPELLINGS} == SPELLINGS


OTHER_TEXTS = (
    "At 12:30, or from 9:15-10:00.",
    "(a.md, 12:30)",
    "localhost:8080 and 10.0.0.1:443",
    "https://host.example/a.md:12 and <ftp://x/a.md:12>",
    "[a.md:12](https://example.org)",
    "[see](a.md:12)",
    "![plan](a.md:12)",
    "[1] and [12-20] and [^3]",
    "[a.md:12]: https://example.org",
    "- [ ] to do",
    "```\n[a.md:12]\na.md:12\n```",
    "~~~ text\n(a.md:12)\n~~~",
    "> ```\n> a.md:12\n> ```",
    "```\n[a.md:12] is never closed",
    "`grep -n x a.md:12`",
    "(Harbour, 1811)",
    "(a, 12)",
    "a.md:12:5: error",
    "[a.md:20-12]",
    "[a.md:0]",
    "[unknown.md:12]",
    "[plan.md:3]",
    "[plan:3]",
    "[paper.pdf, page 9]",
    "[talk.pptx, slide 1]",
    "[a.md:12, 2024]",
    "[a.md]",
    "a.md: 12 reasons",
    "The ratio a:12 holds.",
    "[paper.pdf, page 2, line 2]",
    "\\[not a citation: 3\\]",
    "x_a.md:12",
    'They wrote "as in a.md:12 and (a.md:13)" once.',
    "Es heißt „siehe `a.md:12`“ dort.",
    "[a.md:12-]",
)


def test_what_is_no_citation_or_an_ambiguous_one_stays_as_it_is() -> None:
    assert [normalise_citations(text, CITABLE).text for text in OTHER_TEXTS] == [*OTHER_TEXTS]


def test_what_looks_like_a_citation_and_is_none_is_named() -> None:
    text = (
        "So [a.md:2](a.md), [a.md:2-3](a.md), [see](a.md), [unknown.md:12] and [plan.md:3], [paper.pdf, page 9]; "
        "[host.example:8080], [a.md:1], [a:b]."
    )
    assert normalise_citations(text, CITABLE).unresolved == (
        "[a.md:2](a.md)",
        "[unknown.md:12]",
        "[plan.md:3]",
        "[paper.pdf, page 9]",
    )


def test_a_page_of_a_document_whose_places_are_not_known_is_asked_for() -> None:
    found = normalise_citations("So it is [paper.pdf, page 2].", CitableDocuments(LINES))
    assert (found.text, found.unread) == ("So it is [paper.pdf, page 2].", {"paper.pdf"})


@pytest.mark.parametrize(
    ("written", "citations"),
    [
        ("a.md:12-20", ("[a.md:12-20]",)),
        ("a.md lines 12-20", ("[a.md:12-20]",)),
        ("[a.md:12], [b.md:3]", ("[a.md:12-12]", "[b.md:3-3]")),
        ("a.md:1; b.md:2", ("[a.md:1-1]", "[b.md:2-2]")),
        ("`a.md`, line 3", ("[a.md:3-3]",)),
        ("paper.pdf, page 2", ("[paper.pdf:6-7]",)),
        ('"they said so" [a.md:3]', ('"they said so" [a.md:3-3]',)),
        ("[a.md:3-4]", ("[a.md:3-4]",)),
    ],
)
def test_a_string_that_is_nothing_but_citations_needs_no_brackets(written: str, citations: tuple[str, ...]) -> None:
    found = normalise_citation_string(written, CITABLE)
    assert (found.citations, found.is_resolved) == (citations, True)


@pytest.mark.parametrize("written", ["a.md", "unknown.md, line 3", "the minutes", ""])
def test_a_string_that_names_no_lines_stays_as_it_is(written: str) -> None:
    found = normalise_citation_string(written, CITABLE)
    assert (found.citations, found.is_resolved) == ((written,), False)


def test_places_without_text_and_repeated_places_have_no_lines() -> None:
    assert find_place_lines(PAPER) == {
        "page 1": (2, 3),
        "page 2": (6, 7),
        "page 3": (9, 9),
        "page 3 of attachment x.pdf": (11, 11),
    }
    assert find_place_lines(SLIDES) == {"slide 2": (4, 4)}
    assert find_place_lines(["a", "b"]) == {}
    assert find_place_lines(["[page 1]", "", "[page 2]", "a"]) == {"page 2": (4, 4)}


PIECES = st.sampled_from(
    [
        *SPELLINGS,
        *OTHER_TEXTS,
        "a.md",
        ":12",
        "12",
        "-20",
        "–",
        "[",
        "]",
        "(",
        ")",
        "`",
        "```",
        "\n",
        " ",
        ", ",
        "; ",
        "【",
        "】",
    ]
)
TEXTS = st.one_of(
    st.lists(PIECES, max_size=12).map("".join), st.text(alphabet="a.md:12-20[]()`,; \n【】L#", max_size=60)
)


@given(TEXTS)
def test_normalising_twice_changes_nothing_more(text: str) -> None:
    once = normalise_citations(text, CITABLE).text
    assert normalise_citations(once, CITABLE).text == once


@given(TEXTS)
def test_only_citations_of_known_documents_are_changed(text: str) -> None:
    """What is left of the new text without its citations stands in the old one, in that order."""
    found = normalise_citations(text, CITABLE)
    assert found.changed > 0 or found.text == text
    place = 0
    for piece in CITATION_PATTERN.split(found.text)[::4]:
        kept = piece.strip()
        place = text.find(kept, place)
        assert place >= 0, kept
        place += len(kept)
    assert {one.document for one in parse_citations(found.text)} <= LINES.keys() | {
        one.document for one in parse_citations(text)
    }


@given(st.lists(st.sampled_from([*SPELLINGS]), min_size=1, max_size=8))
def test_spellings_in_one_text_do_not_disturb_each_other(written: list[str]) -> None:
    text = " and\n".join(written)
    assert normalise_citations(text, CITABLE).text == " and\n".join(SPELLINGS[one] for one in written)


@pytest.mark.parametrize("inside", ["[b.md:3-3]", "[b.md:3]", "[elsewhere.md:3-3]"])
def test_a_citation_in_the_quoted_words_of_a_document_is_none_of_the_report(inside: str) -> None:
    said = f"The budget is 444 euros {inside} says the auditor."
    written = normalise_citations(f'It is set: "{said}" [a.md:5-5].', CITABLE).text
    assert [str(one) for one in parse_citations(written)] == ["[a.md:5-5]"]
    (cited,) = parse_citations(written)
    assert cited.quotation is not None
    assert CitedDocument(["", "", "", "", said]).find_quotation_fault(cited.quotation, 5, 5) is None
    assert normalise_citations(written, CITABLE).text == written


def test_a_citation_at_the_end_of_a_quotation_that_has_no_other_is_the_reports() -> None:
    written = normalise_citations('It is set: "The budget is 444 euros [a.md:5-5]."', CITABLE).text
    assert [str(one) for one in parse_citations(written)] == ["[a.md:5-5]"]


def test_a_quotation_that_is_corrected_keeps_brackets_that_are_no_citation() -> None:
    line = "The harbor [sic] was closed, as [b.md:3-3] says."
    wording = CitedDocument([line]).find_original_wording("the harbor [sic] was closed as (b.md:3-3) says", 1, 1)
    assert wording == "The harbor [sic] was closed, as (b.md:3-3) says"
