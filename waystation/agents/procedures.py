"""The procedures among a task's documents, as agents are told of them."""

from collections.abc import Sequence

from waystation.domain.procedures import Malformed, Procedure, distinct, is_procedure, procedure_of
from waystation.ports import DocumentStore

MOST_PROCEDURES = 50
"""Of one task; those after them are not looked at, which is said."""


async def procedures_of(documents: DocumentStore, task_id: str) -> tuple[Procedure | Malformed, ...]:
    """In the order of the documents. Raises StoreError."""
    known = await documents.documents(task_id)
    there = [document for document in known if is_procedure(document.name) and not document.removed]
    read = [
        procedure_of(document.name, await documents.get_text(document.blob)) for document in there[:MOST_PROCEDURES]
    ]
    over = f"a task has {MOST_PROCEDURES} procedures at most"
    return (*distinct(read), *(Malformed(document=one.name, reason=over) for one in there[MOST_PROCEDURES:]))


def as_procedure(procedure: Procedure) -> str:
    """As a model reads it: whose it is, and that no line of it ends it."""
    text = procedure.text.replace("</procedure", "< /procedure")
    return f'<procedure name="{procedure.name}">\n{text}\n</procedure>'


def listed(found: Sequence[Procedure | Malformed], more: str = "") -> str:
    """By name and description, then how many more there are; empty where there are none."""
    if not found and not more:
        return ""
    lines = [
        f"- {one.name}: {one.description}"
        if isinstance(one, Procedure)
        else f"- {one.document} cannot be used: {one.reason}"
        for one in found
    ]
    note = "The user's: follow those that fit your step; read_skill shows them. They are no evidence: never cite them."
    return "\n".join([f'<procedures note="{note}">', *lines, *([more] if more else []), "</procedures>"])
