"""The store that settings ask for: when its texts are encrypted, and with whose key."""

import asyncio
from contextlib import aclosing
from pathlib import Path
from shutil import copyfile

import pytest
from pydantic import SecretStr
from sqlalchemy.ext.asyncio import AsyncConnection

from tests.support.scopes import TASK_1_SCOPE
from waystation.cli.main import run
from waystation.config.settings import Settings
from waystation.documents.text_repository import content_hash
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput, StoreError, StoreUnavailable
from waystation.privacy.key_file import compute_key_check
from waystation.runtime import reencryption
from waystation.runtime.sql_store import load_store_status, migrate
from waystation.runtime.store_setup import (
    find_placeholder_key,
    load_or_create_installation_key,
    open_store,
    reencrypt_store,
)
from waystation.store.engine import Database

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
    async with aclosing(await open_store(settings)) as store:
        await store.put_text("a text", TASK_1_SCOPE)
    assert (await load_store_status(settings.database_url)).encrypted == encrypted
    assert settings.key_file.exists() == (given == {"encrypt_at_rest": True})


async def test_nothing_is_encrypted_with_another_key_than_the_workers_have(tmp_path: Path) -> None:
    workers = Settings.model_validate({"home": tmp_path, "key": KEY})
    async with aclosing(await open_store(workers)) as store:
        assert await store.claim_key(compute_key_check(load_or_create_installation_key(workers)))
    with pytest.raises(BadInput, match="the key in WAYSTATION_KEY is not the key that this data was encrypted with"):
        await open_store(Settings.model_validate({"home": tmp_path, "key": OTHER_KEY}))


CLEARED = "UPDATE identity SET sealed_since = NULL"


async def test_a_store_that_was_encrypted_as_a_whole_is_not_taken_for_another(tmp_path: Path) -> None:
    """Whoever can write to the database clears the mark there, and puts plain rows into it."""
    workers, blob = Settings.model_validate({"home": tmp_path, "key": KEY}), content_hash("a text")
    for _ in range(2):
        async with aclosing(await open_store(workers)) as store:
            assert store.is_row_encrypted
            assert await store.put_text("a text", TASK_1_SCOPE) == blob
            async with store.database.write() as connection:
                await connection.exec_driver_sql(CLEARED)
        with pytest.raises(StoreError, match="its database no longer says so"):
            await open_store(workers)
        assert (await reencrypt_store(workers, accepts_refused=True)).texts == 1
    async with aclosing(await open_store(workers)) as store:
        assert await store.get_text(blob, TASK_1_SCOPE) == "a text"


TAKEN_AWAY = {
    "the mark": [CLEARED],
    "the mark and the id": [CLEARED, "UPDATE identity SET store_id = 'another'"],
    "the row, for another": [
        "DELETE FROM identity",
        "INSERT INTO identity (store_id, created_at) VALUES ('another', '2026-01-01')",
    ],
}


async def attacked(settings: Settings, *statements: str) -> None:
    async with aclosing(Database(settings.database_url)) as database, database.write() as connection:
        for statement in statements:
            await connection.exec_driver_sql(statement)


@pytest.mark.parametrize("statements", TAKEN_AWAY.values(), ids=TAKEN_AWAY)
async def test_an_encrypted_store_is_known_by_its_place_whatever_its_database_says(
    tmp_path: Path, statements: list[str]
) -> None:
    workers = Settings.model_validate({"home": tmp_path, "key": KEY})
    async with aclosing(await open_store(workers)) as store:
        await store.put_text("a text", TASK_1_SCOPE)
    await attacked(workers, *statements)
    again = workers.replace(store_url=f"sqlite:///{tmp_path}/../{tmp_path.name}/waystation.db")
    for settings in (workers, again):
        with pytest.raises(
            StoreError, match=r"its database no longer says so.*`waystation store reseal --accept-refused`"
        ):
            await open_store(settings)
    assert (await reencrypt_store(workers, accepts_refused=True)).texts == 1
    await (await open_store(workers)).aclose()


