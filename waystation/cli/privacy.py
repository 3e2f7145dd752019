"""`waystation privacy`: redacts a text or restores its originals, and finds or erases one person."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from waystation.cli.console import (
    OK,
    WORK_FAILED,
    ask_confirmation,
    print_json,
    print_message,
    print_text,
    print_verbatim,
    show_spinner,
)
from waystation.cli.follow import require_workers
from waystation.cli.options import JsonOption
from waystation.cli.render_context import format_restored_counts
from waystation.client import Client
from waystation.client.erasure import (
    PersonErasureReceipt,
    is_erasure_running,
    load_last_receipt,
    require_tasks_finished,
    run_erasure,
)
from waystation.client.person_search import PersonLocations, PersonSearch, normalize_search_value, open_person_search
from waystation.client.store_queries import restore_tenant_text
from waystation.config.settings import Settings
from waystation.erasure.erasure import (
    ERASED_MARKER,
    ErasureMatch,
    RelatedValue,
    sum_matches_by_location,
)
from waystation.kernel.erasure_locations import ErasureLocation
from waystation.kernel.errors import BadInput, Unreachable
from waystation.kernel.text import format_count
from waystation.privacy.policy import (
    RedactionLevel,
    RedactionPolicy,
    RedactionResult,
    TextDestination,
    build_redaction_notes,
    get_redaction_level,
)
from waystation.runtime.store_setup import find_placeholder_key
from waystation.tasks.task import tenant_hash


def print_restored(text: str, *, as_json: bool) -> None:
    """Print the text, with a message on how many placeholders were not restored. Raises BadInput for the wrong key."""
    found = asyncio.run(restore_tenant_text(Settings(), text))
    print_message(format_restored_counts(found))
    if as_json:
        print_json(found)
    else:
        print_verbatim(found.text)


_STDIN = "-"
PLACES = [
    place for place in TextDestination if get_redaction_level(place, RedactionPolicy.STRICT) is RedactionLevel.NAMES
]
"""Destinations for which anything is replaced."""

app = typer.Typer()
privacy = typer.Typer(
    name="privacy", help="Replace what is private in a text; find or erase one person.", no_args_is_help=True
)
app.add_typer(privacy)


@privacy.callback()
def _privacy() -> None:
    """Replace what is private in a text; find or erase one person."""


@privacy.command()
def redact(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A text in UTF-8; - reads it from stdin.")],
    policy: Annotated[
        RedactionPolicy | None,
        typer.Option("--policy", help="How much is replaced; by default what the settings say."),
    ] = None,
    place: Annotated[
        str,
        typer.Option(
            "--place",
            help=f"Where the text would go (docs/reference/redaction.md): {', '.join(PLACES)}.",
            metavar="PLACE",
        ),
    ] = TextDestination.COMPRESSED,
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
        print_restored(_read_text(file), as_json=as_json)
        return
    if place not in PLACES:
        raise BadInput(f"no redacted text goes to {place}: choose one of {', '.join(PLACES)}")
    found = asyncio.run(_redacted(_read_text(file), TextDestination(place), policy, Settings()))
    for note in build_redaction_notes(found):
        print_message(note)
    if as_json:
        print_json(found)
    else:
        print_verbatim(found.text)


async def _redacted(
    text: str, place: TextDestination, policy: RedactionPolicy | None, settings: Settings
) -> RedactionResult:
    from waystation.runtime.redaction_setup import create_redactor  # noqa: PLC0415  it takes seconds, and wrong input should not wait

    with closing(create_redactor(settings, await find_placeholder_key(settings), policy)) as redactor:
        (found,) = await redactor.redact([text], place, tenant_hash(settings.tenant))
    return found


def _read_text(file: str) -> str:
    """Read the text of a file or of stdin with its line ends. Raises BadInput."""
    try:
        read = sys.stdin.buffer.read() if file == _STDIN else Path(file).read_bytes()
    except OSError as error:
        raise BadInput(f"{file} cannot be read: {error.strerror}") from error
    shown = "stdin" if file == _STDIN else file
    try:
        text = read.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{shown} is not text in UTF-8 (byte {error.start:,}): convert it first") from None
    if "\x00" in text:
        raise BadInput(f"{shown} is no text: it has NUL bytes")
    return text


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
MAX_NEAR_VALUES = 20
"""Maximum number of related values that are shown."""
MAX_PLACES = 5
"""Maximum number of task or workflow ids that are listed with a count."""


class PersonFindResult(PersonLocations):
    """Where a person occurs, with values that may also be theirs."""

    near: tuple[RelatedValue, ...]


@privacy.command()
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
    with show_spinner("looking for it"):
        found = asyncio.run(_found(_given(value), kind, near=near))
    print_search_limits(found)
    if as_json:
        print_json(found)
    else:
        print_text(
            "\n".join(
                [
                    format_found_places(found),
                    *(format_near_values(found.near) if isinstance(found, PersonFindResult) else ()),
                ]
            )
        )
    raise typer.Exit(OK if found.traces else WORK_FAILED)


def _given(value: str) -> str:
    """Return the value; from stdin if it should stay out of the shell's history. Raises BadInput."""
    return _read_text(value) if value == _STDIN else value


