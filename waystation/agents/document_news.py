"""What an agent hears when documents of its task have changed: which, and where. It is told once, as a message of the
platform: no wish of anybody, and no text of a document.

A message and not a line of the reminder: it is committed like every other, so that a crash neither loses nor repeats
it; it stands where it was heard, before everything that was read of the new versions; and it is paid once, behind a
prefix that stays cached, where a reminder is paid anew at every turn.
"""

from collections.abc import Sequence

from waystation.agents.attempt import Attempt
from waystation.agents.document_names import document_names
from waystation.domain.document_changes import DocumentChange, changed_lines, in_all
from waystation.domain.documents import Document
from waystation.domain.foreign_text import one_line, tagged
from waystation.domain.messages import Message, platform_text
from waystation.domain.ownership import OfTask
from waystation.domain.privacy import Place
from waystation.domain.redaction import redaction_notes
from waystation.ports import DocumentStore

NAMED_CHANGES = 20
"""So many documents are named; list_documents names them all."""
NAMED_PLACES = 8
"""And so many places in each."""
HEAD = (
    "The documents of the task have changed. This says which; it asks for nothing new. Tools give the new versions. "
    "Read again what you rely on: line numbers may be others now, and what was found before rests on the old versions."
)


async def hear_of_documents(attempt: Attempt) -> None:
    """Commit one message of all that has changed since the last one, if anything has.

    Raises FenceLost, VersionConflict, StoreError, RedactionFailed.
    """
    desk, run = attempt.desk, attempt.request.run
    known = max((message.updates for message in attempt.said), default=0)
    fresh = [update for update in await desk.tasks.document_updates(run.task_id, run.reader) if update.number > known]
    if not (made := in_all(fresh)):
        return
    documents = await desk.documents.documents(run.task_id, run.reader)
    shown = (await document_names(documents, desk.redactor, run.tenant)).as_shown
    lines = [await _line(change, shown[change.position], desk.documents, run.reader) for change in made[:NAMED_CHANGES]]
    if len(made) > NAMED_CHANGES:
        lines.append(f"- and {len(made) - NAMED_CHANGES} more; list_documents shows all documents as they are now")
    text = f"{HEAD}\n{tagged('documents_changed', *lines)}"
    (redacted,) = await desk.redactor.redact([text], Place.CONTRACT, run.tenant)
    attempt.notices.extend(redaction_notes(redacted))
    told = platform_text(attempt.transcript.next_id, redacted.text)
    await attempt.append(Message(**told.model_dump(exclude={"updates"}), updates=fresh[-1].number))


async def _line(change: DocumentChange, shown: Document, texts: DocumentStore, reader: OfTask) -> str:
    name = one_line(shown.name)
    what = "procedure " if shown.procedure else ""
    match change.kind:
        case "added":
            return f"- added: {what}{name} ({shown.lines} lines)"
        case "removed":
            return f"- removed: {what}{name}"
        case "changed":
            before, after = [
                (await texts.get_text(blob, reader)).splitlines() for blob in (change.before, change.after)
            ]
            return f"- changed: {what}{name} ({_places(before, after)}; {shown.lines} lines now)"


def _places(before: Sequence[str], after: Sequence[str]) -> str:
    places = [str(place) for place in changed_lines(before, after)]
    more = [f"and {len(places) - NAMED_PLACES} more places"] if len(places) > NAMED_PLACES else []
    return ", ".join([*places[:NAMED_PLACES], *more]) or "white space at ends of lines"
