"""A key that is replaced: what the old one sealed still opens, and nobody's placeholders change."""

from contextlib import aclosing
from pathlib import Path

import pytest
from pydantic import SecretStr
from temporalio.api.common.v1 import Payload

from tests.support.scopes import SYSTEM_SCOPE, TASK_1_SCOPE
from waystation.config.settings import Settings
from waystation.kernel.errors import BadInput, WrongKey
from waystation.privacy.key_file import compute_key_check
from waystation.privacy.policy import TextDestination
from waystation.runtime.redaction_setup import create_redactor
from waystation.runtime.store_setup import (
    build_cipher,
    build_payload_codec,
    load_oldest_key,
    open_store,
    reencrypt_store,
    require_store_key,
)

OLD, NEW, OTHER = "11" * 32, "22" * 32, "33" * 32
LETTER = "Write to ada@lovelace.org."


def settings(home: Path, key: str, *previous: str) -> Settings:
    return Settings.model_validate({"home": home, "key": key, "previous_keys": ",".join(previous) or None})


async def placeholder(under: Settings) -> str:
    redactor = create_redactor(under, load_oldest_key(under))
    try:
        ((only,),) = [one.spans for one in await redactor.redact([LETTER], TextDestination.REPORT, "tenant")]
    finally:
        redactor.close()
    return only.placeholder


async def test_a_new_key_reads_what_the_old_one_wrote_and_keeps_its_placeholders(tmp_path: Path) -> None:
    old, new = settings(tmp_path, OLD), settings(tmp_path, NEW, OLD)
    async with aclosing(await open_store(old)) as store:
        blob = await store.put_text("What was said before.", TASK_1_SCOPE)
        assert await store.claim_key(compute_key_check(load_oldest_key(old)))
    async with aclosing(await open_store(new)) as store:
        assert await store.get_text(blob, SYSTEM_SCOPE) == "What was said before."
        assert await store.claim_key(compute_key_check(load_oldest_key(new)))
        await require_store_key(store, new)
        since = await store.put_text("What is said since.", TASK_1_SCOPE)
    async with aclosing(await open_store(settings(tmp_path, OTHER, NEW, OLD))) as store:
        assert await store.get_text(since, SYSTEM_SCOPE) == "What is said since."
    assert build_cipher(new, "rest").encrypt(b"x", b"y")[:5] != build_cipher(old, "rest").encrypt(b"x", b"y")[:5]
    assert await placeholder(new) == await placeholder(old)


async def test_a_new_key_alone_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    old = settings(tmp_path, OLD)
    async with aclosing(await open_store(old)) as store:
        await store.claim_key(compute_key_check(load_oldest_key(old)))
    with pytest.raises(BadInput, match="Older keys can be listed in WAYSTATION_PREVIOUS_KEYS"):
        await open_store(settings(tmp_path, NEW))


async def test_a_key_of_placeholders_only_keeps_them_and_decrypts_nothing(tmp_path: Path) -> None:
    old, new = settings(tmp_path, OLD), settings(tmp_path, NEW).replace(placeholder_key=SecretStr(OLD))
    async with aclosing(await open_store(old)) as store:
        await store.claim_key(compute_key_check(load_oldest_key(old)))
    await reencrypt_store(settings(tmp_path, NEW, OLD))
    async with aclosing(await open_store(new)) as store:
        await require_store_key(store, new)
        assert await store.claim_key(compute_key_check(load_oldest_key(new)))
    assert await placeholder(new) == await placeholder(old)
    (sent,) = await build_payload_codec(old).encode([Payload(data=b"Yes.")])
    with pytest.raises(WrongKey, match="add that key to WAYSTATION_PREVIOUS_KEYS"):
        await build_payload_codec(new).decode([sent])


def test_a_key_of_placeholders_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="WAYSTATION_PLACEHOLDER_KEY: the key must be 32 bytes"):
        load_oldest_key(settings(tmp_path, NEW).replace(placeholder_key=SecretStr("no key")))
