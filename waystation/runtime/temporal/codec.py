"""Encrypts what Temporal stores of ours: payloads, failures and the summaries that its UI shows."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self, cast

from pydantic import JsonValue
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.contrib.pydantic import PydanticPayloadConverter, pydantic_data_converter
from temporalio.converter import (
    ActivitySerializationContext,
    DataConverter,
    DefaultFailureConverter,
    PayloadCodec,
    PayloadConverter,
    SerializationContext,
    WithSerializationContext,
    WorkflowSerializationContext,
)

from waystation.kernel.cipher import Cipher
from waystation.kernel.errors import WrongKey
from waystation.kernel.temporal_names import get_encryption_context
from waystation.tasks.signals import DecryptedPayload

ENCODING, KEY_ID = "encoding", "encryption-key-id"
ENCRYPTED = b"binary/encrypted"
UNBOUND = b"temporal"
"""Binding of payloads whose workflow the SDK does not name."""
WORKFLOW = "encrypted-for"
"""Metadata key with namespace and workflow in the clear, since a codec server receives neither; the encryption is bound
to them.
"""
OPENED = "waystation-opened"
"""Metadata key of payloads that were decrypted, inside this process.

It is removed from payloads that arrive with it.
"""


class EncryptionCodec(PayloadCodec, WithSerializationContext):
    """Encrypts payloads with one key and decrypts those of several. Plain payloads pass unchanged.

    Each payload is bound to its workflow: moved to another one it cannot be decrypted, whatever its metadata says.
    """

    def __init__(self, ciphers: Mapping[str, Cipher], encrypts_with: str | None) -> None:
        """Build the codec.

        Args:
            ciphers: Ciphers by key id.
            encrypts_with: Id of the key that encrypts; None: nothing is encrypted.
        """
        self.ciphers = ciphers
        self._own = encrypts_with
        self._prefix = ""
        self._workflow: bytes | None = None

    def with_installation_prefix(self, prefix: str) -> Self:
        """Return a copy for workflows whose ids have this prefix on the server."""
        within = copy(self)
        within._prefix = prefix
        return within

    def with_context(self, context: SerializationContext) -> Self:
        """See base class."""
        within = copy(self)
        match context:
            case WorkflowSerializationContext():
                within._workflow = self._name(context.namespace, context.workflow_id)
            case ActivitySerializationContext() if context.workflow_id is not None:
                within._workflow = self._name(context.namespace, context.workflow_id)
            case _:
                within._workflow = None
        return within

    @property
    def key_id(self) -> str | None:
        """Id of the key that encrypts; None if nothing is encrypted."""
        return self._own

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """See base class."""
        return [self._encrypted(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """See base class. Raises WrongKey, also for a payload that was changed; the message reveals nothing of it."""
        return [self._decrypted(payload) for payload in payloads]

    def _name(self, namespace: str, workflow_id: str) -> bytes:
        workflow = self._prefix + get_encryption_context(workflow_id.removeprefix(self._prefix))
        return f"{namespace}\x00{workflow}".encode(errors="replace")

    def _encrypted(self, payload: Payload) -> Payload:
        if self._own is None:
            return payload
        sealed = self.ciphers[self._own].encrypt(payload.SerializeToString(), _context(self._workflow))
        whose = {} if self._workflow is None else {WORKFLOW: self._workflow}
        return Payload(metadata={ENCODING: ENCRYPTED, KEY_ID: self._own.encode(), **whose}, data=sealed)

    def _decrypted(self, payload: Payload) -> Payload:
        if not _is_encrypted(payload):
            return payload
        key_id = payload.metadata.get(KEY_ID, b"").decode(errors="replace")
        if key_id not in self.ciphers:
            raise WrongKey(self._missing(key_id))
        whose = payload.metadata.get(WORKFLOW)
        if whose is not None and self._workflow is not None and whose != self._workflow:
            raise WrongKey(
                "a payload in Temporal was encrypted for another workflow: someone has copied it into this one"
            )
        return Payload.FromString(self.ciphers[key_id].decrypt(payload.data, _context(whose)))

    def _missing(self, key_id: str) -> str:
        there = (
            f"the keys on this machine are {', '.join(self.ciphers)}"
            if self.ciphers
            else "there is no key on this machine"
        )
        return (
            f"a payload in Temporal is encrypted with key {key_id!r}, and {there}: set WAYSTATION_KEY to the "
            "key of the payload, or add that key to WAYSTATION_PREVIOUS_KEYS"
        )


def _context(workflow: bytes | None) -> bytes:
    return UNBOUND if workflow is None else UNBOUND + b"\x00" + workflow


class MarkingEncryptionCodec(EncryptionCodec):
    """Marks decrypted payloads, so that `EncryptionAwarePayloadConverter` can tell them from those that arrived
    plain.
    """

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """See base class."""
        opened = await super().decode(payloads)
        return [_marked(one, encrypted=_is_encrypted(sent)) for one, sent in zip(opened, payloads, strict=True)]


def _is_encrypted(payload: Payload) -> bool:
    return payload.metadata.get(ENCODING) == ENCRYPTED


def _marked(payload: Payload, *, encrypted: bool) -> Payload:
    """Return a copy with the mark only if it was encrypted: a sender may have set one."""
    marked = Payload()
    marked.CopyFrom(payload)
    marked.metadata.pop(OPENED, None)
    if encrypted:
        marked.metadata[OPENED] = b"1"
    return marked


class EncryptionAwarePayloadConverter(PydanticPayloadConverter):
    """Marks JSON objects that are read without a type, as signal handlers read them, as having arrived encrypted."""

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        """See base class."""
        values = super().from_payloads(payloads, type_hints)
        if type_hints:
            return values
        return [
            DecryptedPayload(cast("dict[str, JsonValue]", value))
            if isinstance(value, dict) and OPENED in payload.metadata
            else value
            for value, payload in zip(values, payloads, strict=True)
        ]


TRACE = 1500
"""Bytes of a failure's stack trace that are kept if it is encrypted.