@pytest.mark.parametrize("statements", TAKEN_AWAY.values(), ids=TAKEN_AWAY)
async def test_a_machine_without_memory_refuses_a_plain_store_if_encryption_is_demanded(
    tmp_path: Path, statements: list[str]
) -> None:
    database = f"sqlite:///{tmp_path}/waystation.db"
    first, restarted = [
        Settings.model_validate(
            {"home": tmp_path / name, "key": KEY, "encrypt_at_rest": True, "WAYSTATION_STORE_URL": database}
        )
        for name in ("first", "restarted")
    ]
    async with aclosing(await open_store(first)) as store:
        await store.put_text("a text", TASK_1_SCOPE)
    await (await open_store(restarted.replace(home=tmp_path / "another"))).aclose()
    await attacked(first, *statements)
    with pytest.raises(StoreError, match=r"requires an encrypted store.*`waystation store reseal`.*from a backup"):
        await open_store(restarted)
    assert (await reencrypt_store(restarted)).texts == 1
    await (await open_store(restarted)).aclose()


async def test_plain_texts_are_read_until_reseal_unless_encryption_is_demanded(tmp_path: Path) -> None:
    plain = Settings.model_validate({"home": tmp_path})
    async with aclosing(await open_store(plain)) as store:
        blob = await store.put_text("a text", TASK_1_SCOPE)
    keyed = plain.replace(key=SecretStr(KEY))
    async with aclosing(await open_store(keyed)) as store:
        assert await store.get_text(blob, TASK_1_SCOPE) == "a text"
    with pytest.raises(StoreError, match="requires an encrypted store"):
        await open_store(keyed.replace(encrypt_at_rest=True))


