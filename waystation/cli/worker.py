"""`waystation worker`: the workers alone, for a server that runs elsewhere."""

import asyncio
from typing import Annotated

import typer

from waystation.cli.console import say
from waystation.cli.local import taken
from waystation.domain.errors import WaystationError
from waystation.loading import loading
from waystation.settings import Settings

app = typer.Typer()


@app.command()
def worker(
    queues: Annotated[
        str | None,
        typer.Option(help="Serve only these: workflows, agents, context, with commas between. Needs QDRANT_URL."),
    ] = None,
) -> None:
    """Run the workers until Ctrl-C, against the server of TEMPORAL_ADDRESS or of the Temporal profile."""
    settings = Settings() if queues is None else Settings(queues=queues)
    if settings.qdrant_url is None and taken(settings):
        raise WaystationError(
            "workers run here already (`waystation status`): stop them with `waystation down`, "
            "or set WAYSTATION_HOME to another folder"
        )
    # Temporal's SDK comes with this import: whoever asks for help should not wait for it.
    with loading():
        from workers.wiring import serve  # noqa: PLC0415

    asyncio.run(serve(settings, say))
