"""What a person has forgotten, and what was found of it."""

from collections.abc import Sequence

from waystation.domain.task import TaskProgress, TaskRef, TaskRequest, TaskRow, short_hash
from waystation.domain.value import Value

FORGOTTEN = "(forgotten)"
"""Stands where a question stood."""
MOST_AT_ONCE = 500
"""Tasks of an order that nobody gave."""


class ForgetOrder(Value):
    """Which tasks of a tenant are forgotten. They are over, and no text comes with the order."""

    store_id: str
    tenant: str
    """The tenant's hash."""
    task_ids: tuple[str, ...]
    everything: bool
    """Not only what memory could find again: transcripts, documents, notes, reports and the question itself."""

    @property
    def workflow_id(self) -> str:
        """Of what carries it out."""
        return f"forget-{short_hash(*self.task_ids, str(self.everything))}"


class Due(Value):
    """What a look for tasks whose time is over has found."""

    days: int | None
    """So long tasks are kept; None: for ever."""
    orders: tuple[ForgetOrder, ...] = ()


class Forgotten(Value):
    """How many of each kind are there no more."""

    tasks: int = 0
    """Of which there was something to forget."""
    passages: int = 0
    """They are in memory no more when the order has been carried out."""
    originals: int = 0
    """Of placeholders that nothing mentions any longer."""
    messages: int = 0
    """Messages, compactions and outcomes of agents."""
    work: int = 0
    """Notes, and what agents handed in."""
    documents: int = 0
    """A text that another task has too stays there."""
    texts: int = 0
    """Contents of documents, reports, long results of tools."""
    audits: int = 0


class Tidying(Value):
    """An order of which the store and memory have nothing any more."""

    order: ForgetOrder
    forgotten: Forgotten


class CarriedOut(Value):
    """What became of an order."""

    forgotten: Forgotten
    histories: int = 0
    """Workflow histories that the server was told to delete."""
    files: int = 0
    """Reports in home folders."""


def orders_of(tasks: Sequence[TaskRef]) -> tuple[ForgetOrder, ...]:
    """To forget every word of these tasks: an order for each store and tenant, and of no more than MOST_AT_ONCE."""
    by_owner: dict[tuple[str, str], list[str]] = {}
    for ref in tasks:
        by_owner.setdefault((ref.store_id, ref.tenant), []).append(ref.task_id)
    return tuple(
        ForgetOrder(store_id=store, tenant=tenant, task_ids=tuple(ids[first : first + MOST_AT_ONCE]), everything=True)
        for (store, tenant), ids in by_owner.items()
        for first in range(0, len(ids), MOST_AT_ONCE)
    )


def forgotten_row(row: TaskRow) -> TaskRow:
    """The task without a word of anybody: what it cost and how it ended stays."""
    request = TaskRequest.model_validate(
        {**row.request.model_dump(), "question": FORGOTTEN, "instructions": "", "accept": (), "left_out": ()}
    )
    progress = None if row.progress is None else _without_text(row.progress)
    return row.model_copy(update={"request": request, "title": FORGOTTEN, "progress": progress})


def _without_text(progress: TaskProgress) -> TaskProgress:
    return TaskProgress(
        task_id=progress.task_id,
        phase=progress.phase,
        title=FORGOTTEN,
        model=progress.model,
        steps=tuple(step.model_copy(update={"title": "", "reason": ""}) for step in progress.steps),
        budget=progress.budget,
        totals=progress.totals,
        legs=progress.legs,
    )
