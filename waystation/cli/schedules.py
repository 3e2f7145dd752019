"""`waystation schedule`: questions that are asked again and again, by Temporal's schedules."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from getpass import getuser
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from waystation.cli.console import print_json, print_message, print_text
from waystation.cli.options import ByOption, JsonOption, parse_budget, parse_limit, parse_span
from waystation.cli.render import format_count
from waystation.cli.submit import NO_SERVER, load_task_procedures, parse_server_names, read_instructions
from waystation.client import Client
from waystation.client.schedules import ScheduleDescription
from waystation.config.settings import Settings
from waystation.documents.document_loading import load_documents
from waystation.kernel.amount import Limit, format_limit
from waystation.kernel.errors import BadInput
from waystation.kernel.value import Value, extract_validation_faults
from waystation.tasks.schedules import (
    DEFAULT_CATCH_UP,
    DEFAULT_MAX_FAILURES,
    Overlap,
    ScheduleDefinition,
    make_default_schedule_name,
)
from waystation.tasks.task import TaskRequest, make_own_session_name

app = typer.Typer()
schedule = typer.Typer(
    name="schedule", help="Ask a question again and again, over its documents as they are then.", no_args_is_help=True
)
app.add_typer(schedule)

NOT_NAMED = "a session of its own"
_CATCH_UP = f"{DEFAULT_CATCH_UP.days}d"
_FAILURES = typer.Option(min=1, max=1_000, help="So many in a row, and it pauses itself.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Of the schedule, as `schedule list` shows it.")]


class ScheduleJson(Value):
    """A schedule as `--json` prints it. If the store does not have its question, the texts are empty."""

    name: str
    question: str
    session: str
    documents: tuple[str, ...]
    servers: tuple[str, ...] | None
    """None if each run uses those of the session's newest task."""
    procedures: tuple[str, ...]
    """Names of the procedures that agents follow, including skills."""
    cron: str
    zone: str
    budget: str
    monthly: str
    paused: bool
    note: str
    next_run: datetime | None
    last_run: datetime | None
    last: str
    running: bool
    skipped: int
    missed: int


@schedule.callback()
def _schedule() -> None:
    """Ask a question again and again, over its documents as they are then."""


