"""`waystation session`: what a session may spend."""

import asyncio
from typing import Annotated

import typer

from waystation.cli.amounts import parse_limit
from waystation.cli.console import say
from waystation.client import Client
from waystation.domain.amount import Limit, limit_text
from waystation.settings import Settings

UNLIMITED = "unlimited"

app = typer.Typer()
session = typer.Typer(name="session", help="Set what a session may spend.", no_args_is_help=True)
app.add_typer(session)


@session.callback()
def _session() -> None:
    """Set what a session may spend."""


@session.command("set")
def set_limit(
    name: Annotated[str, typer.Argument(metavar="SESSION", help="Name of the session.")],
    budget: Annotated[str, typer.Option(help=f"For all its tasks, like 2M, $50, 2M+$50, or {UNLIMITED}.")],
) -> None:
    """Set what all tasks of a session may spend together."""
    limit = Limit() if budget == UNLIMITED else parse_limit(budget, "--budget")
    asyncio.run(_set(name, limit))
    say(f"session {name} may spend {limit_text(limit)}")


async def _set(name: str, limit: Limit) -> None:
    async with await Client.connect(Settings()) as client:
        await client.set_session_limit(name, limit)
