"""One value in many spellings: characters that cannot be seen, other forms of letters, wrong digits."""

import asyncio
import re
from collections.abc import Iterable, Iterator
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waystation.plugins.redaction.detections import iter_normalized_views
from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.plugins.redaction.rules import COUNTRIES, DetectionConfig
from waystation.privacy.policy import RedactionResult, TextDestination
from waystation.security.normalization import normalize_characters

KEY = b"k" * 32
UNSEEN = (
    "\u200b",
    "\u200c",
    "\u200d",
    "\u2060",
    "\ufeff",
    "\u00ad",
    "\u200e",
    "\ufe0f",
    "\u2065",
    "\u180b",
    "\U000e0080",
)
VALUES = ("john.smith@example.com", "4111 1111 1111 1111", "192.168.1.20", "DE89370400440532013000", "+49 170 1234567")


@pytest.fixture(scope="module")
def redactor() -> Iterator[PresidioRedactor]:
    redactor = PresidioRedactor(KEY, DetectionConfig(countries=tuple(COUNTRIES)))
    yield redactor
    redactor.close()


async def redacted(
    redactor: PresidioRedactor, text: str, destination: TextDestination = TextDestination.TOOL_RESULT
) -> RedactionResult:
    (result,) = await redactor.redact([text], destination, "t")
    return result


async def test_what_cannot_be_seen_hides_nothing(redactor: PresidioRedactor) -> None:
    plain = await redactor.redact(VALUES, TextDestination.TOOL_RESULT, "t")
    texts, expected = dict[str, str](), dict[str, tuple[str, list[tuple[int, int]]]]()
    for (value, alone), unseen in product(zip(VALUES, plain, strict=True), UNSEEN):
        hidden = unseen.join(value)
        again = len(f"é {hidden} and ")
        texts[hidden] = f"é {hidden} and {value}."
        places = [(2, 2 + len(hidden)), (again, again + len(value))]
        expected[hidden] = (f"é {alone.text} and {alone.text}.", places)
    results = await redactor.redact([*texts.values()], TextDestination.TOOL_RESULT, "t")
    found = [(one.text, [(span.start, span.end) for span in one.spans]) for one in results]
    assert dict(zip(texts, found, strict=True)) == expected
    assert [one.text for one in plain if not re.fullmatch("<[A-Z]+_[0-9a-f]{12}>", one.text)] == []


SPELLED = {
    "john＠example.com": "john@example.com",
    "ｊｏｈｎ@example．com": "john@example.com",
    "mailto:bob%40example.com": "bob@example.com",
    "４１１１ 1111 1111 1111": "4111 1111 1111 1111",
    "+49\u00a0170\u00a01234567": "+49 170 1234567",
    "415\u2011555\u20112671": "415-555-2671",
    "iban de89370400440532013000": "DE89370400440532013000",
    "The password is hunter2.": "password: hunter2",
    "bob [at] example (dot) com": "bob@example.com",
    "user=bob@example.com": "bob@example.com",
    "0x742D35CC6634c0532925a3b844bc454e4438f44E": "0x742d35cc6634c0532925a3b844bc454e4438f44e",
    "password：hunter\u200b2": "password: hunter2",
}


async def test_another_spelling_has_the_same_placeholder(redactor: PresidioRedactor) -> None:
    async def placeholders(texts: Iterable[str]) -> list[list[str]]:
        results = await redactor.redact([*texts], TextDestination.TOOL_RESULT, "t")
        return [[span.placeholder for span in one.spans] for one in results]

    spelled, plain = await placeholders(SPELLED), await placeholders(SPELLED.values())
    assert dict(zip(SPELLED, spelled, strict=True)) == dict(zip(SPELLED, plain, strict=True))
    assert {text: len(found) for text, found in zip(SPELLED, spelled, strict=True)} == dict.fromkeys(SPELLED, 1)


async def test_a_zero_width_space_may_also_part_two_words(redactor: PresidioRedactor) -> None:
    result = await redacted(redactor, "seen\u200b192.168.1.20 by john\u200b.smith@example.com")
    assert re.sub(r"_[0-9a-f]{12}>", ">", result.text) == "seen\u200b<IP> by <EMAIL>"


