"""`waystation schedule`: questions that are asked again and again, by Temporal's schedules."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from getpass import getuser
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from waystation.agents.action_approvals import UnattendedPolicy
from waystation.cli.console import print_json, print_message, print_text
from waystation.cli.options import (
    AcceptOption,
    ByOption,
    CeilingOption,
    Deadline,
    InstructionsOption,
    JsonOption,
    LengthOption,
    ModeOption,
    ProceduresOption,
    ServersOption,
    SkillsOption,
    ThenOption,
    TopUpOption,
    parse_budget,
    parse_document_path,
    parse_limit,
    parse_span,
    parse_unattended_options,
)
from waystation.cli.reading import load_documents_with_progress
from waystation.cli.render import format_count
from waystation.cli.submit import (
    NO_SERVER,
    WHEN_SPENT,
    format_unattended_policy,
    load_task_procedures,
    parse_server_names,
    read_instructions,
)
from waystation.client import Client
from waystation.client.schedules import (
    OWN_SESSION,
    ScheduleDescription,
    build_schedule_definition,
    build_schedule_json,
    format_run_budget,
)
from waystation.config.settings import Settings
from waystation.documents.documents import SourceDocument
from waystation.kernel.amount import Limit, format_limit
from waystation.kernel.clock import local_now
from waystation.kernel.errors import BadInput
from waystation.kernel.value import extract_validation_faults
from waystation.tasks.schedules import (
    DEFAULT_CATCH_UP,
    DEFAULT_MAX_FAILURES,
    Overlap,
    ScheduleDefinition,
)
from waystation.tasks.task import TaskRequest

app = typer.Typer()
schedule = typer.Typer(
    name="schedule",
    help="Ask a question on a schedule, with the documents as they are at each run.",
    no_args_is_help=True,
)
app.add_typer(schedule)

_CATCH_UP = f"{DEFAULT_CATCH_UP.days}d"
_FAILURES = typer.Option(metavar="N", min=1, max=1_000, help="Pause the schedule after this many failures in a row.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule, as in `schedule list`.")]


@schedule.callback()
def _schedule() -> None:
    """Ask a question on a schedule, with the documents as they are at each run."""


@schedule.command("add")
def add(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="The question that each report answers.")],
    cron: Annotated[
        str,
        typer.Option(
            metavar="CRON", help="Times of the runs as a cron expression, like '0 7 * * 1' for Mondays at 07:00."
        ),
    ],
    docs: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH",
            parser=parse_document_path,
            help="File or folder on the workers' machine, read at each run; repeatable; default: the documents of the "
            "session's newest task.",
        ),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="AMOUNT", help="Budget of each run: 200k (tokens), '$2' or '200k+$2'.")
    ] = None,
    mode: ModeOption = None,
    ceiling: CeilingOption = None,
    top_up: TopUpOption = None,
    answer_by: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How long each approval request waits for an answer, like 12h or 7d."),
    ] = None,
    then: ThenOption = None,
    session: Annotated[
        str | None, typer.Option(metavar="NAME", help="Session of the tasks; default: a new one.")
    ] = None,
    monthly: Annotated[
        str | None, typer.Option(metavar="AMOUNT", help="Budget of all runs in a calendar month (UTC): 1M or '$20'.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Name of the schedule: lower-case letters, digits and hyphens; default: generated."
        ),
    ] = None,
    zone: Annotated[str, typer.Option(metavar="ZONE", help="Time zone of --cron, like Europe/Oslo.")] = "UTC",
    overlap: Annotated[
        Overlap,
        typer.Option(
            metavar="ACTION",
            help="What to do if a run is due while another one is in progress: skip, buffer-one, buffer-all or "
            "allow-all.",
        ),
    ] = "skip",
    catch_up: Annotated[
        str, typer.Option(metavar="TIME", help="Start a missed run only if it is at most this late.")
    ] = _CATCH_UP,
    failures: Annotated[int, _FAILURES] = DEFAULT_MAX_FAILURES,
    accept: AcceptOption = None,
    length: LengthOption = None,
    instructions: InstructionsOption = None,
    procedures: ProceduresOption = None,
    skills: SkillsOption = None,
    servers: ServersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a schedule for a question. If something has changed since the last report, a run starts a task.

    The tasks belong to one session, and each has a separate budget. Each report begins with the changes since the last
    one.
    """
    settings, paths = Settings(), tuple(str(path.expanduser().absolute()) for path in docs or ())
    request = TaskRequest(
        question=question,
        tenant=settings.tenant,
        request_id="schedule",
        session=session or OWN_SESSION,
        budget=parse_budget(budget, "--budget") if budget is not None else None,
        mode=mode,
        ceiling=parse_limit(ceiling, "--ceiling") if ceiling is not None else Limit(),
        unattended=_parse_unattended(top_up, answer_by, then),
        accept=tuple(accept or ()),
        length=length,
        instructions=read_instructions(instructions) if instructions else "",
        procedures=load_task_procedures(settings, procedures or [], skills or []),
        servers=parse_server_names(servers),
    )
    given = {
        "name": name,
        "paths": paths,
        "timing": {"cron": cron, "zone": zone, "overlap": overlap, "catch_up": parse_span(catch_up, "--catch-up")},
        "monthly": parse_limit(monthly, "--monthly") if monthly is not None else Limit(),
        "failures": failures,
    }
    _show([asyncio.run(_add(settings, _build_definition(given, request)))], as_json=as_json)


