"""One value in many spellings: characters that cannot be seen, other forms of letters, wrong digits."""

import asyncio
import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waystation.adapters.presidio.folding import folded, views_of
from waystation.adapters.presidio.national import COUNTRIES
from waystation.adapters.presidio.redactor import PresidioRedactor
from waystation.adapters.presidio.rules import Rules
from waystation.domain.privacy import Place
from waystation.domain.redaction import Redacted

KEY = b"k" * 32
UNSEEN = ("\u200b", "\u200c", "\u200d", "\u2060", "\ufeff", "\u00ad", "\u200e", "\ufe0f")
VALUES = ("john.smith@example.com", "4111 1111 1111 1111", "192.168.1.20", "DE89370400440532013000", "+49 170 1234567")


@pytest.fixture(scope="module")
def redactor() -> Iterator[PresidioRedactor]:
    redactor = PresidioRedactor(KEY, Rules(countries=tuple(COUNTRIES)))
    yield redactor
    redactor.close()


async def redacted(redactor: PresidioRedactor, text: str, place: Place = Place.TOOL_RESULT) -> Redacted:
    (result,) = await redactor.redact([text], place, "t")
    return result


@pytest.mark.parametrize("unseen", UNSEEN)
@pytest.mark.parametrize("value", VALUES)
async def test_what_cannot_be_seen_hides_nothing(redactor: PresidioRedactor, value: str, unseen: str) -> None:
    hidden = unseen.join(value)
    result = await redacted(redactor, f"é {hidden} and {value}.")
    first, second = result.spans
    assert result.text == f"é {first.placeholder} and {second.placeholder}."
    assert first.placeholder == second.placeholder
    assert (first.start, first.end) == (2, 2 + len(hidden))


@pytest.mark.parametrize(
    ("spelled", "plain"),
    [
        ("john＠example.com", "john@example.com"),
        ("ｊｏｈｎ@example．com", "john@example.com"),
        ("mailto:bob%40example.com", "bob@example.com"),
        ("４１１１ 1111 1111 1111", "4111 1111 1111 1111"),
        ("+49\u00a0170\u00a01234567", "+49 170 1234567"),
        ("415\u2011555\u20112671", "415-555-2671"),
        ("iban de89370400440532013000", "DE89370400440532013000"),
        ("The password is hunter2.", "password: hunter2"),
        ("password：hunter\u200b2", "password: hunter2"),
    ],
)
async def test_another_spelling_has_the_same_placeholder(redactor: PresidioRedactor, spelled: str, plain: str) -> None:
    first, second = await redactor.redact([spelled, plain], Place.TOOL_RESULT, "t")
    assert [span.placeholder for span in first.spans] == [span.placeholder for span in second.spans]
    assert len(first.spans) == 1


async def test_a_zero_width_space_may_also_part_two_words(redactor: PresidioRedactor) -> None:
    result = await redacted(redactor, "seen\u200b192.168.1.20 by john\u200b.smith@example.com")
    assert re.sub(r"_[0-9a-f]{12}>", ">", result.text) == "seen\u200b<IP> by <EMAIL>"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('"john smith"@example.com', "<EMAIL>"),
        ("::ffff:192.0.2.1 and ::ffff:127.0.0.1", "<IP> and ::ffff:127.0.0.1"),
        ("Teléfono 612 345 678", "Teléfono <PHONE>"),
        ("联系电话13812345678", "联系电话<PHONE>"),
        ("Tel. 0171/1234567", "Tel. <PHONE>"),
        ("Steuer-ID: 86 095 742 719", "Steuer-ID: <DE_TAX_ID>"),
        ("codice fiscale RSS MRA 85T10 A562S", "codice fiscale <IT_FISCAL_CODE>"),
        ("DNI 12.345.678-Z", "DNI <ES_NIF>"),
        ("PESEL 440 514 01359 z 2024", "PESEL <PL_PESEL> z 2024"),
        ("card: 4111 1111 1111 1112", "card: <CARD>"),
        ("Kreditkarte 5555-5555-5555-4445", "Kreditkarte <CARD>"),
        ("DE88 3704 0044 0532 0130 00 paid", "<IBAN> paid"),
        ("IBAN: DE88370400440532013000.", "IBAN: <IBAN>."),
        ("IBAN DE89 3704 0044 0532 01", "IBAN <IBAN>"),
        ("order DE88370400440532013000, card type 17", "order DE88370400440532013000, card type 17"),
        ("http://u:p@h alice@example.com", "http://u:<SECRET>@h <EMAIL>"),
        ("Cookie settings: accept the Cookie", "Cookie settings: accept the Cookie"),
    ],
)
async def test_of_other_forms_the_value_is_replaced_whole(redactor: PresidioRedactor, text: str, left: str) -> None:
    result = await redacted(redactor, text, Place.COMPRESSED)
    assert re.sub(r"_[0-9a-f]{12}>", ">", result.text) == left


PIECES = st.sampled_from([*VALUES, "password: hunter2", "seen", "é", "12.5", "＠", "and", *UNSEEN, " ", "\n", "</a>"])
MIXED = st.lists(PIECES, max_size=12).map("".join)


@settings(max_examples=60, deadline=None)
@given(MIXED)
def test_offsets_are_of_the_text_and_redacting_twice_changes_nothing(redactor: PresidioRedactor, text: str) -> None:
    once = asyncio.run(redacted(redactor, text))
    rebuilt, position = "", 0
    for span in once.spans:
        assert position <= span.start < span.end <= len(text)
        rebuilt += text[position : span.start] + span.placeholder
        position = span.end
    assert rebuilt + text[position:] == once.text
    again = PresidioRedactor(KEY, Rules(countries=tuple(COUNTRIES)))
    assert asyncio.run(redacted(again, once.text)).text == once.text
    again.close()


@given(st.text())
def test_a_view_is_the_text_as_a_reader_sees_it(text: str) -> None:
    for view in views_of(text):
        for place, character in enumerate(view.text):
            start, end = view.back(place, place + 1)
            assert end == start + 1
            assert folded(text[start:end]) == folded(character)
