import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.plugins.offline.language import (
    apply_idf_weights,
    build_stem_set,
    compute_stem,
    extract_query_terms,
    is_about_every_document,
    is_number_or_date_question,
)
from waystation.plugins.offline.plan import split_clauses
from waystation.plugins.offline.quotes import parse_header_line, select_best_quotes

LICENCES = extract_query_terms("Which licences do these packages carry?")


def quoted(text: str, question: str) -> list[str]:
    lines = list(enumerate(text.splitlines(), 1))
    return [quote.text for quote in select_best_quotes(lines, extract_query_terms(question))]


def test_a_header_line_says_more_than_a_sentence_and_a_file_name_says_nothing() -> None:
    text = (
        "- Name: a\n- License-File: LICENSE\n- License: MIT\n- Dynamic: license-file\n\nThis license is nice to have."
    )
    assert quoted(text, "Which licence is it?") == ["License: MIT"]


def test_the_marker_of_a_page_is_no_part_of_a_quotation() -> None:
    text = "[chapter The licence of these many packages]\nThe licence is free.\n[page 2]\nIt goes on."
    assert quoted(text, "Which licence is it?") == ["The licence is free."]


def test_a_second_quotation_says_something_that_the_first_does_not() -> None:
    text = (
        "The old names are deprecated now.\n\nThe new names are deprecated now.\n\nIt is in beta and will change again."
    )
    assert quoted(text, "What needs attention?") == [
        "The old names are deprecated now.",
        "It is in beta and will change again.",
    ]


def test_a_word_of_every_text_counts_less_than_a_rare_one() -> None:
    text = "The harbour is old and wide.\n\nThe toll was raised in June."
    looked_for = extract_query_terms("harbour toll")
    lines = list(enumerate(text.splitlines(), 1))
    assert select_best_quotes(lines, looked_for, several=1)[0].text == "The harbour is old and wide."
    rare = apply_idf_weights(looked_for, [text, "The harbour is deep.", "No ship left the harbour."])
    assert select_best_quotes(lines, rare, several=1)[0].text == "The toll was raised in June."
    assert [concept.weight for concept in apply_idf_weights(looked_for, ["The harbour."])] == [1.0, 1.0]


def test_a_sentence_over_two_lines_is_cited_with_both() -> None:
    lines = list(enumerate(["# Rent", "", "It rains. The rent is due", "in May. It pours."], 1))
    (quote,) = select_best_quotes(lines, extract_query_terms("When is the rent due?"), several=1)
    assert (quote.text, quote.first_line, quote.last_line) == ("The rent is due in May.", 3, 4)


def test_quotation_marks_inside_are_left_out() -> None:
    assert quoted('The "old" rent was due on the first of May.', "rent") == ["rent was due on the first of May."]


def test_what_closes_behind_a_quotation_is_left_out_with_it() -> None:
    text = 'The board (the "Board") raised the rent to nine euros for every ship.'
    assert quoted(text, "rent") == ["raised the rent to nine euros for every ship."]


@given(st.lists(st.text(st.characters(exclude_characters="\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")), max_size=12))
def test_whatever_the_text_its_quotations_stand_in_their_lines(texts: list[str]) -> None:
    lines = list(enumerate(texts, 1))
    for quote in select_best_quotes(lines, LICENCES):
        stands = " ".join(" ".join(texts[quote.first_line - 1 : quote.last_line]).split())
        assert quote.text
        assert quote.text in stands
        assert '"' not in quote.text


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("License: MIT", "License", "MIT"),
        ("- Summary: It parses.", "Summary", "It parses."),
        ("Classifier: License :: OSI Approved :: MIT License", "Classifier License :: OSI Approved", "MIT License"),
        ("Just words.", "", "Just words."),
    ],
)
def test_header_lines_have_key_and_value(line: str, key: str, value: str) -> None:
    assert parse_header_line(line) == (key, value)


@pytest.mark.parametrize(
    ("one", "other"),
    [("licences", "licence"), ("shipping", "ships"), ("gpl", "GPLv3"), ("vulnerabilities", "vulnerability")],
)
def test_forms_of_a_word_have_one_stem(one: str, other: str) -> None:
    assert compute_stem(one) == compute_stem(other)


