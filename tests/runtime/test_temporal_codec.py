"""Payloads in Temporal, encrypted."""

import json
import os

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError

from waystation.kernel.errors import WrongKey
from waystation.privacy.keys import AesGcmCipher
from waystation.runtime.temporal.codec import ENCODING, ENCRYPTED, KEY_ID, EncryptionCodec, build_data_converter

OLD, NEW = bytes(range(32)), bytes(range(1, 33))
SECRET = "Anna Quist holds the pilot's licence."
PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=f'"{SECRET}"'.encode())


def codec(*keys: bytes, encrypts: bool = True) -> EncryptionCodec:
    sealers = {sealer.key_id: sealer for sealer in (AesGcmCipher(key, "payloads") for key in keys)}
    return EncryptionCodec(sealers, next(iter(sealers)) if encrypts else None)


async def test_a_payload_comes_back_as_it_was_and_shows_only_which_key_it_needs() -> None:
    (sealed,) = await codec(OLD).encode([PLAIN])
    assert dict(sealed.metadata) == {ENCODING: ENCRYPTED, KEY_ID: AesGcmCipher(OLD, "payloads").key_id.encode()}
    assert b"Quist" not in sealed.SerializeToString()
    assert b"json/plain" not in sealed.SerializeToString()
    assert await codec(OLD).decode([sealed]) == [PLAIN]


async def test_the_same_payload_never_looks_the_same() -> None:
    one, other = await codec(OLD).encode([PLAIN, PLAIN])
    assert one.data != other.data


async def test_plain_payloads_pass_with_or_without_a_key() -> None:
    assert await codec(OLD).decode([PLAIN]) == [PLAIN]
    assert await codec(encrypts=False).decode([PLAIN]) == [PLAIN]


async def test_without_encryption_nothing_changes_and_what_was_encrypted_before_stays_readable() -> None:
    off = codec(OLD, encrypts=False)
    assert await off.encode([PLAIN]) == [PLAIN]
    assert await off.decode(await codec(OLD).encode([PLAIN])) == [PLAIN]


async def test_after_a_rotation_old_payloads_are_read_and_new_ones_need_the_new_key() -> None:
    rotated = codec(NEW, OLD)
    assert await rotated.decode(await codec(OLD).encode([PLAIN])) == [PLAIN]
    (sealed,) = await rotated.encode([PLAIN])
    assert await codec(NEW).decode([sealed]) == [PLAIN]
    with pytest.raises(WrongKey):
        await codec(OLD).decode([sealed])


async def test_a_key_that_is_not_there_is_named_with_those_that_are() -> None:
    sealed = await codec(OLD).encode([PLAIN])
    old, new = (AesGcmCipher(key, "payloads").key_id for key in (OLD, NEW))
    with pytest.raises(
        WrongKey, match=rf"encrypted with key '{old}', and the keys on this machine are {new}: set WAYSTATION_KEY"
    ):
        await codec(NEW).decode(sealed)
    with pytest.raises(
        WrongKey, match=rf"encrypted with key '{old}', and there is no key on this machine: set WAYSTATION_KEY"
    ):
        await codec(encrypts=False).decode(sealed)


@pytest.mark.parametrize("place", [0, 4, 16, 40, -1])
async def test_a_payload_that_was_changed_is_refused(place: int) -> None:
    (sealed,) = await codec(OLD).encode([PLAIN])
    changed = bytearray(sealed.data)
    changed[place] ^= 1
    with pytest.raises(WrongKey):
        await codec(OLD).decode([Payload(metadata=sealed.metadata, data=bytes(changed))])


@pytest.mark.parametrize("data", [b"", os.urandom(20), b"\x01" * 64], ids=["nothing", "noise", "ones"])
async def test_what_only_claims_to_be_encrypted_is_refused(data: bytes) -> None:
    claim = {ENCODING: ENCRYPTED, KEY_ID: AesGcmCipher(OLD, "payloads").key_id.encode()}
    with pytest.raises(WrongKey):
        await codec(OLD).decode([Payload(metadata=claim, data=data)])
    with pytest.raises(WrongKey, match="encrypted with key ''"):
        await codec(OLD).decode([Payload(metadata={ENCODING: ENCRYPTED}, data=data)])


async def test_messages_and_stack_traces_of_failures_are_encrypted_with_their_causes() -> None:
    converter = build_data_converter(codec(OLD))
    failure = Failure()
    try:
        try:
            raise ValueError(SECRET)
        except ValueError as cause:
            raise ApplicationError(f"told: {SECRET}", {"said": SECRET}, type="Told") from cause
    except ApplicationError as error:
        await converter.encode_failure(error, failure)
    assert SECRET.encode() not in failure.SerializeToString()
    assert failure.application_failure_info.type == "Told"
    read = await converter.decode_failure(failure)
    assert isinstance(read, ApplicationError)
    assert (read.message, read.details) == (f"told: {SECRET}", ({"said": SECRET},))
    assert isinstance(read.cause, ApplicationError)
    assert read.cause.message == SECRET


def deep(levels: int) -> None:
    """Raise with a long way to it."""
    if not levels:
        raise ValueError(SECRET)
    deeper(levels - 1)


def deeper(levels: int) -> None:
    deep(levels)  # Two of them, since Python counts the calls of one function by itself instead of printing each.


@pytest.mark.parametrize("levels", [0, 3, 90])
async def test_a_server_keeps_an_encrypted_failure_whole_however_deep_it_comes_from(levels: int) -> None:
    """Of an attempt that is to be repeated Temporal keeps no failure of more than 4 KB: then nobody could read it."""
    converter, failure = build_data_converter(codec(OLD)), Failure()
    try:
        deep(levels)
    except ValueError as error:
        await converter.encode_failure(ApplicationError("told").with_traceback(error.__traceback__), failure)
    assert failure.ByteSize() < 4096
    (opened,) = await codec(OLD).decode([failure.encoded_attributes])
    trace = json.loads(opened.data)["stack_trace"]
    assert trace.endswith(", in deep\n    raise ValueError(SECRET)")
    assert trace.startswith("…\n") == (levels > 3)


async def test_a_failure_about_the_key_can_be_read_without_it() -> None:
    failure = Failure()
    await build_data_converter(codec(OLD)).encode_failure(WrongKey("set WAYSTATION_KEY"), failure)
    assert failure.message == "set WAYSTATION_KEY"


async def test_without_encryption_failures_stay_as_they_are() -> None:
    failure, plain = Failure(), Failure()
    await build_data_converter(codec(encrypts=False)).encode_failure(ValueError(SECRET), failure)
    await pydantic_data_converter.encode_failure(ValueError(SECRET), plain)
    assert failure == plain
    assert failure.message == SECRET
