"""Whoever can write to the database, and has no key, cannot pass one row off as another, nor a plain one as sealed."""

import asyncio
import signal
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.store.test_store_encryption import (
    NO_KEY,
    OTHER,
    READING,
    SEALING,
    assert_every_column_readable,
    count_texts,
    open_encrypted_store,
    write_every_encrypted_column,
)
from tests.support.scopes import SYSTEM_SCOPE, TASK_1_SCOPE
from tests.support.store_fixtures import store_clock
from tests.support.store_values import TASK_CONFIG
from waystation.documents.text_repository import make_redacted_text_row_id
from waystation.kernel.errors import StoreError, WrongKey
from waystation.privacy.keys import AesGcmCipher
from waystation.privacy.policy import RedactedText, RedactedTextKey, RedactionLevel, VaultEntry
from waystation.runtime.reencryption import reencrypt_database
from waystation.runtime.sql_store import SqlStore
from waystation.store.encryption import EncryptedText
from waystation.store.engine import Database
from waystation.store.schema import metadata

ROOT = Path(__file__).parents[2]
SEALED = [
    (table.name, column.name)
    for table in metadata.sorted_tables
    for column in table.columns
    if isinstance(column.type, EncryptedText)
]


async def changed(store: SqlStore, statement: str) -> None:
    async with store.database.write() as connection:
        await connection.exec_driver_sql(statement)


def quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


@pytest.mark.parametrize(("table", "column"), SEALED)
async def test_a_sealed_value_opens_in_its_own_row_alone(store_url: str, table: str, column: str) -> None:
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        first = await write_every_encrypted_column(store, "first")
        second = await write_every_encrypted_column(store, "second")
        await assert_every_column_readable(store, first, "first")
        this = metadata.tables[table]
        async with store.database.read() as connection:
            rows = (
                (await connection.exec_driver_sql(f"SELECT {column} FROM {table} WHERE {column} <> ''")).scalars().all()
            )
        if len(rows) < 2:
            pytest.skip("these tasks have one value of it")
        await changed(store, f"UPDATE {table} SET {column} = {quoted(str(rows[0]))}")
        with pytest.raises(WrongKey, match="was copied from another place"):
            async with store.database.read() as connection:
                (await connection.execute(this.select())).all()
        assert second.row.ref != first.row.ref


async def test_a_plain_row_is_refused_where_everything_is_sealed(store_url: str) -> None:
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        kept = await write_every_encrypted_column(store, "first")
        await changed(store, "UPDATE tasks SET title = 'Pay the attacker'")
        with pytest.raises(StoreError, match="another program has written it"):
            await store.get_task(kept.row.ref.task_id, SYSTEM_SCOPE)


@pytest.mark.parametrize(("table", "column"), SEALED)
async def test_an_empty_value_is_no_sealed_one(store_url: str, table: str, column: str) -> None:
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        await write_every_encrypted_column(store, "first")
        await changed(store, f"UPDATE {table} SET {column} = ''")
        if getattr(metadata.tables[table].c[column].type, "empty", False):
            pytest.skip("it may be taken away: it is empty in some rows, such as a title until the task is admitted")
        with pytest.raises(StoreError, match="another program has written it"):
            async with store.database.read() as connection:
                (await connection.execute(metadata.tables[table].select())).all()


async def test_plain_terms_open_until_the_store_is_resealed(store_url: str) -> None:
    """So they are written while encryption is off."""
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        kept = await write_every_encrypted_column(store, "first")
        await changed(store, f"UPDATE tasks SET terms = {quoted(TASK_CONFIG.model_dump_json())}")
        with pytest.raises(
            StoreError, match="accept the value as it is with `waystation store reseal --accept-refused`"
        ):
            await store.get_task(kept.row.ref.task_id, SYSTEM_SCOPE)
        await changed(store, "UPDATE identity SET sealed_since = NULL")
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        await assert_every_column_readable(store, kept, "first")
    texts = sum(await count_texts(store_url))
    async with aclosing(Database(store_url, at_rest=SEALING)) as database:
        assert (await reencrypt_database(database, store_clock, seals=True)).texts == texts
    assert await count_texts(store_url) == (texts, 0)
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        await assert_every_column_readable(store, kept, "first")


