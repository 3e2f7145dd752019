"""`waystation memory`: searches, measures, forgets and rebuilds what agents can recall."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass
from time import monotonic
from typing import Annotated, get_args

import typer
from rich.padding import Padding
from rich.text import Text

from waystation.cli.console import ask_confirmation, print_json, print_message, print_text, result
from waystation.cli.follow import require_workers
from waystation.cli.memory_eval import evaluate
from waystation.cli.options import JsonOption, parse_moment_or_age, parse_past_moment
from waystation.client import Client
from waystation.client.agent_contexts import (
    MAX_QUERY_CHARACTERS,
    MAX_RECALLED_TOKENS,
    MemoryMatchJson,
    MemorySearchRequest,
    build_recall_remark,
    format_passage_origin,
)
from waystation.client.erasure import (
    ForgetResult,
    TaskSelection,
    forget_tasks_and_schedules,
    format_removed_counts,
    select_schedules,
    select_task_ids,
)
from waystation.client.store_queries import resolve_task_id
from waystation.config.settings import Settings
from waystation.kernel.clock import local_now
from waystation.kernel.errors import BadInput, MemoryUnavailable, Unreachable
from waystation.kernel.files import create_private_folder
from waystation.kernel.text import format_count
from waystation.kernel.value import Value
from waystation.memory.indexing import (
    EMBEDDING_BATCH,
    RECALLED_TOKENS,
    Reindexer,
    ReindexResult,
)
from waystation.memory.passages import PassageKind
from waystation.memory.ports import Embedder
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.store_setup import find_placeholder_key, open_store
from waystation.tasks.task import build_reader_scope

app = typer.Typer()


@app.command("forget")
def forget_tasks(
    session: Annotated[str | None, typer.Option(metavar="NAME", help="All tasks of this session.")] = None,
    task: Annotated[
        str | None, typer.Option(metavar="TASK", help="Id of one task, or the first characters of the id.")
    ] = None,
    all_of_tenant: Annotated[bool, typer.Option("--all-of-tenant", help="All tasks of this tenant.")] = False,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="DATE",
            help="Only tasks that ended before this date. Used alone, the option selects all such tasks of the tenant.",
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--everything", help="Also delete questions, documents, transcripts, reports and histories.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete finished tasks from memory, or with --everything from the store as well. This cannot be undone."""
    ended_before = parse_past_moment(before, "--before", local_now())
    selection = TaskSelection(session=session, task=task, all_of_tenant=all_of_tenant, ended_before=ended_before)
    gone = asyncio.run(_forget(selection, everything=everything, yes=yes))
    if gone is None:
        print_message("Nothing was forgotten.")
    elif as_json:
        print_json(gone)
    else:
        print_text(format_removed_counts(gone))


async def _forget(selection: TaskSelection, *, everything: bool, yes: bool) -> ForgetResult | None:
    settings = Settings()
    async with await Client.connect(settings) as client:
        task_ids = await select_task_ids(client, settings, selection)
        if not yes:
            schedules = await select_schedules(client, settings.tenant, selection, everything=everything)
            if not await ask_confirmation(_question(len(task_ids), len(schedules), everything=everything)):
                return None
        await require_workers(client)
        return await forget_tasks_and_schedules(client, settings, selection, task_ids, everything=everything)


def _question(tasks: int, schedules: int, *, everything: bool) -> str:
    what = "all content" if everything else "the memory"
    removed = f", and remove {format_count(schedules, 'schedule')}" if schedules else ""
    return f"Delete {what} of {format_count(tasks, 'task')}{removed}? This cannot be undone. [y/N]"


FOUND_INDENT = 3
_KINDS: tuple[PassageKind, ...] = get_args(PassageKind)
_ALL_KINDS = f"{', '.join(_KINDS[:-1])} or {_KINDS[-1]}"


