"""Passages: made of messages that a compaction covers, of documents, and of what tasks came to.

Makes passages of the messages that a compaction covers: overlapping windows, since those are found best. What is found
in them are turns, so that each window says where its turns begin.

`python -m benchmarks.memory kinds` measures it; `benchmarks/README.md` has what larger windows and steps come to.

How the documents of a task come into memory: slice by slice, each a stretch of whole lines, in their order.

What a task's end leaves in memory: its report, cut where it is structured, and its findings, each by itself.
"""

import json
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from waystation.context.summary import shorten_text
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
"""A longer line is several turns, cut where it is structured."""
WINDOW_CHARACTERS, STEP_CHARACTERS = 120, 60
"""Of short turns a window has more, and the next one begins some of them later, so that there are not too many."""
PART_CHARACTERS = 300
"""Of a report."""
HEADING_CHARACTERS = 150
"""Of a call, before every window of its result."""
CUT_PATTERNS = tuple(compile_bounded(f"(?<={end})") for end in (r"\n\n", r"\n", r"[.!?;] ", r"[。！？]", r" "))
"""Where a text is cut, the best first."""
_NAMESPACE = uuid.UUID("6f1d3c0a-53f4-5c0e-9a55-0d1f7f9e2b41")


class _Piece(NamedTuple):
    """What a passage says with one label: a line of what was said, or a part of a long one."""

    message_id: str
    label: str
    text: str
    heading: str
    """The call that it answers."""


def map_tool_names(messages: Sequence[Message]) -> dict[str, str]:
    """The tool's name by the id of each call."""
    return {call.id: call.name for message in messages for call in message.tool_uses}


def render_message(message: Message, names: Mapping[str, str]) -> str:
    """The message as plain text, each block headed by the message's id and its speaker. Reasoning is left out.

    Only those labels begin a line: one that would read like it is quoted, as `> [m5 user] …`. `names` are the tools
    of the calls that its results answer (`tool_names` of the whole conversation).
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
            attached = [f"(attached: {one.kind}) {one.readable_text}".rstrip() for one in block.attached]
            said = "\n".join([*([block.content] if block.content else []), *attached])
            return f"{head} of {names.get(block.tool_use_id, 'a tool')}] {with_quoted_labels(said, message.id)}"
        case OpaqueBlock() if block.kind != SYSTEM_MESSAGE_TYPE and (words := block.readable_text):
            return f"{head} {with_quoted_labels(words, message.id)}"
        case _:
            return head


def _head(message: Message, block: Block) -> str:
    """How its text begins, whatever the tools are called that it answers; empty where it says nothing."""
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
    """Windows of three turns, of which the next begins one turn later, in the order of the messages.

    `texts` holds the redacted rendering by message id; a message without one is left out. The same arguments give the
    same passages with the same ids. Every line of a passage begins with the message and who speaks, so that no line
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
    """Each block with its label, without the brackets, and with what it says.

    Where a block begins is told by its label: no other line of `render` begins like one of this message.
    """
    shown = [(block, head) for block in message.blocks if (head := _head(message, block))]
    if not shown:  # blanks, or thinking alone
        return
    begun = [(shown[0][0], 0)]
    for block, head in shown[1:]:
        # One that was redacted away with what is around it leaves the others where they are.
        if start := text.find(f"\n{head}", begun[-1][1]) + 1:
            begun.append((block, start))
    for (block, start), end in zip(begun, [*(start for _, start in begun[1:]), len(text)], strict=True):
        label = TURN_LABEL.match(said := text[start:end].removesuffix("\n"))
        place, begin = (label["place"], label.end()) if label else (f"{message.id} {message.role}", 0)
        yield block, place, said[begin:]


def _windows(pieces: Sequence[_Piece]) -> Iterator[range]:
    """Numbers of the pieces of each."""
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
    """The text in parts of at most `size` characters, cut at the highest structure that does: paragraphs, lines,
    sentences, words, and where there is none anywhere.
    """
    if len(text) <= size:
        return [text]
    for separator in CUT_PATTERNS:
        parts = [part for part in separator.split(text) if part]
        if len(parts) > 1:
            return _packed([small for part in parts for small in split_into_chunks(part, size)], size)
    return [text[start : start + size] for start in range(0, len(text), size)]


def _packed(parts: Iterable[str], size: int) -> list[str]:
    """Parts that follow each other, joined as far as they fit."""
    packed: list[str] = []
    for part in parts:
        if packed and len(packed[-1]) + len(part) <= size:
            packed[-1] += part
        else:
            packed.append(part)
    return packed


def with_speakers(said: Mapping[tuple[tuple[str, ...], int], str], going_on: Collection[object]) -> list[str]:
    """These texts, by source and number, in their order; what goes on with the one before has who says it in front."""
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
"""About a second of work: so long a worker that stops waits for it, and so much a crash repeats."""
_MOST_NAMED = 5
"""Documents in a sentence."""
DOCUMENTS_ID = "documents/"
"""In the place of a step's id: the slash makes it none."""
_OF_DOCUMENTS = uuid.UUID("0d6a7a52-2f6e-5b0b-8f43-5f0f5f3c1c77")


