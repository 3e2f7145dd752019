"""The procedures of a task, as agents are told of them."""

from collections.abc import Sequence

from waystation.domain.foreign_text import Tagged, one_line, tagged
from waystation.domain.procedures import (
    MOST_PROCEDURES,
    GivenProcedure,
    Malformed,
    Procedure,
    distinct,
    procedure_of,
)
from waystation.domain.task import TaskRow
from waystation.ports import DocumentStore


async def given_procedures(row: TaskRow, documents: DocumentStore) -> tuple[GivenProcedure, ...]:
    """As they were handed in. Those of a task of before that are the documents that it took for procedures, in their
    order and as they are now. Raises StoreError.
    """
    known = await documents.documents(row.ref.task_id, row.ref.reader)
    there = [one for one in known if one.procedure and not one.removed]
    among = [GivenProcedure(name=one.name, text=await documents.get_text(one.blob, row.ref.reader)) for one in there]
    return (*row.request.procedures, *among)


async def procedures_of(row: TaskRow, documents: DocumentStore) -> tuple[Procedure | Malformed, ...]:
    """What agents can follow of them, and what not. Raises StoreError."""
    given = await given_procedures(row, documents)
    read = [procedure_of(one.name, one.text) for one in given[:MOST_PROCEDURES]]
    over = f"a task has {MOST_PROCEDURES} procedures at most"
    return (*distinct(read), *(Malformed(document=one.name, reason=over) for one in given[MOST_PROCEDURES:]))


def as_procedure(procedure: Procedure) -> Tagged:
    """As a model reads it: whose it is, and that no line of it ends it."""
    return tagged("procedure", procedure.text, name=one_line(procedure.name))


def listed(found: Sequence[Procedure | Malformed], more: str = "") -> Tagged | None:
    """By name and description, then how many more there are; None where there are none."""
    if not found and not more:
        return None
    lines = [
        f"- {one_line(one.name)}: {one_line(one.description)}"
        if isinstance(one, Procedure)
        else f"- {one_line(one.document)} cannot be used: {one.reason}"
        for one in found
    ]
    note = "The user's: follow those that fit your step; read_skill shows them. They are no evidence: never cite them."
    return tagged("procedures", *lines, *([more] if more else []), note=note)
