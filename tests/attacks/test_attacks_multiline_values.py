"""What is private by the lines around it stays hidden however an agent asks for it.

Numbered, from the middle, found by a search, cut by a small page or by a long line, as a page of the web, and as what a
tool server returned: of each structure nothing is shown that is not shown of the whole text.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest

from tests.attacks.structures import PASSWORD, STRUCTURES, Structure
from tests.support.agent_environment import NOON, AgentEnvironment, ManualClock, make_tool_use
from tests.support.scopes import SYSTEM_SCOPE
from waystation.agents.roles import AgentDeps
from waystation.agents.tools.documents import LINE_CHARACTERS
from waystation.agents.tools.tool import McpTool, Tool
from waystation.agents.tools.web import FetchPageTool
from waystation.documents.documents import SourceDocument
from waystation.documents.redacted_documents import RedactedDocumentStore
from waystation.documents.web_pages import WebPage, build_web_page
from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.runtime.sql_store import SqlStore
from waystation.security.untrusted import MAX_RESULT_CHARACTERS, UntrustedToolResult, UntrustedToolSpec
from waystation.security.web_addresses import DomainPolicy
from waystation.testing.doubles import FakeToolServers

ABOVE, BELOW = "# Harbour notes\n\nThe bar moved.\n\n", "\nThe end of it.\n"
PAGE = "https://example.org/notes"
SPEC = UntrustedToolSpec(
    server="shop", tool="look", name="shop__look", description="Looks.", input_schema={"type": "object"}, read_only=True
)
calls = count()


@dataclass
class Shelf:
    """A `WebPageFetcher` that has one text."""

    text: str

    async def fetch(self, url: str) -> WebPage:
        """See `WebPageFetcher`."""
        return build_web_page(url, self.text, NOON)

    async def aclose(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class ReaderEnvironments:
    """Desks with the redactor of a worker, on one store, each for a task of its own."""

    store: SqlStore
    redactor: PresidioRedactor
    store_id: str

    async def task(self, *documents: SourceDocument) -> "Reader":
        """A task with these documents."""
        env = AgentEnvironment(
            store=self.store, clock=ManualClock(), store_id=self.store_id, task_id=f"task-{next(calls)}"
        )
        await env.open_task(documents)
        return Reader(env, self.redactor)


@dataclass(frozen=True)
class Reader:
    """An agent that asks for everything."""

    env: AgentEnvironment
    redactor: PresidioRedactor

    @property
    def redacted(self) -> RedactedDocumentStore:
        return RedactedDocumentStore(self.env.store, self.redactor)

    def desk(self) -> AgentDeps:
        return replace(self.env.agent_deps, redactor=self.redactor, redacted_documents=self.redacted)

    async def call(self, name: str, /, *tools: Tool, window: int = 20_000, **arguments: object) -> str:
        """What it is shown: by this one of its tools, or of those given."""
        env, call_id = self.env, f"call-{next(calls)}"
        box = self.desk().build_role_toolbox("research")
        box = replace(box, tools=tools) if tools else box
        result = await box.run(
            make_tool_use(name, call_id, **arguments), await env.make_tool_context(call_id=call_id, window=window)
        )
        return result.content


@pytest.fixture(scope="session")
def presidio() -> Iterator[PresidioRedactor]:
    """Loading its engines takes seconds, so all tests share them."""
    with closing(PresidioRedactor(bytes(32))) as redactor:
        yield redactor


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store to copy."""
    path = tmp_path_factory.mktemp("stores") / "waystation.db"

    async def prepare() -> None:
        await (await SqlStore.open(f"sqlite+aiosqlite:///{path}", lambda: NOON)).aclose()

    asyncio.run(prepare())
    return path


@pytest.fixture
async def reader_envs(empty: Path, tmp_path: Path, presidio: PresidioRedactor) -> AsyncIterator[ReaderEnvironments]:
    path = shutil.copy(empty, tmp_path / "waystation.db")
    store = await SqlStore.open(f"sqlite+aiosqlite:///{path}", lambda: NOON)
    yield ReaderEnvironments(store, presidio, await store.get_store_id())
    await store.aclose()


