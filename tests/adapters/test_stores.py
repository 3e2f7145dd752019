"""The store that settings ask for: when its texts are encrypted, and with whose key."""

from contextlib import aclosing
from pathlib import Path

import pytest

from waystation.adapters.presidio.key import key_check
from waystation.adapters.store import store_status
from waystation.domain.errors import BadInput
from waystation.keyring import own_key
from waystation.settings import Settings
from waystation.stores import opened_store

KEY, OTHER_KEY = "0123456789abcdef" * 4, "f" * 64


@pytest.mark.parametrize(
    ("given", "encrypted"),
    [
        ({}, 0),
        ({"key": KEY}, 1),
        ({"key": KEY, "encrypt_at_rest": False}, 0),
        ({"encrypt_at_rest": True}, 1),
    ],
    ids=["no key is set", "a key is set", "switched off", "switched on, with the key of the home folder"],
)
async def test_texts_are_encrypted_where_a_key_is_set_or_it_is_asked_for(
    tmp_path: Path, given: dict[str, object], encrypted: int
) -> None:
    settings = Settings.model_validate({"home": tmp_path, **given})
    async with aclosing(await opened_store(settings)) as store:
        await store.put_text("a text")
    assert (await store_status(settings.database_url)).encrypted == encrypted
    assert settings.key_file.exists() == (given == {"encrypt_at_rest": True})


async def test_nothing_is_encrypted_with_another_key_than_the_workers_have(tmp_path: Path) -> None:
    workers = Settings.model_validate({"home": tmp_path, "key": KEY})
    async with aclosing(await opened_store(workers)) as store:
        assert await store.claim_key(key_check(own_key(workers)))
    with pytest.raises(BadInput, match="the key in WAYSTATION_KEY is not the one"):
        await opened_store(Settings.model_validate({"home": tmp_path, "key": OTHER_KEY}))
