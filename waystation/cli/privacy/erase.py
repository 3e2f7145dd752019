"""`waystation privacy erase`: one person is taken out of everything, with a receipt that has no content."""

import asyncio
from contextlib import suppress
from typing import Annotated

import typer

from waystation.cli.console import confirmed, print_json, print_text, say
from waystation.cli.failures import WORK_FAILED
from waystation.cli.options import JsonOption
from waystation.cli.privacy.find import TypeOption, ValueArgument, given, say_limits, told
from waystation.cli.seeing_through import require_workers
from waystation.client import Client
from waystation.client.erase import Receipt, erase, last_receipt, require_at_rest, under_way
from waystation.client.persons import Search, searching
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
    again: Annotated[
        bool,
        typer.Option(
            "--receipt",
            help="Erase nothing: print the receipt of the last order for this value; one under way is waited for.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Take one person out of everything that this tenant has: `<ERASED>` stands in their place. It cannot be undone.

    Tasks, citations and costs stay. Workflow histories cannot be changed: they are named, or deleted as a whole. Exit
    code 1: the person is nowhere, or was not erased.
    """
    order = _printed_again(given(value), kind) if again else _erase(given(value), kind, histories=histories, yes=yes)
    receipt = asyncio.run(order)
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
            await _say_earlier(search)
            return None
        await require_at_rest(client, settings, found)
        await _say_earlier(search)
        say(told(found))
        if not yes and not await confirmed(f"Put {ERASED} in place of all this? It cannot be undone. [y/N]"):
            say("nothing was erased")
            return None
        await require_workers(client)
        return await erase(search, found, histories=histories)


async def _printed_again(value: str, kind: str | None) -> Receipt | None:
    settings = Settings()
    async with searching(settings, value, kind) as search, await Client.connect(settings) as client:
        if await under_way(search):
            say("an order for this value is under way: its receipt comes when it has been carried out")
            await require_workers(client)
        receipt = await last_receipt(search)
    if receipt is None:
        say("no order for this value was carried out that Temporal still knows (it deletes old workflows)")
    return receipt


async def _say_earlier(search: Search) -> None:
    """What was erased before, by an order whose command perhaps never saw its end. Without a server nobody knows."""
    with suppress(Unreachable):
        if await under_way(search):
            say("an order for this value is under way: `--receipt` waits for it")
        elif (earlier := await last_receipt(search)) is not None:
            say(
                f"an order for this value was carried out {earlier.at:%Y-%m-%d %H:%M} UTC (receipt {earlier.id}): "
                "`--receipt` prints what it did"
            )


def written(receipt: Receipt) -> str:
    """The receipt as text."""
    lines = [
        f"receipt {receipt.id}",
        _erased(receipt),
        f"originals dropped from the vault: {receipt.originals}; files of reports written anew: {receipt.files}; "
        f"workflow histories deleted: {receipt.histories_deleted}",
        *(f"placeholder (SHA-256) {one}" for one in receipt.known_as),
    ]
    if receipt.left:
        lines.append(f"still there: {_counts(receipt.left)}")
    if receipt.histories_left:
        lines.append(f"workflow histories that still have it: {', '.join(receipt.histories_left)}")
    return "\n".join((*lines, STILL))


def _erased(receipt: Receipt) -> str:
    at = f"{receipt.at:%Y-%m-%d %H:%M:%S} UTC"
    if receipt.found:
        return f"erased {at}: {_counts(receipt.found)}"
    return f"carried out {at}: the store had nothing of this value to erase"


def _counts(counts: dict[Whereabouts, int]) -> str:
    return ", ".join(f"{count:,} in {place}" for place, count in counts.items())
