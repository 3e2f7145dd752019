"""Hooks as real programs and over real HTTP on loopback: what they are told, and how they can fail."""

import asyncio
import json
import logging
import os
import shlex
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path

import psutil
import pytest
from pydantic import JsonValue, SecretStr

from tests.support.free_ports import find_free_port
from tests.support.webhook_server import BODY, NO_RESPONSE, SECRET, WebhookResponse, WebhookServer, run_webhook_server
from waystation.context.compaction import CompactionEvent
from waystation.context.ports import CompactionHook
from waystation.kernel.errors import BadInput, HookFailed
from waystation.runtime.hooks import CommandCompactionHook, HttpCompactionHook
from waystation.testing.doubles import RecordingHook

EVENT = CompactionEvent(
    event="before",
    trigger="auto",
    task="task-1",
    agent="research-1",
    run_id="task-1/research-1",
    strategy="window",
    tokens=15_200,
    window=20_000,
)
TOLD: dict[str, JsonValue] = {
    "event": "before",
    "trigger": "auto",
    "task": "task-1",
    "agent": "research-1",
    "run_id": "task-1/research-1",
    "strategy": "window",
    "tokens": 15_200,
    "window": 20_000,
}
WRITES = "import os, sys; open(sys.argv[1], 'a').write(sys.stdin.read())"


def python(script: str, *arguments: object, patience_s: float = 30.0) -> CommandCompactionHook:
    """A program of this interpreter. Isolated, and without `site`, which would take long to load."""
    line = [sys.executable, "-I", "-S", "-c", script, *map(str, arguments)]
    return CommandCompactionHook("compaction_before", line, patience_s)


@asynccontextmanager
async def posting(server: WebhookServer, patience_s: float = 30.0) -> AsyncGenerator[HttpCompactionHook]:
    async with aclosing(HttpCompactionHook("compaction_after", SecretStr(server.url), patience_s)) as hook:
        yield hook


async def failure(hook: CompactionHook) -> str:
    with pytest.raises(HookFailed) as failed:
        await hook.call(EVENT)
    return str(failed.value)


# ------------------------------------------------------------------------------------------------------------ programs


async def test_a_program_is_told_on_its_standard_input_and_exit_code_0_is_success(tmp_path: Path) -> None:
    await python(WRITES, tmp_path / "told").call(EVENT)
    assert json.loads((tmp_path / "told").read_text()) == TOLD


async def test_a_program_that_reads_nothing_is_none_the_worse() -> None:
    await python("").call(EVENT)


async def test_an_exit_code_is_a_failure_and_nothing_that_the_program_said_is_repeated(
    capfd: pytest.CaptureFixture[str],
) -> None:
    said = await failure(python("import sys; print('hush'); print('hush', file=sys.stderr); sys.exit(3)", "s3cret"))
    assert said == f"compaction_before ({Path(sys.executable).name}) ended with exit code 3"
    assert capfd.readouterr() == ("", "")


async def test_a_signal_is_a_failure() -> None:
    said = await failure(python("import os; os.kill(os.getpid(), 15)"))
    assert said.endswith(" was ended by signal 15")


async def test_a_program_sees_nothing_of_the_environment_but_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "hush")
    monkeypatch.setenv("LANG", "C.UTF-8")
    script = "import json, os, sys; json.dump(dict(os.environ), open(sys.argv[1], 'w'))"
    await python(script, tmp_path / "seen").call(EVENT)
    seen = BODY.validate_json((tmp_path / "seen").read_text())
    assert seen["PATH"] == os.environ["PATH"]
    assert seen.keys() <= {"PATH", "HOME", "LANG", "LC_CTYPE", "__CF_USER_TEXT_ENCODING"}  # the last two are Python's


async def test_no_shell_reads_the_line(tmp_path: Path) -> None:
    script = "import json, sys; json.dump(sys.argv[2:], open(sys.argv[1], 'w'))"
    await python(script, tmp_path / "seen", "$HOME", "; touch x", "*").call(EVENT)
    assert json.loads((tmp_path / "seen").read_text()) == ["$HOME", "; touch x", "*"]


STARTS_ANOTHER = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, '-I', '-S', '-c', 'import time; time.sleep(600)'])
with open(sys.argv[1] + '.new', 'w') as file:
    file.write(str(child.pid))
import os
os.rename(sys.argv[1] + '.new', sys.argv[1])
time.sleep(600)
"""


async def until_there(path: Path) -> None:
    while not path.exists():
        await asyncio.sleep(0.02)


def runs(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


async def until_gone(pid: int) -> None:
    while runs(pid):
        await asyncio.sleep(0.02)


async def test_a_program_that_takes_too_long_is_ended_with_what_it_started(tmp_path: Path) -> None:
    said = await failure(python(STARTS_ANOTHER, tmp_path / "pid", patience_s=5))
    assert said.endswith(" did not end within 5 s")
    await until_gone(int((tmp_path / "pid").read_text()))


async def test_a_cancelled_compaction_ends_its_hook(tmp_path: Path) -> None:
    calling = asyncio.create_task(python(STARTS_ANOTHER, tmp_path / "pid").call(EVENT))
    await until_there(tmp_path / "pid")
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    await until_gone(int((tmp_path / "pid").read_text()))


MEETS = """
import os, sys, time
folder = sys.argv[1]
open(os.path.join(folder, str(os.getpid())), 'w').close()
while len(os.listdir(folder)) < 3:
    time.sleep(0.01)
