import asyncio
import re
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waystation.kernel.errors import RedactionFailed
from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.plugins.redaction.rules import DetectionConfig
from waystation.privacy.policy import RedactionResult, TextDestination, build_redaction_notes

KEY = b"k" * 32
PRIVATE_KEY = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0BAQEF\n" * 90 + "-----END PRIVATE KEY-----"


async def redacted(
    redactor: PresidioRedactor, text: str, destination: TextDestination = TextDestination.TOOL_RESULT, tenant: str = "t"
) -> RedactionResult:
    (result,) = await redactor.redact([text], destination, tenant)
    return result


def types_in(result: RedactionResult) -> list[str]:
    return [span.type for span in result.spans]


IDENTIFIERS = {
    "alice@example.com": "EMAIL",
    "j.doe+x@mail.corp.internal": "EMAIL",
    "+1 (415) 555-2671": "PHONE",
    "415-555-2671": "PHONE",
    "(415) 555-2671": "PHONE",
    "+49 170 1234567": "PHONE",
    "020 7946 0958": "PHONE",
    "4111 1111 1111 1111": "CARD",
    "378282246310005": "CARD",
    "2223 0031 2200 3222": "CARD",
    "DE89 3704 0044 0532 0130 00": "IBAN",
    "123-45-6789": "SSN",
    "192.168.1.20": "IP",
    "2001:db8::ff00:42:8329": "IP",
    "00:1A:2B:3C:4D:5E": "MAC",
    "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa": "WALLET",
}
SECRETS = (
    "sk-ant-api03-abcdefghij1234567890",
    "sk-proj-abcdefghij1234567890abcd",
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_abcdefghijklmnopqrstuvwxyz012345",
    "github_pat_11ABCDEFG0abcdefghij",
    "glpat-abcdefghij1234567890",
    "xoxb-123456789012-abcdefghij",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "sk_live_abcdefghij1234567890",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlX2hlcmU",
    "glrt-abcdefghij1234567890",
    "GOCSPX-abcdefghij1234567890abcd",
    "abc8Q~abcdefghijklmnopqrstuvwxyz01234567",
    "npm_abcdefghijklmnopqrstuvwxyz0123456789",
    "pypi-AgEIcHlwaS5vcmcCJGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6MDEyMzQ1Njc4OQ",
    "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH",
    "SG.abcdefghijklmnop1234.abcdefghijklmnop1234567890",
    "dckr_pat_abcdefghijklmnop1234567890",
    "hvs.abcdefghijklmnop1234567890",
    PRIVATE_KEY,
)


async def test_an_identifier_is_replaced_as_a_whole(redactor: PresidioRedactor) -> None:
    types = {**IDENTIFIERS, **dict.fromkeys(SECRETS, "SECRET")}
    results = await redactor.redact(
        [f"Before it, {value} and after it." for value in types], TextDestination.TOOL_RESULT, "t"
    )
    wrong = {
        value: one.text
        for (value, type_), one in zip(types.items(), results, strict=True)
        if not re.fullmatch(rf"Before it, <{type_}_[0-9a-f]{{12}}> and after it\.", one.text)
    }
    assert wrong == {}