def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Words to search for; they are redacted first.")],
    session: Annotated[str | None, typer.Option("--session", metavar="NAME", help="Only this session.")] = None,
    task: Annotated[str | None, typer.Option("--task", metavar="TASK", help="Only this task.")] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="AGENT", help="Only this agent, like research-1.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="KIND", help=f"Only passages of this kind: {_ALL_KINDS}.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="Only passages stored after this time: a date (2026-11-01) or an age (2d)."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="Only passages stored before this time: a date (2026-11-01) or an age (1h)."),
    ] = None,
    tokens: Annotated[
        int, typer.Option("--tokens", metavar="N", min=1, max=MAX_RECALLED_TOKENS, help="Maximum tokens to print.")
    ] = RECALLED_TOKENS,
    as_json: JsonOption = False,
) -> None:
    """Search the memory of agents: conversation turns hidden by compactions, documents, reports and findings.

    If workers have the embedded memory open, the search goes through them.
    """
    settings, now = Settings(), local_now()
    _require_given(session=session, task=task, agent=agent)
    if not query.strip():
        raise BadInput("the query is empty: give a few words")
    if len(query) > MAX_QUERY_CHARACTERS:
        raise BadInput(f"the query has {len(query):,} characters, more than {MAX_QUERY_CHARACTERS:,}: give a few words")
    wish = MemorySearchRequest(
        query=query,
        session=session,
        task=task,
        agent=agent,
        kind=_known_kind(kind),
        since=parse_moment_or_age(since, "--since", now),
        until=parse_moment_or_age(until, "--until", now),
        tokens=tokens,
    )
    if (found := asyncio.run(_found(settings, wish))) and not as_json:
        _print_found(query, found)
    elif as_json:
        print_json(found)
    else:
        few = f", or every match is longer than {tokens:,} tokens: raise --tokens" if tokens < RECALLED_TOKENS else ""
        print_message(f"No matches in memory{few}")


def _require_given(**options: str | None) -> None:
    """Raise BadInput if one of the options is blank."""
    for name, given in options.items():
        if given is not None and not given.strip():
            raise BadInput(f"--{name} is empty: give a value, or leave it out to search everything")


def _known_kind(kind: str | None) -> PassageKind | None:
    """Parse a kind of passage. Raises BadInput."""
    if kind is None:
        return None
    for known in _KINDS:
        if known == kind:
            return known
    raise BadInput(f"--kind {kind!r} is not a kind of passage: use {_ALL_KINDS}")


def _print_found(query: str, found: Sequence[MemoryMatchJson]) -> None:
    """Print results for people: when, who and where, with matching words in bold if the terminal has it."""
    # The libraries that split text into words take a while to load.
    from waystation.documents.search_terms import find_term_spans  # noqa: PLC0415

    if remark := build_recall_remark(found):
        print_message(remark)
    for number, one in enumerate(found, 1):
        print_text(
            f"{number}. {format_passage_origin(one)}, {one.created.astimezone():%Y-%m-%d %H:%M %Z}, "
            f"score {one.score:.2f}, {'passage' if len(one.passages) == 1 else 'passages'} {' '.join(one.passages)}"
        )
        text = Text(one.text)
        for start, end in find_term_spans(query, one.text):
            text.stylize("bold", start, end)
        result.print(Padding(text, (0, 0, 1, FOUND_INDENT)))


async def _found(settings: Settings, search: MemorySearchRequest) -> tuple[MemoryMatchJson, ...]:
    if settings.server is not None:
        from waystation.client.remote import RemoteClient  # noqa: PLC0415  nobody else needs what speaks HTTP

        async with await RemoteClient.connect(settings) as client:
            return await client.search_memory(search)
    # Qdrant takes a second to load.
    from waystation.workers.memory import MemoryReader  # noqa: PLC0415

    async def known(task: str) -> str:
        async with aclosing(await open_store(settings)) as store:
            return await resolve_task_id(store, build_reader_scope(settings.tenant), task)

    wanted = await search.to_query(settings.tenant, known)
    async with aclosing(MemoryReader(settings, compares=True)) as memory:
        found = tuple(
            MemoryMatchJson.from_excerpt(one, search.query) for one in await memory.search(wanted, search.tokens)
        )
    if memory.unavailable_reason:
        print_message(memory.unavailable_reason)
    return found


PROGRESS_STEP = 1_000
"""Passages between two progress messages."""


memory = typer.Typer(
    name="memory",
    help="Search, evaluate, delete or rebuild the memory of agents.",
    no_args_is_help=True,
)
app.add_typer(memory)
memory.command("search")(search)
memory.command("forget")(forget_tasks)
memory.command("eval")(evaluate)


@memory.callback()
def _memory() -> None:
    """Search, evaluate, delete or rebuild the memory of agents."""


class MemoryJson(Value):
    """The state of memory, and what the store has for it."""

    place: str
    """The folder, or the collection on the Qdrant server."""
    embedder: str
    """Name of the configured embedder."""
    dimension: int | None
    points: int | None
    """Points of this tenant; None if memory cannot be opened now."""
    passages: int
    """Passages in the store, of all tenants."""
    waiting: int
    refused: tuple[str, ...]
    retention_days: int | None
    """Days for which a task is kept after its end; None: for ever."""
    finding: str
    """Why memory cannot be opened, or what it has lost; empty if nothing is wrong."""


