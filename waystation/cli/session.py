"""`waystation session`: what a session may spend."""

import asyncio
from typing import Annotated

import typer

from waystation.cli.amounts import parse_tokens
from waystation.cli.console import say
from waystation.client import Client
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
    budget: Annotated[str, typer.Option(help=f"Fresh tokens of all its tasks together, like 2M, or {UNLIMITED}.")],
) -> None:
    """Set what all tasks of a session may spend together."""
    tokens = None if budget == UNLIMITED else parse_tokens(budget, "--budget")
    asyncio.run(_set(name, tokens))
    say(f"session {name} may spend {UNLIMITED if tokens is None else f'{tokens:,} tokens'}")


async def _set(name: str, tokens: int | None) -> None:
    async with await Client.connect(Settings()) as client:
        await client.set_session_limit(name, tokens)
