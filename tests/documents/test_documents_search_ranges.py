import hashlib

from tests.support.scopes import make_task_scope
from waystation.documents.documents import Document
from waystation.documents.search import HybridDocumentSearch
from waystation.kernel.scopes import ReadScope, TaskScope


class Shelf:
    """Documents of tasks by name, as a store has them; it tells which texts were read."""

    def __init__(self, **tasks: dict[str, str]) -> None:
        self._tasks = {task.replace("_", "-"): documents for task, documents in tasks.items()}
        self._texts = {blob(text): text for documents in tasks.values() for text in documents.values()}
        self.read: list[str] = []

    async def put_text(self, text: str, owner: TaskScope) -> str:
        raise NotImplementedError

    async def get_text(self, blob: str, reader: ReadScope) -> str:
        self.read.append(self._texts[blob])
        return self._texts[blob]

    async def list_documents(self, task_id: str, reader: ReadScope) -> tuple[Document, ...]:
        return tuple(
            Document(name=name, blob=blob(text), lines=len(text.splitlines()), characters=len(text))
            for name, text in self._tasks[task_id].items()
        )


def blob(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def test_a_search_can_keep_to_a_part_of_the_list_of_documents() -> None:
    search = HybridDocumentSearch(Shelf(task_1={f"{n}.md": f"The bar of harbour {n} shifts." for n in range(1, 6)}))
    assert {hit.name for hit in await search.search(make_task_scope("task-1"), "bar", 10)} == {
        f"{n}.md" for n in range(1, 6)
    }
    assert {hit.name for hit in await search.search(make_task_scope("task-1"), "bar", 10, range(2, 4))} == {
        "2.md",
        "3.md",
    }
    assert await search.search(make_task_scope("task-1"), "bar", 10, range(9, 12)) == ()


async def test_a_folder_that_was_searched_before_is_read_again_only_where_it_changed() -> None:
    before = {"a.md": "The bar shifts in autumn.", "b.md": "The beacon is white."}
    after = {"a.md": "The bar shifts in autumn.", "b.md": "The beacon is red now.", "c.md": "The buoy is gone."}
    shelf = Shelf(task_1=before, task_2=after)
    search = HybridDocumentSearch(shelf)
    await search.search(make_task_scope("task-1"), "bar", 10)
    shelf.read.clear()
    assert [hit.name for hit in await search.search(make_task_scope("task-2"), "bar", 10)] == ["a.md"]
    assert [hit.name for hit in await search.search(make_task_scope("task-2"), "red", 10)] == ["b.md"]
    assert sorted(shelf.read) == ["The beacon is red now.", "The buoy is gone."]