def test_what_the_documents_are_called_is_not_looked_for() -> None:
    assert [concept.words[0] for concept in LICENCES] == ["licences"]
    assert [concept.words[0] for concept in extract_query_terms("What is each of them for?")] == ["purpose"]
    assert [concept.words[0] for concept in extract_query_terms("What do they say about timeouts?")] == ["timeouts"]
    assert [concept.words[0] for concept in extract_query_terms("What does the engine do?")] == ["engine", "purpose"]
    assert is_about_every_document("What is each of them for?")
    assert not is_about_every_document("When is the rent due?")


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        ("When is it due?", ("When is it due",)),
        ("When is it due, and who pays?", ("When is it due", "Who pays")),
        ("Was kostet es und wer zahlt?", ("Was kostet es", "Wer zahlt")),
        ("Compare bread and butter", ("Compare bread and butter",)),
        ("A? B? C? D? E?", ("A", "B", "C; D; E")),
        ("", ()),
    ],
)
def test_a_question_falls_into_its_parts(question: str, parts: tuple[str, ...]) -> None:
    assert split_clauses(question) == parts


@pytest.mark.parametrize(
    ("header", "question"),
    [
        ("Description-Content-Type: text/markdown", "What is each of them for?"),
        ("Date: Mon, 3 May 2021 10:00:00", "When was the toll decided?"),
        ("From: Harbour Toll Office", "Who decides on the toll of the harbour?"),
        ("Subject: The toll of the harbour", "Who decides on the toll of the harbour?"),
        ("Classifier: Programming Language :: Python :: Free Threading :: 2 - Beta", "What needs attention?"),
    ],
)
def test_what_a_header_says_of_the_file_or_of_something_else_is_no_answer(header: str, question: str) -> None:
    prose = "The council met twice that year and wrote to the mayor."
    assert quoted(f"- Name: x\n- {header}\n\n{prose}", question)[0] == prose


def test_the_envelope_answers_where_the_question_says_its_word() -> None:
    text = "From: the mayor\nDate: Mon, 3 May 2021\n\nThe council met twice."
    assert quoted(text, "Which date does the letter have?")[0] == "Date: Mon, 3 May 2021"
    assert quoted("Classifier: Development Status :: 3 - Alpha\n\nIt is fast.", "What needs attention?") == [
        "Classifier: Development Status :: 3 - Alpha"
    ]


def test_an_address_behind_a_summary_takes_nothing_from_it() -> None:
    summary = "Summary: A wrapper around the CLI (https://example.com/a/wrapper)"
    assert quoted(
        f"{summary}\nDescription-Content-Type: text/markdown\n\nIt is fast.", "What is each of them for?"
    ) == [summary]


def test_sentences_come_before_code_that_has_the_same_words() -> None:
    prose = "Backups are kept for 30 days."
    for code in ("backup_kept_days = config.backups.kept_days", "```\nbackups are kept in days here\n```"):
        assert quoted(f"{code}\n\n{prose}", "How many days are backups kept?")[0] == prose
    assert quoted("```\nbackups kept for days\n```", "How many days are backups kept?") == ["backups kept for days"]


def test_a_question_for_a_figure_is_answered_with_one() -> None:
    text = "Ships that moor at the northern quay pay no toll.\n\nThe northern quay takes 14 of them.\n\nIt is of oak."
    assert quoted(text, "How many ships moor at the northern quay?")[0] == "The northern quay takes 14 of them."
    assert quoted(text, "Which ships moor at the northern quay?")[0] == (
        "Ships that moor at the northern quay pay no toll."
    )


def test_where_to_look_is_not_looked_for() -> None:
    looked_for = extract_query_terms("Toll of the harbour, documents 51 to 75, pages 3-7")
    assert [word for concept in looked_for for word in concept.words[:1]] == ["toll", "harbour"]


def test_what_stands_right_before_code_is_read() -> None:
    assert quoted("Backups are kept for 30 days:\n```\nkeep(30)\n```", "How long are backups kept?") == [
        "Backups are kept for 30 days:"
    ]


