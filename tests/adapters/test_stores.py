"""The store that settings ask for: when its texts are encrypted, and with whose key."""

import asyncio
import shutil
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.readers import TASK_1
from waystation.adapters.presidio.redactor import key_check
from waystation.adapters.store import store_status
from waystation.adapters.store.texts import content_hash
from waystation.cli.main import run
from waystation.domain.errors import BadInput, StoreError, StoreUnavailable
from waystation.settings import Settings
from waystation.stores import opened_store, own_key, placeholder_key, resealed

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
        await store.put_text("a text", TASK_1)
    assert (await store_status(settings.database_url)).encrypted == encrypted
    assert settings.key_file.exists() == (given == {"encrypt_at_rest": True})


async def test_nothing_is_encrypted_with_another_key_than_the_workers_have(tmp_path: Path) -> None:
    workers = Settings.model_validate({"home": tmp_path, "key": KEY})
    async with aclosing(await opened_store(workers)) as store:
        assert await store.claim_key(key_check(own_key(workers)))
    with pytest.raises(BadInput, match="the key in WAYSTATION_KEY is not the one"):
        await opened_store(Settings.model_validate({"home": tmp_path, "key": OTHER_KEY}))


CLEARED = "UPDATE identity SET sealed_since = NULL"


@pytest.mark.parametrize("also", ["UPDATE identity SET store_id = 'another'", "UPDATE tasks SET store_id = 'x'"])
@pytest.mark.parametrize("first", ["", "UPDATE alembic_version SET version_num = '0012'"])
async def test_whatever_is_changed_in_the_database_this_machine_knows_that_it_was_encrypted(
    tmp_path: Path, also: str, first: str
) -> None:
    workers = Settings.model_validate({"home": tmp_path, "key": KEY})
    async with aclosing(await opened_store(workers)) as store:
        await store.put_text("a text", TASK_1)
        async with store.database.write() as connection:
            for statement in filter(None, (CLEARED, also, "DROP TABLE slow_texts" if first else "", first)):
                await connection.exec_driver_sql(statement)
    with pytest.raises(StoreError, match="waystation store reseal"):
        await opened_store(workers)


async def test_a_store_whose_identity_is_gone_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    workers = Settings.model_validate({"home": tmp_path, "key": KEY})
    async with aclosing(await opened_store(workers)) as store:
        await store.put_text("a text", TASK_1)
        async with store.database.write() as connection:
            await connection.exec_driver_sql("DELETE FROM identity")
    with pytest.raises(StoreError, match="waystation store reseal"):
        await opened_store(workers)


async def test_a_copy_of_the_database_in_another_place_goes_on_as_it_is(tmp_path: Path) -> None:
    workers = Settings.model_validate({"home": tmp_path / "one", "key": KEY})
    async with aclosing(await opened_store(workers)) as store:
        blob = await store.put_text("a text", TASK_1)
    elsewhere = Settings.model_validate({"home": tmp_path / "two", "key": KEY})
    shutil.copytree(workers.home, elsewhere.home, ignore=shutil.ignore_patterns("sealed-*"))
    async with aclosing(await opened_store(elsewhere)) as store:
        assert store.sealed
        assert await store.get_text(blob, TASK_1) == "a text"


async def test_a_store_that_was_encrypted_as_a_whole_is_not_taken_for_another(tmp_path: Path) -> None:
    """Whoever can write to the database clears the mark there, and puts plain rows into it."""
    workers, blob = Settings.model_validate({"home": tmp_path, "key": KEY}), content_hash("a text")
    for _ in range(2):
        async with aclosing(await opened_store(workers)) as store:
            assert store.sealed
            assert await store.put_text("a text", TASK_1) == blob
            async with store.database.write() as connection:
                await connection.exec_driver_sql(CLEARED)
        with pytest.raises(StoreError, match="the database does not say so any more"):
            await opened_store(workers)
        assert await resealed(workers) == 1
    async with aclosing(await opened_store(workers)) as store:
        assert await store.get_text(blob, TASK_1) == "a text"


async def test_encryption_is_turned_off_by_resealing(tmp_path: Path) -> None:
    workers = Settings.model_validate({"home": tmp_path, "key": KEY})
    async with aclosing(await opened_store(workers)) as store:
        blob = await store.put_text("a text", TASK_1)
    off = Settings.model_validate({"home": tmp_path, "key": KEY, "encrypt_at_rest": False})
    assert await resealed(off) == 1
    async with aclosing(await opened_store(off)) as store:
        assert not store.sealed
        assert await store.get_text(blob, TASK_1) == "a text"
        await store.put_text("another", TASK_1)
    assert (await store_status(off.database_url)).encrypted == 0


def claimed(settings: Settings) -> None:
    """A worker has made the key of this home the store's."""

    async def claim() -> None:
        async with aclosing(await opened_store(settings)) as store:
            assert await store.claim_key(key_check(own_key(settings)))

    settings.home.mkdir(exist_ok=True)
    asyncio.run(claim())


def test_beside_a_store_that_knows_a_key_no_other_one_is_made_or_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path / "home"))
    text = tmp_path / "text.md"
    text.write_text("Mail ada@example.com")
    redact = ["privacy", "redact", str(text), "--policy", "secrets-only"]
    settings = Settings()
    claimed(settings)
    assert run(redact) == 0
    settings.key_file.unlink()
    assert run(redact) == 2
    err = capsys.readouterr().err
    assert "the store's placeholders are made with a key that is not here" in err
    assert "`waystation store adopt-key`" in err
    assert not settings.key_file.exists()
    assert run(["privacy", "find", "ada@example.com"]) == 2
    assert not settings.key_file.exists()
    own_key(settings)
    assert run(redact) == 2
    assert f"the key in {settings.key_file} is not the one that the store's placeholders" in capsys.readouterr().err


def test_where_the_store_does_not_answer_a_key_that_is_here_is_used_and_none_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    settings = Settings()
    with pytest.raises(StoreUnavailable):
        asyncio.run(placeholder_key(settings))
    assert not settings.key_file.exists()
    key = own_key(settings)
    assert asyncio.run(placeholder_key(settings)) == key