def given(structure: Structure, name: str = "notes.md") -> SourceDocument:
    return SourceDocument(name=name, text=ABOVE + structure.text + BELOW)


def leaked(structure: Structure, *shown: str) -> list[str]:
    """The planted values of which two thirds or more stand in any of these."""
    return [value for value in structure.planted for text in shown if value[: len(value) * 2 // 3] in text]


def leaks(shown: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """What was shown by the names of structures: of each of which something leaked, what."""
    found = {structure.name: leaked(structure, *shown[structure.name]) for structure in STRUCTURES}
    return {name: values for name, values in found.items() if values}


async def test_numbered_lines_show_nothing(reader_envs: ReaderEnvironments) -> None:
    shown, again = dict[str, str](), dict[str, str]()
    for structure in STRUCTURES:
        reader = await reader_envs.task(given(structure))
        shown[structure.name] = await reader.call("read_document", name="notes.md")
        again[structure.name] = await reader.call("read_document", name="notes.md")
    assert leaks({name: [text] for name, text in shown.items()}) == {}
    kept = {name: ("3| The bar moved." in text, text.splitlines()[-1]) for name, text in shown.items()}
    assert kept == {one.name: (True, f"{len(given(one).text.splitlines())}| The end of it.") for one in STRUCTURES}
    assert again == shown


async def test_a_reading_that_begins_in_the_midst_shows_nothing(reader_envs: ReaderEnvironments) -> None:
    shown = dict[str, list[str]]()
    for structure in STRUCTURES:
        document = given(structure)
        reader = await reader_envs.task(document)
        numbers = range(5, len(document.text.splitlines()) + 1)
        shown[structure.name] = [
            *[await reader.call("read_document", name="notes.md", first_line=one) for one in numbers],
            *[await reader.call("read_document", name="notes.md", first_line=one, last_line=one) for one in numbers],
        ]
    assert leaks(shown) == {}


async def test_a_search_shows_nothing_and_confirms_nothing(reader_envs: ReaderEnvironments) -> None:
    shown, confirmed = dict[str, list[str]](), dict[tuple[str, str], str]()
    for structure in STRUCTURES:
        reader = await reader_envs.task(given(structure), SourceDocument(name="other.md", text="Beacons by night.\n"))
        queries = ("harbour notes bar end", " ".join(structure.text.split())[:900])
        shown[structure.name] = [await reader.call("search_documents", query=query) for query in queries]
        for value in structure.planted:
            # As a guess, whole or in part, beside a word that stands nowhere.
            for guess in (value, value.replace(" ", "")[: len(value) // 2], value.split("-")[0]):
                found = await reader.call("search_documents", query=f"zebra {guess}")
                if not found.startswith("No passage matches."):
                    confirmed[structure.name, guess] = found
    assert leaks(shown) == {}
    assert [(name, text) for name, texts in shown.items() for text in texts if "[notes.md:" not in text] == []
    assert confirmed == {}


async def test_a_small_page_shows_nothing(reader_envs: ReaderEnvironments) -> None:
    shown = dict[str, list[str]]()
    for structure in STRUCTURES:
        reader = await reader_envs.task(given(structure))
        shown[structure.name] = [
            await reader.call("read_document", name="notes.md", window=window, first_line=first)
            for window in (60, 120, 240)
            for first in (1, 5, 6)
        ]
    assert leaks(shown) == {}


async def test_a_page_of_the_web_shows_nothing(reader_envs: ReaderEnvironments) -> None:
    shown, stored = dict[str, list[str]](), dict[str, list[str]]()
    for structure in STRUCTURES:
        reader = await reader_envs.task()
        text = given(structure).text
        tool = FetchPageTool(Shelf(text), reader.env.store, reader.redacted, DomainPolicy(allow=("example.org",)))
        numbers = range(1, len(text.splitlines()) + 1)
        pages = [await reader.call("fetch_page", tool, url=PAGE, first_line=one) for one in numbers]
        kept = pages[0].partition('kept="')[2].partition('"')[0]
        shown[structure.name] = pages
        stored[structure.name] = [await reader.call("read_stored", id=kept, first=first) for first in (0, 40, 60)]
    assert leaks(shown) == {}
    assert leaks(stored) == {}


async def test_what_a_tool_server_returned_shows_nothing(reader_envs: ReaderEnvironments) -> None:
    shown = dict[str, list[str]]()
    for structure in STRUCTURES:
        reader = await reader_envs.task()
        shown[structure.name] = [await reader.call("shop__look", foreign(reader, given(structure).text))]
    assert leaks(shown) == {}


async def test_a_result_that_is_too_large_is_redacted_before_its_ends_are_cut(reader_envs: ReaderEnvironments) -> None:
    results, read = dict[str, str](), dict[str, list[str]]()
    for structure in STRUCTURES:
        reader = await reader_envs.task()
        # The head ends within the structure, wherever that begins.
        head = "x " * 970
        text = head + "\n" + structure.text + "\n" + "y " * 4_000 + "\n" + structure.text
        result = await reader.call("shop__look", foreign(reader, text), window=8_000)
        stored = result.partition("read_stored with id ")[2].partition(" ")[0]
        results[structure.name] = result
        read[structure.name] = [
            await reader.call("read_stored", id=stored, first=first, window=8_000) for first in range(1_900, 2_300, 40)
        ]
    assert [name for name, result in results.items() if "is not shown" not in result] == []
    assert leaks({name: [results[name], *read[name]] for name in results}) == {}


def foreign(reader: Reader, text: str) -> McpTool:
    return McpTool(SPEC, FakeToolServers([SPEC], [UntrustedToolResult(text=text)]), reader.redactor)


async def test_a_line_that_is_cut_within_a_secret_shows_no_half_of_it(reader_envs: ReaderEnvironments) -> None:
    shown = dict[int, str]()
    for before in range(LINE_CHARACTERS - 40, LINE_CHARACTERS + 1, 5):
        line = ("word " * before)[: before - 10] + f" password={PASSWORD}" + " and more" * 300
        reader = await reader_envs.task(SourceDocument(name="long.md", text=line))
        read = await reader.call("read_document", name="long.md")
        shown[before] = read + await reader.call("search_documents", query="word more password")
    assert {before: text for before, text in shown.items() if PASSWORD[:6] in text} == {}


@pytest.mark.parametrize("before", [15, 7, 1])
async def test_a_result_that_is_cut_within_a_secret_shows_no_half_of_it(
    before: int, reader_envs: ReaderEnvironments
) -> None:
    rows = "row of numbers\n" * (MAX_RESULT_CHARACTERS // 15 + 1)
    text = rows[: MAX_RESULT_CHARACTERS - before - 10] + f"\npassword={PASSWORD}\n" + "more rows\n" * 5_000
    reader = await reader_envs.task()
    shown = await reader.call("shop__look", foreign(reader, text))
    assert "Cut here: the result had" in shown
    assert PASSWORD[:6] not in shown


async def test_a_document_of_all_structures_keeps_its_lines_for_citations(reader_envs: ReaderEnvironments) -> None:
    text = "\n\n".join(ABOVE + one.text + BELOW for one in STRUCTURES)
    reader = await reader_envs.task(SourceDocument(name="all.md", text=text))
    (document,) = await reader.env.store.list_documents(reader.env.task_id, SYSTEM_SCOPE)
    lines = (await reader.redacted.get_redacted_text(document.blob, reader.env.ref.scope)).lines
    given = text.splitlines()
    assert len(lines) == len(given) == document.lines
    assert [number for number, line in enumerate(given) if line == "The end of it."] == [
        number for number, line in enumerate(lines) if line == "The end of it."
    ]
