"""`waystation worker`: the workers alone, for a server that runs elsewhere."""

import asyncio

import typer

from waystation.cli.console import say
from waystation.cli.local import stop_on_signals, taken, workers_here
from waystation.domain.errors import WaystationError
from waystation.settings import Settings

app = typer.Typer()


@app.command()
def worker() -> None:
    """Run the workers until Ctrl-C, against the server of TEMPORAL_ADDRESS or of the Temporal profile."""
    asyncio.run(_worker(Settings()))


async def _worker(settings: Settings) -> None:
    if taken(settings):
        raise WaystationError(
            "workers run here already (`waystation status`): stop them with `waystation down`, "
            "or set WAYSTATION_HOME to another folder"
        )
    stop_on_signals()
    try:
        async with workers_here(settings):
            say("workers run; Ctrl-C stops")
            await asyncio.Event().wait()
    except asyncio.CancelledError:
        say("stopped")
