"""Texts that are encrypted in the database, on both: what reads them, and that plain rows stay readable."""

from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.engine.default import DefaultDialect

from tests.erasure.test_removal_repository import dump_all_tables
from tests.support.scopes import SYSTEM_SCOPE, TASK_1_SCOPE
from tests.support.store_fixtures import store_clock
from tests.support.store_values import (
    make_question,
    make_task_request,
    make_task_row,
    open_run,
)
from tests.support.stored_task import StoredTask, assert_words_are_read, store_whole_task
from waystation.documents.documents import SourceDocument
from waystation.erasure.erasure import ForgetOrder
from waystation.kernel.errors import WrongKey
from waystation.privacy.keys import AesGcmCipher
from waystation.runtime.sql_store import SqlStore, load_store_status
from waystation.store.encryption import EncryptedBytes, EncryptedText, EncryptionConfig, RowProofType, set_encryption
from waystation.store.schema import metadata

SEALING = EncryptionConfig(AesGcmCipher(bytes(range(32)), "rest"), encrypts=True)
READING = EncryptionConfig(SEALING.cipher)
OTHER = EncryptionConfig(AesGcmCipher(bytes(32), "rest"), encrypts=True)
NO_KEY = EncryptionConfig()
MAX_ADDED_BYTES = 64
"""Of an encrypted value: marks, the id of its key, a nonce and a tag."""
SAID = "What nobody else is to read"
ENCRYPTED_COLUMNS = {
    column
    for table in metadata.sorted_tables
    for column in table.columns
    if isinstance(column.type, EncryptedText | EncryptedBytes) and not isinstance(column.type, RowProofType)
}


async def count_texts(store_url: str) -> tuple[int, int]:
    """Encrypted and plain values; of a task that `store_whole_task` wrote, at least one of each column."""
    status = await load_store_status(store_url)
    assert status.encrypted + status.plain >= len(ENCRYPTED_COLUMNS)
    return status.encrypted, status.plain


async def open_encrypted_store(url: str, at_rest: EncryptionConfig) -> SqlStore:
    return await SqlStore.open(url, store_clock, at_rest=at_rest)


async def write_every_encrypted_column(store: SqlStore, request_id: str) -> StoredTask:
    """Write a text into every column that is sealed."""
    row = make_task_row(make_task_request(request_id, question=f"{request_id}: what nobody else is to read"))
    said = f"{SAID} of {request_id}"
    document = SourceDocument(name=f"{SAID}.md", text=f"{said}, with a \x00 in it")
    return await store_whole_task(store, row, said, documents=[document])


async def assert_every_column_readable(store: SqlStore, stored: StoredTask, request_id: str) -> None:
    """What was written is read again, to the letter."""
    await assert_words_are_read(store, stored, f"{SAID} of {request_id}")


async def test_every_text_is_read_again_and_none_lies_in_the_database(store_url: str) -> None:
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        kept = await write_every_encrypted_column(store, "first")
        assert "nobody else" not in await dump_all_tables(store)
        await assert_every_column_readable(store, kept, "first")
    encrypted, plain = await count_texts(store_url)
    assert (encrypted > 0, plain) == (True, 0)


@settings(max_examples=30)
@given(text=st.text(max_size=400), repeats=st.sampled_from([1, 50]))
def test_a_text_is_encrypted_in_fewer_bytes_if_it_is_long_and_says_things_twice(text: str, repeats: int) -> None:
    column, dialect, plain = EncryptedBytes("texts.content"), DefaultDialect(), (text * repeats).encode()
    set_encryption(dialect, SEALING)
    kept = column.process_bind_param(plain, dialect)
    assert kept is not None
    assert column.process_result_value(kept, dialect) == plain
    assert len(kept) <= len(plain) + MAX_ADDED_BYTES
    if repeats > 1 and len(plain) > 5_000:
        assert len(kept) < len(plain) / 2


async def test_plain_rows_and_encrypted_ones_live_side_by_side(store_url: str) -> None:
    async with aclosing(await open_encrypted_store(store_url, READING)) as store:
        before = await write_every_encrypted_column(store, "before")
    encrypted, texts = await count_texts(store_url)
    assert (encrypted, texts > 0) == (0, True)
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        after = await write_every_encrypted_column(store, "after")
    assert await count_texts(store_url) == (texts, texts)
    for at_rest in (SEALING, READING):
        async with aclosing(await open_encrypted_store(store_url, at_rest)) as store:
            await assert_every_column_readable(store, before, "before")
            await assert_every_column_readable(store, after, "after")


@pytest.mark.parametrize(
    ("at_rest", "reason"),
    [(NO_KEY, "the key is missing"), (OTHER, "it was encrypted with another key")],
    ids=["no key", "another key"],
)
async def test_without_its_key_an_encrypted_text_is_refused_and_a_plain_one_is_read(
    store_url: str, at_rest: EncryptionConfig, reason: str
) -> None:
    async with aclosing(await open_encrypted_store(store_url, READING)) as store:
        plain = await store.put_text("plain", TASK_1_SCOPE)
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        sealed = await store.put_text(SAID, TASK_1_SCOPE)
    async with aclosing(await open_encrypted_store(store_url, at_rest)) as store:
        assert await store.get_text(plain, SYSTEM_SCOPE) == "plain"
        with pytest.raises(WrongKey, match=reason) as no:
            await store.get_text(sealed, SYSTEM_SCOPE)
    assert "set WAYSTATION_KEY" in str(no.value)


async def test_a_text_that_was_moved_to_another_column_does_not_open(store_url: str) -> None:
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        kept = await write_every_encrypted_column(store, "first")
        async with store.database.write() as connection:
            await connection.exec_driver_sql("UPDATE tasks SET title = plan")
        with pytest.raises(WrongKey, match="was copied from another place"):
            await store.get_task(kept.row.ref.task_id, SYSTEM_SCOPE)


async def test_encrypted_tasks_are_forgotten_too(store_url: str) -> None:
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        ref = (await write_every_encrypted_column(store, "first")).row.ref
        store_id = await store.get_store_id()
        order = ForgetOrder(store_id=store_id, tenant=ref.tenant, task_ids=(ref.task_id,), everything=True)
        forgotten = await store.forget_tasks(order)
        assert (forgotten.tasks, forgotten.documents, forgotten.texts, forgotten.audits) == (1, 1, 4, 3)
        assert (await store.get_task(ref.task_id, SYSTEM_SCOPE)).title == "(forgotten)"


async def test_the_first_message_of_a_transcript_may_begin_like_something_encrypted(store_url: str) -> None:
    async with aclosing(await open_encrypted_store(store_url, NO_KEY)) as store:
        kept = make_task_row(make_task_request("first"))
        await store.register_task(kept, [])
        await store.save_task_title(kept.ref.task_id, "\x01 title\x00")
        assert (await store.get_task(kept.ref.task_id, SYSTEM_SCOPE)).title == "\ufffd title\ufffd"
        fence = await open_run(store)
        await store.commit_message(fence, 0, make_question(1))
        assert len((await store.load_transcript(fence.run_id, SYSTEM_SCOPE)).messages) == 1
