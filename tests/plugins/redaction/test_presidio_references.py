"""References stay, values in their form go; addresses are found as JSON and HTML write them, phones beside a call."""

import re

from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.privacy.policy import TextDestination

LEFT = {
    "note-212-555-0147": "note-<PHONE>",
    "call-415-555-2671": "call-<PHONE>",
    "file-212-555-0147": "file-<PHONE>",
    "run-4111-1111-1111-1111": "run-<CARD>",
    "session-123-45-6789": "session-<SSN>",
    "run_4111-1111-1111-1111": "run_<CARD>",
    "run_4111-1111-1111-1111_run": "run_<CARD>_run",
    "run-4111 1111 1111 1111": "run-<CARD>",
    "file_4111_1111_1111_1111.txt": "file_<CARD>.txt",
    "378282246310005_final": "<CARD>_final",
    "note_212-555-0147": "note_<PHONE>",
    "212-555-0147_note": "<PHONE>_note",
    "abc1_(212) 555-0147": "abc1_<PHONE>",
    "customer/212-555-0147": "customer/<PHONE>",
    "tel#+4917012345678": "tel#<PHONE>",
    "x_123-45-6789_x": "x_<SSN>_x",
    "step_123_45_6789": "step_<SSN>",
    "x:219-09-9999": "x:<SSN>",
    "[run_219-09-9999]": "[run_<SSN>]",
    "run_DE89370400440532013000_x": "run_<IBAN>_x",
    "[DE89 3704 0044 0532 0130 00]": "[<IBAN>]",
    "ada@example.org_run": "<EMAIL>_run",
    "run_1:ada@example.org-run": "run_1:<EMAIL>-run",
    "ada@example.org.note": "<EMAIL>.note",
    "[4111 1111 1111 1111]": "[<CARD>]",
    "[ada@example.org]": "[<EMAIL>]",
    "[pay to 4111 1111 1111 1111:12]": "[pay to <CARD>:12]",
    "[call 212-555-0147:12-14]": "[call <PHONE>:12-14]",
    "ada\\u0040example.org": "<EMAIL>",
    '"ada\\u0040example\\u002eorg"': '"<EMAIL>"',
    "ada&#64;example.org, ada&#x40;example&#46;org": "<EMAIL>, <EMAIL>",
    "ada&commat;example.org": "<EMAIL>",
    "call 9876543210": "call <PHONE>",
    "Call me at 98765 43210.": "Call me at <PHONE>.",
    "call 138 1234 5678": "call <PHONE>",
    "llame al 612 345 678": "llame al <PHONE>",
    "chiama 312 345 6789": "chiama <PHONE>",
    "zadzwoń 512 345 678": "zadzwoń <PHONE>",
    "ring 070-123 45 67": "ring <PHONE>",
    "позвоните 8 912 345-67-89": "позвоните <PHONE>",
    "ligue 11 91234 5678": "ligue <PHONE>",
    "rufen Sie 079 123 45 67": "rufen Sie <PHONE>",
    "请致电13812345678": "请致电<PHONE>",
}


async def test_a_value_in_the_form_of_a_reference_goes(redactor: PresidioRedactor) -> None:
    results = await redactor.redact([*LEFT], TextDestination.TOOL_RESULT, "t")
    found = [re.sub(r"_[0-9a-f]{12}>", ">", one.text) for one in results]
    assert dict(zip(LEFT, found, strict=True)) == LEFT


REFERENCES = (
    "[document:12-14]",
    "[notes-45.md:4-99]",
    "step-2024-01-15",
    "toolu_01ABcdEf23456789",
    "task-0123456789abcdef/research-1",
    "call 1-3 of 20, call 4096 times, call 12345678901234567890",
    "order-212-555-0147",
    "backup_20260115_103000, utf_8, item_1_of_20, run_0123456789abcdef",
    "toolu_4111111111111111ab, call_9f4111111111111111",
    "1_000_000_000_000_000 rows, log_1700000000000, x86_64-10_15",
    "lib_10.0.0.12-py3-none-any.whl",
    "a5f4e210-4111-1111-1111-111111111111",
    "Commission File Number: 001-36743, (Commission file number) 001-34756, Registration No. 001-20981",
)


async def test_a_reference_stays(redactor: PresidioRedactor) -> None:
    results = await redactor.redact(REFERENCES, TextDestination.TOOL_RESULT, "t")
    assert dict(zip(REFERENCES, [one.text for one in results], strict=True)) == {text: text for text in REFERENCES}


async def test_however_an_address_is_encoded_it_has_one_placeholder(redactor: PresidioRedactor) -> None:
    texts = ["ada@example.org", "ada\\u0040example.org", "ada&#64;example&period;org", "ada%40example.org"]
    results = await redactor.redact(texts, TextDestination.TOOL_RESULT, "t")
    assert len({result.text for result in results}) == 1


VALUES = (
    "4111-1111-1111-1111",
    "378282246310005",
    "212-555-0147",
    "(212) 555-0147",
    "+4917012345678",
    "123-45-6789",
    "DE89370400440532013000",
    "ada@example.org",
)


async def test_whatever_a_value_is_joined_to_nothing_of_it_is_left(redactor: PresidioRedactor) -> None:
    texts = [(value, text) for value in VALUES for text in joined(value)]
    results = await redactor.redact([text for _, text in texts], TextDestination.TOOL_RESULT, "t")
    left = {text: re.sub(r"<[A-Z]+_\w{12}>", "", one.text) for (_, text), one in zip(texts, results, strict=True)}
    assert {text: left[text] for value, text in texts if any(part in left[text] for part in parts(value))} == {}


def joined(value: str) -> list[str]:
    """The value as a part of words, of references and of what stands in brackets."""
    words = ("run", "note", "Session", "customer", "x", "abc1_y")
    return [
        *(f"{word}{sign}{value}" for word in words for sign in "_-:#/"),
        *(f"{value}{sign}{word}" for word in words for sign in "_-:#/"),
        *(f"{word}_{value}_{word}" for word in words),
        *(f"see {a}{word}{value}{b}" for a, b in ("[]", "()", "``", '""') for word in ("", "run_", "run ")),
    ]


def parts(value: str) -> list[str]:
    return re.findall(r"\w{3,}", value)