@pytest.mark.parametrize("column", ["tenant", "session"])
async def test_a_task_that_was_given_to_somebody_else_is_not_opened_there(store_url: str, column: str) -> None:
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        kept = await write_every_encrypted_column(store, "first")
        await changed(store, f"UPDATE tasks SET {column} = 'thief'")
        with pytest.raises(WrongKey, match="was copied from another place"):
            await store.get_task(kept.row.ref.task_id, SYSTEM_SCOPE)


@pytest.mark.parametrize("column", ["blob", "source"])
async def test_no_other_text_of_the_store_takes_the_place_of_a_document(store_url: str, column: str) -> None:
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        kept = await write_every_encrypted_column(store, "first")
        other = await store.put_text("An attacker has this text in the store, too.", TASK_1_SCOPE)
        await changed(store, f"UPDATE documents SET {column} = '{other}'")
        with pytest.raises(WrongKey, match="was copied from another place"):
            await store.list_documents(kept.row.ref.task_id, SYSTEM_SCOPE)


async def test_what_one_task_noted_and_handed_in_is_not_moved_to_another(store_url: str) -> None:
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        await write_every_encrypted_column(store, "first")
        for table in ("notes", "deliverables", "passages"):
            await changed(store, f"UPDATE {table} SET task_id = 'task-2'")
        assert await store.list_notes("task-2", SYSTEM_SCOPE) == ()
        assert await store.get_deliverables("task-2", SYSTEM_SCOPE) == {}
        assert await store.list_task_passages("task-2", SYSTEM_SCOPE) == ()


async def test_nobody_without_the_key_says_which_session_has_met_an_original(store_url: str) -> None:
    """Encryption at rest or none: the vault has a key of its own in every store."""
    ada = VaultEntry(type="PERSON", placeholder="<PERSON_000000000000>", fingerprint="f" * 64, text="Ada")
    async with aclosing(await open_encrypted_store(store_url, NO_KEY)) as store:
        vault = store.build_vault(AesGcmCipher(bytes(range(32)), "vault"))
        await vault.store_originals("t", [ada], "spring")
        again = "INSERT INTO vault_sessions (tenant, placeholder, session, proof) SELECT tenant, placeholder"
        await changed(store, f"{again}, 'autumn', proof FROM vault_sessions WHERE session = 'spring'")
        await changed(store, f"{again}, 'winter', NULL FROM vault_sessions WHERE session = 'spring'")
        for session in ("autumn", "winter"):
            assert await vault.load_originals("t", [ada.placeholder], session) == {}
            await vault.store_originals("t", [ada], session)
            assert await vault.load_originals("t", [ada.placeholder], session) == {ada.placeholder: "Ada"}
        assert await vault.load_originals("t", [ada.placeholder], "spring") == {ada.placeholder: "Ada"}


async def test_a_text_that_does_not_fit_its_hash_is_refused(store_url: str) -> None:
    for at_rest in (READING, SEALING):
        async with aclosing(await open_encrypted_store(store_url, at_rest)) as store:
            one, two = [await store.put_text(f"{text} {at_rest.encrypts}", TASK_1_SCOPE) for text in ("one", "two")]
            await changed(
                store,
                f"UPDATE texts SET content = (SELECT content FROM texts t WHERE t.blob = '{two}') WHERE blob = '{one}'",
            )
            with pytest.raises(StoreError, match="is not the one that was stored under this id"):
                await store.get_text(one, TASK_1_SCOPE)


async def test_what_would_be_written_plain_into_a_sealed_store_is_refused(store_url: str) -> None:
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        assert await store.put_text("sealed", TASK_1_SCOPE)
    async with aclosing(await open_encrypted_store(store_url, READING)) as store:
        with pytest.raises(StoreError, match="waystation store reseal"):
            await store.put_text("plain", TASK_1_SCOPE)


async def test_a_plain_store_is_read_until_it_is_resealed_and_strict_from_then_on(
    store_url: str,
) -> None:
    async with aclosing(await open_encrypted_store(store_url, READING)) as store:
        before = await write_every_encrypted_column(store, "before")
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        await assert_every_column_readable(store, before, "before")
    async with aclosing(Database(store_url, at_rest=SEALING)) as database:
        assert (await reencrypt_database(database, store_clock, seals=True)).texts > 10
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        await assert_every_column_readable(store, before, "before")
        await changed(store, "UPDATE tasks SET title = 'plain'")
        with pytest.raises(StoreError):
            await store.get_task(before.row.ref.task_id, SYSTEM_SCOPE)


