"""Everything is killed right after somebody ordered to erase a person: the order is carried out all the same."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.harbour_documents import QUESTION, write_harbour_documents
from tests.end_to_end.messages_server import run_messages_server
from tests.end_to_end.shell import Shell
from tests.end_to_end.test_crash_recovery import kill_everything, run_local_platform
from tests.support.temporal_platform import wait_until
from waystation.client import Client
from waystation.client.erasure import is_erasure_running, require_tasks_finished
from waystation.client.person_search import open_person_search
from waystation.config.settings import Settings
from waystation.kernel.errors import BadInput
from waystation.runtime.temporal.run_file import read_run_file

MAIL = "ada.lovelace@example.com"


async def until_at_rest() -> None:
    """The task's documents are in memory: before that, nobody is erased."""
    settings = Settings()
    async with open_person_search(settings, MAIL, None) as search, await Client.connect(settings) as client:
        found = await search.find_locations()
        assert found.traces

        async def rests() -> bool:
            try:
                await require_tasks_finished(client, settings, found)
            except BadInput:
                return False
            return True

        await wait_until(rests)


async def until_ordered() -> int:
    """The order is with the server; returns how often the person is still there."""
    async with open_person_search(Settings(), MAIL, None) as search:
        await wait_until(lambda: is_erasure_running(search))
        return sum(trace.count for trace in (await search.find_locations()).traces)


@contextmanager
def standing_still(home: Path) -> Generator[None]:
    """Workers that stand still take no order: what is killed meanwhile has carried out nothing."""
    run = read_run_file(home / "run.json")
    assert run is not None
    workers = psutil.Process(run.workers.pid)
    workers.suspend()
    try:
        yield
    finally:
        with suppress(psutil.NoSuchProcess):  # it was killed
            workers.resume()


@contextmanager
def ordered(shell: Shell, log: Path) -> Generator[None]:
    """A command to erase the person, which is killed in the end."""
    command = shell.start("privacy", "erase", MAIL, "--yes", log=log)
    try:
        yield
    finally:
        command.kill()
        command.wait()


@pytest.mark.timeout(600)
def test_an_erasure_whose_command_and_platform_are_killed_as_it_begins_ends_by_itself_and_has_a_receipt(
    tmp_path: Path,
) -> None:
    folder = write_harbour_documents(tmp_path / "harbours")
    (folder / "letter.md").write_text(f"The harbour of Nordvik was closed by silt, wrote {MAIL} in 1872.\n")
    with run_messages_server(delay=0.0) as server, run_local_platform(tmp_path / "home", server) as shell:
        task = str(shell.run_json("submit", QUESTION, "--docs", str(folder), "--detach")["task_id"])
        assert shell.approve_until_over(task) == "done"
        with shell.own_environment():
            asyncio.run(until_at_rest())
            with standing_still(shell.home), ordered(shell, tmp_path / "erase.log"):
                there = asyncio.run(until_ordered())
                kill_everything(shell.home)
        assert there > 0

        assert shell.run("up").returncode == 0
        receipt = shell.run_json("privacy", "erase", MAIL, "--receipt")
        found = shell.run("privacy", "find", MAIL)
        assert receipt["found"]["documents"] >= 1
        assert (receipt["left"], receipt["originals"]) == ({}, 1)
        assert receipt["known_as"]
        assert (found.returncode, found.stdout) == (1, "Not found.\n")
