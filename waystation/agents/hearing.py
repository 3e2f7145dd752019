"""At a turn boundary an agent hears what people have told its task; what reads the task once hears it, too."""

from collections.abc import Sequence

from waystation.agents.attempt import Attempt
from waystation.agents.contract_text import task_parts
from waystation.agents.document_names import document_names
from waystation.domain.foreign_text import Tagged, tagged
from waystation.domain.ownership import OfTask
from waystation.domain.privacy import Place
from waystation.domain.procedures import evidence
from waystation.domain.redaction import redaction_notes
from waystation.domain.task import TaskRef, TaskRow
from waystation.domain.telling import as_message, heard
from waystation.ports import DocumentStore, Redactor, TaskStore


async def hear(attempt: Attempt) -> None:
    """Commit each thing that this agent has not heard, oldest first, as a message of its own: redacted, else word for
    word. What it has heard stands in its transcript: so nothing is said twice, and what is taken back is said again.

    Raises FenceLost, VersionConflict, StoreError, RedactionFailed.
    """
    desk, run, known = attempt.desk, attempt.request.run, heard(attempt.said)
    for telling in await desk.tasks.tellings(run.task_id, run.reader):
        if telling.number not in known:
            words = await desk.documents.get_text(telling.text, run.reader)
            (redacted,) = await desk.redactor.redact([words], Place.CONTRACT, run.tenant)
            attempt.notices.extend(redaction_notes(redacted))
            await attempt.append(as_message(attempt.transcript.next_id, telling.number, redacted.text))


async def task_told(row: TaskRow, documents: DocumentStore, redactor: Redactor) -> Sequence[Tagged]:
    """What was asked, and of which documents, each in its tag: called as agents know them, else not redacted.

    Raises StoreError, RedactionFailed.
    """
    listed = await documents.documents(row.ref.task_id, row.ref.reader)
    names = await document_names(listed, redactor, row.ref.tenant)
    return task_parts(row.request, evidence(names.as_shown))


async def task_as_told(ref: TaskRef, tasks: TaskStore, documents: DocumentStore, redactor: Redactor) -> str:
    """The task in one tag, then what people have told it. Raises as `task_told` does."""
    task = await task_told(await tasks.task(ref.task_id, ref.reader), documents, redactor)
    told = await told_part(tasks, documents, ref.reader)
    return "\n".join(filter(None, [tagged("task", *task), told]))


async def told_part(tasks: TaskStore, texts: DocumentStore, task: OfTask) -> Tagged | None:
    """All of it in one tag, for whoever is asked once and has no turns: oldest first, not redacted. None without any.

    Raises StoreError.
    """
    words = [await texts.get_text(telling.text, task) for telling in await tasks.tellings(task.task_id, task)]
    return tagged("told_meanwhile", *words) if words else None