@schedule.command("add")
def add(
    question: Annotated[str, typer.Argument(help="What is to be found out, each time.")],
    docs: Annotated[list[Path], typer.Option(help="File or folder on the workers' machine; read anew each time.")],
    cron: Annotated[str, typer.Option(help="When, like '0 7 * * 1' for Mondays at seven.")],
    budget: Annotated[str | None, typer.Option(help="For each run: 200k tokens, $2.00, or both.")] = None,
    session: Annotated[str | None, typer.Option(help="Session of its tasks; by default one of its own.")] = None,
    monthly: Annotated[str | None, typer.Option(help="For all runs of a calendar month (UTC), like 1M or $20.")] = None,
    name: Annotated[str | None, typer.Option(help="Lower-case letters, digits, hyphens; Temporal shows it.")] = None,
    zone: Annotated[str, typer.Option(help="Time zone of --cron, like Europe/Oslo.")] = "UTC",
    overlap: Annotated[Overlap, typer.Option(help="While an earlier run is under way.")] = "skip",
    catch_up: Annotated[str, typer.Option(help="Runs missed within this time are made up for.")] = _CATCH_UP,
    failures: Annotated[int, _FAILURES] = DEFAULT_MAX_FAILURES,
    accept: Annotated[list[str] | None, typer.Option(help="A criterion of the report; repeatable.")] = None,
    instructions: Annotated[Path | None, typer.Option(help="File with instructions for the agents.")] = None,
    procedures: Annotated[list[Path] | None, typer.Option(help="Markdown file or folder that agents follow.")] = None,
    skills: Annotated[list[Path] | None, typer.Option(help="Folder with SKILL.md, or of such folders.")] = None,
    servers: Annotated[str | None, typer.Option(help="MCP servers by name: a,b; default; default,c; none.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Hand a question in that comes back: each run is a task of the session with a budget of its own.

    Its report opens with what changed since the last one. A run that would only repeat the last starts no task.
    """
    settings, paths = Settings(), tuple(str(path.expanduser().absolute()) for path in docs)
    request = TaskRequest(
        question=question,
        tenant=settings.tenant,
        request_id="schedule",
        session=session or NOT_NAMED,
        budget=parse_budget(budget, "--budget") if budget is not None else None,
        accept=tuple(accept or ()),
        instructions=read_instructions(instructions) if instructions else "",
        procedures=load_task_procedures(settings, procedures or [], skills or []),
        servers=parse_server_names(servers),
    )
    given = {
        "name": make_default_schedule_name(request, paths) if name is None else name,
        "paths": paths,
        "timing": {"cron": cron, "zone": zone, "overlap": overlap, "catch_up": parse_span(catch_up, "--catch-up")},
        "monthly": parse_limit(monthly, "--monthly") if monthly is not None else Limit(),
        "failures": failures,
    }
    _show([asyncio.run(_add(settings, _wish(given, request)))], as_json=as_json)


def _wish(given: Mapping[str, object], request: TaskRequest) -> ScheduleDefinition:
    """Build the schedule, in a session of its own if none was named. Raises BadInput."""
    session = make_own_session_name(f"schedule {given['name']}") if request.session == NOT_NAMED else request.session
    try:
        return ScheduleDefinition.model_validate({**given, "request": request.replace(session=session)})
    except ValidationError as error:
        faults = [
            f"--{str(fault.place[-1]).replace('_', '-')}: {fault.words}" for fault in extract_validation_faults(error)
        ]
        raise BadInput(f"{'; '.join(faults)} (names are lower-case letters, digits and hyphens)") from None


async def _add(settings: Settings, wish: ScheduleDefinition) -> ScheduleDescription:
    loaded = load_documents([Path(path) for path in wish.paths])
    print_message(f"{format_count(len(loaded.documents), 'document')} now")
    async with await Client.connect(settings) as client:
        return await (await client.get_schedule_client()).add(wish)


@schedule.command("list")
def list_schedules(as_json: JsonOption = False) -> None:
    """List schedules: when they run next, what became of the last run, and why one is paused."""
    _show(asyncio.run(_list()), as_json=as_json)


async def _list() -> tuple[ScheduleDescription, ...]:
    async with await Client.connect(Settings()) as client:
        return await (await client.get_schedule_client()).list()


@schedule.command("pause")
def pause(
    name: NameArgument, note: Annotated[str, typer.Option(help="Why; Temporal shows it.")] = "", by: ByOption = None
) -> None:
    """Let no run start until the schedule is resumed. One that is under way goes on."""
    said = f"paused by {by or getuser()}" + (f": {note}" if note else "")
    asyncio.run(_paused(name, said))
    print_message(f"{name} is {said}")


async def _paused(name: str, note: str) -> None:
    async with await Client.connect(Settings()) as client:
        await (await client.get_schedule_client()).pause(name, note)


@schedule.command("resume")
def resume(name: NameArgument, by: ByOption = None) -> None:
    """Let a paused schedule run again."""
    asyncio.run(_resumed(name, f"resumed by {by or getuser()}"))
    print_message(f"{name} runs again")


async def _resumed(name: str, note: str) -> None:
    async with await Client.connect(Settings()) as client:
        await (await client.get_schedule_client()).resume(name, note)


@schedule.command("run")
def run_now(name: NameArgument) -> None:
    """Ask for a run now, also of a paused schedule."""
    if asyncio.run(_run(name)):
        print_message(f"{name} was asked to run; `waystation schedule list` shows what becomes of it")
    else:
        print_message(f"{name} was asked to run, and a run is under way: its --overlap says what happens then")


async def _run(name: str) -> bool:
    async with await Client.connect(Settings()) as client:
        return await (await client.get_schedule_client()).trigger(name)


@schedule.command("remove")
def remove(name: NameArgument) -> None:
    """Remove a schedule, and what it asks. Its tasks and their reports stay; a run that is under way goes on."""
    asyncio.run(_remove(name))
    print_message(f"{name} was removed; its tasks stay")


async def _remove(name: str) -> None:
    async with await Client.connect(Settings()) as client:
        await (await client.get_schedule_client()).remove(name)


def _show(found: Sequence[ScheduleDescription], *, as_json: bool) -> None:
    if as_json:
        print_json([build_schedule_json(one) for one in found])
    elif found:
        print_text("\n".join(map(format_schedule, found)))
    else:
        print_message("no schedules: `waystation schedule add` makes one")


def build_schedule_json(known: ScheduleDescription) -> ScheduleJson:
    """Build the JSON, with stable keys."""
    wish, seen = known.wish, known.seen
    return ScheduleJson(
        name=known.name,
        question=wish.request.question if wish is not None else "",
        session=wish.request.session if wish is not None else "",
        documents=wish.paths if wish is not None else (),
        servers=wish.request.servers if wish is not None else None,
        procedures=tuple(one.name for one in wish.request.procedures) if wish is not None else (),
        cron=wish.timing.cron if wish is not None else "",
        zone=wish.timing.zone if wish is not None else "",
        budget=_budget(wish),
        monthly=format_limit(wish.monthly) if wish is not None else "",
        paused=seen.paused,
        note=seen.note,
        next_run=seen.next_run,
        last_run=seen.last_run,
        last=seen.last,
        running=seen.running,
        skipped=seen.skipped,
        missed=seen.missed,
    )


def _budget(wish: ScheduleDefinition | None) -> str:
    if wish is None:
        return ""
    return format_limit(wish.request.budget) if wish.request.budget is not None else "the settings' budget"


def _beside(request: TaskRequest) -> Iterator[str]:
    """Yield what a run has besides its documents, if it was set explicitly."""
    if request.servers is not None:
        yield f"  tool servers: {', '.join(request.servers) or NO_SERVER}"
    if request.procedures:
        yield f"  agents follow: {', '.join(one.name for one in request.procedures)}"


def format_schedule(known: ScheduleDescription) -> str:
    """Format a schedule in a few lines."""
    wish, seen = known.wish, known.seen
    state = f"paused ({seen.note})" if seen.paused else "on"
    lines = [f"{known.name}  {f'{wish.timing.cron} {wish.timing.zone}' if wish is not None else ''}  {state}"]
    if wish is None:
        lines.append("  what it asks is not in the store any more: remove it, and add it anew")
    else:
        month = "" if wish.monthly.is_unlimited else f", {format_limit(wish.monthly)} a month"
        lines.append(f"  {wish.request.question}")
        lines.append(f"  {', '.join(wish.paths)}; session {wish.request.session}; {_budget(wish)} for each run{month}")
        lines += _beside(wish.request)
    next_run = "-" if seen.next_run is None or seen.paused else f"{seen.next_run:%Y-%m-%d %H:%M} UTC"
    last = f"{seen.last_run:%Y-%m-%d %H:%M} UTC, {seen.last or 'not known any more'}" if seen.last_run else "-"
    lines.append(f"  next: {next_run}; last: {last}")
    if seen.skipped or seen.missed:
        lines.append(f"  {seen.skipped} skipped while a run was under way, {seen.missed} missed before --catch-up")
    return "\n".join(lines)
