"""What is shown of a cited passage: lines with their surroundings, cells under their heads, parts of e-mails."""

from hypothesis import given
from hypothesis import strategies as st

from waystation.documents.cited_passages import (
    LINES_AROUND,
    MAX_SHOWN_LINES,
    ROWS_AROUND,
    PassageView,
    build_passage_view,
)

BOOK = """\
[sheet Costs]
Costs of 2025
Region | Revenue | Margin
North | 410 | 0.3
 | 12
South | 90 | 0.5
East | 70 | 0.1
West | 60 | 0.2
Islands | 20 | 0.4

[sheet Notes]
Checked by hand.
By | Day
"""
MAIL = """\
From: supplier@example.com
To: buyer@example.com
Date: Fri, 30 Apr 2021 08:45:59 +0000
Subject: Offer 4711

Please find our offer attached.

[attachment offer.csv]
item,price
pump,1250

[attachment earlier.eml]
From: buyer@example.com
Subject: Request

How much is a pump?

[sheet Prices of attachment prices of pumps.xlsx of attachment earlier.eml]
Pump | Price
Small | 900

[attachment logo.svg]
Pumps since 1910
"""


def build_view(text: str, first: int, last: int) -> PassageView:
    return build_passage_view(text.split("\n"), first, last)


def test_rows_of_a_sheet_are_shown_under_the_heads_of_their_columns() -> None:
    view = build_view(BOOK, 8, 8)
    assert (view.sheet, view.message, view.columns) == ("Costs", (), 3)
    assert [(line.number, line.is_cited, line.is_head) for line in view.lines] == [
        (3, False, True),
        *[(number, number == 8, False) for number in (5, 6, 7, 8, 9)],
    ]
    assert [line.cells for line in view.lines[:3]] == [
        ("Region", "Revenue", "Margin"),
        ("", "12"),
        ("South", "90", "0.5"),
    ]


def test_a_title_is_no_head_and_a_cited_head_is_both() -> None:
    view = build_view(BOOK, 2, 3)
    assert [(line.number, line.is_cited, line.is_head) for line in view.lines][:3] == [
        (2, True, False),
        (3, True, True),
        (4, False, False),
    ]
    notes = build_view(BOOK, 12, 12)
    assert (notes.sheet, [line.text for line in notes.lines]) == ("Notes", ["Checked by hand.", "By | Day"])


def test_a_passage_of_an_e_mail_has_the_headers_of_its_message_and_its_part() -> None:
    outer, inner = ("supplier@example.com", "Offer 4711"), ("buyer@example.com", "Request")
    found = {line: build_view(MAIL, line, line) for line in (6, 10, 16, 19, 22)}
    assert [
        ({one.name: one.value for one in view.message}["From"], view.message[-1].value, view.part)
        for view in found.values()
    ] == [
        (*outer, ""),
        (*outer, "attachment offer.csv"),
        (*inner, "attachment earlier.eml"),
        (*inner, "sheet Prices of attachment prices of pumps.xlsx of attachment earlier.eml"),
        (*outer, "attachment logo.svg"),
    ]
    assert [view.sheet for view in found.values()] == ["", "", "", "Prices", ""]
    assert [one.name for one in found[6].message] == ["From", "To", "Date", "Subject"]


def test_of_a_mailbox_the_message_of_the_section_is_shown() -> None:
    box = (
        "[section 1]\nFrom: a@example.com\nSubject: One\n\nFirst.\n\n[section 2]\nFrom: b@example.com\nTo: c\n\nSecond."
    )
    view = build_passage_view(box.split("\n"), 11, 11)
    assert ([one.value for one in view.message], view.part) == (["b@example.com", "c"], "section 2")


def test_other_documents_have_lines_alone() -> None:
    lines = ["Date: today", "", *map(str, range(100)), "[page 2]", "End"]
    view = build_passage_view(lines, 50, 51)
    assert (view.sheet, view.message, view.part, view.columns) == ("", (), "", 0)
    assert [line.number for line in view.lines] == [*range(50 - LINES_AROUND, 52 + LINES_AROUND)]
    assert [line.number for line in view.lines if line.is_cited] == [50, 51]


@given(
    st.lists(st.sampled_from(["[sheet A]", "[page 1]", "", "a | b", "c", "From: x", "Subject: y", "[attachment z]"])),
    st.integers(1, 60),
    st.integers(0, 500),
)
def test_any_lines_of_any_document_are_shown_as_they_are(lines: list[str], first: int, more: int) -> None:
    view = build_passage_view(lines, first, first + more)
    assert all(line.text == lines[line.number - 1] for line in view.lines)
    assert all(line.is_cited == (first <= line.number <= first + more) for line in view.lines)
    assert len(view.lines) <= MAX_SHOWN_LINES + 1
    if view.sheet:
        assert all(" | ".join(line.cells) == line.text for line in view.lines)
        cited = [line.number for line in view.lines if line.is_cited]
        near = {line.number for line in view.lines if not line.is_head}
        assert not cited or max(near, default=0) - cited[-1] <= ROWS_AROUND
