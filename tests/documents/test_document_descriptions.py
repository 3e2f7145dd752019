"""Titles and dates that documents state in their own text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.documents.descriptions import (
    MAX_TITLE_CHARACTERS,
    DocumentDescription,
    describe_document,
    parse_day,
)

MAIL = """\
From: supplier@example.com
To: buyer@example.com
Date: Fri, 30 Apr 2021 23:45:59 +0000
Subject: Offer 4711

# Not the title"""


@pytest.mark.parametrize(
    ("text", "title", "date"),
    [
        (MAIL, "Offer 4711", "2021-04-30"),
        ('---\ntitle: "Silting: a history"\ndate: 2024-05-31\n---\n# Other', "Silting: a history", "2024-05-31"),
        ("---\ndate: someday\n---\n# Silt\n\nUpdated: 3 March 2023", "Silt", "2023-03-03"),
        ("[page 1]\n# **Silt** in the\tharbour\n\n_Last updated:_ 31.12.2022", "Silt** in the harbour", "2022-12-31"),
        ("Revision of 2024-05-31\n\nText.", "", ""),
        ("# A\n" + "\n" * 30 + "Date: 2024-05-31", "A", ""),
        ("Date: 05/06/2024", "", ""),
        ("Date: 2024-13-45", "", ""),
        ("---\ntitle: never closed", "", ""),
        ("", "", ""),
    ],
)
def test_a_document_is_described_by_its_front_matter_headers_heading_and_dated_line(
    text: str, title: str, date: str
) -> None:
    assert describe_document(text.split("\n")) == DocumentDescription(title, date)


@pytest.mark.parametrize(
    "written", ["May 31, 2024", "31 May 2024", "2024/05/31", "2024-05-31T10:00:00Z", "'2024-05-31'"]
)
def test_a_day_is_read_in_its_unambiguous_forms(written: str) -> None:
    assert parse_day(written) == "2024-05-31"


@given(st.lists(st.text()))
def test_any_text_has_a_description_of_one_line(lines: list[str]) -> None:
    found = describe_document([line.replace("\n", "") for line in lines])
    assert len(found.title) <= MAX_TITLE_CHARACTERS
    assert "\n" not in found.title
