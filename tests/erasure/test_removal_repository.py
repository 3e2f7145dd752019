"""What is left in the store of a task that is forgotten, on both databases."""

import pytest
from sqlalchemy import text

from tests.support.scopes import SYSTEM_SCOPE
from tests.support.store_values import make_task_request, make_task_row
from tests.support.stored_task import make_passage_ids, store_whole_task
from waystation.documents.documents import SourceDocument
from waystation.documents.text_repository import content_hash, make_redacted_text_row_id
from waystation.erasure.erasure import ForgetCounts, ForgetOrder
from waystation.kernel.errors import StoreError, WrongStore
from waystation.kernel.scopes import TenantScope
from waystation.kernel.text import FORGOTTEN
from waystation.privacy.keys import AesGcmCipher
from waystation.privacy.policy import RedactedText, RedactedTextKey, RedactionLevel, VaultEntry
from waystation.runtime.sql_store import SqlStore
from waystation.store.schema import metadata
from waystation.tasks.task import TaskPhase, TaskRow

ADA, BOB = "<PERSON_aaaaaaaaaaaa>", "<PERSON_bbbbbbbbbbbb>"
SHARED = SourceDocument(name="shared.md", text="What both have read.")


async def kept_task(store: SqlStore, name: str, *mentioned: str) -> TaskRow:
    """A task that has ended, whose agent said, noted and remembered these placeholders."""
    kept = make_task_row(make_task_request(name, question=f"What of {name}?", session=name))
    documents = [SHARED, SourceDocument(name="own.md", text=f"Only {name} has read this.")]
    said = " and ".join([f"The words of {name}", *mentioned])
    return (await store_whole_task(store, kept, said, documents=documents, originals=mentioned)).row


def order(kept: TaskRow, *, everything: bool) -> ForgetOrder:
    ref = kept.ref
    return ForgetOrder(store_id=ref.store_id, tenant=ref.tenant, task_ids=(ref.task_id,), everything=everything)


async def dump_all_tables(store: SqlStore) -> str:
    """Every row of every table, as the database has it."""
    async with store.database.read() as connection:
        rows = [
            (await connection.exec_driver_sql(f"SELECT * FROM {table.name}")).all() for table in metadata.sorted_tables
        ]
    return "\n".join(map(str, rows))


async def test_by_default_only_what_memory_could_find_is_forgotten(store: SqlStore) -> None:
    kept = await kept_task(store, "first", ADA)
    assert await store.forget_tasks(order(kept, everything=False)) == ForgetCounts(tasks=1, passages=2)
    assert await store.list_task_passages(kept.ref.task_id, SYSTEM_SCOPE) == ()
    assert set(await store.list_passage_ids_to_delete(10)) == {*make_passage_ids(kept.ref.task_id)}
    assert await store.count_pending_passages() == 0
    assert (await store.get_task(kept.ref.task_id, SYSTEM_SCOPE)).request == kept.request
    vault = store.build_vault(AesGcmCipher(bytes(32), "vault"))
    assert len(await vault.load_originals(kept.ref.tenant, [ADA])) == 1, "the transcript still mentions it"


async def test_of_everything_nothing_is_left_but_what_others_have_too(store: SqlStore) -> None:
    other = await kept_task(store, "second", BOB)
    kept = await kept_task(store, "first", ADA, BOB)
    forgotten = await store.forget_tasks(order(kept, everything=True))
    assert (forgotten.tasks, forgotten.passages, forgotten.originals) == (1, 2, 1)
    assert (forgotten.documents, forgotten.texts) == (2, 4), "own.md, a message, a long result and a report"
    left = await dump_all_tables(store)
    for gone in ("What of first", "Only first", "The words of first", ADA):
        assert gone not in left
    assert (await store.list_documents(other.ref.task_id, SYSTEM_SCOPE))[0].name == "shared.md"
    assert (
        await store.get_text((await store.list_documents(other.ref.task_id, SYSTEM_SCOPE))[1].blob, SYSTEM_SCOPE)
        == "Only second has read this."
    )
    assert (
        await store.get_text((await store.list_documents(other.ref.task_id, SYSTEM_SCOPE))[0].blob, SYSTEM_SCOPE)
        == SHARED.text
    )
    vault = store.build_vault(AesGcmCipher(bytes(32), "vault"))
    assert set(await vault.load_originals(kept.ref.tenant, [ADA, BOB])) == {BOB}
    assert set(await store.list_passage_ids_to_delete(10)) == {*make_passage_ids(kept.ref.task_id)}


async def test_a_forgotten_task_is_listed_without_a_word_and_its_request_id_is_not_used_again(store: SqlStore) -> None:
    kept = await kept_task(store, "first", ADA)
    await store.forget_tasks(order(kept, everything=True))
    found = await store.get_task(kept.ref.task_id, SYSTEM_SCOPE)
    assert (found.request.question, found.title, found.request.session) == (FORGOTTEN, FORGOTTEN, "first")
    assert found.progress is not None
    assert (found.progress.phase, found.progress.report) == (TaskPhase.DONE, None)
    assert not await store.register_task(
        kept, [SHARED, SourceDocument(name="own.md", text="Only first has read this.")]
    )


async def test_what_is_forgotten_twice_is_found_once(store: SqlStore) -> None:
    kept = await kept_task(store, "first", ADA)
    await store.forget_tasks(order(kept, everything=True))
    assert await store.forget_tasks(order(kept, everything=True)) == ForgetCounts()


