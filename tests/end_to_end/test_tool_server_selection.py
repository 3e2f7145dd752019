"""Tool servers and skills by task: who names them has them, whoever does not has neither, and no secret is kept."""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from tests.end_to_end.harbour_documents import QUESTION, write_harbour_documents
from tests.end_to_end.messages_server import run_server
from tests.end_to_end.scripted_messages_server import ScriptedMessagesServer
from tests.end_to_end.shell import Shell, is_paused
from tests.end_to_end.test_crash_recovery import run_local_platform
from tests.end_to_end.test_serve import start_server_process
from tests.end_to_end.transcripts import ToolCallResult, load_tool_calls
from tests.support.free_ports import find_free_port
from waystation.plugins.offline.responses import build_call

SECRET, VAULTED = "wiki-5up3r-s3cr3t-value", "wiki-k3pt-in-the-vault"
WIKI = """
import os, sys
from pathlib import Path
from mcp.server.mcpserver import MCPServer

server = MCPServer("wiki")

@server.tool()
def stamp(page: str) -> str:
    tokens = " and ".join((os.environ["WIKI_TOKEN"], os.environ["WIKI_USER"]))
    Path(sys.argv[1]).write_text(tokens)
    return f"{page} was stamped with {tokens}"

server.run()
"""
SKILL = "---\nname: tide-tables\ndescription: How to read tide tables.\n---\nRead `datum.md` first.\n"
DATUM = "Heights are over chart datum.\n"
CALLS = [
    build_call("read_skill", name="tide-tables"),
    build_call("read_skill_file", skill="tide-tables", file="datum.md"),
    build_call("wiki__stamp", page="Nordvik"),
]


@dataclass(frozen=True)
class Work:
    """Three tasks of which one names the server and the skill, one goes on with its session, and one does neither."""

    told: str
    """What was said when the first was submitted."""
    asked: str
    """What it asked a person."""
    named: list[ToolCallResult]
    followed: list[ToolCallResult]
    unnamed: list[ToolCallResult]
    report: str
    stamp: str
    """What the server had as its token."""
    refused: str
    posted: dict[str, Any]
    """The answer to a task that was handed in over HTTP with the name of no server."""
    kept: bytes
    """All files of the home folder."""


def agreed(shell: Shell, task: str) -> str:
    """The words of the call that its researcher asks about, which is then allowed."""
    seen = shell.wait_for_task(task, is_paused, 240, "the question")
    (asked,) = [one for one in seen.approvals if one.action is not None]
    done = shell.run("approve", task, "--request", asked.request_id)
    assert done.returncode == 0, done.stderr
    return "" if asked.action is None else asked.action.text


def ended(shell: Shell, task: str) -> list[ToolCallResult]:
    """What its researcher called, once it is over."""
    assert shell.approve_until_over(task) == "done"
    return [one for one in load_tool_calls(shell, task, "research-1") if one.tool in {each.name for each in CALLS}]