"""


async def test_hooks_of_several_compactions_run_at_once(tmp_path: Path) -> None:
    """Each waits until all are there."""
    hook = python(MEETS, tmp_path)
    await asyncio.gather(*(hook.call(EVENT) for _ in range(3)))
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("line", ["nowhere-to-be-found", "/nowhere/to-be-found", "TOKEN=s3cret true", "~/hook.sh"])
def test_a_program_that_is_not_there_is_refused_and_not_shown(line: str) -> None:
    with pytest.raises(BadInput) as refused:
        CommandCompactionHook("compaction_before", shlex.split(line))
    assert str(refused.value).startswith("its program does not exist or is not executable: give ")
    assert line.split(maxsplit=1)[0] not in str(refused.value)


async def test_a_program_that_has_gone_since_is_a_failure(tmp_path: Path) -> None:
    program = tmp_path / "hook.sh"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    hook = CommandCompactionHook("compaction_before", [str(program)])
    await hook.call(EVENT)
    program.unlink()
    assert await failure(hook) == "compaction_before (hook.sh) could not be started (FileNotFoundError)"


# ----------------------------------------------------------------------------------------------------------- addresses


async def test_an_address_is_posted_to_and_success_is_success() -> None:
    async with run_webhook_server(WebhookResponse(204)) as server, posting(server) as hook:
        await hook.call(EVENT)
    assert server.asked == [(204, TOLD)]


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
async def test_any_other_status_is_a_failure_and_nothing_is_sent_again(status: int) -> None:
    async with run_webhook_server(WebhookResponse(status)) as server, posting(server) as hook:
        said = await failure(hook)
    assert said == f"compaction_after (127.0.0.1) answered {status}"
    assert len(server.asked) == 1


async def test_a_redirect_is_not_followed() -> None:
    async with run_webhook_server() as elsewhere:
        redirect = WebhookResponse(307, {"Location": elsewhere.url})
        async with run_webhook_server(redirect) as server, posting(server) as hook:
            said = await failure(hook)
    assert said == "compaction_after (127.0.0.1) answered 307, a redirect, which is not followed"
    assert elsewhere.asked == []


async def test_a_server_that_hangs_is_given_up_and_one_that_is_not_there_is_a_failure() -> None:
    async with run_webhook_server(NO_RESPONSE) as server, posting(server, patience_s=2) as hook:
        assert await failure(hook) == "compaction_after (127.0.0.1) did not answer within 2 s"
    async with posting(WebhookServer([], f"http://127.0.0.1:{find_free_port()}/{SECRET}")) as hook:
        assert await failure(hook) == "the connection to compaction_after (127.0.0.1) failed: nothing listens there"


@pytest.mark.parametrize(
    "answers",
    [(WebhookResponse(),), (WebhookResponse(500),), (WebhookResponse(302, {"Location": "/"}),), (NO_RESPONSE,)],
)
async def test_path_and_answer_are_in_no_log_and_no_error(
    answers: Sequence[WebhookResponse], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    said = ""
    async with run_webhook_server(*answers) as server, posting(server, patience_s=0.5) as hook:
        try:
            await hook.call(EVENT)
        except HookFailed as error:
            said = f"{error}{error.__cause__}{error.__suppress_context__ or error.__context__}"
        said += repr(hook)
    written = said + "".join(record.getMessage() for record in caplog.records if "httpx" in record.name)
    assert SECRET not in written
    assert "must not be repeated" not in written


# -------------------------------------------------------------------------------------------- the contract of the port


Told = Callable[[], Sequence[JsonValue]]


@asynccontextmanager
async def programs(folder: Path) -> AsyncGenerator[tuple[CompactionHook, CompactionHook, Told]]:
    told = folder / "told"
    yield (
        python(WRITES, told),
        python("raise SystemExit(1)"),
        lambda: [*map(BODY.validate_json, told.read_text().splitlines())],
    )


@asynccontextmanager
async def addresses(_: Path) -> AsyncGenerator[tuple[CompactionHook, CompactionHook, Told]]:
    async with AsyncExitStack() as stack:
        works, fails = [
            await stack.enter_async_context(run_webhook_server(WebhookResponse(status))) for status in (200, 500)
        ]
        hooks = [await stack.enter_async_context(posting(server)) for server in (works, fails)]
        yield hooks[0], hooks[1], lambda: works.accepted_bodies


@asynccontextmanager
async def doubles(_: Path) -> AsyncGenerator[tuple[CompactionHook, CompactionHook, Told]]:
    works, fails = RecordingHook(), RecordingHook()
    fails.failing = True
    yield works, fails, lambda: [BODY.validate_json(event.json_line) for event in works.events]


@pytest.mark.parametrize("kind", [programs, addresses, doubles])
async def test_programs_addresses_and_the_double_are_told_once_a_call_or_say_that_they_failed(
    kind: Callable[[Path], AbstractAsyncContextManager[tuple[CompactionHook, CompactionHook, Told]]], tmp_path: Path
) -> None:
    async with kind(tmp_path) as (works, fails, told):
        await works.call(EVENT)
        await works.call(EVENT)
        assert told() == [TOLD, TOLD]
        await failure(fails)