Of an attempt that will be retried a server keeps 4 KB; of a longer failure it keeps only the plain message and trace,
which are empty here.
"""
_MARKERS = " ~^"
"""Lines of only these characters follow a frame's code and mark the part that was running."""


class EncryptedFailureConverter(DefaultFailureConverter):
    """Also encrypts messages and stack traces of failures, except failures about the key: a reader with the wrong key
    must be able to read that it is wrong.
    """

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        """See base class."""
        super().to_failure(exception, payload_converter, failure)
        if isinstance(exception, WrongKey):
            return
        said = {"message": failure.message, "stack_trace": _end_of(failure.stack_trace)}
        failure.encoded_attributes.CopyFrom(payload_converter.to_payloads([said])[0])
        failure.message, failure.stack_trace = "Encoded failure", ""


def _end_of(trace: str) -> str:
    """Return the innermost lines of a stack trace, as many as are kept."""
    lines = [line for line in trace.splitlines() if line.strip(_MARKERS)]
    room, kept = TRACE, len(lines)
    while kept and (room := room - len(lines[kept - 1].encode(errors="replace")) - 1) >= 0:
        kept -= 1
    return "\n".join([*(["…"] if kept else []), *lines[kept:]])


def build_data_converter(codec: EncryptionCodec) -> DataConverter:
    """Build the converter: Pydantic payloads through this codec, and encrypted failures if it encrypts."""
    marking = MarkingEncryptionCodec(codec.ciphers, codec.key_id)
    converter = replace(
        pydantic_data_converter, payload_codec=marking, payload_converter_class=EncryptionAwarePayloadConverter
    )
    return converter if codec.key_id is None else replace(converter, failure_converter_class=EncryptedFailureConverter)


def is_encryption_enabled(converter: DataConverter) -> bool:
    """Return whether this converter encrypts what is sent."""
    codec = converter.payload_codec
    return isinstance(codec, EncryptionCodec) and codec.key_id is not None
