"""Whose the passages of a document are when tasks of a session share it, on both databases."""

from sqlalchemy import select

from tests.readers import ANYONE
from tests.store_contract.values import NOON, request, row
from waystation.documents.documents import DocumentPassage, DocumentSet, DocumentsUpdate, SourceDocument
from waystation.documents.text_repository import make_document
from waystation.erasure.removal import ERASED, ForgetOrder, PersonOrder, Sought
from waystation.kernel.refs import TaskRef
from waystation.memory.memory import Passage
from waystation.memory.passages import document_passage
from waystation.runtime.sql_store import SqlStore
from waystation.store.schema import passages

SHARED = SourceDocument(name="pilot.md", text="The bar carries two fathoms.")
NEWER = SourceDocument(name="pilot.md", text="The bar carries three fathoms.")
OLD, NEW = make_document(SHARED).blob, make_document(NEWER).blob
SHOWN = {"pilot.md": "pilot.md"}


async def task(store: SqlStore, name: str, session: str = "autumn", document: SourceDocument = SHARED) -> TaskRef:
    made = row(request(name, session=session))
    made = made.replace(ref=made.ref.replace(store_id=await store.store_id()))
    await store.register(made, [document])
    return made.ref


async def passage_of(store: SqlStore, ref: TaskRef) -> Passage:
    """All of its document, as it is now."""
    (document,) = await store.documents(ref.task_id, ANYONE)
    cut = DocumentPassage(document.name, "", 1, 1, await store.get_text(document.blob, ANYONE))
    return document_passage(ref, cut, document.blob, 0, NOON)


async def remembered(store: SqlStore, ref: TaskRef) -> Passage:
    """Its document is one passage, which memory has."""
    made = await passage_of(store, ref)
    assert await store.begin_documents(ref, SHOWN)
    assert await store.commit_document_passages(ref, [made])
    await store.stored([made.id])
    return made


async def given(store: SqlStore, ref: TaskRef, number: int, *documents: SourceDocument) -> None:
    """The task's documents are these from now on."""
    for one in documents:
        await store.put_text(one.text, ref.reader)
    listed = DocumentSet(documents=tuple(map(make_document, documents)), missing=() if documents else (SHARED.name,))
    blob = await store.put_text(listed.model_dump_json(), ref.reader)
    await store.update_documents(ref.task_id, DocumentsUpdate(number=number, given=blob, updated_at=NOON), listed)


async def in_memory(store: SqlStore, *refs: TaskRef) -> list[tuple[str, str]]:
    """Of these tasks: whose, and what."""
    return [(one.task_id, one.blob) for ref in refs for one in await store.list_task_passages(ref.task_id, ANYONE)]


async def forget(store: SqlStore, *refs: TaskRef, everything: bool = False) -> int:
    ids = tuple(ref.task_id for ref in refs)
    order = ForgetOrder(store_id=await store.store_id(), tenant=refs[0].tenant, task_ids=ids, everything=everything)
    return (await store.forget(order)).passages


async def test_a_document_that_another_remembered_task_has_stays_and_is_that_tasks(store: SqlStore) -> None:
    first, second = await task(store, "first"), await task(store, "second")
    made, again = await remembered(store, first), await remembered(store, second)
    assert made.id == again.id
    assert [passage.task_id for passage in await store.list_task_passages(first.task_id, ANYONE)] == [first.task_id]
    assert await forget(store, first, everything=True) == 0
    assert await store.list_passage_ids_to_delete(10) == ()
    (inherited,) = await store.waiting(10)
    assert (inherited.id, inherited.task_id) == (made.id, second.task_id)
    assert await forget(store, second) == 1
    assert await store.passage_ids() == frozenset()


async def test_it_goes_with_the_last_task_that_has_it(store: SqlStore) -> None:
    refs = [await task(store, name) for name in ("first", "second")]
    made, _ = [await remembered(store, ref) for ref in refs]
    assert await forget(store, *refs) == 1
    assert await store.list_passage_ids_to_delete(10) == (made.id,)


async def test_it_stays_for_no_task_that_is_forgotten_or_never_remembered_or_of_another_session(
    store: SqlStore,
) -> None:
    first, gone, never, elsewhere = [
        await task(store, "first"),
        await task(store, "gone"),
        await task(store, "never"),
        await task(store, "elsewhere", session="winter"),
    ]
    await remembered(store, gone)
    await remembered(store, elsewhere)
    await forget(store, gone)
    await remembered(store, first)
    assert [ref.task_id for ref in (never,) if await store.list_task_passages(ref.task_id, ANYONE)] == []
    assert await forget(store, first) == 1
    assert len(await store.list_task_passages(elsewhere.task_id, ANYONE)) == 1