@memory.command("status")
def show_status(as_json: JsonOption = False) -> None:
    """Show the location of memory, its embedder, and the passages that are missing."""
    found = asyncio.run(_status(Settings()))
    if as_json:
        print_json(found)
        return
    points = "an unknown number of passages" if found.points is None else format_count(found.points, "passage")
    print_text(found.place)
    print_text(f"embedder {found.embedder} ({found.dimension or 'no'} dimensions)")
    print_text(
        f"memory has {points} of this tenant; the store has {found.passages:,} of all tenants, "
        f"{found.waiting:,} of them not yet in memory"
    )
    if found.refused:
        print_text(f"{format_count(len(found.refused), 'passage')} rejected: {', '.join(found.refused)}")
    if found.retention_days is not None:
        print_text(f"tasks are deleted {found.retention_days:,} days after their end")
    if found.finding:
        print_text(found.finding)


@memory.command("reindex")
def reindex(
    with_refused: Annotated[bool, typer.Option("--refused", help="Also retry passages that memory rejected.")] = False,
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild",
            help="Embed all passages again, even if memory was made with the configured embedder; for example after "
            "damage.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Rebuild memory with the configured embedder, from the passages in the store.

    The old memory stays in use until the new one is complete. If the command is interrupted, run it again: it continues
    where it stopped. For embedded memory, stop the workers first. For a Qdrant server, restart the workers afterwards,
    with the same embedder.
    """
    done = asyncio.run(_reindex(Settings(), with_refused=with_refused, rebuild=rebuild))
    if as_json:
        print_json(done)
        return
    print_text(
        f"Memory has {done.passages:,} passages; {done.embedded:,} of them were embedded now with {done.embedder}."
    )
    if done.refused:
        print_text(f"{format_count(len(done.refused), 'passage')} rejected: {', '.join(done.refused)}")


class ReindexedJson(ReindexResult):
    """The result of reindexing, with the embedder."""

    embedder: str
    dimension: int | None


async def _reindex(settings: Settings, *, with_refused: bool, rebuild: bool) -> ReindexedJson:
    # Qdrant and the embedder take a second to load.
    from waystation.runtime.redaction_setup import create_redactor, open_embedder  # noqa: PLC0415
    from waystation.workers.memory import get_passage_counts, open_memory_draft  # noqa: PLC0415

    create_private_folder(settings.home)
    async with aclosing(await open_store(settings)) as store, open_embedder(settings) as embedder:
        with closing(create_redactor(settings, await find_placeholder_key(settings))) as redactor:
            async with open_memory_draft(settings, embedder, rebuild=rebuild) as draft:
                report_progress = _ProgressReporter(monotonic).report_progress
                done = await Reindexer(
                    store, embedder, draft, redactor, report_progress, with_refused=with_refused
                ).run()
                if lost := (await get_passage_counts(settings, store, draft)).loss_note:
                    print_message(lost)
        return ReindexedJson(embedder=embedder.name, dimension=embedder.dimension, **done.model_dump())


@dataclass
class _ProgressReporter:
    """Reports progress, with an estimate of the remaining time."""

    clock: Callable[[], float]
    _first: tuple[int, float] | None = None
    """Count and time of the first report."""

    def report_progress(self, there: int, wanted: int) -> None:
        self._first = self._first or (there, self.clock())
        # Batches are smaller than a step, so at most one of them passes it.
        if there == wanted or there % PROGRESS_STEP < EMBEDDING_BATCH:
            done, seconds = there - self._first[0], self.clock() - self._first[1]
            left = f", about {seconds * (wanted - there) / done:,.0f} s left" if done and there < wanted else ""
            print_message(f"{there:,} of {wanted:,} passages{left}")


async def _status(settings: Settings) -> MemoryJson:
    from waystation.runtime.redaction_setup import open_embedder  # noqa: PLC0415

    create_private_folder(settings.home)
    async with aclosing(await open_store(settings)) as store, open_embedder(settings) as embedder:
        points, finding = await _points(settings, store, embedder)
        return MemoryJson(
            place=str(settings.memory_folder) if settings.qdrant_url is None else settings.qdrant_collection,
            embedder=embedder.name,
            dimension=embedder.dimension,
            points=points,
            passages=len(await store.list_passage_ids(refused=True)),
            waiting=await store.count_pending_passages(),
            refused=await store.list_rejected_passage_ids(),
            retention_days=settings.retention_days,
            finding=finding,
        )


async def _points(settings: Settings, store: SqlStore, embedder: Embedder) -> tuple[int | None, str]:
    """Return the number of points, with a remark on problems; None if it is unknown. Creates no memory."""
    from waystation.workers.memory import has_memory, load_passage_counts  # noqa: PLC0415

    try:
        there = await has_memory(settings)
        found = await load_passage_counts(settings, store, embedder)
    except (BadInput, MemoryUnavailable, Unreachable) as error:
        return None, str(error)
    return found.points, found.loss_note or ("" if there else "memory does not exist yet (the first worker creates it)")
