import pytest

from waystation.kernel.errors import WrongKey
from waystation.privacy.keys import AesGcmCipher, MultiKeyCipher, derive_subkey

KEY, OTHER = bytes(range(32)), bytes(32)


def test_each_purpose_has_a_key_of_its_own() -> None:
    keys = {derive_subkey(KEY, purpose) for purpose in ("placeholders", "vault", "rest", "payloads")}
    assert len(keys) == 4
    assert KEY not in keys
    assert derive_subkey(KEY, "vault") == derive_subkey(bytes(KEY), "vault") != derive_subkey(OTHER, "vault")
    assert derive_subkey(KEY, "vault").hex() == "d6d9620e6fee6b9c2236c904c120bdbc3d201adc2ebc6d8bcfded35496349dea"


def test_what_was_sealed_opens_again_and_shows_nothing() -> None:
    sealer = AesGcmCipher(KEY, "vault")
    sealed = sealer.encrypt(b"Ada Lovelace", b"row 1")
    assert sealer.decrypt(sealed, b"row 1") == b"Ada Lovelace"
    assert b"Ada" not in sealed
    assert sealed[:5].hex() == f"01{sealer.key_id}"
    assert sealer.encrypt(b"Ada Lovelace", b"row 1") != sealed


@pytest.mark.parametrize("opener", [AesGcmCipher(OTHER, "vault"), AesGcmCipher(KEY, "rest")])
def test_another_key_opens_nothing_and_says_so(opener: AesGcmCipher) -> None:
    with pytest.raises(WrongKey, match=r"^it was encrypted with another key$"):
        opener.decrypt(AesGcmCipher(KEY, "vault").encrypt(b"Ada", b""), b"")


def test_what_was_moved_or_changed_does_not_open() -> None:
    sealer = AesGcmCipher(KEY, "vault")
    sealed = sealer.encrypt(b"Ada", b"row 1")
    with pytest.raises(WrongKey, match="changed, or was copied from another place"):
        sealer.decrypt(sealed, b"row 2")
    with pytest.raises(WrongKey, match="changed, or was copied from another place"):
        sealer.decrypt(sealed[:-1] + bytes([sealed[-1] ^ 1]), b"row 1")
    with pytest.raises(WrongKey, match="incomplete"):
        sealer.decrypt(sealed[:20], b"row 1")


def test_after_a_change_of_keys_the_new_one_seals_and_both_open() -> None:
    old, new = AesGcmCipher(OTHER, "vault"), AesGcmCipher(KEY, "vault")
    both = MultiKeyCipher([new, old])
    assert both.decrypt(old.encrypt(b"Ada", b""), b"") == b"Ada"
    assert new.decrypt(both.encrypt(b"Ada", b""), b"") == b"Ada"
    with pytest.raises(WrongKey, match="another key"):
        both.decrypt(AesGcmCipher(bytes(range(1, 33)), "vault").encrypt(b"Ada", b""), b"")
