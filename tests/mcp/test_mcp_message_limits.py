import json

import pytest

from waystation.mcp.supervisor import TOO_LONG_ERROR_CODE, BoundedLine

MOST = 10_000


def line(*parts: bytes) -> BoundedLine:
    found = BoundedLine(MOST)
    for part in parts:
        found.add(part)
    return found


def test_a_message_that_is_short_enough_passes_as_it_is() -> None:
    assert line(b'{"id":1,', b'"result":{}}').to_message() == b'{"id":1,"result":{}}\n'


@pytest.mark.parametrize(
    ("first", "last"),
    [(b'{"jsonrpc":"2.0","id":7,"result":"', b'","id":9"}'), (b'{"result":"', b'","jsonrpc":"2.0","id":7}')],
)
def test_a_message_that_is_too_long_becomes_an_error_for_its_call(first: bytes, last: bytes) -> None:
    answer = json.loads(line(first, *[b"x" * MOST] * 20, last).to_message())
    assert (answer["id"], answer["error"]["code"]) == (7, TOO_LONG_ERROR_CODE)


def test_of_a_message_that_is_too_long_only_its_ends_are_held() -> None:
    assert len(line(*[b"x" * MOST] * 20).held) < MOST


def test_a_message_that_is_too_long_and_answers_nothing_ends_the_server() -> None:
    with pytest.raises(ValueError, match="the message does not say which call it answers"):
        line(*[b"x" * MOST] * 2).to_message()