def test_headings_page_numbers_and_rows_of_tables_stand_by_themselves() -> None:
    text = (
        "Statement of the harbour\nMooring fees\n"
        "The harbour takes a mooring fee of 12 guilders for every ship that comes\nand goes in winter.\n14\n[page 15]\n"
        "Harbour fees $ 1,200 $ 1,100\nMooring fees 300 280\nOther 5 6"
    )
    lines = list(enumerate(text.splitlines(), 1))
    found = [quote.text for quote in select_best_quotes(lines, extract_query_terms("mooring fee"), several=9)]
    assert found == ["Mooring fees 300 280"]
    found = [quote.text for quote in select_best_quotes(lines[:6], extract_query_terms("mooring fee"), several=9)]
    assert "The harbour takes a mooring fee of 12 guilders for every ship that comes and goes in winter." in found
    assert not [one for one in found if "14" in one or "Statement" in one]


def test_a_quotation_goes_on_to_the_end_of_its_sentence() -> None:
    long = f"The rent is due {'and due ' * 60}in May."
    assert quoted(f"{long} It rains.", "When is the rent due?") == [long]
    named = "The U.S. Treasury adopted ASU No. 5 for the rent of Acme Inc. Offices in May."
    assert quoted(named, "rent") == [named]
    torn = "of the tenants and the rent of the house, which is due in the month of May by bank transfer"
    whole = "By the rules that all tenants of the house have signed, the rent of it is due by the end of a month."
    assert quoted(f"{torn}\n\n{whole}", "rent of the house for tenants")[0] == whole


def test_a_year_is_no_amount_but_answers_when() -> None:
    year, amount = "Revenue of the year 2022 is shown as in 2021.", "Revenue came to 14 guilders."
    assert quoted(f"{year}\n\n{amount}", "What was the revenue in 2022?")[0] == amount
    assert quoted("The quay is old.\n\nIt was built in 1702.", "When was it built?")[0] == "It was built in 1702."
    assert is_number_or_date_question("When was it built?")
    assert is_number_or_date_question("What was its goodwill at the end of fiscal 2022?")
    assert not is_number_or_date_question("Which ships moor here?")


def test_words_side_by_side_tell_more_than_apart() -> None:
    text = "Assets of 20 ships, in total.\n\nThe total assets are 59 guilders for it."
    assert quoted(text, "What are the total assets?")[0] == "The total assets are 59 guilders for it."


def test_a_possessive_is_the_word_itself() -> None:
    assert build_stem_set("eBay's revenue") == build_stem_set("eBay revenue")


TABLE = (
    "| Year ended 2024 | Year ended 2023\nProducts | $ 294 | $ 298\n"
    "Total net sales | $ 391 | $ 383\nCost of sales | 210 | 214\nGross margin | 46.2 % | 44.1 %"
)


@pytest.mark.parametrize(
    ("text", "question", "noted"),
    [
        (
            TABLE,
            "What were the total net sales in 2024?",
            'Year ended 2024 | Year ended 2023: "Total net sales | $ 391 | $ 383"',
        ),
        (
            'Years,2024,2023\nTotal net sales,"$391,035","$383,285"\nCost of sales,"210,352","214,137"',
            "What were the total net sales in 2023?",
            'Total net sales | 2023: "$383,285"',
        ),
        ("Years,2024,2023\nNet sales,391,383\nCosts,210,214", "What were the net sales?", "Net sales,391,383"),
        (
            "(millions) 2024 2023\nNet sales $ 391.0 $ 383.2\nCosts 210 214",
            "What were the net sales?",
            "Net sales $ 391.0 $ 383.2",
        ),
        (
            "The net sales of Acme come from sales.\n\nAcme Net Sales Inc. | 2024 Form 10-K | 35\n\nNet sales | 12 |",
            "What were the net sales of Acme?",
            "Net sales | 12",
        ),
        (
            "Item 5. Stockholders of record | 12\n\nThere are 348 stockholders of record.",
            "How many stockholders of record are there?",
            "There are 348 stockholders of record.",
        ),
        (
            "It is called “Acme.” There are 348 owners of record, and more come.",
            "How many owners are there?",
            "There are 348 owners of record, and more come.",
        ),
    ],
)
def test_a_row_of_a_table_answers_with_its_headings_and_the_foot_of_a_page_does_not(
    text: str, question: str, noted: str
) -> None:
    lines = list(enumerate(text.splitlines(), 1))
    best = select_best_quotes(lines, extract_query_terms(question))[0]
    assert best.note_text.removeprefix("2024 | 2023: ").strip('"') in {noted, noted.strip('"')}
