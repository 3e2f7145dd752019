"""`waystation up`: server and workers in the background."""

import asyncio
import os
import subprocess
from pathlib import Path

import typer

from waystation.adapters.temporal.connect import find_target
from waystation.adapters.temporal.run_file import RunFile, read_run_file
from waystation.adapters.temporal.tasks import TemporalTasks
from waystation.children import python, search_path
from waystation.cli.console import say
from waystation.cli.local import refuse_named_server, say_where, taken
from waystation.domain.errors import Unreachable
from waystation.private_files import opened_private, own_folder
from waystation.settings import Settings, unknown_variables

START_SECONDS = 90
POLL_SECONDS = 0.5

app = typer.Typer()


@app.command()
def up() -> None:
    """Start `waystation dev` in the background; it outlives this terminal. `waystation down` stops it."""
    for sentence in unknown_variables():
        say(sentence)
    run = asyncio.run(_up(Settings()))
    say_where(run)


async def _up(settings: Settings) -> RunFile:
    refuse_named_server()
    log = settings.logs_folder / "dev.log"
    process = None if taken(settings) else _start(log)
    try:
        async with asyncio.timeout(START_SECONDS):
            # Two may start at once: whichever lost waits for the other.
            while (process is not None and process.poll() is None) or taken(settings):
                run = read_run_file(settings.run_file)
                if run is not None and run.workers.find() is not None and await _workers_poll(settings):
                    if process is None or run.workers.pid != process.pid:
                        say("it runs already")
                    return run
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError as error:
        if process is not None:
            process.terminate()
        raise Unreachable(f"it was not ready in {START_SECONDS} s: {log}") from error
    raise Unreachable(f"it ended before it was ready: {_last_line(log)} ({log})")


def _start(log: Path) -> subprocess.Popen[bytes]:
    own_folder(log.parent)
    with opened_private(log) as output:
        return subprocess.Popen(
            python("waystation.cli.main", "dev"),
            # The workers read settings and keys from it.
            env={**os.environ, "PYTHONPATH": "", **search_path()},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


async def _workers_poll(settings: Settings) -> bool:
    try:
        temporal = await TemporalTasks.connect(find_target(settings.run_file))
        return not await temporal.unattended_queues()
    except Unreachable:
        return False


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
