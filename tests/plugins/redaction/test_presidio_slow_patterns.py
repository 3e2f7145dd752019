"""Texts that make careless patterns try every way to split them: each is read in one go, or the time limit ends it."""

from collections.abc import Callable, Iterable

import pytest

from waystation.plugins.redaction.columns import find_people_by_context, find_signature_names
from waystation.plugins.redaction.credentials import find_private_keys
from waystation.plugins.redaction.detections import Detection, extract_json_prose
from waystation.plugins.redaction.formats import RecognizerMatch
from waystation.plugins.redaction.structured_secrets import find_sql_insert_passwords

LONG = 100_000
INSERT = "insert into t (a, password) values "
BEGIN = "-----BEGIN PRIVATE KEY-----\n"
TEXTS: list[tuple[Callable[[str], Iterable[Detection | RecognizerMatch]], str]] = [
    (find_sql_insert_passwords, f"{INSERT}({' ' * LONG}"),
    (find_sql_insert_passwords, f"{INSERT}({chr(39) * LONG}"),
    (find_sql_insert_passwords, INSERT + "(1,'x')," * (LONG // 8)),
    (find_sql_insert_passwords, f"{INSERT}({'a(' * LONG}"),
    (find_private_keys, BEGIN * (LONG // len(BEGIN))),
    (find_private_keys, BEGIN + ("MHcCAQEEIB" * 4 + " ") * (LONG // 40)),
    (find_private_keys, "-" * LONG),
    (find_private_keys, f"-----BEGIN {'A ' * LONG}"),
    (lambda text: find_signature_names(text, 0, len(text)), f"Author: {'Ada-' * LONG}"),
    (lambda text: find_signature_names(text, 0, len(text)), f"A{'é' * LONG}"),
    (lambda text: find_signature_names(text, 0, len(text)), "Ada Lovelace " * (LONG // 13)),
    (lambda text: find_people_by_context(text, 0, len(text)), "with A" * (LONG // 6)),
    (lambda text: find_people_by_context(text, 0, len(text)), '"Ab",' * (LONG // 5)),
    (lambda text: find_people_by_context(text, 0, len(text)), "ABC, " * (LONG // 5)),
    (lambda text: find_people_by_context(text, 0, len(text)), "Или " * (LONG // 4)),
]
FOUND = {5: [(0, 40_027)]}
"""By number, where something is found: one private key, as far as a key may reach."""


UNENDING = ['"' + r"\"" * LONG, '"a": "b c d' + "\\\\" * LONG, '["a b c",' * 20_000, '{"a": "{\\"b' * 10_000]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("number", range(len(UNENDING)))
def test_json_that_does_not_end_is_read_in_one_go(number: int) -> None:
    assert all(len(one.starts) == len(one.ends) == len(one.text) for one in extract_json_prose(UNENDING[number]))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_a_text_that_is_made_to_be_slow_is_read(number: int) -> None:
    find, text = TEXTS[number]
    assert [(one.start, one.end) for one in find(text)] == FOUND.get(number, [])
