"""Whose the passages of a document are when tasks of a session share it, on both databases."""

from sqlalchemy import select

from tests.support.scopes import SYSTEM_SCOPE
from tests.support.store_values import NOON, make_task_request, make_task_row
from waystation.documents.documents import DocumentPassage, DocumentSet, DocumentsUpdate, SourceDocument
from waystation.documents.text_repository import make_document
from waystation.erasure.erasure import ERASED_MARKER, ErasureQuery, ForgetOrder, PersonErasureOrder
from waystation.kernel.refs import TaskRef
from waystation.memory.passage_builder import build_document_passage
from waystation.memory.passages import Passage
from waystation.runtime.sql_store import SqlStore
from waystation.store.schema import passages

SHARED = SourceDocument(name="pilot.md", text="The bar carries two fathoms.")
NEWER = SourceDocument(name="pilot.md", text="The bar carries three fathoms.")
OLD, NEW = make_document(SHARED).blob, make_document(NEWER).blob
SHOWN = {"pilot.md": "pilot.md"}


async def register_task_with_document(
    store: SqlStore, name: str, session: str = "autumn", document: SourceDocument = SHARED
) -> TaskRef:
    made = make_task_row(make_task_request(name, session=session))
    made = made.replace(ref=made.ref.replace(store_id=await store.get_store_id()))
    await store.register_task(made, [document])
    return made.ref


async def make_document_passage(store: SqlStore, ref: TaskRef) -> Passage:
    """All of its document, as it is now."""
    (document,) = await store.list_documents(ref.task_id, SYSTEM_SCOPE)
    cut = DocumentPassage(document.name, "", 1, 1, await store.get_text(document.blob, SYSTEM_SCOPE))
    return build_document_passage(ref, cut, document.blob, 0, NOON)


async def store_document_passage(store: SqlStore, ref: TaskRef) -> Passage:
    """Its document is one passage, which memory has."""
    made = await make_document_passage(store, ref)
    assert await store.begin_document_indexing(ref, SHOWN)
    assert await store.commit_document_passages(ref, [made])
    await store.mark_passages_stored([made.id])
    return made


async def given(store: SqlStore, ref: TaskRef, number: int, *documents: SourceDocument) -> None:
    """The task's documents are these from now on."""
    for one in documents:
        await store.put_text(one.text, ref.scope)
    listed = DocumentSet(documents=tuple(map(make_document, documents)), missing=() if documents else (SHARED.name,))
    blob = await store.put_text(listed.model_dump_json(), ref.scope)
    await store.update_documents(
        ref.task_id, DocumentsUpdate(number=number, document_set=blob, updated_at=NOON), listed
    )


async def in_memory(store: SqlStore, *refs: TaskRef) -> list[tuple[str, str]]:
    """Of these tasks: whose, and what."""
    return [
        (one.task_id, one.blob) for ref in refs for one in await store.list_task_passages(ref.task_id, SYSTEM_SCOPE)
    ]


async def forget(store: SqlStore, *refs: TaskRef, everything: bool = False) -> int:
    ids = tuple(ref.task_id for ref in refs)
    order = ForgetOrder(store_id=await store.get_store_id(), tenant=refs[0].tenant, task_ids=ids, everything=everything)
    return (await store.forget_tasks(order)).passages


async def test_a_document_that_another_remembered_task_has_stays_and_is_that_tasks(store: SqlStore) -> None:
    first, second = (
        await register_task_with_document(store, "first"),
        await register_task_with_document(store, "second"),
    )
    made, again = await store_document_passage(store, first), await store_document_passage(store, second)
    assert made.id == again.id
    assert [passage.task_id for passage in await store.list_task_passages(first.task_id, SYSTEM_SCOPE)] == [
        first.task_id
    ]
    assert await forget(store, first, everything=True) == 0
    assert await store.list_passage_ids_to_delete(10) == ()
    (inherited,) = (await store.load_outbox_batch(10)).pending
    assert (inherited.id, inherited.task_id) == (made.id, second.task_id)
    assert await forget(store, second) == 1
    assert await store.list_passage_ids() == frozenset()


async def test_it_goes_with_the_last_task_that_has_it(store: SqlStore) -> None:
    refs = [await register_task_with_document(store, name) for name in ("first", "second")]
    made, _ = [await store_document_passage(store, ref) for ref in refs]
    assert await forget(store, *refs) == 1
    assert await store.list_passage_ids_to_delete(10) == (made.id,)


async def test_it_stays_for_no_task_that_is_forgotten_or_never_remembered_or_of_another_session(
    store: SqlStore,
) -> None:
    first, gone, never, elsewhere = [
        await register_task_with_document(store, "first"),
        await register_task_with_document(store, "gone"),
        await register_task_with_document(store, "never"),
        await register_task_with_document(store, "elsewhere", session="winter"),
    ]
    await store_document_passage(store, gone)
    await store_document_passage(store, elsewhere)
    await forget(store, gone)
    await store_document_passage(store, first)
    assert [ref.task_id for ref in (never,) if await store.list_task_passages(ref.task_id, SYSTEM_SCOPE)] == []
    assert await forget(store, first) == 1
    assert len(await store.list_task_passages(elsewhere.task_id, SYSTEM_SCOPE)) == 1