LABELLED = {
    "postgres://bob:s3cret!@db.example.com:5432/x": "postgres://bob:<SECRET>@db.example.com:5432/x",
    '{"password": "correct horse"}': '{"password": "<SECRET>"}',
    r"{\"api_key\": \"A1b2C3d4E5f6\"}": r"{\"api_key\": \"<SECRET>\"}",
    "DB_PASSWORD=correct-horse-9": "DB_PASSWORD=<SECRET>",
    "The password is hunter22, keep it.": "The password is <SECRET>, keep it.",
    "Authorization: Bearer abc123def456ghi789": "Authorization: Bearer <SECRET>",
    "api_token = abcdef1234567890": "api_token = <SECRET>",
    "export PGPASSWORD=correcthorse": "export PGPASSWORD=<SECRET>",
    "mysqldump --password hushhush db": "mysqldump --password <SECRET> db",
    "curl -u bob:s3cret https://example.com": "curl -u bob:<SECRET> https://example.com",
    "| api_key | A1b2C3d4E5f6 |": "| api_key | <SECRET> |",
    "The API key is A1b2C3d4E5f6g7.": "The API key is <SECRET>.",
    "here is the token for staging: pQ7rT2vX9zLmN4bK8cWd": "here is the token for staging: <SECRET>",
    "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=Zm9vYmFyMTIzNDU2Nzg5MA==;EndpointSuffix=x": (
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=<SECRET>;EndpointSuffix=x"
    ),
    "Server=db;User Id=sa;Password=hunter22;": "Server=db;User Id=sa;Password=<SECRET>;",
    "https://hooks.slack.com/services/T00000000/B00000000/abcdefghijklmnop": "https://hooks.slack.com/services/<SECRET>",
    "My passport number is X1234567.": "My passport number is <PASSPORT>.",
    "account number: 123456789012": "account number: <ACCOUNT>",
    "driver's license D1234567": "driver's license <LICENCE>",
    "Social security number 123456789": "Social security number <SSN>",
    "Phone: 5552671": "Phone: <PHONE>",
    "Connected to 8.8.8.8:53": "Connected to <IP>:53",
    "src=10.0.0.1 dst=10.0.0.5": "src=<IP> dst=<IP>",
}


async def test_of_a_labelled_value_only_the_value_is_replaced(redactor: PresidioRedactor) -> None:
    results = await redactor.redact([*LABELLED], TextDestination.TOOL_RESULT, "t")
    left = [re.sub(r"_[0-9a-f]{12}>", ">", one.text) for one in results]
    assert dict(zip(LABELLED, left, strict=True)) == LABELLED


SURVIVORS = (
    "On 2024-01-15 at 10:30, in 1998, on 15.01.2024 and 01/15/2024.",
    "2024-01-15T10:30:00.123456+02:00",
    "Versions 1.35.0.4, v2.0.1, 0.25.1 0.26.0 and python 3.11.0; requires >=1.2.3.4,<2.",
    "upgrade from 1.2.3.4 to 1.2.3.5",
    "See [report.md:12-18] and [notes/a b.txt:7], lines 12-18, page 100-200.",
    "Order 4711-12345678, order number 123-456-7890, invoice 98765432101234, ticket #5551234567.",
    "port 8080, localhost:5432, 127.0.0.1, 0.0.0.0, ::1, netmask 255.255.255.0",
    "task-0123456789abcdef/research-1 m12 toolu_01A09q90qw90lq917835lq9",
    "123e4567-e89b-12d3-a456-426614174000 a94a8fe5ccb19ba61c4c0873d391e987982fbbd3",
    "/usr/lib/python3.11/site-packages/numpy/core.py and src/main.rs and C:\\temp\\x.txt",
    "1700000000123456 microseconds, 0.4111111111111111, 12,345,678 rows, 1e-10, 99.95 %",
    "max_tokens=4096, token: str, password: <your password>, api_key=$API_KEY, secret='changeme'",
    "std::vector a::b 12:34:56 3:1",
    "git@github.com:owner/repo.git and react@18.2.0 and @app.route",
    "<PERSON_7f3a2c91d04e> wrote to <EMAIL_0123456789ab>; password: <SECRET_0123456789ab>",
    "https://example.org/a/b?x=1#y",
)


@pytest.mark.parametrize("destination", [TextDestination.TOOL_RESULT, TextDestination.COMPRESSED])
async def test_figures_ids_and_placeholders_survive(redactor: PresidioRedactor, destination: TextDestination) -> None:
    results = await redactor.redact(SURVIVORS, destination, "t")
    assert dict(zip(SURVIVORS, results, strict=True)) == {text: RedactionResult(text=text) for text in SURVIVORS}


async def test_names_are_replaced_before_memory_but_not_before_the_model(redactor: PresidioRedactor) -> None:
    text = "Yesterday Alice Johnson met Maria Garcia in Berlin."
    assert await redacted(redactor, text, TextDestination.TOOL_RESULT) == RedactionResult(text=text)
    assert types_in(await redacted(redactor, text, TextDestination.COMPRESSED)) == ["PERSON", "PERSON", "LOCATION"]