class IndexingState(Value):
    """How far the documents of a task have come: references and numbers, no text."""

    ref: TaskRef
    most_characters: int
    """Of all documents together. What goes beyond is left out."""
    slices: int = 0
    """That are done."""
    document: int = 0
    """Number of the document in which the next slice begins."""
    blob: str = ""
    """Content hash of the version that its first lines were read in; empty: none were read."""
    line: int = 0
    """Number of its first line, from 0."""
    place: int = 0
    """Passages of that document so far."""
    characters: int = 0
    """In the slices so far."""
    left_out: int = 0
    """Characters that memory does not get: beyond the limit, or not to be redacted. Known at the end."""
    passages: int = 0
    done: bool = False

    def with_document_version(self, blob: str) -> "IndexingState":
        """In this version of the document: from its first line where the lines before were another version's."""
        if self.blob in {"", blob}:
            return self
        return self.replace(blob="", line=0, place=0)

    def after_slice(self, passages: int, characters: int, withheld: int = 0) -> "IndexingState":
        """After a slice, or what stands for it, in the same document."""
        return self.replace(
            slices=self.slices + 1,
            place=self.place + passages,
            characters=self.characters + characters,
            left_out=self.left_out + withheld,
            passages=self.passages + passages,
        )

    def at_line(self, line: int, lines: Sequence[str], blob: str) -> "IndexingState":
        """At this line of a version with these lines; after the last one, at the first of the next document."""
        if line < len(lines):
            return self.replace(line=line, blob=blob)
        return self.replace(document=self.document + 1, blob="", line=0, place=0)


class UnindexedDocuments(Value):
    """Documents that do not all reach memory, since the terms let no more into it."""

    partly: str | None
    """Name of the one of which memory gets the first lines."""
    wholly: tuple[str, ...]
    """Names of those of which it gets nothing, in their order."""
    all_characters: int
    most: int

    @property
    def sentence(self) -> str:
        """For whoever hands them in, with the setting that decides."""
        return (
            f"Memory takes {self.most:,} characters of a task's documents (WAYSTATION_REMEMBERED_CHARACTERS), and "
            f"these have {self.all_characters:,}: later tasks do not recall {self.name_summary}. This task's "
            "agents read all."
        )

    @property
    def name_summary(self) -> str:
        """The first of them by name, and how many more."""
        names = [*([f"the end of {self.partly}"] if self.partly else []), *self.wholly]
        more = len(names) - _MOST_NAMED
        return ", ".join(names[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")

    @property
    def lines(self) -> tuple[str, ...]:
        """One for each, as a list has them."""
        return (*([f"- {self.partly}: the end of it"] if self.partly else []), *(f"- {name}" for name in self.wholly))


def find_unindexed_documents(documents: Sequence[Document], most: int) -> UnindexedDocuments | None:
    """What of the documents does not reach memory under terms that let so many characters into it; None: all does.

    They come in their order, and none after the first that does not fit. Terms of 0 let no document into memory, and
    nobody who chose them needs to be told.
    """
    there = [document for document in documents if not document.removed]
    total = sum(document.characters for document in there)
    if not most or total <= most:
        return None
    room = most
    for number, document in enumerate(there):
        if document.characters > room:
            first, rest = document.name, tuple(one.name for one in there[number + 1 :])
            wholly = tuple(one.name for one in there[number:]) if not room else rest
            return UnindexedDocuments(partly=first if room else None, wholly=wholly, all_characters=total, most=most)
        room -= document.characters
    return None


def find_next_unindexed_line(there: Sequence[Passage], lines: Sequence[str]) -> int:
    """The line, from 0, after the passages that the first lines became earlier, and after blank lines."""
    line = there[-1].last_line
    while line < len(lines) and not lines[line].strip():
        line += 1
    return line


def find_slice_end(lines: Sequence[str], first: int, room: int) -> int:
    """The line before which a slice that begins at `first` ends, counted from 0.

    It ends at a blank line where there is one in time, so that no paragraph is parted, and never has more characters
    than there is room for. The same number as `first`: there is no room for a single line.
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
    """A piece of a document as memory keeps it, headed by its source: a citation, with the heading above it."""
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
    """The same for all tasks of a session that have this version of a document under this name."""
    return str(uuid.uuid5(_OF_DOCUMENTS, "\0".join((ref.tenant, ref.session, name, blob, str(place)))))


def make_documents_run_id(task_id: str) -> str:
    """Under which the store keeps the passages of a task's documents, beside those of its agents."""
    return f"{task_id}/{DOCUMENTS_ID}"


RESULTS_ID = "results/"
"""In the place of a step's id: the slash makes it none."""
_OF_RESULTS = uuid.UUID("5b0c1d6e-3a0b-5d0f-8a35-6f0f8c1f7d52")


class TaskResults(Value):
    """Of one task, redacted as summaries are. Not for workflow history."""

    ref: TaskRef
    report: str
    """The written part of the report: without its sources and its account."""
    blob: str
    """Content hash of the whole report."""
    findings: Sequence[tuple[str, str]]
    """Step by step, each claim with its citations."""


def build_result_passages(results: TaskResults, created: datetime) -> tuple[Passage, ...]:
    """The same results are the same passages, with the same ids."""
    parts = [("", part) for part in split_into_chunks(results.report, PART_CHARACTERS)]
    kinds: dict[PassageKind, Sequence[tuple[str, str]]] = {"report": parts, "finding": results.findings}
    return tuple(
        _result_passage(results, kind, step, (place, text), created)
        for kind, texts in kinds.items()
        for place, (step, text) in enumerate(texts)
    )


def make_results_run_id(task_id: str) -> str:
    """Under which the store keeps these passages, beside those of the task's agents."""
    return f"{task_id}/{RESULTS_ID}"


def _result_passage(
    results: TaskResults, kind: PassageKind, step: str, cut: tuple[int, str], created: datetime
) -> Passage:
    ref, (place, text) = results.ref, cut
    content = text_hash(text)
    return Passage(
        id=str(uuid.uuid5(_OF_RESULTS, "\0".join((ref.task_id, kind, step, str(place), content)))),
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