def post(shell: Shell, **fields: object) -> dict[str, Any]:
    """Hand a task in over HTTP."""
    port = find_free_port()
    with start_server_process(shell.home, port, shell.settings) as (running, token):
        try:
            answer = httpx2.post(
                f"http://127.0.0.1:{port}/v1/tasks",
                json={"question": QUESTION, "documents": [{"name": "a.md", "text": "# A\n"}], **fields},
                headers={"Authorization": f"Bearer {token}"},
                timeout=60,
            )
        finally:
            running.send_signal(signal.SIGINT)
            running.communicate(timeout=60)
    return {"status": answer.status_code, **answer.json()}


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Work]:
    folder = tmp_path_factory.mktemp("named")
    documents, config, skill = (
        write_harbour_documents(folder / "harbours"),
        folder / "mcp.json",
        folder / "skills" / "tides",
    )
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(SKILL, encoding="utf-8")
    (skill / "datum.md").write_text(DATUM, encoding="utf-8")
    (folder / "wiki.py").write_text(WIKI, encoding="utf-8")
    arguments = [str(folder / "wiki.py"), str(folder / "stamp")]
    env = {"WIKI_TOKEN": "${WIKI_TOKEN}", "WIKI_USER": "${secret:WIKI}"}
    entry = {"command": sys.executable, "args": arguments, "env": env, "by_name": True}
    config.write_text(json.dumps({"mcpServers": {"wiki": entry}}), encoding="utf-8")
    given = ("--docs", str(documents), "--detach")
    settings = {"WAYSTATION_TOOL_SERVERS": str(config), "WIKI_TOKEN": SECRET}
    with ExitStack() as stack:
        server = stack.enter_context(run_server(ScriptedMessagesServer(delay=0.0, scripts={"research-1": [CALLS]})))
        kept = Shell(folder / "home", {}).run("secrets", "set", "WIKI", typed=f"{VAULTED}\n")
        assert kept.returncode == 0, kept.stderr
        shell = stack.enter_context(run_local_platform(folder / "home", server, **settings))
        first = shell.run(
            "submit", QUESTION, *given, "--session", "S", "--servers", "wiki", "--skills", str(folder / "skills")
        )
        assert first.returncode == 0, first.stderr
        task = first.stdout.split()[0]
        asked = agreed(shell, task)
        named = ended(shell, task)
        report = shell.run("report", task).stdout
        follow_up = str(shell.run_json("submit", QUESTION, "--session", "S", "--detach")["task_id"])
        agreed(shell, follow_up)
        followed = ended(shell, follow_up)
        unnamed = ended(shell, str(shell.run_json("submit", QUESTION, *given)["task_id"]))
        refused = shell.run("submit", QUESTION, *given, "--servers", "wik")
        posted = post(shell, servers=["wik"])
        shell.run("down")
        files = b"".join(path.read_bytes() for path in shell.home.rglob("*") if path.is_file())
        stamp = (folder / "stamp").read_text(encoding="utf-8")
        yield Work(first.stderr, asked, named, followed, unnamed, report, stamp, refused.stderr, posted, files)


pytestmark = pytest.mark.timeout(900)


def test_what_a_task_names_is_told_when_it_is_submitted(work: Work) -> None:
    told = " ".join(work.told.split())
    assert "Tool servers: wiki." in told
    assert "Agents follow the skill tide-tables in the folder tides, 2 files (sha256 " in told


def test_a_skill_is_read_and_its_files_are(work: Work) -> None:
    skill, datum, _ = work.named
    assert skill.text.startswith('<procedure name="tide-tables">\nRead `datum.md` first.\n</procedure>')
    assert datum.text == f'<procedure name="tide-tables" file="datum.md">\n{DATUM}\n</procedure>'
    assert "- Procedure followed: tides, SHA-256 `" in work.report


def test_a_server_that_a_task_names_is_called_once_a_person_has_agreed(work: Work) -> None:
    assert "May the tool stamp of the tool server wiki be called" in work.asked
    tokens = "[secret] and [secret]"
    assert f'server="wiki" tool="stamp">\nNordvik was stamped with {tokens}\n</foreign>' in work.named[-1].text


def test_a_session_goes_on_with_its_servers_and_not_with_its_skills(work: Work) -> None:
    assert [(one.tool, one.is_error) for one in work.followed] == [
        ("read_skill", True),
        ("read_skill_file", True),
        ("wiki__stamp", False),
    ]


def test_a_task_that_names_nothing_has_neither(work: Work) -> None:
    assert [one.is_error for one in work.unnamed] == [True, True, True]
    assert all("There is no tool" in one.text for one in work.unnamed)


def test_a_name_that_the_file_does_not_have_is_refused_with_those_that_it_has(work: Work) -> None:
    assert "has no tool server 'wik'" in work.refused
    assert work.posted["status"] == 400
    assert "it has wiki" in work.posted["detail"]


def test_secrets_that_the_file_refers_to_reach_their_server_and_are_kept_nowhere_but_sealed(work: Work) -> None:
    assert work.stamp == f"{SECRET} and {VAULTED}"
    assert SECRET.encode() not in work.kept
    assert VAULTED.encode() not in work.kept
