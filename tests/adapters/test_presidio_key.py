import secrets

import pytest

from waystation.adapters.presidio.key import key_check, key_from_hex
from waystation.domain.errors import BadInput

KEY = "0123456789abcdef" * 4


def test_a_key_is_read_from_hex() -> None:
    assert key_from_hex(KEY) == bytes.fromhex(KEY)
    assert key_from_hex(KEY.upper() + "\n") == bytes.fromhex(KEY)


@pytest.mark.parametrize("text", ["", "whisper" * 9, KEY[2:], KEY + "00", KEY[1:] + "z"])
def test_a_text_that_is_no_key_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(
        BadInput, match=r"64 hexadecimal digits: `openssl rand -hex 32` makes one; set WAYSTATION_KEY"
    ) as no:
        key_from_hex(text)
    assert no.value.__context__ is None
    assert not text or text not in str(no.value)


def test_equal_keys_have_equal_checks_which_are_too_short_to_hold_a_key() -> None:
    one, two = secrets.token_bytes(32), secrets.token_bytes(32)
    assert key_check(one) == key_check(bytes(one)) != key_check(two)
    assert len(key_check(one)) == 16
    assert key_check(one) not in one.hex()