def _parse_unattended(top_up: str | None, answer_by: str | None, then: Deadline | None) -> UnattendedPolicy:
    """Parse what is decided in advance about the requests of each run. Raises BadInput."""
    decided = parse_unattended_options(top_up, answer_by, then, local_now())
    if decided.answer_by is not None:
        # A time of day would be the next one only: it would have passed at every later run.
        raise BadInput(
            f"--answer-by {answer_by} is a single moment, but a schedule runs repeatedly: say how long each "
            "request waits, like 12h or 7d"
        )
    return decided


def _build_definition(given: Mapping[str, object], request: TaskRequest) -> ScheduleDefinition:
    """Build the schedule. Raises BadInput."""
    try:
        return build_schedule_definition(given, request)
    except ValidationError as error:
        found = extract_validation_faults(error)
        faults = "; ".join(f"--{str(fault.place[-1]).replace('_', '-')}: {fault.words}" for fault in found)
        names = " (a name may have lower-case letters, digits and hyphens)"
        raise BadInput(faults + (names if any(fault.place[-1] == "name" for fault in found) else "")) from None


async def _add(settings: Settings, definition: ScheduleDefinition) -> ScheduleDescription:
    paths = [Path(path) for path in definition.paths]
    documents = load_documents_with_progress(paths).documents if paths else ()
    async with await Client.connect(settings) as client:
        if not paths:
            documents = await _load_session_documents(client, definition.request.session)
        print_message(f"{format_count(len(documents), 'document')} at present")
        return await (await client.get_schedule_client()).add(definition)


async def _load_session_documents(client: Client, session: str) -> Sequence[SourceDocument]:
    """Load the documents that a run without paths would use now. Raises BadInput if there are none."""
    documents = await client.get_session_documents(session)
    if not documents:
        raise BadInput(
            "no documents: name a file or folder with --docs PATH, or the session of a task that has documents with "
            "--session S"
        )
    print_message(f"No --docs: each run uses the documents of the newest task in session {session}.")
    return documents


@schedule.command("list")
def list_schedules(as_json: JsonOption = False) -> None:
    """List schedules with their next run, the result of the last run, and the reason for a pause."""
    _show(asyncio.run(_list()), as_json=as_json)


async def _list() -> tuple[ScheduleDescription, ...]:
    async with await Client.connect(Settings()) as client:
        return await (await client.get_schedule_client()).list()


@schedule.command("pause")
def pause(
    name: NameArgument,
    note: Annotated[str, typer.Option(metavar="TEXT", help="Reason, shown in the list and in Temporal.")] = "",
    by: ByOption = None,
) -> None:
    """Pause a schedule: no run starts until it is resumed. A run in progress continues."""
    said = f"paused by {by or getuser()}" + (f": {note}" if note else "")
    asyncio.run(_paused(name, said))
    print_message(f"Schedule {name} is {said}")


