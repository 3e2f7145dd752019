"""Citations are checked in time that is linear in the report and in the documents, whoever wrote either."""

import time
from collections.abc import Iterator, Sequence

import pytest

from waystation.documents.citation_spelling import CitableDocuments, normalise_citations
from waystation.documents.citations import CitedDocument, check_citations, correct_quotations, parse_citations
from waystation.documents.documents import Document, DocumentNameIndex
from waystation.reports.report import render_sources_section

TIMES = 16
LINES, CITED = 1_000, 12
LEAST_SECONDS = 0.02
"""What is shorter is measured too badly to tell how it grows."""
HIDDEN = "<A_000000000000>"
WORDS = "word " * 10
QUOTATIONS = {
    "words that are not there": "word wordy word",
    "words that are nearly there": "word " * 300 + "x",
    "nothing but placeholders": HIDDEN * 110,
    "placeholders with spaces between": " ".join([HIDDEN] * 90),
    "letters between placeholders": "o".join([HIDDEN] * 90),
    "words that are there with other signs": "word, Word; WORD word",
    "signs alone": "!?,;. " * 300,
    "words that end nowhere": "word" + HIDDEN + " wor" + HIDDEN + "dd",
}


def report(cited: int, last: int, quotation: str) -> str:
    """Each citation begins elsewhere, or it would be looked at once."""
    quoted = f'"{quotation}" ' if quotation else ""
    return " ".join(f"{quoted}[d.md:{first}-{last}]" for first in range(1, cited + 1))


def checked(markdown: str, lines: Sequence[str]) -> float:
    """CPU seconds for the check, and the list of sources."""
    start = time.process_time()
    citations = parse_citations(markdown)
    documents = {"d.md": CitedDocument(lines)}
    found = check_citations(citations, documents)
    correct_quotations(markdown, found, documents)
    render_sources_section([one for one, fault in found.items() if not fault], documents)
    return time.process_time() - start


def most(seconds: float) -> float:
    """CPU seconds for so many times as much: what is quadratic takes more, by this factor."""
    return max(LEAST_SECONDS, seconds) * TIMES * 4


@pytest.mark.timeout(600)
@pytest.mark.parametrize("quotation", ["", *QUOTATIONS.values()], ids=["no quotation", *QUOTATIONS])
def test_more_citations_of_a_longer_document_take_as_much_longer(quotation: str) -> None:
    short = checked(report(CITED, LINES, quotation), [WORDS] * LINES)
    long = checked(report(CITED * TIMES, LINES * TIMES, quotation), [WORDS] * LINES * TIMES)
    assert long <= most(short)


@pytest.mark.timeout(600)
def test_many_citations_of_a_long_document_without_places_are_listed() -> None:
    def listed(times: int) -> float:
        lines = [f"line {number}" for number in range(6_000 * times)]
        markdown = " ".join(f"[d.md:{len(lines) - one}-{len(lines) - one}]" for one in range(60 * times))
        return checked(markdown, lines)

    assert listed(TIMES) <= most(listed(1))


def citing(times: int) -> Iterator[str]:
    """What stands before citations, and between their marks."""
    many = 1_000 * times
    yield "[a:1-1]" * many
    yield '"' + "[a:1-1]" * many
    yield '"aaaaaaaa"[a:1-1]' * many
    yield '"aaaaaaaa[a:1-1]' * many
    yield "[a:1-1]" + '" ' * many + "[a:1-1]"
    yield (" " * 500 + "[a:1-1]") * (many // 50)
    yield "“" * many + "”[a:1-1]" * many
    yield '"one, and two" [a:1-1]' * many
    yield "[a" * many
    yield "[" + "a:1-" * many + "]"
    yield "".join(f"[a{number}:1-1]" for number in range(many))


@pytest.mark.timeout(600)
def test_a_report_of_citations_is_read_in_time_by_its_length() -> None:
    for short, long in zip(citing(1), citing(TIMES), strict=True):
        assert checked(long, ["one"]) <= most(checked(short, ["one"])), short[:40]


@pytest.mark.timeout(600)
def test_many_names_are_found_among_many_documents() -> None:
    def found(times: int) -> float:
        documents = [Document(name=f"a{number}.md", blob="", lines=1, characters=1) for number in range(300 * times)]
        start = time.process_time()
        by_name = DocumentNameIndex(documents)
        assert all(by_name.find_position(f"A-{number}.md") == number for number in range(300 * times))
        return time.process_time() - start

    assert found(TIMES) <= most(found(1))


def spelling(times: int) -> Iterator[str]:
    """Texts that are nearly citations, or hold many of them."""
    many = 1_000 * times
    yield "[a.md:12, 15-20] " * many
    yield "(a.md:12) " * many
    yield "a.md:12 " * many
    yield "[" * many
    yield "(" * many
    yield "([" * many
    yield "[x](" * many
    yield "](a" * many
    yield "".join(f"{'`' * (number % 90 + 1)}a" for number in range(many // 10))
    yield "``` `" * many
    yield "```\n" * many
    yield "a " * many + ":12"
    yield ("a " * 100 + ":12") * (many // 100)
    yield ":12" * many
    yield "[" + "a.md:1, " * 120 * times + "]"
    yield ("[" + "a.md:1, " * 120 + "b]") * (many // 100)
    yield ("(" + "1" * 900 + ")") * (many // 100)
    yield "https://" + "a" * many
    yield "https://" * many
    yield "[a.md, lines" + " " * many + "12]"
    yield "".join(f"[a{number}.md:1]" for number in range(many))


@pytest.mark.timeout(600)
def test_citations_of_a_text_are_rewritten_in_time_by_its_length() -> None:
    citable = CitableDocuments({"a.md": 100, **{f"folder/a{number}.md": 9 for number in range(200)}})

    def rewritten(text: str) -> float:
        start = time.process_time()
        normalise_citations(text, citable)
        return time.process_time() - start

    for short, long in zip(spelling(1), spelling(TIMES), strict=True):
        assert rewritten(long) <= most(rewritten(short)), short[:40]
