"""Where output goes: results to stdout, everything said on the way to stderr; and questions at a terminal.

Whatever is printed passes here, so that no document, model or name of a file steers anybody's terminal.
"""

import asyncio
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext

from pydantic import BaseModel, TypeAdapter
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from waystation.domain.errors import BadInput
from waystation.domain.plain import plain, plain_json


class PlainConsole(Console):
    """A console on which only its own styles steer the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """See `Console`; what is foreign in the words is shown instead of sent."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain(segment.text), segment.style)


result = PlainConsole(highlight=False, emoji=False)
progress = PlainConsole(stderr=True, highlight=False, emoji=False)


def say(text: str) -> None:
    """Tell the person something that is no result."""
    progress.print(text, markup=False, soft_wrap=True)


def print_text(text: str) -> None:
    """Print a result as it is."""
    result.print(text, markup=False, soft_wrap=True)


def print_json(value: BaseModel | Sequence[BaseModel]) -> None:
    """Print a result for programs: one JSON value, which says everything as it is."""
    print_text(plain_json(TypeAdapter(type(value)).dump_json(value, indent=2).decode()))


def print_exactly(text: str) -> None:
    """Print a text that is to be the same in a file; a terminal gets it as `print_text` has it, without a line end."""
    sys.stdout.write(plain(text) if sys.stdout.isatty() else text)


def waiting(words: str) -> AbstractContextManager[object]:
    """Show at a terminal that something goes on."""
    return progress.status(words) if progress.is_terminal else nullcontext()


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
