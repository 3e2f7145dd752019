"""Another tenant of the same store: none of its tasks is there, whatever is asked about it."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.support.finished_tasks import store_finished_task
from waystation.cli.main import run
from waystation.client import Client
from waystation.client.store_queries import restore_task_text
from waystation.config.settings import Settings
from waystation.kernel.errors import UnknownTask
from waystation.tasks.signals import ContextEditInput

EDIT = ContextEditInput(action="rewind", agent="writing", message="m")
LOOKS: dict[str, Callable[[Client, str], Awaitable[object]]] = {
    "progress": lambda client, task: client.get_task(task),
    "watch": lambda client, task: anext(client.watch(task)),
    "report": lambda client, task: client.get_report(task),
    "draft": lambda client, task: client.build_draft(task),
    "bill": lambda client, task: client.get_bill(task),
    "transcript": lambda client, task: client.get_transcript(task, "writing"),
    "audits": lambda client, task: client.audit_compactions(task),
    "approve": lambda client, task: client.approve(task),
    "deny": lambda client, task: client.deny(task),
    "edit": lambda client, task: client.edit_context(task, EDIT),
    "cancel": lambda client, task: client.cancel(task),
}


@pytest.fixture
def theirs(ended_id: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Id of a task of the default tenant, looked at by another one; the server does not answer."""
    monkeypatch.setenv("WAYSTATION_TENANT", "other")
    return ended_id


@pytest.mark.parametrize(
    "command",
    [
        ["show"],
        ["show", "--json"],
        ["watch"],
        ["report"],
        ["report", "--draft"],
        ["report", "--restore"],
        ["cost"],
        ["transcript"],
        ["transcript", "--agent", "writing"],
        ["compact", "--agent", "writing"],
        ["pin", "--agent", "writing", "--message", "m1"],
        ["restore", "--agent", "writing", "--compaction", "c1"],
        ["rewind", "--agent", "writing", "--to", "m1"],
        ["cancel"],
        ["approve"],
        ["deny"],
        ["context", "audit"],
        ["memory", "forget", "--yes", "--task"],
    ],
    ids=" ".join,
)
def test_no_command_knows_the_task(command: list[str], theirs: str, capsys: pytest.CaptureFixture[str]) -> None:
    cut = 2 if command[0] == "context" else len(command) if command[-1] == "--task" else 1
    assert run([*command[:cut], theirs, *command[cut:]]) == 2
    told = capsys.readouterr()
    said = (
        f"waystation: no task in this store has an id that starts with '{theirs}': "
        "`waystation list` shows the newest tasks\n"
    )
    assert (told.out, told.err) == ("", said)


def test_the_list_is_empty(theirs: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "--json"]) == 0
    assert theirs not in capsys.readouterr().out
    assert run(["list", "--session", "default", "--json"]) == 0
    assert theirs not in capsys.readouterr().out


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
async def test_the_client_does_not_know_it_by_its_whole_id(
    look: Callable[[Client, str], Awaitable[object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    task_id = await store_finished_task(Settings(home=tmp_path / "home"))
    async with await Client.connect(Settings(home=tmp_path / "home", tenant="other")) as client:
        assert await client.list_tasks() == ()
        with pytest.raises(UnknownTask, match=f"^no task {task_id} in this store"):
            await look(client, task_id)
    with pytest.raises(UnknownTask, match=f"^no task {task_id} in this store"):
        await restore_task_text(Settings(home=tmp_path / "home", tenant="other"), task_id, "text")
