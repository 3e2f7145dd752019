"""Makes passages of the messages that a compaction covers: overlapping windows, since those are found best.

On ten long conversations with 1,531 questions, overlapping windows of three messages brought 0.83 of the evidence into
the first 2,000 tokens recalled, windows of five 0.84, single messages 0.76. On `benchmarks/memory`, whose messages are
longer, three messages are better than five, and 300 characters better than 400 and more: more places fit into what is
recalled.
"""

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from waystation.domain.compaction.ledger import shortened
from waystation.domain.compaction.repair import units_of
from waystation.domain.leg import RunRef
from waystation.domain.memory import Passage, content_hash
from waystation.domain.messages import Block, Message, Opaque, RedactedThinking, Text, Thinking, ToolResult, ToolUse
from waystation.patterns import proven

WINDOW_MESSAGES = 3
PASSAGE_CHARACTERS = 300
REPEATED_CHARACTERS = 200
"""A longer piece is not said again at the beginning of the next passage."""
HEADING_CHARACTERS = 150
"""Of a call, in every part of its long result."""
STRUCTURE = tuple(proven(f"(?<={end})") for end in (r"\n\n", r"\n", r"[.!?;] ", r"[。！？]", r" "))
"""Where a text is cut, the best first."""
_CALLS = proven(r"\A\[\S++ assistant calls ")
_NAMESPACE = uuid.UUID("6f1d3c0a-53f4-5c0e-9a55-0d1f7f9e2b41")


class _Piece(NamedTuple):
    """What stands in a passage whole: a unit of the conversation, or a part of a long one."""

    first: str
    last: str
    messages: int
    text: str


def tool_names(messages: Sequence[Message]) -> dict[str, str]:
    """The tool's name by the id of each call."""
    return {call.id: call.name for message in messages for call in message.tool_uses}


def render(message: Message, names: Mapping[str, str]) -> str:
    """The message as plain text, each block headed by the message's id and its speaker. Reasoning is left out.

    `names` are the tools of the calls that its results answer (`tool_names` of the whole conversation).
    """
    return "\n".join(text for block in message.blocks if (text := _render_block(message, block, names)))


def _render_block(message: Message, block: Block, names: Mapping[str, str]) -> str:
    match block:
        case Text():
            return f"[{message.id} {message.role}] {block.text}" if block.text.strip() else ""
        case ToolUse():
            return f"[{message.id} {message.role} calls {block.name}] {json.dumps(block.input, ensure_ascii=False)}"
        case ToolResult():
            outcome = "error" if block.is_error else "result"
            return f"[{message.id} {outcome} of {names.get(block.tool_use_id, 'a tool')}] {block.content}"
        case Opaque():
            return f"[{message.id} {message.role} attaches: {block.kind}]"
        case Thinking() | RedactedThinking():
            return ""


def make_passages(
    ref: RunRef, compaction_id: str, messages: Sequence[Message], texts: Mapping[str, str], created: datetime
) -> tuple[Passage, ...]:
    """Passages of at most 300 characters, in the order of the messages.

    `texts` holds the redacted rendering by message id; a message without one is left out. The same arguments give the
    same passages with the same ids. A call and its results share a passage. Where they are too long for one they are
    cut at paragraphs, else at lines, and every part repeats who is speaking, and the call that it answers.
    """
    pieces = [piece for unit in units_of(messages) for piece in _pieces(unit, texts)]
    windows = enumerate(_windows(pieces))
    return tuple(_passage(ref, compaction_id, place, window, created) for place, window in windows)


def _pieces(unit: Sequence[Message], texts: Mapping[str, str]) -> Iterator[_Piece]:
    said = [(message.id, text) for message in unit if (text := texts.get(message.id, "").strip())]
    if not said:
        return
    whole = "\n".join(text for _, text in said)
    if len(whole) <= PASSAGE_CHARACTERS:
        yield _Piece(said[0][0], said[-1][0], len(unit), whole)
        return
    caller, calling = said[0]
    calls = shortened(_calls(calling), HEADING_CHARACTERS)
    # A short call opens the passage of its result, whole; a long one is cut like a result, and headed no better.
    opening = f"{calling}\n" if len(said) > 1 and len(calling) <= REPEATED_CHARACTERS else ""
    first = caller
    for message_id, text in said[1:] if opening else said:
        answered = f"{calls}\n" if calls and message_id != caller else ""
        heading = f"{answered}[{message_id} continues] "
        part, *rest = chunks(text, PASSAGE_CHARACTERS - max(len(opening), len(heading)))
        yield _Piece(first if opening else message_id, message_id, 1, (opening or answered) + part)
        yield from (_Piece(message_id, message_id, 1, heading + part) for part in rest)
        opening = ""


def _calls(text: str) -> str:
    """Of a rendered message, what it calls."""
    return "\n".join(line for line in text.splitlines() if _CALLS.match(line))


def chunks(text: str, size: int) -> list[str]:
    """The text in parts of at most `size` characters, cut at the highest structure that does: paragraphs, lines,
    sentences, words, and where there is none anywhere.
    """
    if len(text) <= size:
        return [text]
    for separator in STRUCTURE:
        parts = [part for part in separator.split(text) if part]
        if len(parts) > 1:
            return _packed([small for part in parts for small in chunks(part, size)], size)
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


def _windows(pieces: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    """Three messages or as many as fit; a window begins with the last piece of the one before, unless that is long."""
    window: list[_Piece] = []
    new = 0
    for piece in pieces:
        if new and not _fits(window, piece):
            yield window
            window, new = _repeated(window, piece), 0
        window.append(piece)
        new += 1
    if new:
        yield window


def _fits(window: Sequence[_Piece], piece: _Piece) -> bool:
    size = sum(len(one.text) + 1 for one in window) + len(piece.text)
    return size <= PASSAGE_CHARACTERS and sum(one.messages for one in window) < WINDOW_MESSAGES


def _repeated(window: Sequence[_Piece], piece: _Piece) -> list[_Piece]:
    last = window[-1]
    room = min(REPEATED_CHARACTERS, PASSAGE_CHARACTERS - len(piece.text) - 1)
    return [last] if len(last.text) <= room else []


def _passage(ref: RunRef, compaction_id: str, place: int, window: Sequence[_Piece], created: datetime) -> Passage:
    text = "\n".join(piece.text for piece in window)
    return Passage(
        id=str(uuid.uuid5(_NAMESPACE, f"{ref.run_id}/{compaction_id}/{place}")),
        tenant=ref.tenant,
        session=ref.session,
        task_id=ref.task_id,
        run_id=ref.run_id,
        step_id=ref.step_id,
        compaction=compaction_id,
        place=place,
        first_message=window[0].first,
        last_message=window[-1].last,
        text=text,
        content_hash=content_hash(text),
        created=created,
    )