async def test_a_document_that_was_forgotten_can_be_handed_in_again(store: SqlStore) -> None:
    first = await task(store, "first")
    made = await remembered(store, first)
    await forget(store, first)
    await store.forgotten([made.id])
    second = await task(store, "second")
    await remembered(store, second)
    assert [passage.id for passage in await store.list_task_passages(second.task_id, ANYONE)] == [made.id]
    assert await store.passage_ids() == {made.id}


async def test_a_task_that_was_forgotten_before_its_documents_came_remembers_none(store: SqlStore) -> None:
    first = await task(store, "first")
    await forget(store, first)
    assert not await store.begin_documents(first, SHOWN)
    assert not await store.commit_document_passages(first, [await passage_of(store, first)])
    assert await store.passage_ids() == frozenset()


async def test_of_a_document_that_changed_memory_has_the_newest_version_alone(store: SqlStore) -> None:
    first = await task(store, "first")
    before = await remembered(store, first)
    await given(store, first, 1, NEWER)
    await given(store, first, 2, NEWER)
    after = await remembered(store, first)
    assert await in_memory(store, first) == [(first.task_id, NEW)]
    assert await store.list_passage_ids_to_delete(10) == (before.id,)
    await store.forgotten([before.id])
    again = await remembered(store, first)
    assert (again.id, await store.waiting(10), await store.list_passage_ids_to_delete(10)) == (after.id, (), ())


async def test_a_version_that_is_taken_up_again_comes_into_memory_again(store: SqlStore) -> None:
    first = await task(store, "first")
    before = await remembered(store, first)
    await given(store, first, 1, NEWER)
    between = await remembered(store, first)
    await given(store, first, 2, SHARED)
    assert (await remembered(store, first)).id == before.id
    assert await in_memory(store, first) == [(first.task_id, OLD)]
    assert await store.list_passage_ids_to_delete(10) == (between.id,)


async def test_what_a_removed_document_said_leaves_memory(store: SqlStore) -> None:
    first = await task(store, "first")
    made = await remembered(store, first)
    await given(store, first, 1)
    assert await store.begin_documents(first, SHOWN)
    assert await store.list_passage_ids_to_delete(10) == (made.id,)


async def test_a_replaced_version_that_another_remembered_task_has_is_that_tasks_from_then_on(store: SqlStore) -> None:
    first, second = await task(store, "first"), await task(store, "second")
    made, _ = await remembered(store, first), await remembered(store, second)
    await given(store, first, 1, NEWER)
    await remembered(store, first)
    assert await store.list_passage_ids_to_delete(10) == ()
    assert [one.id for one in await store.waiting(10)] == [made.id]
    assert await in_memory(store, first, second) == [(first.task_id, NEW), (second.task_id, OLD)]


async def test_a_version_that_is_replaced_while_it_is_read_does_not_come_into_memory(store: SqlStore) -> None:
    first = await task(store, "first")
    late = await passage_of(store, first)
    await given(store, first, 1, NEWER)
    assert await store.begin_documents(first, SHOWN)
    assert await store.commit_document_passages(first, [late])
    assert await store.passage_ids() == frozenset()


async def test_every_version_of_a_document_is_forgotten_with_its_task(store: SqlStore) -> None:
    first, second = await task(store, "first"), await task(store, "second")
    before = await remembered(store, first)
    await given(store, first, 1, NEWER)
    after = await remembered(store, first)
    await given(store, second, 1, NEWER)
    await remembered(store, second)
    await forget(store, first, second)
    assert await store.passage_ids() == frozenset()
    assert await store.list_deleted_passage_ids() == {before.id, after.id}
    with_words = select(passages.c.passage_id).where(passages.c.body != "")
    async with store.database.read() as connection:
        assert (await connection.execute(with_words)).all() == []


async def test_after_a_person_was_erased_a_document_is_in_memory_once(store: SqlStore) -> None:
    ada = SourceDocument(name="pilot.md", text="Ada Lovelace keeps the bar.")
    first = await task(store, "first", document=ada)
    before = await remembered(store, first)
    order = PersonOrder(store_id=first.store_id, tenant=first.tenant, wanted="", placeholders=())
    await store.erase(order, Sought("Ada Lovelace", ()))
    after = await remembered(store, first)
    assert before.id != after.id
    assert [one.text for one in await store.list_task_passages(first.task_id, ANYONE)] == [after.text]
    assert after.text.endswith(f"{ERASED} keeps the bar.")
