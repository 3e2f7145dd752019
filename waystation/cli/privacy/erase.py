"""`waystation privacy erase`: one person is taken out of everything, with a receipt that has no content."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, NamedTuple

import typer

from waystation.cli.console import confirmed, print_json, print_text, say, waiting
from waystation.cli.failures import WORK_FAILED
from waystation.cli.options import JsonOption
from waystation.cli.privacy.find import (
    MOST_NEAR,
    TypeOption,
    ValueArgument,
    described,
    given,
    say_limits,
    told,
    told_near,
)
from waystation.cli.seeing_through import require_workers
from waystation.client import Client
from waystation.client.erase import Receipt, erase, last_receipt, require_at_rest, under_way
from waystation.client.persons import Search, searching, whole
from waystation.domain.errors import BadInput, Unreachable
from waystation.domain.persons import ERASED, NearValue, Whereabouts
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
    also: Annotated[
        list[str] | None,
        typer.Option("--also", help="Another value of the same person, erased after it; may be given several times."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Take one person out of everything that this tenant has: `<ERASED>` stands in their place. It cannot be undone.

    What may be the same person's, too, is offered at a terminal, and told elsewhere: a name and an address are two
    values. Tasks, citations and costs stay. Workflow histories cannot be changed: they are named, or deleted as a
    whole. Exit code 1: the person is nowhere, or was not erased.
    """
    if again and also:
        raise BadInput("--receipt and --also exclude each other: ask for the receipt of one value")
    if again:
        receipt = asyncio.run(_printed_again(given(value), kind))
        receipts = [receipt] if receipt is not None else []
    else:
        receipts = asyncio.run(_erase_all(value, kind, also or [], Wish(histories, yes)))
    if not receipts:
        raise typer.Exit(WORK_FAILED)
    if as_json:
        print_json(receipts if also or len(receipts) > 1 else receipts[0])
    else:
        print_text("\n\n".join([*map(written, receipts), STILL]))


class Wish(NamedTuple):
    """How to erase."""

    histories: bool
    yes: bool
    """Nobody is asked."""


async def _erase_all(value: str, kind: str | None, also: Sequence[str], wish: Wish) -> list[Receipt]:
    """Erase the value, then those that were named with it and those that a person at a terminal adds."""
    named = [whole(given(one)) for one in (value, *also)]
    others: list[str] = []
    receipts = [await _erase(named[0], kind, wish, others, named[1:])]
    receipts += [await _erase(one, None, wish) for one in named[1:]]
    # The person said yes to each of these by name.
    receipts += [await _erase(one, None, wish._replace(yes=True)) for one in others]
    return [one for one in receipts if one is not None]


async def _erase(
    value: str, kind: str | None, wish: Wish, others: list[str] | None = None, named: Sequence[str] = ()
) -> Receipt | None:
    """Erase one value; None where it is nowhere, or the person says no.

    `others` gets those that the person says are the same person's; those that were `named` are not offered.
    """
    settings = Settings()
    async with searching(settings, value, kind) as search, await Client.connect(settings) as client:
        with waiting("looking for it"):
            found = await search.found()
            near = await search.near() if others is not None and found.traces else ()
        say_limits(found)
        if not found.traces:
            say(f"found nowhere: there is nothing to erase{f' ({value})' if others is None else ''}")
            await _say_earlier(search)
            return None
        await require_at_rest(client, settings, found)
        await _say_earlier(search)
        say(told(found))
        meant = f"Put {ERASED} in place of all this" + (f" ({value})" if others is None else "")
        if not wish.yes and not await confirmed(f"{meant}? It cannot be undone. [y/N]"):
            say("nothing was erased")
            return None
        if others is not None:
            others += await chosen([one for one in near if one.text not in named], wish)
        await require_workers(client)
        return await erase(search, found, histories=wish.histories, tell=say)


async def chosen(near: Sequence[NearValue], wish: Wish) -> list[str]:
    """Those of other values that the person says are the same person's; where nobody is asked, they are told."""
    if not wish.yes:
        offered = near[:MOST_NEAR]
        return [one.text for one in offered if await confirmed(f"Erase {described(one)}, too? [y/N]")]
    if near:
        say("\n".join(told_near(near)))
    return []


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
    return "\n".join(lines)


def _erased(receipt: Receipt) -> str:
    at = f"{receipt.at:%Y-%m-%d %H:%M:%S} UTC"
    if receipt.found:
        return f"erased {at}: {_counts(receipt.found)}"
    return f"carried out {at}: the store had nothing of this value to erase"


def _counts(counts: dict[Whereabouts, int]) -> str:
    return ", ".join(f"{count:,} in {place}" for place, count in counts.items())
