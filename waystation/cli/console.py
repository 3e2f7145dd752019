"""Where output goes: results to stdout, everything said on the way to stderr; and questions at a terminal."""

import asyncio
import sys
from collections.abc import Sequence

from pydantic import BaseModel, TypeAdapter
from rich.console import Console

from waystation.domain.errors import BadInput

result = Console(highlight=False, emoji=False)
progress = Console(stderr=True, highlight=False, emoji=False)


def say(text: str) -> None:
    """Tell the person something that is no result."""
    progress.print(text, markup=False, soft_wrap=True)


def print_text(text: str) -> None:
    """Print a result as it is."""
    result.print(text, markup=False, soft_wrap=True)


def print_json(value: BaseModel | Sequence[BaseModel]) -> None:
    """Print a result for programs: one JSON value."""
    print_text(TypeAdapter(type(value)).dump_json(value, indent=2).decode())


def can_ask() -> bool:
    """Whether a person sits at a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


async def ask(question: str) -> str:
    """One line from the terminal; the event loop goes on meanwhile."""
    progress.print(question, markup=False, end=" ", soft_wrap=True)
    loop = asyncio.get_running_loop()
    typed = asyncio.Event()
    loop.add_reader(sys.stdin, typed.set)
    try:
        await typed.wait()
    finally:
        loop.remove_reader(sys.stdin)
    return sys.stdin.readline().strip()


async def confirmed(question: str) -> bool:
    """Whether the person at the terminal says yes to what cannot be undone. Raises BadInput where nobody sits there."""
    if not can_ask():
        raise BadInput("this cannot be undone, and nobody can be asked here: say --yes")
    return (await ask(question)).casefold() in {"y", "yes"}