async def _paused(name: str, note: str) -> None:
    async with await Client.connect(Settings()) as client:
        await (await client.get_schedule_client()).pause(name, note)


@schedule.command("resume")
def resume(name: NameArgument, by: ByOption = None) -> None:
    """Resume a paused schedule."""
    asyncio.run(_resumed(name, f"resumed by {by or getuser()}"))
    print_message(f"Schedule {name} is resumed.")


async def _resumed(name: str, note: str) -> None:
    async with await Client.connect(Settings()) as client:
        await (await client.get_schedule_client()).resume(name, note)


@schedule.command("run")
def run_now(name: NameArgument) -> None:
    """Start a run now, even if the schedule is paused."""
    if asyncio.run(_run(name)):
        print_message(f"Requested a run of schedule {name}. `waystation schedule list` shows its result.")
    else:
        print_message(
            f"Requested a run of schedule {name}. Another run is in progress, so the schedule's --overlap decides "
            "whether and when this one starts."
        )


async def _run(name: str) -> bool:
    async with await Client.connect(Settings()) as client:
        return await (await client.get_schedule_client()).trigger(name)


@schedule.command("remove")
def remove(name: NameArgument) -> None:
    """Remove a schedule. Its tasks and reports stay, and a run in progress continues."""
    asyncio.run(_remove(name))
    print_message(f"Removed schedule {name}. Its tasks stay.")


async def _remove(name: str) -> None:
    async with await Client.connect(Settings()) as client:
        await (await client.get_schedule_client()).remove(name)


def _show(found: Sequence[ScheduleDescription], *, as_json: bool) -> None:
    if as_json:
        print_json([build_schedule_json(one) for one in found])
    elif found:
        print_text("\n".join(map(format_schedule, found)))
    else:
        print_message("No schedules: `waystation schedule add` creates one")


def _format_extras(request: TaskRequest) -> Iterator[str]:
    """Yield what a run has besides its documents, if it was set explicitly."""
    if request.mode is not None:
        yield f"  {WHEN_SPENT[request.mode]}"
    if not request.ceiling.is_unlimited:
        yield f"  grants may raise the budget to {format_limit(request.ceiling)}"
    if request.unattended != UnattendedPolicy():
        yield f"  while no one answers: {format_unattended_policy(request.unattended)}"
    if request.servers is not None:
        yield f"  tool servers: {', '.join(request.servers) or NO_SERVER}"
    if request.procedures:
        yield f"  procedures and skills: {', '.join(one.name for one in request.procedures)}"


def _local(moment: datetime) -> str:
    """Format a time in the reader's zone."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M %Z}"


def _format_pause(note: str) -> str:
    """Format the state of a paused schedule with its note, which may begin with the same word."""
    if note.startswith("paused by "):
        return note
    return f"paused ({note})" if note else "paused"


def format_schedule(schedule: ScheduleDescription) -> str:
    """Format a schedule in a few lines."""
    definition, view = schedule.definition, schedule.view
    state = _format_pause(view.note) if view.paused else "on"
    timing = "" if definition is None else f"{definition.timing.cron} {definition.timing.zone}"
    lines = [f"{schedule.name}  {timing}  {state}"]
    if definition is None:
        lines.append("  the question is no longer in the store: remove the schedule and add it again")
    else:
        month = "" if definition.monthly.is_unlimited else f", at most {format_limit(definition.monthly)} a month"
        lines.append(f"  {definition.request.question}")
        budget = f"{format_run_budget(definition)} for each run{month}"
        documents = ", ".join(definition.paths) or "documents of the session's newest task"
        lines.append(f"  {documents}; session {definition.request.session}; {budget}")
        lines += _format_extras(definition.request)
    next_run = "-" if view.next_run is None or view.paused else _local(view.next_run)
    last = f"{_local(view.last_run)}, {view.last or 'result no longer known'}" if view.last_run else "-"
    lines.append(f"  next: {next_run}; last: {last}")
    if view.skipped or view.missed:
        lines.append(f"  runs skipped during another run: {view.skipped}; runs too late for --catch-up: {view.missed}")
    return "\n".join(lines)
