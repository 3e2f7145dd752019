"""`transcript` and `context audit` on a store in which the condenser has worked; neither server nor worker is there."""

import asyncio
import fcntl
import json
import shutil
from pathlib import Path

import pytest
from pydantic import JsonValue, TypeAdapter

from tests.support.agent_environment import NAME
from tests.support.agent_fixtures import open_agent_environment
from tests.support.audited_conversation import commit_audited_conversation, make_audited_summary
from tests.support.full_context import run_compaction
from tests.support.scopes import SYSTEM_SCOPE
from waystation.cli.main import run
from waystation.config.settings import Settings
from waystation.context.history import build_model_view
from waystation.kernel.value import Value
from waystation.memory.embedders.local import create_default_embedder
from waystation.memory.passages import EmbeddedPassage
from waystation.testing.doubles import ScriptedModel
from waystation.workers.memory import open_memory

AGENT = ("task-1", "--agent", "research-1")
Json = dict[str, JsonValue]


async def compacted(store: Path) -> None:
    async with open_agent_environment(store) as env:
        await commit_audited_conversation(env)
        await run_compaction(env, ScriptedModel([make_audited_summary()]))


@pytest.fixture(scope="session")
def worked(prepared_stores: Path) -> Path:
    """A store in which the context of one agent was compacted."""
    store = prepared_stores / "compacted.db"
    shutil.copy(prepared_stores / "planned.db", store)
    asyncio.run(compacted(store))
    return store


