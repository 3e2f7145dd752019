"""What a person has forgotten, and what was found of it."""

from waystation.domain.task import TaskProgress, TaskRequest, TaskRow
from waystation.domain.value import Value

FORGOTTEN = "(forgotten)"
"""Stands where a question stood."""


class ForgetOrder(Value):
    """Which tasks of a tenant are forgotten. They are over, and no text comes with the order."""

    store_id: str
    tenant: str
    """The tenant's hash."""
    task_ids: tuple[str, ...]
    everything: bool
    """Not only what memory could find again: transcripts, documents, notes, reports and the question itself."""


class Forgotten(Value):
    """How many of each kind are there no more."""

    tasks: int
    passages: int
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
