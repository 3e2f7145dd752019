"""Titles go where everybody looks: names that only stand there in small letters or capitals, and no words at all."""

import pytest

from waystation.agents.redaction import NO_TITLE, TextRedactor
from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.privacy.policy import TextDestination
from waystation.privacy.ports import Redactor
from waystation.testing.doubles import PlainRedactor


@pytest.fixture(scope="module")
def presidio() -> Redactor:
    return PresidioRedactor(bytes(32))


@pytest.mark.parametrize(
    ("title", "left"),
    [
        ("ask john smith for the report", "ask {} for the report"),
        ("what did john smith say of the bar?", "what did {} say of the bar?"),
        ("WHAT DOES JOHN SMITH OWE US?", "WHAT DOES {} OWE US?"),
        ("Compare the offers of Jan Nowak", "Compare the offers of {}"),
    ],
)
async def test_a_name_is_seen_however_it_is_written(title: str, left: str, presidio: Redactor) -> None:
    (found,) = await TextRedactor(presidio, titles="redacted").redact([title], TextDestination.TITLE, "t")
    (spelled,) = await presidio.redact(
        ["So says John Smith of the harbour, and Jan Nowak."], TextDestination.TITLE, "t"
    )
    person = spelled.spans["Nowak" in title].placeholder
    assert found.text == left.format(person), "the same person has the same placeholder as elsewhere"


@pytest.mark.parametrize(
    "title",
    [
        "How is the bar crossed?",
        "Which harbour was closed by silt in 1871?",
        "Why does the API of SQL fail?",
        "Mail <EMAIL_7f3a2c91d04e> about it",
    ],
)
async def test_other_titles_stay_as_they_are(title: str, presidio: Redactor) -> None:
    (found,) = await TextRedactor(presidio, titles="redacted").redact([title], TextDestination.TITLE, "t")
    assert found.text == title


async def test_other_places_are_redacted_as_ever() -> None:
    plain = PlainRedactor({"John Smith": "PERSON"})
    given = ["ask john smith"]
    as_ever = await plain.redact(given, TextDestination.SUMMARY, "t")
    assert await TextRedactor(plain, titles="redacted").redact(given, TextDestination.SUMMARY, "t") == as_ever


async def test_where_no_words_are_wanted_none_are_shown() -> None:
    found = await TextRedactor(PlainRedactor({}), titles="none").redact(["How?", "Why?"], TextDestination.TITLE, "t")
    assert [one.text for one in found] == [NO_TITLE, NO_TITLE]
