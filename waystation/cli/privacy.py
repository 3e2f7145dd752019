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
privacy = typer.Typer(name="privacy", help="Redact a text; find or erase a person.", no_args_is_help=True)
app.add_typer(privacy)


@privacy.callback()
def _privacy() -> None:
    """Redact a text; find or erase a person."""


@privacy.command()
def redact(
    file: Annotated[str, typer.Argument(metavar="FILE", help="UTF-8 text file; - reads stdin.")],
    policy: Annotated[
        RedactionPolicy | None,
        typer.Option("--policy", metavar="NAME", help="standard, strict or secrets-only; default: WAYSTATION_PRIVACY."),
    ] = None,
    place: Annotated[
        str,
        typer.Option(
            "--place",
            help="Where the text goes, which decides what is replaced (docs/reference/redaction.md): "
            f"{', '.join(PLACES)}.",
            metavar="PLACE",
        ),
    ] = TextDestination.COMPRESSED,
    restore: Annotated[
        bool, typer.Option("--restore", help="Restore the originals of this tenant's placeholders instead.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print a text with its private values replaced: as for a summary, or as for the destination PLACE.

    With --json, the output has the text and the replaced spans, with offsets in characters of the input. Workers with
    the same key and tenant use the same placeholders. If neither this machine nor the store has a key, one is created
    on this machine. Nothing else is stored.
    """
    if restore:
        print_restored(_read_text(file), as_json=as_json)
        return
    if place not in PLACES:
        raise BadInput(f"--place {place} is not a destination of redacted text: choose one of {', '.join(PLACES)}")
    found = asyncio.run(_redacted(_read_text(file), TextDestination(place), policy, Settings()))
    for note in build_redaction_notes(found):
        print_message(note)
    if as_json:
        print_json(found)
    else:
        print_verbatim(found.text)


async def _redacted(
    text: str, destination: TextDestination, policy: RedactionPolicy | None, settings: Settings
) -> RedactionResult:
    from waystation.runtime.redaction_setup import create_redactor  # noqa: PLC0415  it takes seconds, and wrong input should not wait

    with closing(create_redactor(settings, await find_placeholder_key(settings), policy)) as redactor:
        (found,) = await redactor.redact([text], destination, tenant_hash(settings.tenant))
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
        raise BadInput(f"{shown} is not UTF-8 text (byte {error.start:,} is invalid): convert it to UTF-8") from None
    if "\x00" in text:
        raise BadInput(f"{shown} is not text: it has NUL bytes")
    return text


ValueArgument = Annotated[
    str,
    typer.Argument(metavar="VALUE", help="One complete value: a name, an address or a number; - reads stdin."),
]
TypeOption = Annotated[
    str | None,
    typer.Option("--type", metavar="TYPE", help="Type of the value, like PHONE, if no rule recognises the value."),
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
    near: Annotated[bool, typer.Option("--near", help="Also show other values that may belong to the person.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Count the places where this tenant's data contains a person, by placeholder and by the value itself.

    No content is shown, except with --near. Exits with 0 if the person is found, and with 1 if not.
    """
    with show_spinner("searching"):
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
            "No rule recognises this value. The search used its exact text, its placeholders of the types "
            f"{' and '.join(found.types)}, and all placeholders whose originals contain the value; "
            "--type searches for another type."
        )
    if found.finding:
        print_message(found.finding)


def format_found_places(found: PersonLocations) -> str:
    """Format one line per kind of location: how often, and in which tasks."""
    if not found.traces:
        return "Not found."
    lines = [
        f"{count:>6,}  {place}{_where(place, found.traces)}"
        for place, count in sum_matches_by_location(found.traces).items()
    ]
    return "\n".join(lines)


def format_near_values(near: Sequence[RelatedValue]) -> list[str]:
    """Format one line per related value, and what to do with them."""
    if not near:
        return ["No related values."]
    more = [f"and {len(near) - MAX_NEAR_VALUES:,} more; --json prints all"] if len(near) > MAX_NEAR_VALUES else []
    return [
        "These values may belong to the same person. To find or erase them, give each as a VALUE:",
        *(f"  {_described(one)}" for one in near[:MAX_NEAR_VALUES]),
        *more,
    ]


def _described(one: RelatedValue) -> str:
    """Format a value, its type, and why it is shown."""
    found_with = f"on {format_count(one.lines, 'line')} together with the value you gave" if one.lines else ""
    return f"{one.text} ({', '.join(filter(None, (one.type, 'similar' if one.alike else '', found_with)))})"


def _where(location: ErasureLocation, traces: Sequence[ErasureMatch]) -> str:
    ids = sorted({trace.task_id for trace in traces if trace.place is location and trace.task_id})
    more = f" and {format_count(len(ids) - MAX_PLACES, 'more task')}" if len(ids) > MAX_PLACES else ""
    return f": {', '.join(ids[:MAX_PLACES])}{more}" if ids else ""


LATER_TEXTS = "In later texts, the person gets the same placeholder as before the erasure."


@privacy.command("erase")
def erase_person(
    value: ValueArgument,
    kind: TypeOption = None,
    histories: Annotated[
        bool,
        typer.Option("--histories", help="Also delete the histories of closed workflows that mention the person."),
    ] = False,
    again: Annotated[
        bool,
        typer.Option(
            "--receipt",
            help="Print the receipt of the last erasure of this value, and erase nothing.",
        ),
    ] = False,
    also: Annotated[
        list[str] | None,
        typer.Option("--also", metavar="VALUE", help="Another value of the same person to erase; repeatable."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Erase a person from all data of this tenant: `<ERASED>` replaces the value. This cannot be undone.

    A name and an address are two values: at a terminal, the command offers to erase related values, too; otherwise it
    lists them. Tasks, citations and costs stay. Workflow histories cannot be changed: they are listed, or deleted with
    --histories. Exits with 1 if the person is not found or not erased.
    """
    if again and also:
        raise BadInput("--receipt and --also cannot be combined: ask for the receipt of one value")
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
        print_text(format_receipts(receipts))


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
    value: str, kind: str | None, also: Sequence[str], options: ErasureOptions
) -> list[PersonErasureReceipt]:
    """Erase the value, those named with it, and those that a person adds at the terminal.

    All are searched for, shown and confirmed before the first is erased.
    """
    named = [normalize_search_value(_given(one)) for one in (value, *also)]
    async with AsyncExitStack() as stack:
        desk = _Desk(stack, await stack.enter_async_context(await Client.connect(Settings())), options)
        first = await desk.confirm_erasure(named[0], kind)
        agreed = [first, *[await desk.confirm_erasure(one, told_as=one) for one in named[1:]]]
        if first is not None:
            with show_spinner("searching for related values"):
                near = await first.search.find_near_values()
            # The person confirms each of these by name.
            others = await select_near_values([one for one in near if one.text not in named], options)
            sure = replace(desk, options=options._replace(yes=True))
            agreed += [await sure.confirm_erasure(one, told_as=one) for one in others]
        orders = [one for one in agreed if one is not None]
        if orders:
            await require_workers(desk.client)
        return [
            await run_erasure(one.search, one.found, histories=options.histories, tell=print_message) for one in orders
        ]


@dataclass(frozen=True)
class _Desk:
    """Searches for values. The stores in which they are found stay open until all are erased."""

    stack: AsyncExitStack
    client: Client
    options: ErasureOptions

    async def confirm_erasure(self, value: str, kind: str | None = None, told_as: str = "") -> ErasureTarget | None:
        """Show where one value occurs, and ask; None if it occurs nowhere, or the person declines.

        `told_as`: its name in messages, if it is one of several.
        """
        settings, which = Settings(), f" ({told_as})" if told_as else ""
        search = await self.stack.enter_async_context(open_person_search(settings, value, kind))
        with show_spinner("searching"):
            found = await search.find_locations()
        print_search_limits(found)
        if not found.traces:
            print_message(f"Not found{which}: nothing to erase.")
            await _say_earlier(search)
            return None
        await require_tasks_finished(self.client, settings, found)
        await _say_earlier(search)
        print_message(format_found_places(found))
        value_name = told_as or "this value"
        question = f"Replace {value_name} with {ERASED_MARKER} in all these places? This cannot be undone. [y/N]"
        if not self.options.yes and not await ask_confirmation(question):
            print_message(f"Nothing was erased{which}.")
            return None
        return ErasureTarget(search, found)


async def select_near_values(near: Sequence[RelatedValue], options: ErasureOptions) -> list[str]:
    """Return the related values that the person confirms as the same person's; without a terminal, they are only
    listed.
    """
    if not options.yes:
        offered = near[:MAX_NEAR_VALUES]
        return [one.text for one in offered if await ask_confirmation(f"Erase {_described(one)}, too? [y/N]")]
    if near:
        print_message("\n".join(format_near_values(near)))
    return []


async def _printed_again(value: str, kind: str | None) -> PersonErasureReceipt | None:
    settings = Settings()
    async with open_person_search(settings, value, kind) as search, await Client.connect(settings) as client:
        if await is_erasure_running(search):
            print_message(
                "An erasure of this value is in progress; its receipt is printed when the erasure is complete."
            )
            await require_workers(client)
        receipt = await load_last_receipt(search)
    if receipt is None:
        print_message(
            "Temporal has no receipt of a completed erasure of this value. Temporal deletes old workflows, and with "
            "them their receipts."
        )
    return receipt


async def _say_earlier(search: PersonSearch) -> None:
    """Print what an earlier order erased, whose command perhaps never saw its end. Without a server this is unknown."""
    with suppress(Unreachable):
        if await is_erasure_running(search):
            print_message("An erasure of this value is in progress: `--receipt` waits for it.")
        elif (earlier := await load_last_receipt(search)) is not None:
            print_message(
                f"This value was erased before, on {earlier.at.astimezone():%Y-%m-%d %H:%M %Z} (receipt {earlier.id}): "
                "`--receipt` prints what was erased."
            )


def format_receipts(receipts: Sequence[PersonErasureReceipt]) -> str:
    """Format receipts as text, and below them once what an erasure does not reach."""
    places = dict.fromkeys(place.description for receipt in receipts for place in receipt.not_reached)
    heading = "These places were not searched or changed, and may still contain the person:"
    unreached = "\n".join([heading, *(f"- {place}" for place in places)])
    return "\n\n".join([*map(format_receipt, receipts), unreached, LATER_TEXTS])


def format_receipt(receipt: PersonErasureReceipt) -> str:
    """Format the receipt as text."""
    lines = [
        f"receipt {receipt.id}",
        _erased(receipt),
        f"originals deleted from the vault: {receipt.originals}; report files rewritten: {receipt.files}; "
        f"workflow histories deleted: {receipt.histories_deleted}",
        *(f"placeholder (SHA-256) {one}" for one in receipt.known_as),
    ]
    if receipt.left:
        lines.append(f"not erased: {_counts(receipt.left)}")
    if receipt.histories_left:
        lines.append(f"workflow histories that still contain the value: {', '.join(receipt.histories_left)}")
    return "\n".join(lines)


def _erased(receipt: PersonErasureReceipt) -> str:
    at = f"{receipt.at.astimezone():%Y-%m-%d %H:%M:%S %Z}"
    if receipt.found:
        return f"erased {at}: {_counts(receipt.found)}"
    return f"completed {at}: the store had nothing to erase"


def _counts(counts: dict[ErasureLocation, int]) -> str:
    return ", ".join(f"{count:,} in {place}" for place, count in counts.items())
