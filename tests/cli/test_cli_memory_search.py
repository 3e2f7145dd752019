import asyncio
import json
import re
from contextlib import aclosing
from io import StringIO
from pathlib import Path

import pytest

from tests.attacks.test_attacks_web_pages import BEARER, open_site_client
from tests.support.store_values import NOON, make_passage
from waystation.cli.console import PlainConsole
from waystation.cli.main import run
from waystation.client.agent_contexts import NOTHING_FITS, MemoryMatchJson, RecallResultJson
from waystation.config.settings import Settings
from waystation.documents.documents import DocumentPassage
from waystation.kernel.refs import TaskRef
from waystation.memory.passage_builder import build_document_passage
from waystation.memory.passages import EmbeddedPassage, MemoryExcerpt, MemoryQuery
from waystation.runtime.redaction_setup import open_embedder
from waystation.tasks.task import session_hash, tenant_hash
from waystation.workers.memory import MemoryReader, open_memory


@pytest.fixture(autouse=True)
def remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home folder whose memory has a passage of a conversation, and one of a document in another session."""
    for name, value in {"HOME": str(tmp_path), "KEY": bytes(32).hex(), "EMBEDDER": "none"}.items():
        monkeypatch.setenv(f"WAYSTATION_{name}", value)
    tenant, autumn, winter = tenant_hash("local"), session_hash("local", "autumn"), session_hash("local", "winter")
    said = make_passage("0b9f4c3e-8d55-5d0c-9d0b-1f2d6c0a7e11").replace(
        tenant=tenant, session=autumn, text="The bar was said to carry two cables."
    )
    cut = DocumentPassage("pilot.md", "# The bar", 3, 4, "The bar carries two fathoms.")
    ref = TaskRef(store_id="store", tenant=tenant, session=winter, task_id="task-2")

    async def fill() -> None:
        settings = Settings()
        async with open_embedder(settings) as embedder, open_memory(settings, embedder) as memory:
            kept = (said, build_document_passage(ref, cut, "b" * 64, 0, NOON))
            await memory.upsert([EmbeddedPassage(passage=one, dense=None) for one in kept])

    asyncio.run(fill())


def found(capsys: pytest.CaptureFixture[str], *options: str) -> list[dict[str, object]]:
    assert run(["memory", "search", "what does the bar carry?", "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_search_finds_conversations_and_documents_of_all_sessions_or_of_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert {item["kind"] for item in found(capsys)} == {"conversation", "document"}
    (document,) = found(capsys, "--kind", "document")
    assert (document["document"], document["first_line"], document["last_line"]) == ("pilot.md", 3, 4)
    assert document["text"] == "[pilot.md:3-4]\n# The bar\nThe bar carries two fathoms."
    (said,) = found(capsys, "--session", "autumn")
    assert (said["kind"], said["first_message"], said["last_message"]) == ("conversation", "question-1", "reply-1")
    assert found(capsys, "--session", "spring") == []


def test_people_are_told_when_who_and_where_and_nothing_twice(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["memory", "search", "what does the bar carry?"]) == 0
    shown = capsys.readouterr().out
    heads = [line for line in shown.splitlines() if line[:1].isdigit()]
    assert len(heads) == 2
    assert any(
        re.fullmatch(r"\d\. pilot\.md of task-2, 20\d\d-\d\d-\d\d \d\d:\d\d \S+, score [01]\.\d\d, passage p\w{8}", one)
        for one in heads
    )
    assert any(" of task-" in one and "pilot.md" not in one for one in heads)
    assert shown.count("   The bar carries two fathoms.") == 1
    assert "<passage" not in shown
    assert run(["memory", "search", "elephants"]) == 0
    assert "No matches in memory" in capsys.readouterr().err


def test_words_that_match_are_marked_at_a_terminal_and_nothing_else_steers_it(monkeypatch: pytest.MonkeyPatch) -> None:
    console = PlainConsole(highlight=False, emoji=False, file=StringIO(), force_terminal=True, width=80)
    monkeypatch.setattr("waystation.cli.memory.result", console)
    assert run(["memory", "search", "carrying fathom", "--kind", "document"]) == 0
    assert isinstance(console.file, StringIO)
    shown = console.file.getvalue()
    assert re.findall(r"\x1b\[1m(.*?)\x1b\[0m", shown) == ["carries", "fathoms"]


def test_it_is_said_where_nothing_found_has_a_word_of_what_was_looked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said, search = "perhaps memory has nothing that fits", MemoryReader.search
    assert run(["memory", "search", "what does the bar carry?"]) == 0
    assert said not in " ".join(capsys.readouterr().err.split())

    async def nearest(self: MemoryReader, wanted: MemoryQuery, tokens: int) -> tuple[MemoryExcerpt, ...]:
        """As vectors find something whatever is looked for."""
        return await search(self, wanted.replace(text="bar"), tokens)

    monkeypatch.setattr(MemoryReader, "search", nearest)
    assert run(["memory", "search", "elephants"]) == 0
    assert said in " ".join(capsys.readouterr().err.split())


async def test_programs_and_pages_say_too_where_nothing_found_has_a_word_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    search = MemoryReader.search

    async def nearest(self: MemoryReader, wanted: MemoryQuery, tokens: int) -> tuple[MemoryExcerpt, ...]:
        return await search(self, wanted.replace(text="bar"), tokens)

    monkeypatch.setattr(MemoryReader, "search", nearest)
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:9")
    async with open_site_client(Settings()) as asking, aclosing(MemoryReader(Settings())) as memory:
        for query, fits in (("bar", True), ("elephants", False)):
            stretches = (await asking.get("/v1/memory", params={"query": query}, headers=BEARER)).json()
            assert [one["has_words"] for one in stretches] == [fits] * 2
            page = (await asking.get("/memory", params={"query": query}, headers=BEARER)).text
            assert (NOTHING_FITS in page) is not fits
            wanted = MemoryQuery(tenant=tenant_hash("local"), session=None, text=query, dense=None)
            excerpts = await memory.search(wanted, 2_000)
            recalled = RecallResultJson.from_matches(
                tuple(MemoryMatchJson.from_excerpt(one, query) for one in excerpts)
            )
            assert recalled.remark == ("" if fits else NOTHING_FITS)


def test_a_kind_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["memory", "search", "bar", "--kind", "dream"]) == 2
    assert (
        "--kind 'dream' is not a kind of passage: use conversation, document, report or finding"
        in capsys.readouterr().err
    )


def test_where_nothing_fits_the_tokens_or_the_time_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["memory", "search", "what does the bar carry?", "--tokens", "3"]) == 0
    assert "or every match is longer than 3 tokens: raise --tokens" in " ".join(capsys.readouterr().err.split())
    assert run(["memory", "search", "bar", "--since", "2d", "--until", "3d"]) == 2
    assert "nothing can be found: the time `since` (" in capsys.readouterr().err
    assert found(capsys, "--since", "1m") == []
    assert found(capsys, "--until", "1m") != []


@pytest.mark.parametrize("option", ["--session", "--task", "--agent"])
def test_an_empty_filter_is_refused_instead_of_searching_everything(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["memory", "search", "bar", option, ""]) == 2
    assert f"{option} is empty: give a value, or leave it out to search everything" in capsys.readouterr().err
