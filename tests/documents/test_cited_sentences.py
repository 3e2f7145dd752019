"""Cited sentences are compared with their lines, and marked where these do not support them."""

import pytest

from waystation.documents.citations import (
    FAILED_CITATION_MARK,
    MAX_SEARCHED_CHARACTERS,
    CitedDocument,
    check_citations,
    extract_claims,
    parse_citations,
    parse_sentence_mark,
    render_unsupported_sentence_mark,
)
from waystation.documents.cited_sentences import SentenceCheck, check_cited_sentences, mark_sentences
from waystation.documents.support_verdicts import SupportVerdict

DOCUMENTS = {
    "harbour.md": CitedDocument(
        ["The harbour was dug in 1811.", "It silted up within ten years.", "Dredging cost 4,200 crowns a year."]
    ),
    "keeper.md": CitedDocument(["The keeper of the harbour left in 1834."]),
}
WRONG_YEAR = "The harbour was dug in 1812 [harbour.md:1-1]."
RIGHT = "The harbour was dug in 1811 [harbour.md:1-1]."


def check(markdown: str) -> tuple[SentenceCheck, ...]:
    faults = check_citations(parse_citations(markdown), DOCUMENTS)
    return check_cited_sentences(markdown, faults, DOCUMENTS)


def test_each_sentence_is_compared_with_the_lines_that_it_cites() -> None:
    verdicts = [(one.located.claim.text, one.verdict) for one in check(f"{RIGHT} {WRONG_YEAR} It is so.")]
    assert verdicts == [
        ("The harbour was dug in 1811", SupportVerdict.SUPPORTED),
        ("The harbour was dug in 1812", SupportVerdict.NOT_SUPPORTED),
    ]


def test_the_reason_names_what_is_missing_and_where_it_was_looked_for() -> None:
    (one,) = check("It was dug in 1812 and cost 4,200 crowns [harbour.md:1-2] [harbour.md:3-3].")
    assert one.missing == '"1812" is not in lines 1-2 of harbour.md, line 3 of harbour.md'
    assert one.has_absent_details


def test_lines_of_all_citations_of_a_sentence_count() -> None:
    (one,) = check("The harbour was dug in 1811 and the keeper left in 1834 [harbour.md:1-1] [keeper.md:1-1].")
    assert (one.verdict, one.missing) == (SupportVerdict.SUPPORTED, "")


def test_a_sentence_whose_citations_fail_has_no_reason_of_its_own_and_no_mark() -> None:
    markdown = f"It was dug in 1811 [gone.md:1-1]{FAILED_CITATION_MARK}."
    (one,) = check(markdown)
    assert (one.result, one.missing, one.verdict) == (None, "", SupportVerdict.NOT_SUPPORTED)
    assert not one.has_absent_details
    assert mark_sentences(markdown, [one]).markdown == markdown


def test_a_sentence_is_compared_with_the_citations_that_hold() -> None:
    (one,) = check(f"It was dug in 1811 [harbour.md:1-9]{FAILED_CITATION_MARK} [keeper.md:1-1].")
    assert one.missing == '"1811" is not in line 1 of keeper.md'


def test_unsupported_sentences_get_numbers_behind_their_last_citation() -> None:
    row = "| 1813 [harbour.md:1-1] [keeper.md:1-1] | 4,200 crowns [harbour.md:3-3] |"
    markdown = f"- {WRONG_YEAR} {RIGHT}\n\n| year | cost |\n{row}"
    marked = mark_sentences(markdown, check(markdown))
    assert marked.markdown == (
        "- The harbour was dug in 1812 [harbour.md:1-1]⁽¹⁾. The harbour was dug in 1811 [harbour.md:1-1].\n\n"
        "| year | cost |\n| 1813 [harbour.md:1-1] [keeper.md:1-1]⁽²⁾ | 4,200 crowns [harbour.md:3-3] |"
    )
    assert marked.remarks == (
        '"1812" is not in line 1 of harbour.md',
        '"1813" is not in line 1 of harbour.md, line 1 of keeper.md',
    )


@pytest.mark.parametrize("written", ["⁽⁷⁾", "°"])
def test_marks_that_an_agent_wrote_are_replaced(written: str) -> None:
    markdown = f"The harbour was dug in 1811 [harbour.md:1-1]{written}. It was dug in 1812 [harbour.md:1-1]{written}."
    marked = mark_sentences(markdown, check(markdown)).markdown
    assert marked == "The harbour was dug in 1811 [harbour.md:1-1]. It was dug in 1812 [harbour.md:1-1]⁽¹⁾."


def test_marking_again_changes_nothing_and_marks_belong_to_no_claim() -> None:
    markdown = f"{WRONG_YEAR} {RIGHT}"
    once = mark_sentences(markdown, check(markdown)).markdown
    assert mark_sentences(once, check(once)).markdown == once
    assert extract_claims(once) == extract_claims(markdown)


