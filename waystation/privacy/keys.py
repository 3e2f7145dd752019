"""Derives one key for each purpose from a main key, and encrypts with them; a ciphertext names the key it needs."""

import hashlib
import hmac
import os
from collections.abc import Sequence
from typing import Literal

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from waystation.kernel.cipher import DAMAGED_DATA
from waystation.kernel.errors import RetiredKey, WrongKey

KeyPurpose = Literal["placeholders", "vault", "rest", "payloads"]

VERSION = b"\x01"
"""First byte of every ciphertext: AES-256-GCM, laid out as described in `AesGcmCipher`."""
KEY_ID_BYTES, NONCE_BYTES, TAG_BYTES = 4, 12, 16
_HEADER_BYTES = len(VERSION) + KEY_ID_BYTES
_MIN_CIPHERTEXT_BYTES = _HEADER_BYTES + NONCE_BYTES + TAG_BYTES


def derive_subkey(key: bytes, purpose: KeyPurpose) -> bytes:
    """Return the 32-byte key for one purpose, by HKDF-SHA256.

    It reveals neither the main key nor another purpose's key.
    """
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=f"waystation:{purpose}".encode()).derive(key)


class AesGcmCipher:
    """Implements the port `Cipher` for one purpose of one key.

    Layout: version (1 byte), key id (4), nonce (12, random), ciphertext, tag (16). Version, key id, purpose and the
    caller's context are authenticated, so what was encrypted for one place cannot be decrypted in another.
    """

    def __init__(self, key: bytes, purpose: KeyPurpose) -> None:
        """`key` is the 32-byte main key from which every purpose's key is derived."""
        own = derive_subkey(key, purpose)
        self._aead = AESGCM(own)
        self._header = VERSION + hmac.digest(own, b"key id", hashlib.sha256)[:KEY_ID_BYTES]
        self._purpose = purpose.encode()

    @property
    def key_id(self) -> str:
        """8 hexadecimal digits by which two ciphers can check whether their keys are equal."""
        return self._header[len(VERSION) :].hex()

    def encrypt(self, plain: bytes, context: bytes) -> bytes:
        """Encrypt `plain`. `context` says what the bytes are; they can be decrypted under the same context only."""
        nonce = os.urandom(NONCE_BYTES)
        return self._header + nonce + self._aead.encrypt(nonce, plain, self._bound(context))

    def decrypt(self, sealed: bytes, context: bytes) -> bytes:
        """Decrypt bytes that were encrypted under the same `context`.

        Raises:
            WrongKey: they were encrypted with another key, or changed or moved since.
        """
        if sealed[:_HEADER_BYTES] != self._header:
            raise WrongKey("it was encrypted with another key")
        if len(sealed) < _MIN_CIPHERTEXT_BYTES:
            raise WrongKey(f"{DAMAGED_DATA}incomplete")
        nonce, body = sealed[_HEADER_BYTES : _HEADER_BYTES + NONCE_BYTES], sealed[_HEADER_BYTES + NONCE_BYTES :]
        try:
            return self._aead.decrypt(nonce, body, self._bound(context))
        except InvalidTag:
            raise WrongKey(f"{DAMAGED_DATA}it was changed, or was copied from another place") from None

    def _bound(self, context: bytes) -> bytes:
        return b"\x00".join((self._header, self._purpose, context))


class MultiKeyCipher:
    """Implements the port `Cipher` for one purpose of several keys: encrypts with the first, decrypts with any.

    What a retired key encrypted is refused, although that key is known: it may have leaked, so anyone could have
    encrypted it.
    """

    def __init__(self, sealers: Sequence[AesGcmCipher], retired: Sequence[AesGcmCipher] = ()) -> None:
        """`sealers` holds at least one cipher."""
        self._first = sealers[0]
        self._by_id = {bytes.fromhex(sealer.key_id): sealer for sealer in reversed(sealers)}
        self._retired = {bytes.fromhex(sealer.key_id) for sealer in retired} - self._by_id.keys()

    def encrypt(self, plain: bytes, context: bytes) -> bytes:
        """See `AesGcmCipher`."""
        return self._first.encrypt(plain, context)

    def decrypt(self, sealed: bytes, context: bytes) -> bytes:
        """See `AesGcmCipher`.

        Raises:
            WrongKey: none of the keys decrypts the bytes.
            RetiredKey: a retired key encrypted them.
        """
        key_id = sealed[len(VERSION) : _HEADER_BYTES]
        if key_id in self._retired:
            raise RetiredKey
        return self._by_id.get(key_id, self._first).decrypt(sealed, context)
