"""Texts that make careless patterns try every way to split them: each is read in one go, or the time limit ends it."""

from collections.abc import Callable, Iterable

import pytest

from waystation.plugins.redaction.columns import people_around, signed
from waystation.plugins.redaction.credentials import private_keys
from waystation.plugins.redaction.finds import Found, prose_in_json
from waystation.plugins.redaction.formats import Hit
from waystation.plugins.redaction.structures import inserted

LONG = 100_000
INSERT = "insert into t (a, password) values "
BEGIN = "-----BEGIN PRIVATE KEY-----\n"
TEXTS: list[tuple[Callable[[str], Iterable[Found | Hit]], str]] = [
    (inserted, f"{INSERT}({' ' * LONG}"),
    (inserted, f"{INSERT}({chr(39) * LONG}"),
    (inserted, INSERT + "(1,'x')," * (LONG // 8)),
    (inserted, f"{INSERT}({'a(' * LONG}"),
    (private_keys, BEGIN * (LONG // len(BEGIN))),
    (private_keys, BEGIN + ("MHcCAQEEIB" * 4 + " ") * (LONG // 40)),
    (private_keys, "-" * LONG),
    (private_keys, f"-----BEGIN {'A ' * LONG}"),
    (lambda text: signed(text, 0, len(text)), f"Author: {'Ada-' * LONG}"),
    (lambda text: signed(text, 0, len(text)), f"A{'é' * LONG}"),
    (lambda text: signed(text, 0, len(text)), "Ada Lovelace " * (LONG // 13)),
    (lambda text: people_around(text, 0, len(text)), "with A" * (LONG // 6)),
    (lambda text: people_around(text, 0, len(text)), '"Ab",' * (LONG // 5)),
    (lambda text: people_around(text, 0, len(text)), "ABC, " * (LONG // 5)),
    (lambda text: people_around(text, 0, len(text)), "Или " * (LONG // 4)),
]
FOUND = {5: [(0, 40_027)]}
"""By number, where something is found: one private key, as far as a key may reach."""


UNENDING = ['"' + r"\"" * LONG, '"a": "b c d' + "\\\\" * LONG, '["a b c",' * 20_000, '{"a": "{\\"b' * 10_000]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("number", range(len(UNENDING)))
def test_json_that_does_not_end_is_read_in_one_go(number: int) -> None:
    assert all(len(one.starts) == len(one.ends) == len(one.text) for one in prose_in_json(UNENDING[number]))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_a_text_that_is_made_to_be_slow_is_read(number: int) -> None:
    find, text = TEXTS[number]
    assert [(one.start, one.end) for one in find(text)] == FOUND.get(number, [])
