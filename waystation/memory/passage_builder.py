"""Builds passages from messages that a compaction covers, from documents, and from the results of tasks.

Also builds the line by which a summary names its passages.

Windows over messages overlap, since those are found best. What is returned are turns, so each window records where its
turns begin. `python -m benchmarks.memory kinds` measures it; `benchmarks/README.md` compares other sizes and steps.
"""

import json
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from waystation.context.summary import SOURCES_PREFIX, is_compaction_message, parse_ledger_entries, shorten_text
from waystation.context.transcript import (
    SYSTEM_MESSAGE_TYPE,
    Block,
    Message,
    OpaqueBlock,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    with_quoted_labels,
)
from waystation.documents.documents import Document, DocumentPassage
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.refs import RunRef, TaskRef
from waystation.kernel.text import SAYS
from waystation.kernel.value import Value, text_hash
from waystation.memory.passages import CONTINUATION_SUFFIX, TURN_LABEL, Passage, PassageKind

WINDOW_TURNS = 3
TURN_CHARACTERS = 240
"""A longer line is split into several turns at its structure."""
WINDOW_CHARACTERS, STEP_CHARACTERS = 120, 60
"""A window takes more turns if they are short, and the next one begins several turns later, to limit their number."""
PART_CHARACTERS = 300
"""Maximum characters of a passage of a report."""
HEADING_CHARACTERS = 150
"""Maximum characters of a call, which precedes every window of its result."""
CUT_PATTERNS = tuple(compile_bounded(f"(?<={end})") for end in (r"\n\n", r"\n", r"[.!?;] ", r"[。！？]", r" "))
"""Where a text is cut, the best places first."""
_NAMESPACE = uuid.UUID("6f1d3c0a-53f4-5c0e-9a55-0d1f7f9e2b41")


class _Piece(NamedTuple):
    """What a passage says under one label: a line of the conversation, or a part of a long one."""

    message_id: str
    label: str
    text: str
    heading: str
    """The call that it answers."""


def map_tool_names(messages: Sequence[Message]) -> dict[str, str]:
    """Map the id of each call to its tool's name."""
    return {call.id: call.name for message in messages for call in message.tool_uses}


def render_message(message: Message, names: Mapping[str, str]) -> str:
    """Render the message as plain text, each block headed by the message's id and its speaker. Reasoning is left out.

    Only those labels begin a line: any other line that looks like one is quoted, as `> [m5 user] …`. `names` maps the
    calls that its results answer to tools (`map_tool_names` of the whole conversation).
    """
    return "\n".join(text for block in message.blocks if (text := _render_block(message, block, names)))


def _render_block(message: Message, block: Block, names: Mapping[str, str]) -> str:
    head = _head(message, block)
    match block:
        case Text():
            return f"{head} {with_quoted_labels(block.text, message.id)}" if head else ""
        case ToolUse():
            return f"{head} {json.dumps(block.input, ensure_ascii=False)}"
        case ToolResult():
            attached = [f"(attached: {one.kind}) {one.readable_text}".rstrip() for one in block.attachments]
            said = "\n".join([*([block.content] if block.content else []), *attached])
            return f"{head} of {names.get(block.tool_use_id, 'a tool')}] {with_quoted_labels(said, message.id)}"
        case OpaqueBlock() if block.kind != SYSTEM_MESSAGE_TYPE and (words := block.readable_text):
            return f"{head} {with_quoted_labels(words, message.id)}"
        case _:
            return head


def _head(message: Message, block: Block) -> str:
    """Return how the block's text begins, whatever the names of the tools it answers; empty if it says nothing."""
    match block:
        case Text():
            return f"[{message.id} {message.role}]" if block.text.strip() else ""
        case ToolUse():
            return f"[{message.id} {message.role} calls {block.name}]"
        case ToolResult():
            return f"[{message.id} {'error' if block.is_error else 'result'}"
        case OpaqueBlock():
            return f"[{message.id} {message.role} attaches: {block.kind}]"
        case Thinking() | RedactedThinking():
            return ""


def make_passages(
    ref: RunRef, compaction_id: str, messages: Sequence[Message], texts: Mapping[str, str], created: datetime
) -> tuple[Passage, ...]:
    """Build windows of three turns, each starting one turn after the last, in the order of the messages.

    `texts` holds the redacted rendering by message id; a message without one is left out. The same arguments give the
    same passages with the same ids. Every line of a passage begins with the message and the speaker, so that no line
    can pass for another's.
    """
    pieces = list(_pieces(messages, texts))
    windows = enumerate(_windows(pieces))
    return tuple(_passage(ref, compaction_id, place, pieces, window, created) for place, window in windows)


