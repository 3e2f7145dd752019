"""Tools for notes and pins, which survive every compaction."""

import json
from collections.abc import Iterator, Mapping
from typing import Protocol

from pydantic import Field

from waystation.agents.deliverables import Note
from waystation.agents.ports import WorkRepository
from waystation.agents.tool_visibility import FIRST, LAST, LATER, SOON, make_urgency
from waystation.agents.tools.documents import find_document
from waystation.agents.tools.tool import (
    ToolCallRejectedError,
    ToolContext,
    ToolInput,
    TypedTool,
    load_redacted_lines,
    select_page_lines,
)
from waystation.context.constraints import contains_phrase, normalise_words
from waystation.context.history import build_model_view, get_effective_transcript, with_record
from waystation.context.summary import is_compaction_message, shorten_text
from waystation.context.transcript import Message, PinRecord, Record, ToolUse, Transcript
from waystation.context.units import PinLimitError, build_pin_record, build_unpin_record
from waystation.documents.ports import DocumentReader
from waystation.documents.redacted_documents import RedactedDocumentStore
from waystation.documents.web_pages import extract_stored_web_pages, split_page_lines
from waystation.kernel.errors import BadInput
from waystation.kernel.text import format_count


class TakeNoteInput(ToolInput):
    """A note and its source."""

    text: str = Field(
        min_length=1,
        max_length=4_000,
        description="The exact words in quotation marks, then what they mean for the step.",
    )
    document: str = Field(description="Name of the document, or address of the page, as shown.")
    first_line: int = Field(ge=1, description="First line that says it.")
    last_line: int = Field(ge=1, description="Last line.")


class NoteStore(WorkRepository, DocumentReader, Protocol):
    """Notes, and the documents that they name."""


class TakeNoteTool(TypedTool[TakeNoteInput]):
    """Takes a note."""

    name = "take_note"
    description = (
        "Keeps a note with its source; notes survive compression. Use it in a long step for what your result needs, in "
        "the same reply as your next calls. Returns the note's number. Not for plans, or for what has no source."
    )
    originals = frozenset({"document"})
    permission = "note"
    urgency = make_urgency(FIRST, verifying=SOON)
    input_model = TakeNoteInput

    def __init__(self, store: NoteStore, redacted: RedactedDocumentStore) -> None:
        self._store, self._redacted = store, redacted

    async def run(self, arguments: TakeNoteInput, ctx: ToolContext) -> str:
        """Store a note and return its number. The call's ID is the note's, so a repeated call keeps one note."""
        name, lines = await self._source(arguments.document, ctx)
        if not arguments.first_line <= arguments.last_line <= lines:
            raise ToolCallRejectedError(
                f"Lines {arguments.first_line}-{arguments.last_line} are not in {name}, which has "
                f"{format_count(lines, 'line')}."
            )
        found = arguments.replace(document=name)
        note = Note(id=f"{ctx.run.run_id}/{ctx.call_id}", run_id=ctx.run.run_id, **found.model_dump())
        return f"note {await self._store.add_note(ctx.fence, ctx.run.task_id, note)} kept"

    async def _source(self, name: str, ctx: ToolContext) -> tuple[str, int]:
        """Return the name and number of lines of a fetched page or a document. Raises ToolCallRejectedError."""
        if fetched := extract_stored_web_pages(ctx.transcript.messages).get(name):
            return name, len(split_page_lines(await load_redacted_lines(self._redacted, fetched.blob, name, ctx)))
        document = find_document(name, await ctx.list_documents(self._store))
        return document.name, document.lines


class ReadNotesInput(ToolInput):
    """Part of the notes."""

    first: int = Field(default=1, ge=1, description="Number of the first.")
    count: int = Field(default=50, ge=1, le=200, description="How many.")


class ReadNotesTool(TypedTool[ReadNotesInput]):
    """Shows notes in the order in which they were taken."""

    name = "read_notes"
    description = (
        "Shows your own notes. Use it only if you no longer see them. Returns them by number, with "
        "sources. Not for other agents' work."
    )
    urgency = make_urgency(LATER, FIRST)
    input_model = ReadNotesInput

    def __init__(self, store: WorkRepository) -> None:
        self._store = store

    async def run(self, arguments: ReadNotesInput, ctx: ToolContext) -> str:
        """Return one line per note."""
        notes = await self._store.list_notes(ctx.run.task_id, ctx.run.scope, ctx.run.run_id)
        start = arguments.first - 1
        lines = [
            f"{number}. {note.citation} {' '.join(note.text.split())}"
            for number, note in enumerate(notes[start : start + arguments.count], arguments.first)
        ]
        if not lines:
            return f"You have {format_count(len(notes), 'note')}; none has number {arguments.first} or higher."
        taken, _ = select_page_lines(lines, ctx.page_characters)
        shown = start + len(taken)
        return "\n".join([*taken, *([f"continues at note {shown + 1} of {len(notes)}"] if shown < len(notes) else [])])