async def test_a_document_that_was_forgotten_can_be_handed_in_again(store: SqlStore) -> None:
    first = await register_task_with_document(store, "first")
    made = await store_document_passage(store, first)
    await forget(store, first)
    await store.mark_passages_deleted([made.id])
    second = await register_task_with_document(store, "second")
    await store_document_passage(store, second)
    assert [passage.id for passage in await store.list_task_passages(second.task_id, SYSTEM_SCOPE)] == [made.id]
    assert await store.list_passage_ids() == {made.id}


async def test_a_task_that_was_forgotten_before_its_documents_came_remembers_none(store: SqlStore) -> None:
    first = await register_task_with_document(store, "first")
    await forget(store, first)
    assert not await store.begin_document_indexing(first, SHOWN)
    assert not await store.commit_document_passages(first, [await make_document_passage(store, first)])
    assert await store.list_passage_ids() == frozenset()


async def test_of_a_document_that_changed_memory_has_the_newest_version_alone(store: SqlStore) -> None:
    first = await register_task_with_document(store, "first")
    before = await store_document_passage(store, first)
    await given(store, first, 1, NEWER)
    await given(store, first, 2, NEWER)
    after = await store_document_passage(store, first)
    assert await in_memory(store, first) == [(first.task_id, NEW)]
    assert await store.list_passage_ids_to_delete(10) == (before.id,)
    await store.mark_passages_deleted([before.id])
    again = await store_document_passage(store, first)
    assert (again.id, (await store.load_outbox_batch(10)).pending, await store.list_passage_ids_to_delete(10)) == (
        after.id,
        (),
        (),
    )


async def test_a_version_that_is_taken_up_again_comes_into_memory_again(store: SqlStore) -> None:
    first = await register_task_with_document(store, "first")
    before = await store_document_passage(store, first)
    await given(store, first, 1, NEWER)
    between = await store_document_passage(store, first)
    await given(store, first, 2, SHARED)
    assert (await store_document_passage(store, first)).id == before.id
    assert await in_memory(store, first) == [(first.task_id, OLD)]
    assert await store.list_passage_ids_to_delete(10) == (between.id,)


async def test_what_a_removed_document_said_leaves_memory(store: SqlStore) -> None:
    first = await register_task_with_document(store, "first")
    made = await store_document_passage(store, first)
    await given(store, first, 1)
    assert await store.begin_document_indexing(first, SHOWN)
    assert await store.list_passage_ids_to_delete(10) == (made.id,)


async def test_a_replaced_version_that_another_remembered_task_has_is_that_tasks_from_then_on(store: SqlStore) -> None:
    first, second = (
        await register_task_with_document(store, "first"),
        await register_task_with_document(store, "second"),
    )
    made, _ = await store_document_passage(store, first), await store_document_passage(store, second)
    await given(store, first, 1, NEWER)
    await store_document_passage(store, first)
    assert await store.list_passage_ids_to_delete(10) == ()
    assert [one.id for one in (await store.load_outbox_batch(10)).pending] == [made.id]
    assert await in_memory(store, first, second) == [(first.task_id, NEW), (second.task_id, OLD)]


async def test_a_version_that_is_replaced_while_it_is_read_does_not_come_into_memory(store: SqlStore) -> None:
    first = await register_task_with_document(store, "first")
    late = await make_document_passage(store, first)
    await given(store, first, 1, NEWER)
    assert await store.begin_document_indexing(first, SHOWN)
    assert await store.commit_document_passages(first, [late])
    assert await store.list_passage_ids() == frozenset()


async def test_every_version_of_a_document_is_forgotten_with_its_task(store: SqlStore) -> None:
    first, second = (
        await register_task_with_document(store, "first"),
        await register_task_with_document(store, "second"),
    )
    before = await store_document_passage(store, first)
    await given(store, first, 1, NEWER)
    after = await store_document_passage(store, first)
    await given(store, second, 1, NEWER)
    await store_document_passage(store, second)
    await forget(store, first, second)
    assert await store.list_passage_ids() == frozenset()
    assert await store.list_deleted_passage_ids() == {before.id, after.id}
    with_words = select(passages.c.passage_id).where(passages.c.body != "")
    async with store.database.read() as connection:
        assert (await connection.execute(with_words)).all() == []


async def test_after_a_person_was_erased_a_document_is_in_memory_once(store: SqlStore) -> None:
    ada = SourceDocument(name="pilot.md", text="Ada Lovelace keeps the bar.")
    first = await register_task_with_document(store, "first", document=ada)
    before = await store_document_passage(store, first)
    order = PersonErasureOrder(store_id=first.store_id, tenant=first.tenant, wanted_placeholder="", placeholders=())
    await store.erase_person(order, ErasureQuery("Ada Lovelace", ()))
    after = await store_document_passage(store, first)
    assert before.id != after.id
    assert [one.text for one in await store.list_task_passages(first.task_id, SYSTEM_SCOPE)] == [after.text]
    assert after.text.endswith(f"{ERASED_MARKER} keeps the bar.")
