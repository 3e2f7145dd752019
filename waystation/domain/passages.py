"""Makes passages of the messages that a compaction covers: overlapping windows, since those are found best.

On ten long conversations with 1,531 questions, windows of five messages with a step of four brought 0.84 of the
evidence into the first 2,000 tokens recalled, single messages 0.76.
"""

import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from waystation.domain.compaction.units import units_of
from waystation.domain.leg import RunRef
from waystation.domain.memory import Passage
from waystation.domain.messages import Block, Message, Opaque, RedactedThinking, Text, Thinking, ToolResult, ToolUse

WINDOW_MESSAGES = 5
PASSAGE_CHARACTERS = 1_500
_NAMESPACE = uuid.UUID("6f1d3c0a-53f4-5c0e-9a55-0d1f7f9e2b41")


class _Line(NamedTuple):
    message_id: str
    text: str
    begins_message: bool


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
    """Passages of about 1,500 characters at most, in the order of the messages.

    `texts` holds the redacted rendering by message id; a message without one is left out. The same arguments give the
    same passages with the same ids. A call and its results share a window; a window that is too long for one passage is
    cut at line ends, and a passage that begins inside a message says of which.
    """
    windows = _windows([unit for unit in units_of(messages) if _size(unit, texts)], texts)
    pieces = [piece for window in windows for piece in _pieces(_lines(window, texts))]
    return tuple(_passage(ref, f"{compaction_id}/{number}", piece, created) for number, piece in enumerate(pieces))


def _size(unit: Sequence[Message], texts: Mapping[str, str]) -> int:
    return sum(len(texts.get(message.id, "").strip()) for message in unit)


def _windows(units: Sequence[Sequence[Message]], texts: Mapping[str, str]) -> Iterator[list[Message]]:
    """Whole units of five messages or a little more; a window begins with the last unit of the one before it, unless
    that fills a passage by itself.
    """
    window: list[Message] = []
    is_new = False
    for unit in units:
        window.extend(unit)
        is_new = True
        if len(window) >= WINDOW_MESSAGES:
            yield window
            repeats = len(unit) < len(window) and _size(unit, texts) < PASSAGE_CHARACTERS
            window = list(unit) if repeats else []
            is_new = False
    if is_new:
        yield window


def _lines(window: Sequence[Message], texts: Mapping[str, str]) -> Iterator[_Line]:
    for message in window:
        text = texts.get(message.id, "").strip()
        begins = True
        for line in text.splitlines():
            for start in range(0, max(1, len(line)), PASSAGE_CHARACTERS):
                yield _Line(message.id, line[start : start + PASSAGE_CHARACTERS], begins)
                begins = False


def _pieces(lines: Iterable[_Line]) -> Iterator[list[_Line]]:
    piece: list[_Line] = []
    size = 0
    for line in lines:
        if piece and size + len(line.text) > PASSAGE_CHARACTERS:
            yield piece
            piece, size = [], 0
        piece.append(line)
        size += len(line.text) + 1
    if piece:
        yield piece


def _passage(ref: RunRef, place: str, piece: Sequence[_Line], created: datetime) -> Passage:
    first = piece[0]
    heading = "" if first.begins_message else f"[{first.message_id} continues] "
    text = heading + "\n".join(line.text for line in piece)
    return Passage(
        id=str(uuid.uuid5(_NAMESPACE, f"{ref.run_id}/{place}")),
        tenant=ref.tenant,
        session=ref.session,
        task_id=ref.task_id,
        run_id=ref.run_id,
        step_id=ref.step_id,
        first_message=first.message_id,
        last_message=piece[-1].message_id,
        text=text,
        content_hash=hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
        created=created,
    )