_ID_PREFIX = "pin-"
_NAME_CHARACTERS = 80


class PinMessageInput(ToolInput):
    """Message to pin. Models see no message IDs, so it is named by a quotation."""

    quote: str = Field(
        pattern=r"\w",
        max_length=500,
        description="Words from one line of the message, copied exactly. The newest message with these words counts.",
    )
    take_back: bool = Field(default=False, description="Remove your pin instead.")


class PinMessageTool(TypedTool[PinMessageInput]):
    """Pins a message, or removes such a pin."""

    name = "pin_message"
    description = (
        "Keeps an earlier message, or a call with its results, word for word through compressions. Use it for a "
        "table or text that you will need whole. Returns what is pinned. Not for single facts."
    )
    permission = "note"
    urgency = make_urgency(LAST)
    input_model = PinMessageInput

    async def run(self, arguments: PinMessageInput, ctx: ToolContext) -> str:
        """Pin the message and return a description of it.

        The record's ID derives from the call, so a repeated call pins once.
        """
        calls = {call.id: call for message in ctx.transcript.messages for call in message.tool_uses}
        message = _quoted(arguments.quote, ctx.transcript)
        done = f"{'no longer pinned' if arguments.take_back else 'pinned'}: {_in_words(message, calls)}"
        record_id = f"{_ID_PREFIX}{ctx.call_id}"
        if not any(record.id == record_id for record in ctx.transcript.records):
            ctx.records.append(_record(message.id, ctx, record_id, take_back=arguments.take_back))
        return done


def _record(message_id: str, ctx: ToolContext, record_id: str, *, take_back: bool) -> Record:
    own = {pinned.message_id for pinned in _pins(ctx.transcript) if pinned.id.startswith(_ID_PREFIX)}
    if take_back and message_id not in own:
        raise ToolCallRejectedError(f"You did not pin this message.\nPinned now: {_all_pins(ctx.transcript)}")
    if not take_back and any(pinned.message_id == message_id for pinned in _pins(ctx.transcript)):
        raise ToolCallRejectedError(f"This message is pinned already.\nPinned now: {_all_pins(ctx.transcript)}")
    try:
        if take_back:
            record: Record = build_unpin_record(ctx.transcript, message_id, record_id)
        else:
            record = build_pin_record(ctx.transcript, message_id, ctx.policy, ctx.token_estimator, record_id)
    except PinLimitError as refused:
        raise ToolCallRejectedError(
            f"This message has {refused.size:,} tokens. All pinned messages together may have {refused.maximum:,} "
            f"tokens. Remove one of your pins, or take notes instead.\nPinned now: {_all_pins(ctx.transcript)}"
        ) from refused
    except BadInput as refused:
        raise ToolCallRejectedError(
            f"This message cannot be pinned.\nPinned now: {_all_pins(ctx.transcript)}"
        ) from refused
    if build_model_view(with_record(ctx.transcript, record)) != build_model_view(ctx.transcript):
        # The sent view must not change: a result that reappears would cost the model all its thinking.
        raise ToolCallRejectedError(
            "A part of this message, or of its results, is no longer shown: read that part again, and pin the result."
        )
    return record


def _quoted(quote: str, transcript: Transcript) -> Message:
    """Find the newest visible message with these words, except the one that makes the call.

    Raises ToolCallRejectedError.
    """
    for message in reversed(build_model_view(transcript)[:-1]):
        texts = (message.text, *(result.content for result in message.tool_results))
        if not is_compaction_message(message) and any(contains_phrase(normalise_words(text), quote) for text in texts):
            return message
    raise ToolCallRejectedError(
        "No earlier message that is shown whole has these words in one line. Copy the words exactly. If a text is no "
        "longer shown, read it again before you pin it."
    )


def _pins(transcript: Transcript) -> Iterator[PinRecord]:
    return (record for record in get_effective_transcript(transcript).records if isinstance(record, PinRecord))


def _all_pins(transcript: Transcript) -> str:
    said = {message.id: message for message in transcript.messages}
    calls = {call.id: call for message in transcript.messages for call in message.tool_uses}
    named = [_in_words(said[pinned.message_id], calls) for pinned in _pins(transcript)]
    return "; ".join(named) or "none"


def _in_words(message: Message, calls: Mapping[str, ToolUse]) -> str:
    """Describe a message to a model: no IDs, and only its beginning."""
    if asked := [calls[result.tool_use_id] for result in message.tool_results if result.tool_use_id in calls]:
        return " and ".join(f"the result of {call.name} {_start(json.dumps(call.input))}" for call in asked)
    return f"“{_start(message.text)}”"


def _start(text: str) -> str:
    return shorten_text(" ".join(text.split()), _NAME_CHARACTERS)
