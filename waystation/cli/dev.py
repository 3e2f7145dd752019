"""`waystation dev`: server and workers in the foreground."""

import asyncio

import typer

from waystation.cli.console import say
from waystation.cli.local import running_locally, say_where, stop_on_signals, while_alive
from waystation.settings import Settings, unknown_variables

app = typer.Typer()


@app.command()
def dev() -> None:
    """Run a Temporal dev server with UI, and the workers, until Ctrl-C. Everything is kept in the home folder."""
    for sentence in unknown_variables():
        say(sentence)
    asyncio.run(_dev(Settings()))


async def _dev(settings: Settings) -> None:
    stop_on_signals(lambda: say("stopping: agents end their turns; Ctrl-C again stops at once"))
    try:
        async with running_locally(settings) as run:
            say_where(run)
            say(f"home {settings.home}")
            say("Ready: `waystation submit QUESTION --docs PATH` in another terminal. Ctrl-C stops.")
            await while_alive(run)
    except asyncio.CancelledError:
        say("stopped; tasks go on when it runs again")
