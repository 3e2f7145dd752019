"""`waystation privacy redact`: a text with its private parts replaced."""

import asyncio
import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from waystation.cli.console import print_exactly, print_json, say
from waystation.cli.options import JsonOption
from waystation.cli.privacy.restored import print_restored
from waystation.domain.errors import BadInput
from waystation.domain.privacy import Place, Policy, Treatment, treatment
from waystation.domain.redaction import Redacted, redaction_notes
from waystation.domain.task import tenant_hash
from waystation.settings import Settings
from waystation.stores import placeholder_key

STDIN = "-"
PLACES = [place for place in Place if treatment(place, Policy.STRICT) is Treatment.NAMES]
"""Those before which something is replaced."""

app = typer.Typer()


@app.command()
def redact(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A text in UTF-8; - reads it from stdin.")],
    policy: Annotated[
        Policy | None, typer.Option("--policy", help="How much is replaced; by default what the settings say.")
    ] = None,
    place: Annotated[
        str,
        typer.Option(
            "--place", help=f"Where the text would go (docs/privacy.md): {', '.join(PLACES)}.", metavar="PLACE"
        ),
    ] = Place.COMPRESSED,
    restore: Annotated[
        bool, typer.Option("--restore", help="The way back: put in what the placeholders of this tenant stand for.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the text as it would go to the summariser and to memory, or to another PLACE.

    JSON has the text and its spans, with offsets in characters of what was read. The placeholders are those of the
    workers that have the same key and tenant; a key that is not there is made, unless the store here knows one. Nothing
    is stored.
    """
    if restore:
        print_restored(read_text(file), as_json=as_json)
        return
    if place not in PLACES:
        raise BadInput(f"no redacted text goes to {place}: choose one of {', '.join(PLACES)}")
    found = asyncio.run(_redacted(read_text(file), Place(place), policy, Settings()))
    for note in redaction_notes(found):
        say(note)
    if as_json:
        print_json(found)
    else:
        print_exactly(found.text)


async def _redacted(text: str, place: Place, policy: Policy | None, settings: Settings) -> Redacted:
    from waystation.redactors import redactor_of  # noqa: PLC0415  it takes seconds, and wrong input should not wait

    with closing(redactor_of(settings, await placeholder_key(settings), policy)) as redactor:
        (found,) = await redactor.redact([text], place, tenant_hash(settings.tenant))
    return found


def read_text(file: str) -> str:
    """The text of a file or of stdin, its line ends kept. Raises BadInput."""
    try:
        read = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror}") from error
    shown = "stdin" if file == STDIN else file
    try:
        text = read.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{shown} is not text in UTF-8 (byte {error.start:,}): convert it first") from None
    if "\x00" in text:
        raise BadInput(f"{shown} is no text: it has NUL bytes")
    return text
