"""`waystation privacy erase`: one person is taken out of everything, with a receipt that has no content."""

import asyncio
from typing import Annotated

import typer

from waystation.cli.console import confirmed, print_json, print_text, say
from waystation.cli.failures import WORK_FAILED
from waystation.cli.options import JsonOption
from waystation.cli.privacy.find import TypeOption, ValueArgument, given, say_limits, told
from waystation.client import Client
from waystation.client_erase import Receipt, erase, require_at_rest
from waystation.client_persons import searching
from waystation.domain.errors import Unreachable
from waystation.domain.persons import ERASED, Whereabouts
from waystation.settings import Settings

STILL = (
    "Backups of database, memory and Temporal keep what they had, and so do copies of reports elsewhere.\n"
    "A later text may bring the person again, under the same placeholder."
)

app = typer.Typer()


@app.command("erase")
def erase_person(
    value: ValueArgument,
    kind: TypeOption = None,
    histories: Annotated[
        bool,
        typer.Option("--histories", help="Also delete closed workflow histories that have the person, as a whole."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Take one person out of everything that this tenant has: `<ERASED>` stands in their place. It cannot be undone.

    Tasks, citations and costs stay. Workflow histories cannot be changed: they are named, or deleted as a whole. Exit
    code 1: the person is nowhere, or was not erased.
    """
    receipt = asyncio.run(_erase(given(value), kind, histories=histories, yes=yes))
    if receipt is None:
        raise typer.Exit(WORK_FAILED)
    if as_json:
        print_json(receipt)
    else:
        print_text(written(receipt))


async def _erase(value: str, kind: str | None, *, histories: bool, yes: bool) -> Receipt | None:
    settings = Settings()
    async with searching(settings, value, kind) as search, await Client.connect(settings) as client:
        found = await search.found()
        say_limits(found)
        if not found.traces:
            say("found nowhere: there is nothing to erase")
            return None
        await require_at_rest(client, settings, found)
        say(told(found))
        if not yes and not await confirmed(f"Put {ERASED} in place of all this? It cannot be undone. [y/N]"):
            say("nothing was erased")
            return None
        if unattended := await client.unattended_queues():
            raise Unreachable(f"no worker polls {', '.join(unattended)}: start one (`waystation up`), then try again")
        return await erase(search, found, histories=histories)


def written(receipt: Receipt) -> str:
    """The receipt as text."""
    lines = [
        f"receipt {receipt.id}",
        f"erased {receipt.at:%Y-%m-%d %H:%M:%S} UTC: {_counts(receipt.found) or 'nothing in the store'}",
        f"originals dropped from the vault: {receipt.originals}; files of reports written anew: {receipt.files}; "
        f"workflow histories deleted: {receipt.histories_deleted}",
        *(f"placeholder (SHA-256) {one}" for one in receipt.known_as),
    ]
    if receipt.left:
        lines.append(f"still there: {_counts(receipt.left)}")
    if receipt.histories_left:
        lines.append(f"workflow histories that still have it: {', '.join(receipt.histories_left)}")
    return "\n".join((*lines, STILL))


def _counts(counts: dict[Whereabouts, int]) -> str:
    return ", ".join(f"{count:,} in {place}" for place, count in counts.items())