def _pieces(messages: Sequence[Message], texts: Mapping[str, str]) -> Iterator[_Piece]:
    calls: dict[str, str] = {}
    for message in messages:
        for block, label, said in _said(message, texts.get(message.id, "")):
            heading = ""
            match block:
                case ToolUse():
                    calls[block.id] = shorten_text(f"{block.name} {said}", HEADING_CHARACTERS).replace("\n", " ")
                case ToolResult():
                    heading = calls.get(block.tool_use_id, "")
                case _:
                    pass
            for line in said.split("\n"):
                for number, part in enumerate(split_into_chunks(line, TURN_CHARACTERS)):
                    if part.strip():
                        yield _Piece(message.id, f"[{label}{CONTINUATION_SUFFIX if number else ''}]", part, heading)


def _said(message: Message, text: str) -> Iterator[tuple[Block, str, str]]:
    """Yield each block with its label, without the brackets, and its text.

    A block begins at its label: no other line of `render_message` begins like one of this message.
    """
    shown = [(block, head) for block in message.blocks if (head := _head(message, block))]
    if not shown:  # blanks, or thinking alone
        return
    begun = [(shown[0][0], 0)]
    for block, head in shown[1:]:
        # If one was redacted away together with its surroundings, the others are still found.
        if start := text.find(f"\n{head}", begun[-1][1]) + 1:
            begun.append((block, start))
    for (block, start), end in zip(begun, [*(start for _, start in begun[1:]), len(text)], strict=True):
        label = TURN_LABEL.match(said := text[start:end].removesuffix("\n"))
        place, begin = (label["place"], label.end()) if label else (f"{message.id} {message.role}", 0)
        yield block, place, said[begin:]


def _windows(pieces: Sequence[_Piece]) -> Iterator[range]:
    """Yield the numbers of the pieces in each window."""
    first = 0
    while first < len(pieces):
        end, size = first, 0
        while end < len(pieces) and (end - first < WINDOW_TURNS or size < WINDOW_CHARACTERS):
            size += len(pieces[end].text)
            end += 1
        yield range(first, end)
        if end == len(pieces):
            return
        step = len(pieces[first].text)
        first += 1
        while first < end - 1 and step + len(pieces[first].text) <= STEP_CHARACTERS:
            step += len(pieces[first].text)
            first += 1


def split_into_chunks(text: str, size: int) -> list[str]:
    """Split the text into parts of at most `size` characters, at the highest structure that suffices: paragraphs,
    lines, sentences, words, or else anywhere.
    """
    if len(text) <= size:
        return [text]
    for separator in CUT_PATTERNS:
        parts = [part for part in separator.split(text) if part]
        if len(parts) > 1:
            return _packed([small for part in parts for small in split_into_chunks(part, size)], size)
    return [text[start : start + size] for start in range(0, len(text), size)]


def _packed(parts: Iterable[str], size: int) -> list[str]:
    """Join consecutive parts as far as they fit."""
    packed: list[str] = []
    for part in parts:
        if packed and len(packed[-1]) + len(part) <= size:
            packed[-1] += part
        else:
            packed.append(part)
    return packed


def with_speakers(said: Mapping[tuple[tuple[str, ...], int], str], going_on: Collection[object]) -> list[str]:
    """Return the texts, by source and number, in order; a text that continues another gets its speaker in front."""
    speakers: dict[object, str] = {}
    for source, number in sorted(said):
        says = SAYS.match(said[source, number])
        own = f"{says[0]}: " if says else ""
        speakers[source, number] = speakers.get((source, number - 1), "") if (source, number) in going_on else own
    return [f"{speakers[place]}{text}" if place in going_on else text for place, text in said.items()]


def _passage(
    ref: RunRef, compaction_id: str, place: int, pieces: Sequence[_Piece], window: range, created: datetime
) -> Passage:
    said = [pieces[number] for number in window]
    text = "\n".join(f"{piece.label} {piece.text}" for piece in said)
    return Passage(
        id=str(uuid.uuid5(_NAMESPACE, f"{ref.run_id}/{compaction_id}/{place}")),
        tenant=ref.tenant,
        session=ref.session,
        task_id=ref.task_id,
        run_id=ref.run_id,
        step_id=ref.step_id,
        compaction=compaction_id,
        place=place,
        turn=window.start,
        heading="\n".join(dict.fromkeys(piece.heading for piece in said if piece.heading)),
        first_message=said[0].message_id,
        last_message=said[-1].message_id,
        text=text,
        content_hash=text_hash(text),
        created=created,
    )


SLICE_CHARACTERS = 40_000
"""About a second of work: a stopping worker waits that long for it, and a crash repeats that much."""
_MAX_NAMED = 5
"""Maximum number of documents named in a sentence."""
DOCUMENTS_ID = "documents/"
"""Used instead of a step's id; the slash rules out a step."""
_DOCUMENTS_NAMESPACE = uuid.UUID("0d6a7a52-2f6e-5b0b-8f43-5f0f5f3c1c77")