@pytest.mark.parametrize(
    "text",
    [
        "NumPy and Python run on Linux under the MIT License, says the Changelog.",
        "Config lives in `Alice.Johnson` and in Johnson_Alice.py; GitHub CI runs it.",
        "Query the Download page. A query may download a page.",
        "Markup and HTTPX2 by OSI, AI and US standards",
    ],
)
async def test_code_and_software_are_not_names(redactor: PresidioRedactor, text: str) -> None:
    assert await redacted(redactor, text, TextDestination.COMPRESSED) == RedactionResult(text=text)


async def test_a_value_has_one_placeholder_in_a_tenant_and_another_one_elsewhere(redactor: PresidioRedactor) -> None:
    first = await redacted(redactor, "alice@example.com and ALICE@example.com")
    assert len({span.placeholder for span in first.spans}) == 1
    elsewhere = await redacted(redactor, "alice@example.com", tenant="other")
    assert elsewhere.text != (await redacted(redactor, "alice@example.com")).text
    again = PresidioRedactor(KEY)
    assert (await redacted(again, "alice@example.com and ALICE@example.com")) == first
    again.close()


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("I spoke with Ben in Manchester yesterday.", "in <LOCATION> yesterday."),
        ("| 9752-57958482 | Manchester | 279,211 |", "| 9752-57958482 | <LOCATION> | 279,211 |"),
        ("id,city\n17,Kansas City,4", "17,<LOCATION>,4"),
    ],
)
async def test_a_larger_city_is_replaced_where_the_language_model_sees_none(
    redactor: PresidioRedactor, text: str, left: str
) -> None:
    result = await redacted(redactor, text, TextDestination.COMPRESSED)
    assert re.sub(r"_[0-9a-f]{12}>", ">", result.text).endswith(left)


async def test_a_name_next_to_an_address_is_replaced_too(redactor: PresidioRedactor) -> None:
    result = await redacted(
        redactor, "Contact: John Smith, john.smith@example.com, please.", TextDestination.COMPRESSED
    )
    assert types_in(result) == ["PERSON", "EMAIL"]
    assert "Smith" not in result.text


async def test_a_name_between_commas_of_a_table_is_replaced(redactor: PresidioRedactor) -> None:
    result = await redacted(redactor, "id,holder,amount\n806447596334,Joel Reid,7", TextDestination.COMPRESSED)
    assert re.fullmatch(r"id,holder,amount\n806447596334,<PERSON_\w+>,7", result.text)


async def test_names_that_no_list_has_stay_in_a_language_without_a_model_and_it_is_said(
    redactor: PresidioRedactor,
) -> None:
    english = "Yesterday Alice Johnson came by. " * 80
    german = "Gestern traf Anna Schmidt ihren Nachbarn Xylander, und sie sprachen lange mit anna@example.com.\n" * 30
    result = await redacted(redactor, f"{english}\n{german}", TextDestination.COMPRESSED)
    assert result.languages_without_names == ("de",)
    assert "PERSON" in types_in(result)
    assert "Anna Schmidt" not in result.text
    assert "Xylander" in result.text
    assert "anna@example.com" not in result.text
    assert (
        "Waystation's lists were found. Secrets and identifiers were found as usual."
        in build_redaction_notes(result, result)[0]
    )
    assert (await redacted(redactor, german)).languages_without_names == ()


async def test_thousands_of_texts_are_not_a_task_each_and_come_back_in_their_order(redactor: PresidioRedactor) -> None:
    texts = [f"note {number % 3} of alice@example.com" for number in range(4_000)]
    asking = asyncio.create_task(redactor.redact(texts, TextDestination.TOOL_RESULT, "t"))
    most = 0
    while not asking.done():
        most = max(most, len(asyncio.all_tasks()))
        await asyncio.sleep(0)
    assert most < 10
    assert [one.text[:6] for one in await asking] == [text[:6] for text in texts]


