"""`show --tools` on a store with a task that has ended; neither server nor worker is there."""

import asyncio
import shutil
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from tests.support.agent_environment import TASK
from tests.support.agent_fixtures import open_agent_environment
from waystation.cli.main import run
from waystation.cli.tools import AgentTools
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.usage import Usage
from waystation.tasks.task import BudgetProgress, StepProgress, TaskPhase, TaskProgress


def progress() -> TaskProgress:
    steps = (
        StepProgress(id="research-1", role="research", state="done", legs=1, usage=Usage()),
        StepProgress(id="writing", role="writing", state="working", legs=1, usage=Usage()),
    )
    budget = BudgetProgress(limit=Limit(tokens=9_000), spent=Amount(), reserved=Amount())
    return TaskProgress(task_id=TASK, phase=TaskPhase.DONE, title="Why?", model="m", steps=steps, budget=budget)


async def ended(store: Path) -> None:
    async with open_agent_environment(store) as env:
        await env.store.save_task_progress(TASK, progress())


@pytest.fixture(autouse=True)
def home(prepared_stores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(prepared_stores / "planned.db", tmp_path / "waystation.db")
    asyncio.run(ended(tmp_path / "waystation.db"))
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "none.toml"))
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    return tmp_path


def test_the_tools_of_each_agent_stand_with_what_is_hidden_and_why(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WAYSTATION_TOOLS_DENIED", "compute")
    monkeypatch.setenv("WAYSTATION_WEB", "true")
    monkeypatch.setenv("WAYSTATION_ENVIRONMENT", "production")
    assert run(["show", TASK, "--tools", "--json"]) == 0
    research, writing = TypeAdapter(list[AgentTools]).validate_json(capsys.readouterr().out)
    assert (research.agent, research.phase) == ("research-1", "finished")
    assert (writing.agent, writing.phase) == ("writing", "executing")
    assert research.budget == 2_200
    assert [tool.limits for tool in research.shown if tool.limits] == [
        ("url an address in an allowed domain, but no domain is allowed",)
    ]
    assert {tool.name: tool.reason for tool in research.hidden} == {
        "calculate": "the settings deny compute",
        "query_table": "the settings deny compute",
        "delegate": "this agent may not start subagents",
    }
    assert "web_search" not in {tool.name for tool in (*writing.shown, *writing.hidden)}


def test_one_agent_is_shown_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", TASK, "--tools", "--agent", "writing"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith(f"writing, executing: {len(lines)} tools, ")
    assert "delegate" not in {line.split()[0] for line in lines}, "a writer delegates nothing"


def test_a_server_that_does_not_start_stands_there_with_the_reason(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "mcp.json").write_text('{"mcpServers": {"clock": {"command": "/no/such/program"}}}')
    monkeypatch.setenv("WAYSTATION_TOOL_SERVERS", str(home / "mcp.json"))
    assert run(["show", TASK, "--tools", "--agent", "research-1"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.split()[:2] == ["clock", "0"]


def test_an_unknown_agent_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", TASK, "--tools", "--agent", "cook"]) != 0
    assert "has no agent 'cook'" in capsys.readouterr().err


def test_nothing_is_redacted_so_that_no_key_is_made(home: Path) -> None:
    assert run(["show", TASK, "--tools"]) == 0
    assert not (home / "key").exists()
