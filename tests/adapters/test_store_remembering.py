"""Whose the passages of a document are when tasks of a session share it, on both databases."""

from tests.store_contract.values import NOON, request, row
from waystation.adapters.store import SqlStore
from waystation.domain.documents import DocumentPassage
from waystation.domain.forgetting import ForgetOrder
from waystation.domain.memory import Passage
from waystation.domain.remembering import document_passage
from waystation.domain.task import SourceDocument, TaskRef

SHARED = SourceDocument(name="pilot.md", text="The bar carries two fathoms.")


async def task(store: SqlStore, name: str, session: str = "autumn", document: SourceDocument = SHARED) -> TaskRef:
    made = row(request(name, session=session))
    made = made.model_copy(update={"ref": made.ref.model_copy(update={"store_id": await store.store_id()})})
    await store.register(made, [document])
    return made.ref


async def remembered(store: SqlStore, ref: TaskRef) -> Passage:
    """Its document is one passage, which memory has."""
    (document,) = await store.documents(ref.task_id)
    cut = DocumentPassage(document.name, "", 1, 1, SHARED.text)
    made = document_passage(ref, cut, document.blob, 0, NOON)
    assert await store.commit_document_passages(ref, 0, [made])
    await store.stored([made.id])
    return made


async def forget(store: SqlStore, *refs: TaskRef, everything: bool = False) -> int:
    ids = tuple(ref.task_id for ref in refs)
    order = ForgetOrder(store_id=await store.store_id(), tenant=refs[0].tenant, task_ids=ids, everything=everything)
    return (await store.forget(order)).passages


async def test_a_document_that_another_remembered_task_has_stays_and_is_that_tasks(store: SqlStore) -> None:
    first, second = await task(store, "first"), await task(store, "second")
    made, again = await remembered(store, first), await remembered(store, second)
    assert made.id == again.id
    assert [passage.task_id for passage in await store.passages_of(first.task_id)] == [first.task_id]
    assert await forget(store, first, everything=True) == 0
    assert await store.taken_back(10) == ()
    (inherited,) = await store.waiting(10)
    assert (inherited.id, inherited.task_id) == (made.id, second.task_id)
    assert await forget(store, second) == 1
    assert await store.passage_ids() == frozenset()


async def test_it_goes_with_the_last_task_that_has_it(store: SqlStore) -> None:
    refs = [await task(store, name) for name in ("first", "second")]
    made, _ = [await remembered(store, ref) for ref in refs]
    assert await forget(store, *refs) == 1
    assert await store.taken_back(10) == (made.id,)


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
    assert [ref.task_id for ref in (never,) if await store.passages_of(ref.task_id)] == []
    assert await forget(store, first) == 1
    assert len(await store.passages_of(elsewhere.task_id)) == 1


async def test_a_document_that_was_forgotten_can_be_handed_in_again(store: SqlStore) -> None:
    first = await task(store, "first")
    made = await remembered(store, first)
    await forget(store, first)
    await store.forgotten([made.id])
    second = await task(store, "second")
    await remembered(store, second)
    assert [passage.id for passage in await store.passages_of(second.task_id)] == [made.id]
    assert await store.passage_ids() == {made.id}


async def test_a_task_that_was_forgotten_before_its_documents_came_remembers_none(store: SqlStore) -> None:
    first = await task(store, "first")
    await forget(store, first)
    (document,) = await store.documents(first.task_id)
    cut = DocumentPassage(document.name, "", 1, 1, SHARED.text)
    late = document_passage(first, cut, document.blob, 0, NOON)
    assert not await store.commit_document_passages(first, 0, [late])
    assert await store.passage_ids() == frozenset()