FORMS = {
    '"john smith"@example.com': "<EMAIL>",
    "::ffff:192.0.2.1 and ::ffff:127.0.0.1": "<IP> and ::ffff:127.0.0.1",
    "Teléfono 612 345 678": "Teléfono <PHONE>",
    "联系电话13812345678": "联系电话<PHONE>",
    "Tel. 0171/1234567": "Tel. <PHONE>",
    "Steuer-ID: 86 095 742 719": "Steuer-ID: <DE_TAX_ID>",
    "codice fiscale RSS MRA 85T10 A562S": "codice fiscale <IT_FISCAL_CODE>",
    "DNI 12.345.678-Z": "DNI <ES_NIF>",
    "PESEL 440 514 01359 z 2024": "PESEL <PL_PESEL> z 2024",
    "card: 4111 1111 1111 1112": "card: <CARD>",
    "Kreditkarte 5555-5555-5555-4445": "Kreditkarte <CARD>",
    "DE88 3704 0044 0532 0130 00 paid": "<IBAN> paid",
    "IBAN: DE88370400440532013000.": "IBAN: <IBAN>.",
    "IBAN DE89 3704 0044 0532 01": "IBAN <IBAN>",
    "order DE88370400440532013000, card type 17": "order DE88370400440532013000, card type 17",
    "http://u:p@h alice@example.com": "http://u:<SECRET>@h <EMAIL>",
    "12,4111111111111111,13": "12,<CARD>,13",
    "1,4111 1111 1111 1111": "1,<CARD>",
    "amount,card,note\n12,4111111111111112,13": "amount,card,note\n12,<CARD>,13",
    "0532 123 45 67,340000000000009,12/05/1990": "0532 123 45 67,<CARD>,12/05/1990",
    "pi 3,4111111111111111 and 0,4111111111111111": "pi 3,4111111111111111 and 0,4111111111111111",
    "phone: +49 30 901820455": "phone: <PHONE>",
    "+49-30-901820455 or +43 1 587654321": "<PHONE> or <PHONE>",
    "(0049) 6221 98765-43": "<PHONE>",
    "id,phone number\n7,01 42 68 53 00\n8,0532 123 45 67": "id,phone number\n7,<PHONE>\n8,<PHONE>",
    "| mobile | calls |\n| 1234567 | 2024-01-15 |": "| mobile | calls |\n| 1234567 | 2024-01-15 |",
    "100-200-3000, rows 212 555 0188": "100-200-3000, rows 212 555 0188",
    "host OID 1.3.6.1.4.1.311, 42.6.7.9.3": "host OID 1.3.6.1.4.1.311, 42.6.7.9.3",
    "[2001:db8::1]:443 and x[100::2], see [face:12]": "[<IP>]:443 and x[100::2], see [face:12]",
    "0x742d35Cc6634C0532925a3b844Bc454e4438f44e": "<WALLET>",
    f"burnt: 0x{'0' * 40}": f"burnt: 0x{'0' * 40}",
    "u/bob@example.com, |eve@example.com|": "u/<EMAIL>, |<EMAIL>|",
    "Author: Tomasz Wieczorek <t@example.com>": "Author: <PERSON> <<EMAIL>>",
    "Ask Rosalind Kettering at <EMAIL_0123456789ab>": "Ask <PERSON> at <EMAIL>",
    "Ask Rosalind Kettering at rk@example.com": "Ask <PERSON> at <EMAIL>",
    "Cookie settings: accept the Cookie": "Cookie settings: accept the Cookie",
}


async def test_of_other_forms_the_value_is_replaced_whole(redactor: PresidioRedactor) -> None:
    results = await redactor.redact([*FORMS], TextDestination.COMPRESSED, "t")
    left = [re.sub(r"_[0-9a-f]{12}>", ">", one.text) for one in results]
    assert dict(zip(FORMS, left, strict=True)) == FORMS


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
    again = PresidioRedactor(KEY, DetectionConfig(countries=tuple(COUNTRIES)))
    assert asyncio.run(redacted(again, once.text)).text == once.text
    again.close()


@given(st.text())
def test_a_view_is_the_text_as_a_reader_sees_it(text: str) -> None:
    for view in iter_normalized_views(text):
        for place, character in enumerate(view.text):
            start, end = view.to_original_range(place, place + 1)
            assert end == start + 1
            assert normalize_characters(text[start:end]) == normalize_characters(character)
