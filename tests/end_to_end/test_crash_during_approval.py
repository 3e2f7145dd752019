"""Everything is killed while a person is asked about a call: the question stays, and its call is made once."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.harbour_documents import QUESTION, write_harbour_documents
from tests.end_to_end.messages_server import HoldableMessagesServer, run_server
from tests.end_to_end.scripted_messages_server import ScriptedMessagesServer
from tests.end_to_end.shell import Shell, assert_no_committed_turn_repeated, is_paused
from tests.end_to_end.test_crash_recovery import kill_everything, run_local_platform
from tests.end_to_end.transcripts import load_tool_calls
from waystation.plugins.offline.responses import build_call

LETTERS = Path(__file__).with_name("letter_server.py")
WHOM = "the keeper of Nordvik"
SEND = build_call("letters__send", to=WHOM)


@dataclass
class Agents(HoldableMessagesServer, ScriptedMessagesServer):
    """Make the scripted calls, and think only while they are let."""


def inbox(shell: Shell) -> list[dict[str, Any]]:
    """What waits for an answer."""
    listed = shell.run("approvals", "--json")
    assert listed.returncode == 0, listed.stderr
    return [entry["approval"] for entry in json.loads(listed.stdout)]


@pytest.mark.timeout(600)
def test_an_open_question_survives_kill_9_under_its_id_is_answered_once_and_its_call_is_made_once(
    tmp_path: Path,
) -> None:
    documents, config, sent = (
        write_harbour_documents(tmp_path / "harbours"),
        tmp_path / "mcp.json",
        tmp_path / "sent.txt",
    )
    letters = {"command": sys.executable, "args": [str(LETTERS), str(sent)]}
    config.write_text(json.dumps({"mcpServers": {"letters": letters}}), encoding="utf-8")
    script = {"research-1": [[SEND]]}
    with (
        run_server(Agents(delay=0.0, scripts=script)) as server,
        run_local_platform(tmp_path / "home", server, WAYSTATION_TOOL_SERVERS=str(config)) as shell,
    ):
        server.goes_on.set()
        task = str(shell.run_json("submit", QUESTION, "--docs", str(documents), "--detach")["task_id"])
        shell.wait_for_task(task, is_paused, 240, "the question")
        before = inbox(shell)
        kill_everything(shell.home)
        assert not sent.exists()
        assert shell.run("up").returncode == 0

        assert inbox(shell) == before
        (asked,) = before
        assert WHOM in asked["action"]["text"]
        server.goes_on.clear()
        answers = [shell.run("approve", task, "--request", asked["request_id"], "--by", "Ada") for _ in range(2)]
        server.goes_on.set()
        assert shell.approve_until_over(task) == "done"
        assert [answer.returncode == 0 for answer in answers] == [True, False]
        assert f"refused: the request {asked['request_id']} was already approved" in answers[1].stderr

        assert sent.read_text() == f"{WHOM}\n"
        (result,) = [one for one in load_tool_calls(shell, task, "research-1") if one.tool == SEND.name]
        assert f"sent to {WHOM}" in result.text
        assert [one["decision"] for one in shell.run_json("show", task)["approvals"]] == ["approved"]
        assert_no_committed_turn_repeated(server, shell)