async def test_what_was_redacted_before_comes_back_unchanged(redactor: PresidioRedactor) -> None:
    once = await redacted(redactor, "Alice Johnson lives in Paris, call +1 415 555 2671.", TextDestination.COMPRESSED)
    assert await redacted(redactor, once.text, TextDestination.COMPRESSED) == RedactionResult(text=once.text)


@pytest.mark.parametrize("filler", ["x", "x ", "x-", "9", "é.", "/a"])
async def test_a_secret_in_one_endless_line_is_found(redactor: PresidioRedactor, filler: str) -> None:
    padding = filler * (150_000 // len(filler))
    result = await redacted(redactor, f"{padding} alice@example.com 4111 1111 1111 1111 {padding}")
    assert types_in(result) == ["EMAIL", "CARD"]


async def test_a_private_key_longer_than_a_chunk_is_one_secret(redactor: PresidioRedactor) -> None:
    cut_off = PRIVATE_KEY.removesuffix("-----END PRIVATE KEY-----")
    before = "some line\n" * 150
    for key in (PRIVATE_KEY, cut_off, PRIVATE_KEY.replace("\n", "\\n")):
        result = await redacted(redactor, f"{before}{key}\n(after)")
        assert types_in(result) == ["SECRET"]
        assert "MIIE" not in result.text
        assert result.text.endswith("\n(after)")


async def test_a_failure_inside_stops_the_text_and_quotes_nothing_of_it(
    redactor: PresidioRedactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(text: str) -> list[tuple[int, int]]:
        raise ValueError(text)

    monkeypatch.setattr("waystation.plugins.redaction.search_child.iter_chunk_spans", broken)
    with pytest.raises(RedactionFailed, match=r"^redaction failed with ValueError$") as caught:
        await redacted(redactor, "never seen before")
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


async def test_a_missing_model_and_a_closed_redactor_fail_with_their_reason() -> None:
    redactor = PresidioRedactor(KEY, DetectionConfig(models={"en": "xx_no_such_model"}))
    with pytest.raises(RedactionFailed, match="the spaCy model xx_no_such_model is not installed"):
        await redactor.warm_up()
    redactor.close()
    with pytest.raises(RedactionFailed, match="the redactor is closed"):
        await redacted(redactor, "text")


async def test_nothing_is_fetched_from_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*args: object) -> None:
        raise AssertionError(f"tried to reach {args}")

    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    monkeypatch.setattr(socket.socket, "connect", no_network)
    redactor = PresidioRedactor(KEY)
    result = await redacted(redactor, "alice@example.co.uk met Alice Johnson", TextDestination.COMPRESSED)
    assert types_in(result) == ["EMAIL", "PERSON"]
    redactor.close()


PIECES = st.sampled_from([*IDENTIFIERS, *SECRETS[:-1], *SURVIVORS, "and", "the number is", "Ünïcödé 漢字 🙂", "a@b"])
SEPARATORS = st.sampled_from([" ", "\n", ", ", " | ", "\t", "; "])
MIXED = st.lists(st.tuples(PIECES, SEPARATORS), max_size=8).map(lambda pairs: "".join(a + b for a, b in pairs))


@settings(max_examples=60)
@given(MIXED)
def test_the_spans_tell_exactly_what_was_replaced(redactor: PresidioRedactor, text: str) -> None:
    result = asyncio.run(redacted(redactor, text))
    restored, position = "", 0
    for span in result.spans:
        assert position <= span.start < span.end <= len(text)
        restored += text[position : span.start] + span.placeholder
        position = span.end
    assert restored + text[position:] == result.text
    assert not any(secret in result.text for secret in SECRETS)


@settings(max_examples=60)
@given(MIXED)
def test_redacting_twice_changes_nothing_even_for_a_redactor_that_never_saw_the_text(text: str) -> None:
    first, second = PresidioRedactor(KEY), PresidioRedactor(KEY)
    once = asyncio.run(redacted(first, text))
    twice = asyncio.run(redacted(second, once.text))
    first.close()
    second.close()
    assert twice == RedactionResult(text=once.text)