async def test_a_store_that_another_process_encrypted_meanwhile_is_encrypted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers open an empty store; one of them writes before the other has looked whether there are rows."""
    workers = Settings.model_validate({"home": tmp_path, "key": KEY, "encrypt_at_rest": True})
    await migrate(workers.database_url, utc_now)
    has_rows = reencryption._has_rows  # pyright: ignore[reportPrivateUsage]

    async def let_the_other_write_first(connection: AsyncConnection) -> bool:
        monkeypatch.setattr(reencryption, "_has_rows", has_rows)
        found = await has_rows(connection)
        async with aclosing(await open_store(workers)) as store:
            await store.put_text("a text", TASK_1_SCOPE)
        return found

    monkeypatch.setattr(reencryption, "_has_rows", let_the_other_write_first)
    async with aclosing(await open_store(workers)) as store:
        assert store.is_row_encrypted


async def test_a_store_that_was_given_another_id_stays_encrypted(tmp_path: Path) -> None:
    workers = Settings.model_validate({"home": tmp_path, "key": KEY})
    async with aclosing(await open_store(workers)) as store:
        await store.put_text("a text", TASK_1_SCOPE)
    await attacked(workers, "UPDATE identity SET store_id = 'another'")
    async with aclosing(await open_store(workers)) as store:
        assert store.is_row_encrypted


async def test_a_database_that_does_not_say_which_store_it_is_gets_no_new_name(tmp_path: Path) -> None:
    workers = Settings.model_validate({"home": tmp_path, "key": KEY})
    async with aclosing(await open_store(workers)) as store:
        await store.put_text("a text", TASK_1_SCOPE)
    await attacked(workers, "DELETE FROM identity")
    with pytest.raises(StoreError, match=r"has emptied the database's table `identity`.*from a backup"):
        await open_store(workers)
    with pytest.raises(StoreError, match="from a backup"):
        await migrate(workers.database_url, utc_now)


async def test_a_database_that_was_brought_to_another_place_is_read_there_and_known_there(tmp_path: Path) -> None:
    here, there = [Settings.model_validate({"home": tmp_path / name, "key": KEY}) for name in ("here", "there")]
    async with aclosing(await open_store(here)) as store:
        blob = await store.put_text("a text", TASK_1_SCOPE)
        await store.database.truncate_write_ahead_log()
    there.home.mkdir()
    copyfile(here.home / "waystation.db", there.home / "waystation.db")
    async with aclosing(await open_store(there)) as store:
        assert store.is_row_encrypted
        assert await store.get_text(blob, TASK_1_SCOPE) == "a text"
    await attacked(there, *TAKEN_AWAY["the mark and the id"])
    with pytest.raises(StoreError, match="its database no longer says so"):
        await open_store(there)


async def test_a_moved_database_whose_mark_was_taken_away_is_known_by_its_id(tmp_path: Path) -> None:
    here = Settings.model_validate({"home": tmp_path, "key": KEY})
    async with aclosing(await open_store(here)) as store:
        await store.put_text("a text", TASK_1_SCOPE)
        await store.database.truncate_write_ahead_log()
    copyfile(tmp_path / "waystation.db", tmp_path / "moved.db")
    moved = here.replace(store_url=f"sqlite:///{tmp_path}/moved.db")
    await attacked(moved, *TAKEN_AWAY["the mark"])
    with pytest.raises(StoreError, match="its database no longer says so"):
        await open_store(moved)


async def test_a_new_database_in_the_place_of_an_encrypted_one_is_taken_once_somebody_says_so(tmp_path: Path) -> None:
    workers = Settings.model_validate({"home": tmp_path, "key": KEY})
    async with aclosing(await open_store(workers)) as store:
        await store.put_text("a text", TASK_1_SCOPE)
    for left in tmp_path.glob("waystation.db*"):
        left.unlink()
    plain = Settings.model_validate({"home": tmp_path})
    with pytest.raises(
        StoreError, match=r"another database is in its place.*`waystation store reseal --accept-refused`"
    ):
        await open_store(plain)
    assert (await reencrypt_store(plain, accepts_refused=True)).texts == 0
    await (await open_store(plain)).aclose()


async def test_encryption_is_turned_off_by_resealing(tmp_path: Path) -> None:
    workers = Settings.model_validate({"home": tmp_path, "key": KEY})
    async with aclosing(await open_store(workers)) as store:
        blob = await store.put_text("a text", TASK_1_SCOPE)
    off = Settings.model_validate({"home": tmp_path, "key": KEY, "encrypt_at_rest": False})
    assert (await reencrypt_store(off)).texts == 1
    async with aclosing(await open_store(off)) as store:
        assert not store.is_row_encrypted
        assert await store.get_text(blob, TASK_1_SCOPE) == "a text"
        await store.put_text("another", TASK_1_SCOPE)
    assert (await load_store_status(off.database_url)).encrypted == 0


def claimed(settings: Settings) -> None:
    """A worker has made the key of this home the store's."""

    async def claim() -> None:
        async with aclosing(await open_store(settings)) as store:
            assert await store.claim_key(compute_key_check(load_or_create_installation_key(settings)))

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
    assert "the key of the store's placeholders is missing" in err
    assert "`waystation store adopt-key`" in err
    assert not settings.key_file.exists()
    assert run(["privacy", "find", "ada@example.com"]) == 2
    assert not settings.key_file.exists()
    load_or_create_installation_key(settings)
    assert run(redact) == 2
    assert f"the key in {settings.key_file} is not the key of the store's placeholders" in capsys.readouterr().err
    monkeypatch.setenv("WAYSTATION_PLACEHOLDER_KEY", "0" * 64)
    assert run(redact) == 2
    assert "the key in WAYSTATION_PLACEHOLDER_KEY is not the key of the store's placeholders" in capsys.readouterr().err


def test_where_the_store_does_not_answer_a_key_that_is_here_is_used_and_none_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    settings = Settings()
    with pytest.raises(StoreUnavailable):
        asyncio.run(find_placeholder_key(settings))
    assert not settings.key_file.exists()
    key = load_or_create_installation_key(settings)
    assert asyncio.run(find_placeholder_key(settings)) == key