async def test_a_task_counts_where_there_was_something_to_forget(store: SqlStore) -> None:
    kept = await kept_task(store, "first", ADA)
    assert (await store.forget_tasks(order(kept, everything=False))).tasks == 1
    assert await store.forget_tasks(order(kept, everything=False)) == ForgetCounts()
    assert (await store.forget_tasks(order(kept, everything=True))).tasks == 1


async def test_another_tenant_or_store_forgets_nothing(store: SqlStore) -> None:
    kept = await kept_task(store, "first", ADA)
    theirs = order(kept, everything=True).replace(tenant="another")
    assert await store.forget_tasks(theirs) == ForgetCounts(tasks=0, passages=0)
    assert (await store.get_task(kept.ref.task_id, SYSTEM_SCOPE)).request == kept.request
    with pytest.raises(WrongStore):
        await store.forget_tasks(theirs.replace(store_id="elsewhere"))


def make_redacted_text_key(kept: TaskRow, text: str) -> RedactedTextKey:
    return RedactedTextKey(
        blob=content_hash(text),
        tenant=kept.ref.tenant,
        level=RedactionLevel.IDENTIFIERS,
        version="0123456789abcdef",
    )


async def test_what_was_shown_of_a_document_goes_with_the_last_task_of_its_tenant_that_has_it(store: SqlStore) -> None:
    first, second = await kept_task(store, "first", ADA), await kept_task(store, "second", BOB)
    own, shared = make_redacted_text_key(first, "Only first has read this."), make_redacted_text_key(first, SHARED.text)
    others = shared.replace(tenant="another")
    unread = "<EMAIL_eeeeeeeeeeee>"  # in a line that no agent asked for
    await store.build_vault(AesGcmCipher(bytes(32), "vault")).store_originals(
        first.ref.tenant, [VaultEntry(type="EMAIL", placeholder=unread, fingerprint=unread, text="ada@example.org")]
    )
    for key in (own, shared, others):
        await store.save_redacted_text(key, RedactedText(text=f"Only {ADA}\n{unread}" if key == own else f"By {BOB}"))
    gone = await store.forget_tasks(order(first, everything=True))
    assert await store.get_redacted_text(own, TenantScope(tenant=own.tenant)) is None
    assert await store.get_redacted_text(shared, TenantScope(tenant=shared.tenant)) is not None
    assert gone.originals == 2  # the one that only the document had, too
    assert unread not in await dump_all_tables(store)
    await store.forget_tasks(order(second, everything=True))
    assert own.blob not in await dump_all_tables(store)
    assert await store.get_redacted_text(shared, TenantScope(tenant=shared.tenant)) is None


async def test_nothing_is_kept_of_a_document_that_was_forgotten_while_it_was_redacted(store: SqlStore) -> None:
    kept = await kept_task(store, "first")
    key = make_redacted_text_key(kept, "Only first has read this.")
    await store.forget_tasks(order(kept, everything=True))
    await store.save_redacted_text(key, RedactedText(text="Only first"))
    assert await store.get_redacted_text(key, TenantScope(tenant=key.tenant)) is None
    assert "Only first" not in await dump_all_tables(store)


async def test_what_is_shown_of_a_text_goes_with_its_last_owner_of_the_tenant(store: SqlStore) -> None:
    """A schedule keeps what it asks for longer than the task of a run that was forgotten."""
    kept = await kept_task(store, "first")
    key = make_redacted_text_key(kept, "Only first has read this.")
    schedule = kept.ref.scope.replace(task_id="schedule-1")
    assert await store.put_text("Only first has read this.", schedule) == key.blob
    await store.save_redacted_text(key, RedactedText(text="Only first"))
    await store.forget_tasks(order(kept, everything=True))
    assert await store.get_redacted_text(key, TenantScope(tenant=key.tenant)) == RedactedText(text="Only first")
    await store.release_task_texts(schedule)
    assert "Only first" not in await dump_all_tables(store)


async def test_a_redacted_text_is_stored_only_for_a_tenant_that_has_the_original(store: SqlStore) -> None:
    key = make_redacted_text_key(await kept_task(store, "first"), SHARED.text).replace(tenant="another")
    await store.save_redacted_text(key, RedactedText(text="redacted for another tenant"))
    assert "redacted for another tenant" not in await dump_all_tables(store)


async def test_of_two_workers_that_keep_what_is_shown_the_first_is_kept(store: SqlStore) -> None:
    key = make_redacted_text_key(await kept_task(store, "first"), SHARED.text)
    await store.save_redacted_text(key, RedactedText(text="one"))
    await store.save_redacted_text(key, RedactedText(text="other"))
    assert await store.get_redacted_text(key, TenantScope(tenant=key.tenant)) == RedactedText(text="one")


async def test_what_is_shown_of_a_text_is_bound_to_its_row(store: SqlStore) -> None:
    kept = await kept_task(store, "first")
    one, other = make_redacted_text_key(kept, SHARED.text), make_redacted_text_key(kept, "Only first has read this.")
    for key in (one, other):
        await store.save_redacted_text(key, RedactedText(text=f"of {key.blob}"))
    rows = {"one": make_redacted_text_row_id(one), "other": make_redacted_text_row_id(other)}
    async with store.database.write() as connection:
        moved = "UPDATE texts SET content = (SELECT content FROM texts WHERE blob = :one) WHERE blob = :other"
        await connection.execute(text(moved), rows)
    assert await store.get_redacted_text(one, kept.ref.scope) == RedactedText(text=f"of {one.blob}")
    with pytest.raises(StoreError, match="another program has changed it"):
        await store.get_redacted_text(other, kept.ref.scope)
