"""`waystation down`: what `up` or `dev` started ends."""

import time

import typer

from waystation.adapters.temporal.run_file import ProcessMark, read_run_file, remove_run_file
from waystation.cli.console import say
from waystation.settings import Settings

WIND_DOWN_SECONDS = 40
"""Workers let running activities reach a safe point first."""
POLL_SECONDS = 0.1

app = typer.Typer()


@app.command()
def down() -> None:
    """Stop server and workers on this machine. Tasks go on when they run again."""
    settings = Settings()
    run = read_run_file(settings.run_file)
    if run is None:
        say("nothing runs here")
        return
    # The workers' process takes its server with it; the server is ended here only where that process was killed.
    running = [mark for mark in (run.workers, run.server) if _end(mark)]
    remove_run_file(settings.run_file, run)
    say("stopped; tasks go on where they were after `waystation up`" if running else "nothing ran any more")


def _end(mark: ProcessMark) -> bool:
    process = mark.find()
    if process is None:
        return False
    process.terminate()
    deadline = time.monotonic() + WIND_DOWN_SECONDS
    while time.monotonic() < deadline:
        if mark.find() is None:
            return True
        time.sleep(POLL_SECONDS)
    process.kill()
    return True