class IndexingState(Value):
    """How far the documents of a task are indexed: references and numbers, no text."""

    ref: TaskRef
    max_characters: int
    """Maximum characters of all documents together; the rest is left out."""
    slices: int = 0
    """Finished slices."""
    document: int = 0
    """Number of the document in which the next slice begins."""
    blob: str = ""
    """Content hash of the version from which its first lines were read; empty if none were."""
    line: int = 0
    """Number of the next line, from 0."""
    place: int = 0
    """Passages of that document so far."""
    characters: int = 0
    """Characters in the slices so far."""
    skipped_characters: int = 0
    """Characters that are not in memory: beyond the limit, or not redactable. Known at the end."""
    passages: int = 0
    done: bool = False

    def with_document_version(self, blob: str) -> "IndexingState":
        """Return the state for this version of the document: from its first line if earlier lines were of another."""
        if self.blob in {"", blob}:
            return self
        return self.replace(blob="", line=0, place=0)

    def after_slice(self, passages: int, characters: int, withheld: int = 0) -> "IndexingState":
        """Return the state after a slice, or its replacement, in the same document."""
        return self.replace(
            slices=self.slices + 1,
            place=self.place + passages,
            characters=self.characters + characters,
            skipped_characters=self.skipped_characters + withheld,
            passages=self.passages + passages,
        )

    def at_line(self, line: int, lines: Sequence[str], blob: str) -> "IndexingState":
        """Return the state at this line of a version with these lines; after the last, at the start of the next
        document.
        """
        if line < len(lines):
            return self.replace(line=line, blob=blob)
        return self.replace(document=self.document + 1, blob="", line=0, place=0)


class UnindexedDocuments(Value):
    """Documents that do not fit into memory completely because of the configured limit."""

    partial_document: str | None
    """Name of the document of which only the first lines are in memory."""
    missing_documents: tuple[str, ...]
    """Names of the documents that are not in memory at all, in their order."""
    total_characters: int
    max_characters: int

    @property
    def sentence(self) -> str:
        """Warning for the person who submits them, with the setting that decides."""
        return (
            f"Memory keeps {self.max_characters:,} characters of a task's documents "
            f"(limit: WAYSTATION_REMEMBERED_CHARACTERS), but these documents have {self.total_characters:,}. Later "
            f"tasks cannot recall {self.name_summary}. The agents of this task can read everything."
        )

    @property
    def name_summary(self) -> str:
        """The first of them by name, and how many more."""
        names = [*([f"{self.partial_document} (its end)"] if self.partial_document else []), *self.missing_documents]
        more = len(names) - _MAX_NAMED
        return ", ".join(names[:_MAX_NAMED]) + (f" and {more:,} more" if more > 0 else "")

    @property
    def lines(self) -> tuple[str, ...]:
        """One list item for each."""
        return (
            *([f"- the end of {self.partial_document}"] if self.partial_document else []),
            *(f"- {name}" for name in self.missing_documents),
        )


def find_unindexed_documents(documents: Sequence[Document], maximum: int) -> UnindexedDocuments | None:
    """Return which documents do not fit into memory if the limit is `maximum` characters; None if all do.

    They are taken in order, and none after the first that does not fit. A limit of 0 keeps documents out of memory, and
    needs no warning.
    """
    there = [document for document in documents if not document.removed]
    total = sum(document.characters for document in there)
    if not maximum or total <= maximum:
        return None
    room = maximum
    for number, document in enumerate(there):
        if document.characters > room:
            first, rest = document.name, tuple(one.name for one in there[number + 1 :])
            wholly = tuple(one.name for one in there[number:]) if not room else rest
            return UnindexedDocuments(
                partial_document=first if room else None,
                missing_documents=wholly,
                total_characters=total,
                max_characters=maximum,
            )
        room -= document.characters
    return None


def find_next_unindexed_line(there: Sequence[Passage], lines: Sequence[str]) -> int:
    """Return the line, from 0, after the lines of existing passages and any blank lines."""
    line = there[-1].last_line
    while line < len(lines) and not lines[line].strip():
        line += 1
    return line


def find_slice_end(lines: Sequence[str], first: int, room: int) -> int:
    """Return the line, from 0, before which a slice that begins at `first` ends.

    It ends at a blank line if there is one in time, so that no paragraph is split, and never exceeds `room` characters.
    If the result equals `first`, there is no room for a single line.
    """
    size = 0
    for number in range(first, len(lines)):
        size += len(lines[number])
        if size > room:
            return number
        if size >= 2 * SLICE_CHARACTERS or (size >= SLICE_CHARACTERS and not lines[number].strip()):
            return number + 1
    return len(lines)