async def _found(value: str, kind: str | None, *, near: bool) -> PersonLocations:
    async with open_person_search(Settings(), value, kind) as search:
        found = await search.find_locations()
        return PersonFindResult(**dict(found), near=tuple(await search.find_near_values())) if near else found


def print_search_limits(found: PersonLocations) -> None:
    """Print what was not searched for, and where."""
    if not found.recognised:
        print_message(
            "no rule recognises this value by itself: it was looked for as it is written, as "
            f"{' and '.join(found.types)}, and by the placeholders whose originals have it; "
            "--type looks for it as another type"
        )
    if found.finding:
        print_message(found.finding)


def format_found_places(found: PersonLocations) -> str:
    """Format one line per kind of location: how often, and in which tasks."""
    if not found.traces:
        return "found nowhere"
    lines = [
        f"{count:>6,}  {place}{_where(place, found.traces)}"
        for place, count in sum_matches_by_location(found.traces).items()
    ]
    return "\n".join(lines)


def format_near_values(near: Sequence[RelatedValue]) -> list[str]:
    """Format one line per related value, and what to do with them."""
    if not near:
        return ["nothing else stands near it"]
    more = [f"and {len(near) - MAX_NEAR_VALUES:,} more: --json has all"] if len(near) > MAX_NEAR_VALUES else []
    return [
        "may be the same person's, too, and are values of their own for find and erase:",
        *(f"  {_described(one)}" for one in near[:MAX_NEAR_VALUES]),
        *more,
    ]


def _described(one: RelatedValue) -> str:
    """Format a value, its type, and why it is shown."""
    beside = f"on {format_count(one.lines, 'line')} with it" if one.lines else ""
    return f"{one.text} ({', '.join(filter(None, (one.type, 'alike' if one.alike else '', beside)))})"


def _where(place: ErasureLocation, traces: Sequence[ErasureMatch]) -> str:
    ids = sorted({trace.task_id for trace in traces if trace.place is place and trace.task_id})
    more = f" and {len(ids) - MAX_PLACES} more" if len(ids) > MAX_PLACES else ""
    return f": {', '.join(ids[:MAX_PLACES])}{more}" if ids else ""


STILL = (
    "Backups of database, memory and Temporal keep what they had, and so do copies of reports elsewhere.\n"
    "A later text may bring the person again, under the same placeholder."
)


@privacy.command("erase")
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
        receipt = asyncio.run(_printed_again(_given(value), kind))
        receipts = [receipt] if receipt is not None else []
    else:
        receipts = asyncio.run(_erase_all(value, kind, also or [], ErasureOptions(histories, yes)))
    if not receipts:
        raise typer.Exit(WORK_FAILED)
    if as_json:
        print_json(receipts if also or len(receipts) > 1 else receipts[0])
    else:
        print_text("\n\n".join([*map(format_receipt, receipts), STILL]))


class ErasureOptions(NamedTuple):
    """Options of an erasure."""

    histories: bool
    yes: bool
    """Do not ask for confirmation."""


class ErasureTarget(NamedTuple):
    """A value to erase, and where it was found."""

    search: PersonSearch
    found: PersonLocations


