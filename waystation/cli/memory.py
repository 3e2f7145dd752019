"""`waystation memory`: what agents can recall, for whoever operates it."""

import asyncio
from contextlib import aclosing
from typing import Annotated

import typer

from waystation.adapters.store import SqlStore
from waystation.agents.archive import BATCH
from waystation.agents.reindexing import Reindexed, Reindexing
from waystation.cli.console import print_json, print_text, say
from waystation.cli.forget import forget_tasks
from waystation.cli.memory_eval import evaluate
from waystation.cli.memory_search import search
from waystation.cli.options import JsonOption
from waystation.domain.errors import BadInput, MemoryUnavailable, Unreachable
from waystation.domain.task import tenant_hash
from waystation.domain.value import Value
from waystation.ports import Embedder
from waystation.private_files import private_folder
from waystation.settings import Settings
from waystation.stores import opened_store

PROGRESS_STEP = 1_000
"""Passages between two lines about how far it is."""

app = typer.Typer()
memory = typer.Typer(
    name="memory",
    help="Search what agents can recall, measure it, forget it, and make it anew with another embedder.",
    no_args_is_help=True,
)
app.add_typer(memory)
memory.command("search")(search)
memory.command("forget")(forget_tasks)
memory.command("eval")(evaluate)


@memory.callback()
def _memory() -> None:
    """Search what agents can recall, measure it, forget it, and make it anew with another embedder."""


class MemoryJson(Value):
    """What memory is, and what the store has for it."""

    place: str
    """The folder, or the collection on the Qdrant server."""
    embedder: str
    """As the settings want it."""
    dimension: int | None
    points: int | None
    """Of this tenant; None where memory cannot be opened now."""
    passages: int
    """In the store, of all tenants, as far as they count."""
    waiting: int
    refused: tuple[str, ...]
    retention_days: int | None
    """So long after its end a task is kept; None: for ever."""
    finding: str
    """Why memory cannot be opened; empty where it can."""


@memory.command("status")
def show_status(as_json: JsonOption = False) -> None:
    """Show where memory is, which embedder made it, and which passages it does not have."""
    found = asyncio.run(_status(Settings()))
    if as_json:
        print_json(found)
        return
    points = "not known" if found.points is None else f"{found.points:,}"
    print_text(found.place)
    print_text(f"embedder {found.embedder} ({found.dimension or 'no'} dimensions)")
    print_text(f"{points} points; {found.passages:,} passages in the store, {found.waiting:,} of them wait")
    if found.refused:
        print_text(f"{len(found.refused):,} not taken: {', '.join(found.refused)}")
    if found.retention_days is not None:
        print_text(f"{found.retention_days:,} days after its end a task is forgotten, every word of it")
    if found.finding:
        print_text(found.finding)


@memory.command("reindex")
def reindex(
    with_refused: Annotated[
        bool, typer.Option("--refused", help="Also passages that memory did not take before.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make memory anew with the embedder that is set, from the passages in the store.

    The memory before stays in use until the new one is complete. A run that was stopped goes on where it ended.
    Embedded memory needs its workers to be stopped; those of a Qdrant server are to be started again afterwards, with
    the same embedder.
    """
    done = asyncio.run(_reindex(Settings(), with_refused=with_refused))
    if as_json:
        print_json(done)
        return
    print_text(f"memory has {done.passages:,} passages; {done.embedded:,} were embedded now by {done.embedder}")
    if done.refused:
        print_text(f"{len(done.refused):,} not taken: {', '.join(done.refused)}")


class ReindexedJson(Reindexed):
    """And what made its vectors."""

    embedder: str
    dimension: int | None


async def _reindex(settings: Settings, *, with_refused: bool) -> ReindexedJson:
    # Qdrant and the embedder take a second to load.
    from waystation.embedders import opened_embedder  # noqa: PLC0415
    from workers.memory import opened_draft  # noqa: PLC0415

    private_folder(settings.home)
    async with aclosing(await opened_store(settings)) as store, opened_embedder(settings) as embedder:
        async with opened_draft(settings, embedder) as draft:
            done = await Reindexing(store, embedder, draft, _told, with_refused=with_refused).run()
        return ReindexedJson(embedder=embedder.name, dimension=embedder.dimension, **done.model_dump())


def _told(there: int, wanted: int) -> None:
    # Batches are smaller than a step: one of them at most passes it.
    if there == wanted or there % PROGRESS_STEP < BATCH:
        say(f"{there:,} of {wanted:,} passages")


async def _status(settings: Settings) -> MemoryJson:
    from waystation.embedders import opened_embedder  # noqa: PLC0415

    private_folder(settings.home)
    async with aclosing(await opened_store(settings)) as store, opened_embedder(settings) as embedder:
        points, finding = await _points(settings, store, embedder)
        return MemoryJson(
            place=str(settings.memory_folder) if settings.qdrant_url is None else settings.qdrant_collection,
            embedder=embedder.name,
            dimension=embedder.dimension,
            points=points,
            passages=len(await store.passage_ids(refused=True)),
            waiting=await store.count_waiting(),
            refused=await store.refused(),
            retention_days=settings.retention_days,
            finding=finding,
        )


async def _points(settings: Settings, store: SqlStore, embedder: Embedder) -> tuple[int | None, str]:
    """How many there are, or why that cannot be told. A look makes no memory."""
    from workers.looking import memory_to_search  # noqa: PLC0415
    from workers.memory import memory_is_there  # noqa: PLC0415

    try:
        if not await memory_is_there(settings):
            return 0, "memory is made by the first worker"
        async with memory_to_search(settings, store, embedder) as memory:
            return await memory.count(tenant_hash(settings.tenant)), ""
    except (BadInput, MemoryUnavailable, Unreachable) as error:
        return None, str(error)