def build_document_passage(ref: TaskRef, cut: DocumentPassage, blob: str, place: int, created: datetime) -> Passage:
    """Build a document passage for memory, headed by its source: a citation, with the heading above it."""
    said = "\n".join(filter(None, (cut.heading, cut.text)))
    return Passage(
        id=make_document_passage_id(ref, cut.name, blob, place),
        tenant=ref.tenant,
        session=ref.session,
        task_id=ref.task_id,
        run_id=make_documents_run_id(ref.task_id),
        step_id="",
        kind="document",
        document=cut.name,
        blob=blob,
        first_line=cut.first_line,
        last_line=cut.last_line,
        text=f"[{cut.name}:{cut.first_line}-{cut.last_line}]\n{said}",
        content_hash=text_hash(said),
        created=created,
        place=place,
    )


def make_document_passage_id(ref: TaskRef, name: str, blob: str, place: int) -> str:
    """Return the passage id, which is the same for all tasks of a session with this version of a document by
    this name.
    """
    return str(uuid.uuid5(_DOCUMENTS_NAMESPACE, "\0".join((ref.tenant, ref.session, name, blob, str(place)))))


def make_documents_run_id(task_id: str) -> str:
    """Return the run id under which the store keeps passages of a task's documents, next to those of its agents."""
    return f"{task_id}/{DOCUMENTS_ID}"


RESULTS_ID = "results/"
"""Used instead of a step's id; the slash rules out a step."""
_RESULTS_NAMESPACE = uuid.UUID("5b0c1d6e-3a0b-5d0f-8a35-6f0f8c1f7d52")


class TaskResults(Value):
    """Results of one task, redacted as summaries are. Not for workflow history."""

    ref: TaskRef
    report: str
    """The written part of the report, without its sources and its account."""
    blob: str
    """Content hash of the whole report."""
    findings: Sequence[tuple[str, str]]
    """Pairs of a step and a claim with its citations."""


def build_result_passages(results: TaskResults, created: datetime) -> tuple[Passage, ...]:
    """Build the passages. The same results give the same passages, with the same ids."""
    parts = [("", part) for part in split_into_chunks(results.report, PART_CHARACTERS)]
    kinds: dict[PassageKind, Sequence[tuple[str, str]]] = {"report": parts, "finding": results.findings}
    return tuple(
        _result_passage(results, kind, step, (place, text), created)
        for kind, texts in kinds.items()
        for place, (step, text) in enumerate(texts)
    )


def make_results_run_id(task_id: str) -> str:
    """Return the run id under which the store keeps these passages, next to those of the task's agents."""
    return f"{task_id}/{RESULTS_ID}"


def _result_passage(
    results: TaskResults, kind: PassageKind, step: str, cut: tuple[int, str], created: datetime
) -> Passage:
    ref, (place, text) = results.ref, cut
    content = text_hash(text)
    return Passage(
        id=str(uuid.uuid5(_RESULTS_NAMESPACE, "\0".join((ref.task_id, kind, step, str(place), content)))),
        tenant=ref.tenant,
        session=ref.session,
        task_id=ref.task_id,
        run_id=make_results_run_id(ref.task_id),
        step_id=step,
        kind=kind,
        blob=results.blob if kind == "report" else "",
        text=text,
        content_hash=content,
        created=created,
        place=place,
    )


MAX_SOURCES = 12
"""About 120 tokens. Further passages share an entry, which names the first of them."""
_SOURCE = compile_bounded(r"(p[0-9a-f]{8}) ([^\s-]++)-(\S++)")


class _Source(NamedTuple):
    """A range of the conversation, with the passage at its start."""

    passage: str
    """Short ID."""
    first: str
    last: str

    def __str__(self) -> str:
        """Render the source as in a ledger."""
        return f"{self.passage} {self.first}-{self.last}"


def build_sources_line(hidden: Sequence[Message], passages: Iterable[Passage]) -> str:
    """Build the ledger line for a summary of these messages: sources of earlier summaries, then the new passages.

    Empty if there are none.
    """
    earlier = [
        line
        for message in hidden
        if is_compaction_message(message)
        for line in parse_ledger_entries(message, SOURCES_PREFIX)
    ]
    found = [_Source(*match) for line in earlier for match in _SOURCE.findall(line)]
    found += [_Source(one.short_id, one.first_message, one.last_message) for one in passages]
    while len(found) > MAX_SOURCES:
        pairs = (found[place : place + 2] for place in range(0, len(found), 2))
        found = [_Source(pair[0].passage, pair[0].first, pair[-1].last) for pair in pairs]
    return f"{SOURCES_PREFIX}{'; '.join(map(str, found))}" if found else ""