async def _erase_all(
    value: str, kind: str | None, also: Sequence[str], wish: ErasureOptions
) -> list[PersonErasureReceipt]:
    """Erase the value, those named with it, and those that a person adds at the terminal.

    All are searched for, shown and confirmed before the first is erased.
    """
    named = [normalize_search_value(_given(one)) for one in (value, *also)]
    async with AsyncExitStack() as stack:
        desk = _Desk(stack, await stack.enter_async_context(await Client.connect(Settings())), wish)
        first = await desk.confirm_erasure(named[0], kind)
        agreed = [first, *[await desk.confirm_erasure(one, told_as=one) for one in named[1:]]]
        if first is not None:
            with show_spinner("looking for what stands near it"):
                near = await first.search.find_near_values()
            # The person confirms each of these by name.
            others = await select_near_values([one for one in near if one.text not in named], wish)
            sure = replace(desk, wish=wish._replace(yes=True))
            agreed += [await sure.confirm_erasure(one, told_as=one) for one in others]
        orders = [one for one in agreed if one is not None]
        if orders:
            await require_workers(desk.client)
        return [
            await run_erasure(one.search, one.found, histories=wish.histories, tell=print_message) for one in orders
        ]


@dataclass(frozen=True)
class _Desk:
    """Searches for values. The stores in which they are found stay open until all are erased."""

    stack: AsyncExitStack
    client: Client
    wish: ErasureOptions

    async def confirm_erasure(self, value: str, kind: str | None = None, told_as: str = "") -> ErasureTarget | None:
        """Show where one value occurs, and ask; None if it occurs nowhere, or the person declines.

        `told_as`: its name in messages, if it is one of several.
        """
        settings, which = Settings(), f" ({told_as})" if told_as else ""
        search = await self.stack.enter_async_context(open_person_search(settings, value, kind))
        with show_spinner("looking for it"):
            found = await search.find_locations()
        print_search_limits(found)
        if not found.traces:
            print_message(f"found nowhere: there is nothing to erase{which}")
            await _say_earlier(search)
            return None
        await require_tasks_finished(self.client, settings, found)
        await _say_earlier(search)
        print_message(format_found_places(found))
        question = f"Put {ERASED_MARKER} in place of all this{which}? It cannot be undone. [y/N]"
        if not self.wish.yes and not await ask_confirmation(question):
            print_message(f"nothing is erased{which}")
            return None
        return ErasureTarget(search, found)


async def select_near_values(near: Sequence[RelatedValue], wish: ErasureOptions) -> list[str]:
    """Return the related values that the person confirms as the same person's; without a terminal, they are only
    listed.
    """
    if not wish.yes:
        offered = near[:MAX_NEAR_VALUES]
        return [one.text for one in offered if await ask_confirmation(f"Erase {_described(one)}, too? [y/N]")]
    if near:
        print_message("\n".join(format_near_values(near)))
    return []


async def _printed_again(value: str, kind: str | None) -> PersonErasureReceipt | None:
    settings = Settings()
    async with open_person_search(settings, value, kind) as search, await Client.connect(settings) as client:
        if await is_erasure_running(search):
            print_message("an order for this value is under way: its receipt comes when it has been carried out")
            await require_workers(client)
        receipt = await load_last_receipt(search)
    if receipt is None:
        print_message("no order for this value was carried out that Temporal still knows (it deletes old workflows)")
    return receipt


async def _say_earlier(search: PersonSearch) -> None:
    """Print what an earlier order erased, whose command perhaps never saw its end. Without a server this is unknown."""
    with suppress(Unreachable):
        if await is_erasure_running(search):
            print_message("an order for this value is under way: `--receipt` waits for it")
        elif (earlier := await load_last_receipt(search)) is not None:
            print_message(
                f"an order for this value was carried out {earlier.at:%Y-%m-%d %H:%M} UTC (receipt {earlier.id}): "
                "`--receipt` prints what it did"
            )


def format_receipt(receipt: PersonErasureReceipt) -> str:
    """Format the receipt as text."""
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


def _erased(receipt: PersonErasureReceipt) -> str:
    at = f"{receipt.at:%Y-%m-%d %H:%M:%S} UTC"
    if receipt.found:
        return f"erased {at}: {_counts(receipt.found)}"
    return f"carried out {at}: the store had nothing of this value to erase"


def _counts(counts: dict[ErasureLocation, int]) -> str:
    return ", ".join(f"{count:,} in {place}" for place, count in counts.items())