@pytest.fixture
def home(worked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with a copy of that store."""
    folder = tmp_path / "home"
    folder.mkdir()
    shutil.copy(worked, folder / "waystation.db")
    monkeypatch.setenv("WAYSTATION_HOME", str(folder))
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "none.toml"))
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    monkeypatch.delenv("QDRANT_URL", raising=False)
    return folder


async def delegated(store: Path) -> None:
    """A subagent has said the same, and its context was compacted the same."""
    async with open_agent_environment(store) as env:
        log, run = await env.load_transcript(), env.run_ref().replace(step_id="research-1.1")
        await env.store.open_run(run)
        fence = await env.store.acquire_fence(run.run_id)
        for message in log.messages:
            await env.store.commit_message(
                fence, (await env.store.load_transcript(run.run_id, SYSTEM_SCOPE)).version, message
            )
        version = (await env.store.load_transcript(run.run_id, SYSTEM_SCOPE)).version
        await env.store.commit_compaction(fence, version, log.compactions[0], (), None)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Json:
    assert run([*arguments, "--json"]) == 0
    return TypeAdapter(Json).validate_json(capsys.readouterr().out)


async def seen(home: Path) -> list[str]:
    async with open_agent_environment(home / "waystation.db") as env:
        return [message.model_dump_json() for message in build_model_view(await env.load_transcript())]


async def remembered(settings: Settings) -> None:
    """Bring the passages into embedded memory, as a worker does."""
    embedder = create_default_embedder()
    async with (
        open_agent_environment(settings.home / "waystation.db") as env,
        open_memory(settings, embedder) as memory,
    ):
        passages = await env.store.list_task_passages("task-1", SYSTEM_SCOPE)
        vectors = await embedder.embed([passage.text for passage in passages])
        embedded = zip(passages, vectors, strict=True)
        await memory.upsert([EmbeddedPassage(passage=passage, dense=dense) for passage, dense in embedded])


def test_a_transcript_has_every_message_and_the_summary_at_its_place(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert home.exists()
    assert run(["transcript", *AGENT]) == 0
    lines = capsys.readouterr().out.splitlines()
    places = [number for number, line in enumerate(lines) if line.startswith(("[m", "── "))]
    headings = [lines[place] for place in places]
    assert headings[0] == "[m1] user"
    assert headings[1].startswith("── summary ")
    short = headings[1].split()[2]
    assert headings[2] == f"[m2] assistant · hidden by summary {short}"
    assert len(headings) == 28


def test_what_the_model_sees_is_printed_instead(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed(capsys, "transcript", *AGENT, "--view")
    assert shown["run_id"] == "task-1/research-1"
    assert shown["messages"] == [json.loads(message) for message in asyncio.run(seen(home))]
    assert run(["transcript", *AGENT, "--view"]) == 0
    text = capsys.readouterr().out
    assert "<earlier_conversation>" in text
    assert "[m2]" not in text


class Kind(Value):
    """What `--json` says of one kind."""

    found: int
    summary: int
    ledger: int
    elsewhere: int
    lost: int
    recallable: int
    examples: list[Json]


class Compaction(Value):
    """What it says of one compaction."""

    type: str
    strategy: str
    hidden: list[str]
    earlier: list[str]
    kinds: dict[str, Kind]


class Agent(Value):
    """What it says of one agent."""

    agent: str
    compactions: list[Compaction]


class Report(Value):
    """What it prints."""

    recall: str
    agents: list[Agent]


def audited(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[Report, str]:
    """What it prints, and what it says beside."""
    assert run(["context", "audit", *arguments, "--json"]) == 0
    told = capsys.readouterr()
    return Report.model_validate_json(told.out, extra="ignore"), told.err


def test_an_audit_without_memory_says_so_and_takes_the_passages_in_the_store(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, said = audited(capsys, *AGENT, "--sample", "2")
    assert said.startswith("Memory cannot be searched (this home folder has no memory yet).")
    assert not (home / "memory").exists()
    assert report.recall == "passages"
    (compaction,) = report.agents[0].compactions
    assert (compaction.type, compaction.strategy, compaction.hidden[0]) == ("summarised", "window", "m2")
    codes, demands = compaction.kinds["codes"], compaction.kinds["constraints"]
    assert (codes.found, codes.summary) == (160, 1)
    assert codes.found == codes.summary + codes.ledger + codes.elsewhere + codes.lost
    assert codes.lost == codes.recallable > 0
    assert [example["recallable"] for example in codes.examples] == [True, True]
    assert (demands.found, demands.ledger, demands.lost, demands.examples) == (1, 1, 0, [])


def test_an_audit_asks_the_memory_that_agents_ask(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(remembered(Settings()))
    report, said = audited(capsys, *AGENT)
    assert (report.recall, said) == ("memory", "")
    assert report.agents[0].compactions[0].kinds["codes"].recallable > 0
    with (home / "memory.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        report, said = audited(capsys, *AGENT)
    assert report.recall == "passages"
    assert said.startswith("Memory cannot be searched (a worker has it open).")


def test_subagents_are_audited_like_agents_of_the_plan(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(delegated(home / "waystation.db"))
    report, _ = audited(capsys, "task-1")
    assert [one.agent for one in report.agents] == ["research-1", "research-1.1"]
    assert audited(capsys, "task-1", "--agent", "research-1.1")[0].agents == report.agents[1:]
    assert run(["transcript", "task-1", "--agent", "research-1.1"]) == 0


def test_an_audit_is_a_table_with_examples_of_what_is_lost(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert home.exists()
    assert run(["context", "audit", "task-1", "--sample", "1"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("research-1  ")
    assert NAME not in text
    lines = text.splitlines()
    assert lines[1].split() == ["found", "summary", "ledger", "elsewhere", "lost", "recallable"]
    assert sum(line.startswith("  lost codes: E4") for line in lines) == 1
    assert any(line.split() == ["constraints", "1", "0", "1", "0", "0", "0"] for line in lines)


def test_an_audit_of_agents_whose_contexts_were_never_full_finds_nothing(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert home.exists()
    assert run(["context", "audit", "task-1", "--agent", "analysis"]) == 0
    assert capsys.readouterr() == ("No compaction hides any messages.\n", "")
    assert run(["context", "audit", "task-1", "--agent", "nobody"]) == 2
    assert "task-1 has no agent 'nobody'; it has research-1" in capsys.readouterr().err