async def test_resealing_with_another_key_changes_nothing(store_url: str) -> None:
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        kept = await write_every_encrypted_column(store, "first")
    async with aclosing(Database(store_url, at_rest=OTHER)) as database:
        with pytest.raises(WrongKey):
            await reencrypt_database(database, store_clock, seals=True)
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        await assert_every_column_readable(store, kept, "first")


KILLED = """
import asyncio, os, signal, sys
from tests.support.store_fixtures import store_clock
from waystation.privacy.keys import AesGcmCipher
from waystation.store.encryption import EncryptionConfig
from waystation.store.engine import Database
from waystation.runtime.reencryption import reencrypt_database

class Dying(AesGcmCipher):
    seals = 0
    def encrypt(self, opened, context):
        self.seals += 1
        if self.seals == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().encrypt(opened, context)

database = Database(sys.argv[1], at_rest=EncryptionConfig(Dying(bytes(range(32)), "rest"), encrypts=True))
asyncio.run(reencrypt_database(database, store_clock, seals=True))
"""


@pytest.mark.parametrize("place", ["first", "last"])
async def test_resealing_that_is_killed_has_changed_nothing_and_is_begun_again(store_url: str, place: str) -> None:
    async with aclosing(await open_encrypted_store(store_url, READING)) as store:
        before = await write_every_encrypted_column(store, "before")
    _, texts = await count_texts(store_url)
    after = 1 if place == "first" else texts
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, store_url, str(after), cwd=ROOT)
    assert await child.wait() == -signal.SIGKILL
    assert await count_texts(store_url) == (0, texts)
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        await assert_every_column_readable(store, before, "before")
    async with aclosing(Database(store_url, at_rest=SEALING)) as database:
        assert (await reencrypt_database(database, store_clock, seals=True)).texts == texts
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        await assert_every_column_readable(store, before, "before")


async def test_a_sealed_store_is_made_plain_again_and_takes_plain_rows_from_then_on(store_url: str) -> None:
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        kept = await write_every_encrypted_column(store, "first")
    texts = sum(await count_texts(store_url))
    async with aclosing(Database(store_url, at_rest=READING)) as database:
        assert (await reencrypt_database(database, store_clock, seals=False)).texts == texts
    async with aclosing(await open_encrypted_store(store_url, NO_KEY)) as store:
        await assert_every_column_readable(store, kept, "first")
        assert await store.put_text("plain", TASK_1_SCOPE)


async def test_terms_of_a_task_are_those_it_was_admitted_with(store_url: str) -> None:
    """Its budget, its prices, and whose files it follows: nobody without the key writes them."""
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        kept = await write_every_encrypted_column(store, "first")
        async with store.database.read() as connection:
            found = await connection.exec_driver_sql("SELECT terms FROM tasks")
            assert str(kept.row.ref.task_id) not in (sealed := str(found.scalars().one()))
            assert not sealed.startswith("{")
        await changed(store, """UPDATE tasks SET terms = '{"mode": "soft"}'""")
        with pytest.raises(StoreError, match=r"tasks\.terms is not encrypted"):
            await store.get_task(kept.row.ref.task_id, kept.row.ref.scope)


async def test_a_text_as_it_is_shown_is_that_of_its_row_alone(store_url: str) -> None:
    """Shown texts are named by their originals, not by their own hash: they say their row themselves."""
    for at_rest in (NO_KEY, SEALING):
        async with aclosing(await open_encrypted_store(store_url, at_rest)) as store:
            blobs = [await store.put_text(f"{text} {at_rest.encrypts}", TASK_1_SCOPE) for text in ("one", "two")]
            one, two = [
                RedactedTextKey(blob=blob, tenant=TASK_1_SCOPE.tenant, level=RedactionLevel.IDENTIFIERS, version="1")
                for blob in blobs
            ]
            for key in (one, two):
                await store.save_redacted_text(key, RedactedText(text=key.blob))
            moved = f"(SELECT content FROM texts t WHERE t.blob = '{make_redacted_text_row_id(two)}')"
            await changed(store, f"UPDATE texts SET content = {moved} WHERE blob = '{make_redacted_text_row_id(one)}'")
            with pytest.raises(StoreError, match="is not the one that was stored under this id"):
                await store.get_redacted_text(one, TASK_1_SCOPE)
            assert await store.get_redacted_text(two, TASK_1_SCOPE) == RedactedText(text=two.blob)
            await changed(store, "UPDATE identity SET sealed_since = NULL")
