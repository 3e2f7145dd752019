import asyncio
import logging
from pathlib import Path

import pytest

from tests.support.scopes import make_task_scope
from waystation.documents import search as search_module
from waystation.documents.document_loading import load_documents, write_package_documents
from waystation.documents.documents import Document, DocumentMatch
from waystation.documents.ports import DocumentSearch
from waystation.documents.search import HybridDocumentSearch
from waystation.kernel.scopes import ReadScope, TaskScope


class Shelf:
    """A document store in memory that tells which texts were read."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = texts
        self.read: list[str] = []

    async def put_text(self, text: str, owner: TaskScope) -> str:
        raise NotImplementedError

    async def get_text(self, blob: str, reader: ReadScope) -> str:
        self.read.append(blob)
        return self.texts[blob]

    async def list_documents(self, task_id: str, reader: ReadScope) -> tuple[Document, ...]:
        await asyncio.sleep(0)
        return tuple(
            Document(name=name, blob=name, lines=len(text.splitlines()), characters=len(text))
            for name, text in self.texts.items()
        )


async def found(texts: dict[str, str], query: str, limit: int = 10) -> tuple[DocumentMatch, ...]:
    search: DocumentSearch = HybridDocumentSearch(Shelf(texts))
    return await search.search(make_task_scope("task-1"), query, limit)


def places(hits: tuple[DocumentMatch, ...]) -> list[tuple[str, int, int]]:
    return [(hit.name, hit.first_line, hit.last_line) for hit in hits]


async def test_the_passage_that_answers_comes_first_with_its_lines_and_text() -> None:
    texts = {
        "a.md": "# Retention\n\nLogs are kept for thirty days.\n\n# Budgets\n\nA task has a budget.",
        "b.md": "Nothing about it here.",
    }
    hits = await found(texts, "How long are logs kept?")
    assert places(hits)[0] == ("a.md", 1, 3)
    assert hits[0].text == "# Retention\n\nLogs are kept for thirty days."


async def test_other_forms_of_a_word_match() -> None:
    assert places(await found({"a.md": "He approved the budgets."}, "approving a budget")) == [("a.md", 1, 1)]


async def test_parts_of_an_identifier_match() -> None:
    assert places(await found({"a.py": "max_retry_tokens = 3"}, "retry tokens")) == [("a.py", 1, 1)]


async def test_a_passage_is_found_by_the_heading_above_it_and_by_its_document() -> None:
    texts = {"kettle.md": "# Descaling\n" + "Rinse it twice.\n" * 20, "b.md": "Rinse it twice."}
    assert ("kettle.md", 13, 21) in places(await found(texts, "descaling"))
    assert {hit.name for hit in await found(texts, "kettle")} == {"kettle.md"}


async def test_chinese_and_japanese_text_is_found_by_a_part_of_a_sentence() -> None:
    texts = {"zh.md": "每个任务都有预算上限。", "ja.md": "会議は火曜日に行われます。", "en.md": "nothing"}
    assert places(await found(texts, "预算")) == [("zh.md", 1, 1)]
    assert places(await found(texts, "火曜日")) == [("ja.md", 1, 1)]


@pytest.mark.parametrize("query", ["", "  \n", "the and of", "?!", "zebra"])
async def test_a_query_that_asks_for_nothing_or_matches_nothing_finds_nothing(query: str) -> None:
    assert await found({"a.md": "A task has a budget."}, query) == ()


@pytest.mark.parametrize("texts", [{}, {"!": "?!\n\n--"}])
async def test_documents_without_a_word_are_searched_without_an_error(texts: dict[str, str]) -> None:
    assert await found(texts, "budget") == ()


async def test_equal_scores_are_ordered_by_name_and_line() -> None:
    same = "\n\n".join(["# One\nbudget limit"] * 2)
    texts = {"b.md": same, "a.md": same}
    assert places(await found(texts, "limit")) == [("a.md", 1, 2), ("a.md", 4, 5), ("b.md", 1, 2), ("b.md", 4, 5)]
    assert places(await found(texts, "limit", limit=1)) == [("a.md", 1, 2)]
    assert await found(texts, "limit", limit=0) == ()


async def test_agents_that_start_together_share_one_index() -> None:
    shelf = Shelf({"a.md": "budget"})
    search = HybridDocumentSearch(shelf)
    await asyncio.gather(*(search.search(make_task_scope("task-1"), "budget", 5) for _ in range(8)))
    assert shelf.read == ["a.md"]


async def test_the_index_used_longest_ago_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "MAX_CACHED_INDEXES", 2)
    shelf = Shelf({"a.md": "budget"})
    search = HybridDocumentSearch(shelf)
    for task in ("one", "two", "one", "three", "one"):
        await search.search(make_task_scope(task), "budget", 5)
    assert list(search.indexed_task_ids) == ["three", "one"]
    await search.search(make_task_scope("two"), "budget", 5)
    assert list(search.indexed_task_ids) == ["one", "two"]


async def test_the_installed_packages_are_documents_that_can_be_searched_in_silence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.NOTSET)
    written = write_package_documents(tmp_path / "packages")
    assert [path.stem for path in written] == sorted(path.stem for path in written)
    assert write_package_documents(tmp_path / "packages") == written
    loaded = load_documents([tmp_path / "packages"])
    assert len(loaded.documents) == len(written) > 60
    assert loaded.skipped_items == ()
    hits = await found({d.name: d.text for d in loaded.documents}, "durable workflows in Python", limit=3)
    assert "temporalio.md" in {hit.name for hit in hits}
    assert [record for record in caplog.records if record.name.startswith("bm25s")] == []
    assert capfd.readouterr() == ("", "")


def test_an_installed_package_is_written_with_its_headers_and_its_description(tmp_path: Path) -> None:
    text = next(path for path in write_package_documents(tmp_path) if path.name == "pydantic.md").read_text()
    assert text.startswith("# pydantic 2.")
    assert "\n- Requires-Python: >=3" in text
    assert "\n# Pydantic" in text
