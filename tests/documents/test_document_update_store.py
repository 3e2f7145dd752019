"""Documents that change while their task works, on both databases: put in place once, kept and forgotten as a whole."""

from datetime import timedelta

import pytest

from tests.support.scopes import SYSTEM_SCOPE
from tests.support.store_values import NOON, make_task_request, make_task_row
from tests.support.stored_task import make_ended_progress
from waystation.documents.documents import (
    Document,
    DocumentSet,
    DocumentsUpdate,
    RecordedDocumentsUpdate,
    SourceDocument,
)
from waystation.documents.text_repository import make_document
from waystation.erasure.erasure import ERASED_MARKER, ErasureQuery, ForgetOrder, PersonErasureOrder
from waystation.kernel.errors import StoreError, UnknownTask
from waystation.runtime.sql_store import SqlStore
from waystation.store.schema import texts
from waystation.tasks.task import TaskRow

A = SourceDocument(name="a.md", text="Ada Lovelace wrote this.", source="f" * 64)
B = SourceDocument(name="b.md", text="High water at noon.")
NEWER = SourceDocument(name="a.md", text="Ada Lovelace wrote more.", source="e" * 64)


async def begun(store: SqlStore, name: str = "first") -> TaskRow:
    task = make_task_row(make_task_request(name))
    task = task.replace(ref=task.ref.replace(store_id=await store.get_store_id()))
    await store.register_task(task, [A, B])
    return task


async def given(
    store: SqlStore, task: TaskRow, number: int, *documents: SourceDocument, missing: tuple[str, ...] = ()
) -> RecordedDocumentsUpdate:
    """As the client and the task's workflow do it."""
    for one in documents:
        await store.put_text(one.text, task.ref.scope)
    listed = DocumentSet(documents=tuple(map(make_document, documents)), missing=missing)
    blob = await store.put_text(listed.model_dump_json(), task.ref.scope)
    update = DocumentsUpdate(number=number, document_set=blob, by="Ada", updated_at=NOON + timedelta(minutes=number))
    return await store.update_documents(task.ref.task_id, update, listed)


def seen(documents: tuple[Document, ...]) -> list[tuple[str, str, bool]]:
    return [(one.name, one.blob[:4], one.removed) for one in documents]


async def test_new_versions_take_the_places_of_old_ones_new_documents_come_last_and_removed_ones_stay(
    store: SqlStore,
) -> None:
    task = await begun(store)
    new = SourceDocument(name="0.md", text="New.")
    kept = await given(store, task, 1, NEWER, new, missing=("b.md",))
    documents = await store.list_documents(task.ref.task_id, SYSTEM_SCOPE)
    blobs = [make_document(one).blob[:4] for one in (NEWER, B, new)]
    assert seen(documents) == [("a.md", blobs[0], False), ("b.md", blobs[1], True), ("0.md", blobs[2], False)]
    assert documents[0].source == NEWER.source
    assert (kept.changed, kept.added, kept.removed, kept.text) == (1, 1, 1, "1 changed, 1 added, 1 removed")
    assert await store.list_document_updates(task.ref.task_id, SYSTEM_SCOPE) == (kept,)
    assert await store.list_audit_entries(task.ref.task_id, SYSTEM_SCOPE) == (kept,)


async def test_an_update_that_is_carried_out_twice_is_carried_out_once(store: SqlStore) -> None:
    task = await begun(store)
    first = await given(store, task, 1, NEWER)
    await given(store, task, 2, A)
    assert await given(store, task, 1, NEWER) == first
    assert [one.number for one in await store.list_document_updates(task.ref.task_id, SYSTEM_SCOPE)] == [1, 2]
    assert (await store.list_documents(task.ref.task_id, SYSTEM_SCOPE))[0].blob == make_document(A).blob


async def test_other_tasks_keep_their_documents(store: SqlStore) -> None:
    task, other = await begun(store), await begun(store, "other")
    await given(store, task, 1, NEWER, missing=("b.md",))
    assert await store.list_documents(other.ref.task_id, SYSTEM_SCOPE) == (make_document(A), make_document(B))


async def test_documents_of_an_unknown_task_are_not_updated(store: SqlStore) -> None:
    task = await begun(store)
    unknown = task.replace(ref=task.ref.replace(task_id="task-0"))
    with pytest.raises(UnknownTask):
        await given(store, unknown, 1, NEWER)


async def test_a_forgotten_task_takes_its_earlier_versions_along_but_not_those_of_others(store: SqlStore) -> None:
    task = await begun(store)
    await given(store, task, 1, NEWER)
    last = SourceDocument(name="a.md", text="Ada Lovelace wrote nothing.")
    await given(store, task, 2, last)
    other = await begun(store, "other")
    report = await store.put_text("# Report", task.ref.scope)
    await store.save_task_progress(task.ref.task_id, make_ended_progress(task, report, "A title"))
    order = ForgetOrder(
        store_id=task.ref.store_id, tenant=task.ref.tenant, task_ids=(task.ref.task_id,), everything=True
    )
    await store.forget_tasks(order)
    for gone in (NEWER, last):
        with pytest.raises(StoreError):
            await store.get_text(make_document(gone).blob, SYSTEM_SCOPE)
    assert [
        await store.get_text(one.blob, SYSTEM_SCOPE)
        for one in await store.list_documents(other.ref.task_id, SYSTEM_SCOPE)
    ] == [
        A.text,
        B.text,
    ]
    async with store.database.read() as connection:
        left = (await connection.execute(texts.select())).all()
    assert len(left) == 2, "nor is the list left of what was given"


async def test_a_person_is_erased_from_versions_before_as_well_and_the_file_is_read_again(
    store: SqlStore,
) -> None:
    task = await begun(store)
    await given(store, task, 1, NEWER)
    order = PersonErasureOrder(
        store_id=task.ref.store_id, tenant=task.ref.tenant, wanted_placeholder="", placeholders=()
    )
    await store.erase_person(order, ErasureQuery("Ada Lovelace", ()))
    (update,) = await store.list_document_updates(task.ref.task_id, SYSTEM_SCOPE)
    (change,) = update.changes
    assert [await store.get_text(blob, SYSTEM_SCOPE) for blob in (change.before, change.after)] == [
        f"{ERASED_MARKER} wrote this.",
        f"{ERASED_MARKER} wrote more.",
    ]
    newest = (await store.list_documents(task.ref.task_id, SYSTEM_SCOPE))[0]
    assert (newest.blob, newest.source) == (change.after, "")
    for gone in (A, NEWER):
        with pytest.raises(StoreError):
            await store.get_text(make_document(gone).blob, SYSTEM_SCOPE)
