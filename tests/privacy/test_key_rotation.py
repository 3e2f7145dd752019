"""A key that is replaced: what the old one sealed still opens, and nobody's placeholders change."""

from contextlib import aclosing
from pathlib import Path

import pytest

from tests.support.scopes import SYSTEM_SCOPE, TASK_1_SCOPE
from waystation.config.settings import Settings
from waystation.kernel.errors import BadInput
from waystation.privacy.key_file import compute_key_check
from waystation.privacy.policy import TextDestination
from waystation.runtime.redaction_setup import create_redactor
from waystation.runtime.store_setup import build_cipher, load_oldest_key, open_store, require_store_key

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
