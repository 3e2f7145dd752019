"""Private keys as logs, quotations and listings show them: its lines go, and what stands before them stays."""

import asyncio
import base64
import random
import re
from collections.abc import Callable
from itertools import product

import pytest

from waystation.plugins.redaction.credentials import find_private_keys
from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.plugins.redaction.rules import DetectionConfig
from waystation.privacy.policy import RedactionPolicy, TextDestination

BEGIN, END = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"
DRAWN = base64.b64encode(random.Random(7).randbytes(600)).decode()
BODY = [*(DRAWN[start : start + 64] for start in range(0, 768, 64)), "abcDEF12=="]
KEY = [BEGIN, *BODY, END]


def left_of(text: str) -> str:
    """The text with ⟦⟧ in place of every secret."""
    for hit in sorted(find_private_keys(text), reverse=True, key=lambda hit: hit.start):
        text = f"{text[: hit.start]}⟦⟧{text[hit.end :]}"
    return text


PREFIXES: dict[str, Callable[[int], str]] = {
    "quoted": lambda number: "> ",
    "listed": lambda number: "- ",
    "numbered by cat -n": lambda number: f"{number:>6}\t",
    "numbered as agents read": lambda number: f"{number}| ",
    "logged": lambda number: f"2024-05-01 12:00:{number:02}.123 INFO worker ",
    "logged by syslog": lambda number: f"May  1 12:00:{number:02} host app[12]: ",
    "found by grep": lambda number: f"keys/id_rsa:{number}:",
    "commented": lambda number: "# ",
}


PARTS = {"whole": KEY, "without its end": KEY[:6], "without its beginning": KEY[5:]}


def test_of_a_key_behind_prefixes_every_line_goes_and_the_prefixes_stay() -> None:
    found, expected = dict[str, str](), dict[str, str]()
    for (way, prefix), (part, lines) in product(PREFIXES.items(), PARTS.items()):
        shown, kept = [
            "\n".join(["Some text", *(prefix(number) + line for number, line in enumerate(some, 9)), "and more"])
            for some in (lines, ["⟦⟧" if line in BODY else line for line in lines])
        ]
        found[f"{way}, {part}"], expected[f"{way}, {part}"] = left_of(shown), kept
    assert found == expected


PARTED = {
    "indented": ("key: |\n" + "\n".join(f"    {line}" for line in KEY) + "\nnext: 1", "key: |\n    ⟦⟧\nnext: 1"),
    "CRLF": ("\r\n".join(KEY), "⟦⟧"),
    "escaped": ("\\n".join(KEY), "⟦⟧"),
    "blanks": (" ".join(KEY), "⟦⟧"),
    "one word": ("".join(KEY), "⟦⟧"),
    "headers": ("\n".join([BEGIN, "Proc-Type: 4,ENCRYPTED", "", *BODY, END]), f"{BEGIN}\nProc-Type: 4,ENCRYPTED\n\n⟦⟧"),
    "no beginning": ("\n".join(KEY[3:]) + "\nafter", "⟦⟧\nafter"),
    "cut at the end": ("\n".join(KEY[:6]) + "\nabc1", "⟦⟧"),
    "cut before": ("zzz1\n" + "\n".join(KEY[6:]), "⟦⟧"),
}


def test_what_only_white_space_parts_is_one_secret() -> None:
    found = {way: left_of(text) for way, (text, _) in PARTED.items()}
    assert found == {way: left for way, (_, left) in PARTED.items()}


def test_a_key_in_code_goes_string_by_string() -> None:
    code = "key = (" + "\n".join(f'"{line}\\n"' for line in KEY) + ")"
    assert left_of(code) == f'key = ("{BEGIN}\\n"\n' + '"⟦⟧\\n"\n' * len(BODY) + f'"{END}\\n")'


@pytest.mark.parametrize(
    "text",
    [
        f'if text.startswith("{BEGIN}"):\n    return load_private_key(text)\n',
        f"A key stands between `{BEGIN}` and `{END}`.",
        f"{BEGIN}\nMIIEvQ...\n{END}",
        "\n".join(["-----BEGIN CERTIFICATE-----", *BODY, "-----END CERTIFICATE-----"]),
        f"{BEGIN}\n9| <SECRET_0123456789ab>\n{END}",
    ],
)
def test_what_only_speaks_of_keys_stays(text: str) -> None:
    assert left_of(text) == text


def test_columns_of_phones_stay_where_only_secrets_are_to_go() -> None:
    redactor = PresidioRedactor(b"k" * 32, DetectionConfig(policy=RedactionPolicy.SECRETS_ONLY))
    table = "id,phone number,password\n7,01 42 68 53 00,luna"
    (result,) = asyncio.run(redactor.redact([table], TextDestination.TOOL_RESULT, "t"))
    redactor.close()
    assert re.sub(r"_[0-9a-f]{12}>", ">", result.text) == "id,phone number,password\n7,01 42 68 53 00,<SECRET>"
