"""Encrypts what Temporal keeps of us: payloads, failures and the summaries that its UI shows."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import (
    DataConverter,
    DefaultFailureConverter,
    DefaultFailureConverterWithEncodedAttributes,
    PayloadCodec,
    PayloadConverter,
)

from waystation.domain.errors import WrongKey
from waystation.ports import Cipher

ENCODING, KEY_ID = "encoding", "encryption-key-id"
ENCRYPTED = b"binary/encrypted"
CONTEXT = b"temporal"
"""Payloads are bound to nothing else: a codec server is not told which workflow a payload belongs to."""


class PayloadEncryption(PayloadCodec):
    """Encrypts payloads with one key, and decrypts those of several. Payloads that are plain pass as they are."""

    def __init__(self, ciphers: Mapping[str, Cipher], encrypts_with: str | None) -> None:
        """`ciphers` by the id of their key; `encrypts_with` is the id of one of them, or None: nothing is encrypted."""
        self._ciphers = ciphers
        self._own = encrypts_with

    @property
    def key_id(self) -> str | None:
        """The id of the key that encrypts; None where nothing is encrypted."""
        return self._own

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """See base class."""
        return [self._encrypted(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """See base class. Raises WrongKey, also for a payload that was changed; the message has nothing of it."""
        return [self._decrypted(payload) for payload in payloads]

    def _encrypted(self, payload: Payload) -> Payload:
        if self._own is None:
            return payload
        sealed = self._ciphers[self._own].seal(payload.SerializeToString(), CONTEXT)
        return Payload(metadata={ENCODING: ENCRYPTED, KEY_ID: self._own.encode()}, data=sealed)

    def _decrypted(self, payload: Payload) -> Payload:
        if payload.metadata.get(ENCODING) != ENCRYPTED:
            return payload
        key_id = payload.metadata.get(KEY_ID, b"").decode(errors="replace")
        if key_id not in self._ciphers:
            raise WrongKey(self._missing(key_id))
        return Payload.FromString(self._ciphers[key_id].unseal(payload.data, CONTEXT))

    def _missing(self, key_id: str) -> str:
        there = f"the keys here are {', '.join(self._ciphers)}" if self._ciphers else "there is no key here"
        return (
            f"a payload in Temporal is encrypted with key {key_id!r}, and {there}: set WAYSTATION_KEY to the key of "
            "whoever wrote it, or add that to WAYSTATION_PREVIOUS_KEYS"
        )


class EncryptedFailures(DefaultFailureConverterWithEncodedAttributes):
    """Messages and stack traces of failures are encrypted, too, but for those about the key: whoever reads that the
    key is wrong does not have the wrong one.
    """

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        """See base class."""
        if isinstance(exception, WrongKey):
            DefaultFailureConverter().to_failure(exception, payload_converter, failure)
        else:
            super().to_failure(exception, payload_converter, failure)


def converter_with(codec: PayloadEncryption) -> DataConverter:
    """Pydantic payloads through this codec; failures encrypted where it encrypts."""
    converter = replace(pydantic_data_converter, payload_codec=codec)
    return converter if codec.key_id is None else replace(converter, failure_converter_class=EncryptedFailures)