@pytest.mark.parametrize(
    ("name", "text", "markdown"),
    [
        ("fees-2024.md", "The fee is 12 crowns.", "In 2024 the fee was 12 crowns [fees-2024.md:1-1]."),
        ("a.md", "# Fees of 2024\n\nThe fee is 12 crowns.", "In 2024 the fee was 12 crowns [a.md:3-3]."),
        ("a.pdf", "[page 1]\nx\n[page 7]\nThe fee is 12 crowns.", "Page 7: the fee is 12 crowns [a.pdf:4-4]."),
        ("a.csv", "harbour,2023,2024\nNordvik,12,14\nKlippa,3,4", "Klippa had 4 in 2024 [a.csv:3-3]."),
        ("a.xlsx", "[sheet A]\nport\t2024\nKlippa\t4", "Klippa had 4 in 2024 [a.xlsx:3-3]."),
        ("a.pdf", "[page 1]\n(in crowns) 2024 2023\nTolls 9 8\nFees $ 12 $ 11", "Fees: 11 in 2023 [a.pdf:4-4]."),
        ("a.pdf", "May 7, 2024 | May 8, 2023\nREVENUE\nFees | 12 | 11", "Fees were 11 in 2023 [a.pdf:3-3]."),
        ("a.md", "Fees:\n| port | 2024 |\n|---|---|\n| Klippa | 4 |", "Klippa: 4 in 2024 [a.md:4-4]."),
    ],
)
def test_what_labels_the_cited_lines_counts_too(name: str, text: str, markdown: str) -> None:
    documents = {name: CitedDocument(text.splitlines())}
    (one,) = check_cited_sentences(markdown, check_citations(parse_citations(markdown), documents), documents)
    assert (one.missing, one.has_absent_details) == ("", False)


@pytest.mark.parametrize(
    "text",
    [
        "It cost 4, in all.\nThe fee is 12 crowns, they say.",
        "# Fees of 4\n\n# Fees\n\nThe fee is 12 crowns.",
        "The fee is 12 crowns.\n\n# Fees of 4",
        "[page 1]\nOf 4.\n[page 2]\nThe fee is 12 crowns.",
    ],
)
def test_other_lines_do_not_count(text: str) -> None:
    documents = {"a.md": CitedDocument(text.splitlines())}
    line = next(number for number, written in enumerate(text.splitlines(), 1) if "12" in written)
    markdown = f"The fee is 12 crowns, 4 for boats [a.md:{line}-{line}]."
    (one,) = check_cited_sentences(markdown, check_citations(parse_citations(markdown), documents), documents)
    assert one.missing == f'"4" is not in line {line} of a.md'


@pytest.mark.parametrize(
    "text",
    [
        "[page 1]\n2024 2023\n[page 2]\nFees 12 11",
        "2024 2023\nTolls 9 8\nThe harbour was dug by hand in ten long years.\nFees 12 11",
        "2024 2023\nThe fees of 12 and 11 were low.",
        "It rose in 2024, not in 2023, by a tenth\nFees 12 11",
    ],
)
def test_years_that_are_above_no_columns_of_the_row_do_not_count(text: str) -> None:
    line = len(text.splitlines())
    documents = {"a.pdf": CitedDocument(text.splitlines())}
    markdown = f"The fees were 11 in 2023 [a.pdf:{line}-{line}]."
    (one,) = check_cited_sentences(markdown, check_citations(parse_citations(markdown), documents), documents)
    assert one.missing == f'"2023" is not in line {line} of a.pdf'


@pytest.mark.parametrize("words", ["**keeper**:", "keeper", "keeper.md -"])
def test_a_quotation_with_the_name_of_its_document_is_supported(words: str) -> None:
    (one,) = check(f'{words} "the harbour left" ("in 1834") [keeper.md:1-1].')
    assert one.verdict is SupportVerdict.SUPPORTED
    (one,) = check(f'{words} "the harbour left in 1811" [keeper.md:1-1].')
    assert one.verdict is SupportVerdict.NOT_SUPPORTED


def test_a_quoted_row_of_a_csv_is_supported_with_the_headings_of_its_columns() -> None:
    documents = {"calls.csv": CitedDocument("harbour,year,calls,delay\nKlippa,2024,88,1.9".splitlines())}
    markdown = '**calls**: year | calls: "Klippa,2024,88,1.9" [calls.csv:2-2].'
    (one,) = check_cited_sentences(markdown, check_citations(parse_citations(markdown), documents), documents)
    assert (one.verdict, one.missing) == (SupportVerdict.SUPPORTED, "")


def test_only_the_beginning_of_long_passages_is_searched_and_the_reason_says_so() -> None:
    documents = {"long.md": CitedDocument(["silt " * 1_000] * 20 + ["It was dug in 1812."])}
    markdown = "It was dug in 1812 [long.md:1-21]."
    (one,) = check_cited_sentences(markdown, check_citations(parse_citations(markdown), documents), documents)
    assert one.missing.startswith(f'"1812" is not in the first {MAX_SEARCHED_CHARACTERS:,} characters of lines')


@pytest.mark.parametrize("number", [1, 12, 999_999])
def test_a_mark_is_read_as_it_is_written(number: int) -> None:
    assert parse_sentence_mark(render_unsupported_sentence_mark(number)) == number
    assert [parse_sentence_mark(text) for text in ("°", "(1)", "⁽⁾", "")] == [0, None, None, None]


def test_missing_words_are_found_in_their_sentence_in_any_case_and_not_where_they_are_redacted() -> None:
    documents = {"contract.md": CitedDocument(["The pump overheated because the bearing lacked grease."])}
    markdown = "Insufficient lubrication of a component led to the machine running too hot [contract.md:1-1]."
    (check,) = check_cited_sentences(markdown, {}, documents)
    assert "“insufficient”" in check.missing or '"insufficient"' in check.missing
    assert check.has_details_in(check.located.claim.text)
    assert not check.has_details_in(
        "<PERSON_7f3a2c91d04e> lubrication of a component led to the machine running too hot"
    )
