"""`waystation session`: what a session may spend."""

import asyncio
from typing import Annotated

import typer

from waystation.cli.amounts import parse_budget
from waystation.cli.console import print_json, say
from waystation.cli.options import JsonOption
from waystation.client import Client
from waystation.domain.amount import Limit, limit_text
from waystation.domain.value import Value
from waystation.settings import Settings

UNLIMITED = "unlimited"

app = typer.Typer()
session = typer.Typer(name="session", help="Set what a session may spend.", no_args_is_help=True)
app.add_typer(session)


class SessionJson(Value):
    """What `session set` prints. A limit is null in a unit that is not limited."""

    session: str
    limit_tokens: int | None
    limit_usd: float | None


@session.callback()
def _session() -> None:
    """Set what a session may spend."""


@session.command("set")
def set_limit(
    name: Annotated[str, typer.Argument(metavar="SESSION", help="Name of the session.")],
    budget: Annotated[str, typer.Option(help=f"For all its tasks, like 2M, $50, 2M+$50, or {UNLIMITED}.")],
    as_json: JsonOption = False,
) -> None:
    """Set what all tasks of a session may spend together."""
    limit = Limit() if budget == UNLIMITED else parse_budget(budget, "--budget")
    asyncio.run(_set(name, limit))
    say(f"session {name} may spend {limit_text(limit)}")
    if as_json:
        print_json(SessionJson(session=name, limit_tokens=limit.tokens, limit_usd=limit.usd))


async def _set(name: str, limit: Limit) -> None:
    async with await Client.connect(Settings()) as client:
        await client.set_session_limit(name, limit)
