"""`waystation privacy find`: where one person is, by count and place."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

import typer

from waystation.cli.console import print_json, print_text, say, waiting
from waystation.cli.failures import OK, WORK_FAILED
from waystation.cli.options import JsonOption
from waystation.cli.privacy.redact import STDIN, read_text
from waystation.client.persons import Found, searching
from waystation.domain.persons import NearValue, Trace, Whereabouts, summed
from waystation.domain.request_text import counted
from waystation.settings import Settings

ValueArgument = Annotated[
    str,
    typer.Argument(
        metavar="VALUE", help="A name, an address, a number: one value, written as a whole; - reads it from stdin."
    ),
]
TypeOption = Annotated[
    str | None,
    typer.Option("--type", help="What placeholders call it, like PHONE: for a value that the rules do not recognise."),
]
MOST_NEAR = 20
"""Other values that are shown."""
MOST_PLACES = 5
"""Ids of tasks or workflows that are listed beside a count."""

app = typer.Typer()


class FoundNear(Found):
    """Where a person is, and what may be theirs, too."""

    near: tuple[NearValue, ...]


@app.command()
def find(
    value: ValueArgument,
    kind: TypeOption = None,
    near: Annotated[
        bool, typer.Option("--near", help="Also show other values that may be the same person's: this shows content.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Count where this tenant has one person: by placeholder, and as the value is written.

    Nothing of what is there is shown, but for what --near is for. Exit code 0: found; 1: nowhere.
    """
    with waiting("looking for it"):
        found = asyncio.run(_found(given(value), kind, near=near))
    say_limits(found)
    if as_json:
        print_json(found)
    else:
        print_text("\n".join([told(found), *(told_near(found.near) if isinstance(found, FoundNear) else ())]))
    raise typer.Exit(OK if found.traces else WORK_FAILED)


def given(value: str) -> str:
    """The value; from stdin where it should stay out of the shell's history. Raises BadInput."""
    return read_text(value) if value == STDIN else value


async def _found(value: str, kind: str | None, *, near: bool) -> Found:
    async with searching(Settings(), value, kind) as search:
        found = await search.found()
        return FoundNear(**dict(found), near=tuple(await search.near())) if near else found


def say_limits(found: Found) -> None:
    """What was not looked for, and where."""
    if not found.recognised:
        say(
            "no rule recognises this value by itself: it was looked for as it is written, as "
            f"{' and '.join(found.types)}, and by the placeholders whose originals have it; "
            "--type looks for it as another type"
        )
    if found.finding:
        say(found.finding)


def told(found: Found) -> str:
    """A line for each kind of place: how often, and in which tasks."""
    if not found.traces:
        return "found nowhere"
    lines = [f"{count:>6,}  {place}{_where(place, found.traces)}" for place, count in summed(found.traces).items()]
    return "\n".join(lines)


def told_near(near: Sequence[NearValue]) -> list[str]:
    """A line for each other value that may be the same person's, and what to do with them."""
    if not near:
        return ["nothing else stands near it"]
    more = [f"and {len(near) - MOST_NEAR:,} more: --json has all"] if len(near) > MOST_NEAR else []
    return [
        "may be the same person's, too, and are values of their own for find and erase:",
        *(f"  {described(one)}" for one in near[:MOST_NEAR]),
        *more,
    ]


def described(one: NearValue) -> str:
    """A value, what it is, and why it is shown."""
    beside = f"on {counted(one.lines, 'line')} with it" if one.lines else ""
    return f"{one.text} ({', '.join(filter(None, (one.type, 'alike' if one.alike else '', beside)))})"


def _where(place: Whereabouts, traces: Sequence[Trace]) -> str:
    ids = sorted({trace.task_id for trace in traces if trace.place is place and trace.task_id})
    more = f" and {len(ids) - MOST_PLACES} more" if len(ids) > MOST_PLACES else ""
    return f": {', '.join(ids[:MOST_PLACES])}{more}" if ids else ""
