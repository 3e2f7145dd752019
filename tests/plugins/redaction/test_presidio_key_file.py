import secrets
from pathlib import Path

import pytest

from waystation.kernel.errors import BadInput
from waystation.privacy.key_file import compute_key_check, load_or_create_key, parse_hex_key

KEY = "0123456789abcdef" * 4


def test_a_key_is_read_from_hex() -> None:
    assert parse_hex_key(KEY) == bytes.fromhex(KEY)
    assert parse_hex_key(KEY.upper() + "\n") == bytes.fromhex(KEY)


@pytest.mark.parametrize("text", ["", "whisper" * 9, KEY[2:], KEY + "00", KEY[1:] + "z"])
def test_a_text_that_is_no_key_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(
        BadInput, match=r"64 hexadecimal digits: `openssl rand -hex 32` makes such a key. Set WAYSTATION_KEY"
    ) as no:
        parse_hex_key(text)
    assert no.value.__context__ is None
    assert not text or text not in str(no.value)


def test_equal_keys_have_equal_checks_which_are_too_short_to_hold_a_key() -> None:
    one, two = secrets.token_bytes(32), secrets.token_bytes(32)
    assert compute_key_check(one) == compute_key_check(bytes(one)) != compute_key_check(two)
    assert len(compute_key_check(one)) == 16
    assert compute_key_check(one) not in one.hex()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_key_file_that_others_can_use_is_refused_with_the_command_that_mends_it(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "key"
    key = load_or_create_key(path)
    path.chmod(mode)
    with pytest.raises(BadInput, match=rf"has mode {mode:04o}.*`chmod 600 {path}`"):
        load_or_create_key(path)
    path.chmod(0o400)
    assert load_or_create_key(path) == key
