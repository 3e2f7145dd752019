"""`waystation privacy erase`: one person is taken out of everything, with a receipt that has no content."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
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
from waystation.client.persons import Found, Search, searching, whole
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


class Agreed(NamedTuple):
    """A value that is to be erased, and where it was found."""

    search: Search
    found: Found


async def _erase_all(value: str, kind: str | None, also: Sequence[str], wish: Wish) -> list[Receipt]:
    """Erase the value, those that were named with it, and those that a person at a terminal adds: all are looked at,
    shown and agreed to before the first is erased.
    """
    named = [whole(given(one)) for one in (value, *also)]
    async with AsyncExitStack() as stack:
        desk = _Desk(stack, await stack.enter_async_context(await Client.connect(Settings())), wish)
        first = await desk.agreed(named[0], kind)
        agreed = [first, *[await desk.agreed(one, told_as=one) for one in named[1:]]]
        if first is not None:
            with waiting("looking for what stands near it"):
                near = await first.search.near()
            # The person says yes to each of these by name.
            others = await chosen([one for one in near if one.text not in named], wish)
            sure = replace(desk, wish=wish._replace(yes=True))
            agreed += [await sure.agreed(one, told_as=one) for one in others]
        orders = [one for one in agreed if one is not None]
        if orders:
            await require_workers(desk.client)
        return [await erase(one.search, one.found, histories=wish.histories, tell=say) for one in orders]


@dataclass(frozen=True)
class _Desk:
    """Where values are looked at. The stores that they are found in stay open until all are erased."""

    stack: AsyncExitStack
    client: Client
    wish: Wish

    async def agreed(self, value: str, kind: str | None = None, told_as: str = "") -> Agreed | None:
        """Show where one value is, and ask; None where it is nowhere, or the person says no.

        `told_as`: how it is named in what is said, where it is one of several.
        """
        settings, which = Settings(), f" ({told_as})" if told_as else ""
        search = await self.stack.enter_async_context(searching(settings, value, kind))
        with waiting("looking for it"):
            found = await search.found()
        say_limits(found)
        if not found.traces:
            say(f"found nowhere: there is nothing to erase{which}")
            await _say_earlier(search)
            return None
        await require_at_rest(self.client, settings, found)
        await _say_earlier(search)
        say(told(found))
        question = f"Put {ERASED} in place of all this{which}? It cannot be undone. [y/N]"
        if not self.wish.yes and not await confirmed(question):
            say(f"nothing is erased{which}")
            return None
        return Agreed(search, found)


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
