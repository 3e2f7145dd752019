"""Transcripts: messages, the turns that commit them, and the log that is only ever added to.

The append-only log of an agent run: everything that was said, and everything that was done to it.

Nothing in it is changed or removed. What counts of it now is `context.history`.

One turn's two commits, and the keys that make each of them count once.

The words that pass between an agent and its model: blocks and messages, as the Messages API has them.
"""

import unicodedata
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import Field, JsonValue

from waystation.kernel.amount import Amount
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.usage import Usage
from waystation.kernel.value import Value
from waystation.security.confusables import UNSEEN
from waystation.security.untrusted import SafeMarkup, escape_tags, wrap_untrusted_line

SYSTEM_MESSAGE_TYPE: Final = "system_message"
"""The type of a block that is a whole message of the operator's in mid-conversation (role `system`)."""
USER_BLOCK_TYPES: Final = frozenset({"image", "document", "search_result", "container_upload", SYSTEM_MESSAGE_TYPE})
"""Types of blocks of the user that nothing here looks into. All other unknown ones are the assistant's."""
PLATFORM_OPEN, PLATFORM_CLOSE = "<platform>", "</platform>"
"""Around what the platform itself tells an agent in a message of the user's role."""
STATUS_OPEN, STATUS_CLOSE = "<status>", "</status>"
"""Around the status line: what is left for an agent and how its task stands, as a message of its own."""
_STATUS_ID = "s"


class Text(Value):
    """Plain text."""

    type: Literal["text"] = "text"
    text: str


class Thinking(Value):
    """Signed reasoning. It stays byte-identical, or goes together with its tool loop."""

    type: Literal["thinking"] = "thinking"
    thinking: str
    signature: str


class RedactedThinking(Value):
    """Reasoning that the provider sealed."""

    type: Literal["redacted_thinking"] = "redacted_thinking"
    data: str


class ToolUse(Value):
    """The model asks for one call of a tool."""

    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: dict[str, JsonValue]


_NO_WORDS = frozenset(
    {
        "cache_control",
        "caller",
        "citations",
        "container",
        "data",
        "encrypted_content",
        "encrypted_index",
        "encrypted_stdout",
        "file_id",
        "id",
        "media_type",
        "signature",
        "tool_use_id",
        "type",
    }
)
"""Fields of blocks of the Messages API in which nobody reads anything."""
_UNREADABLE_SOURCES = frozenset({"base64", "file", "url"})


def iter_block_texts(value: JsonValue) -> Iterator[str]:
    """Every text that a block of the Messages API holds, in its order: titles, contents, what a program wrote."""
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from iter_block_texts(item)
        case dict():
            is_text = value.get("type") == "text"  # a source whose data is text
            for key, item in value.items():
                if key not in _NO_WORDS or (is_text and key == "data"):
                    yield from iter_block_texts(item)
        case _:
            pass


def has_unreadable_content(value: JsonValue) -> bool:
    """Whether a block of the Messages API holds more than its words: a picture, a file elsewhere, what is encrypted."""
    match value:
        case list():
            return any(map(has_unreadable_content, value))
        case dict():
            kind = value.get("type")
            sealed = kind in _UNREADABLE_SOURCES or any(value[key] for key in value if _is_sealed(key))
            return sealed or any(map(has_unreadable_content, value.values()))
        case _:
            return False


def _is_sealed(key: str) -> bool:
    return key == "file_id" or key.startswith("encrypted_")


class OpaqueBlock(Value):
    """A block of the Messages API that goes on as it is: an image, a document, a search result, an earlier summary by
    the provider, a call that the provider carried out itself.
    """

    type: Literal["opaque"] = "opaque"
    kind: str
    """Its type for the Messages API."""
    tokens: int
    """What it is estimated to cost."""
    body: dict[str, JsonValue]
    """As the Messages API has it."""

    @property
    def is_user_block(self) -> bool:
        """Whether it belongs into messages of the user."""
        return self.kind in USER_BLOCK_TYPES

    @property
    def readable_text(self) -> str:
        """What can be read in it; empty where nothing can."""
        return "\n".join(text for text in iter_block_texts(self.body) if text.strip())

    @property
    def is_readable(self) -> bool:
        """Whether its words are all that it holds."""
        return self.kind != "image" and not has_unreadable_content(self.body)


class ToolResult(Value):
    """What a tool call gave back."""

    type: Literal["tool_result"] = "tool_result"
    tool_use_id: str
    content: str
    is_error: bool = False
    attached: tuple[OpaqueBlock, ...] = ()
    """What came beside the text."""


Block = Annotated[Text | Thinking | RedactedThinking | ToolUse | ToolResult | OpaqueBlock, Field(discriminator="type")]
MessageRole = Literal["user", "assistant"]


class MessageOutline(NamedTuple):
    """The calls and results of a message by their ids, in order."""

    results: tuple[str, ...]
    calls: tuple[str, ...]
    ordinary: bool
    """Whether it has what its speaker may say, in the usual order: results, texts that say something, calls."""


class Message(Value):
    """One message of a transcript. `id` is stable within its agent run and never used again."""

    id: str
    role: MessageRole
    blocks: tuple[Block, ...]
    told: int = 0
    """Number of what a person told the task at work (`domain.telling`); 0 for every other message."""
    updates: int = 0
    """Number of the newest update of the task's documents that it tells of; 0 for every other message."""
    said_by: str = ""
    """Full name of the model that said it in the place of the one that was to; empty for every other message."""

    @property
    def tool_uses(self) -> tuple[ToolUse, ...]:
        """The calls this message asks for, in order."""
        return tuple([block for block in self.blocks if block.type == "tool_use"])

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        """The results this message carries, in order."""
        return tuple([block for block in self.blocks if block.type == "tool_result"])

    @property
    def text(self) -> str:
        """All text blocks, joined by newlines."""
        return "\n".join([block.text for block in self.blocks if block.type == "text"])

    # Worked out once: every turn and every plan of a compaction asks each message of a long conversation again.
    @cached_property
    def outline(self) -> "MessageOutline":
        """What the legality of a conversation depends on."""
        blocks = self.blocks
        results = tuple([block.tool_use_id for block in blocks if type(block) is ToolResult])
        calls = tuple([block.id for block in blocks if type(block) is ToolUse])
        between = blocks[len(results) : len(blocks) - len(calls)]
        said = all([type(block) is Text and bool(block.text) and not block.text.isspace() for block in between])
        misplaced = calls if self.role == "user" else results
        repeated = len(set(calls)) < len(calls)
        return MessageOutline(results, calls, ordinary=said and bool(blocks) and not misplaced and not repeated)

    @cached_property
    def memoised_counts(self) -> dict[str, int]:
        """What others have worked out of it, each under a name of its own, so that they do so once."""
        return {}

    @property
    def is_platform_message(self) -> bool:
        """Whether `build_platform_message` or `status_text` made it: nobody asked for anything."""
        return self.is_status or self._framed(PLATFORM_OPEN, PLATFORM_CLOSE)

    @property
    def is_status(self) -> bool:
        """Whether `status_text` made it."""
        return self.id.startswith(_STATUS_ID) and self._framed(STATUS_OPEN, STATUS_CLOSE)

    def _framed(self, opening: str, closing: str) -> bool:
        if self.role != "user" or len(self.blocks) != 1:
            return False
        block = self.blocks[0]
        return block.type == "text" and block.text.startswith(opening) and block.text.endswith(closing)


def build_rejected_call_result(call: ToolUse, words: str) -> ToolResult:
    """The result of a call that was not carried out: why, and what to do instead."""
    return ToolResult(tool_use_id=call.id, content=words, is_error=True)


def build_user_message(message_id: str, text: str) -> Message:
    """A user message of one text block."""
    return Message(id=message_id, role="user", blocks=(Text(text=text),))


def build_platform_message(message_id: str, text: str) -> Message:
    """What the platform tells an agent: of the user's role, as the Messages API wants it, and yet no user's word.

    What others wrote in the text is defused already; of its own tag nothing in it can step out.
    """
    return build_user_message(message_id, wrap_untrusted_line("platform", SafeMarkup(escape_tags(text, "platform"))))


def build_status_message(message_id: str, status: str) -> Message:
    """The status line as a message. `status`: in its tag, see `domain.layers.StatusMessage`."""
    return build_user_message(message_id, status)


class ToolSpec(Value):
    """A tool as the model sees it. `input_schema` is a JSON schema of type object."""

    name: str
    description: str
    input_schema: dict[str, JsonValue]


class _Record(Value):
    id: str
    after: int | None = None
    """How many messages the transcript had when this was committed: its place among them. Set by `with_record`."""


class SummaryRecord(_Record):
    """`summary` stands for the covered messages. Covered ids may include summaries of earlier records."""

    type: Literal["summarised"] = "summarised"
    strategy: str
    covered: tuple[str, ...]
    summary: Message
    added: tuple[str, ...] = ()
    """What the check before commit wrote under the summary: kinds and counts."""
    removed: tuple[str, ...] = ()
    """What it took out of the summary: kinds and counts."""


class MaskRecord(_Record):
    """The results of these tool calls are shown as placeholders; the originals stay in the transcript."""

    type: Literal["masked"] = "masked"
    tool_use_ids: tuple[str, ...]


class SummaryPartRecord(_Record):
    """What one part of a middle came to that was too long for the summariser: kept, so that nobody pays it twice.

    It changes nothing of the view. Its id is that of the compaction, a hyphen, and the number of the part.
    """

    type: Literal["summary_part"] = "summary_part"
    text: str


class SummaryFailureRecord(_Record):
    """A summary that nobody had asked for by hand, and that came to nothing: it is not tried again at once
    (`context.outcome`).

    It changes nothing of the view. Its id is that of the compaction, and `-failed`.
    """

    type: Literal["summary_failed"] = "summary_failed"
    middle_tokens: int
    """Plain estimate of what it was to stand for."""


class TruncationRecord(_Record):
    """The covered messages are hidden behind a marker that gives their count and ids."""

    type: Literal["truncated"] = "truncated"
    covered: tuple[str, ...]
    marker: Message


class PromptPrefixRecord(_Record):
    """System prompt and tools as they are sent from here until the next compaction, whatever becomes of them meanwhile.

    Models that sign their thinking sign it over everything before it: one word that changes there, and all that they
    thought is lost to them. So what was sent is only added to between two of these records. One is committed before the
    first call, before the first call after a compaction, and where somebody takes a tool away. Thinking from before the
    newest one fits nothing any more (`context.history.build_view_without_outdated_thinking`).
    """

    type: Literal["prompt_prefix"] = "prompt_prefix"
    system: str
    tools: tuple[ToolSpec, ...]


class PinRecord(_Record):
    """No compaction covers this message."""

    type: Literal["pinned"] = "pinned"
    message_id: str


class RestoreRecord(_Record):
    """An earlier record (not a rewind) counts no more."""

    type: Literal["restored"] = "restored"
    record_id: str


class RewindRecord(_Record):
    """The conversation goes on from this message: what was said and compacted after it counts no more."""

    type: Literal["rewound"] = "rewound"
    message_id: str
    kept: bool = True
    """Whether the message itself stays."""


Compaction = SummaryRecord | MaskRecord | TruncationRecord
Record = Annotated[
    Compaction
    | SummaryPartRecord
    | SummaryFailureRecord
    | PromptPrefixRecord
    | PinRecord
    | RestoreRecord
    | RewindRecord,
    Field(discriminator="type"),
]


class Transcript(Value):
    """Everything said in one agent run.

    `version` grows by one with every commit (message or record) and is what compare-and-set compares.
    """

    run_id: str
    version: int = 0
    messages: tuple[Message, ...] = ()
    records: tuple[Record, ...] = ()
    """Everything that was done to the conversation, in the order of its commits."""

    @property
    def compactions(self) -> tuple[Compaction, ...]:
        """The records that hide something, undone ones included."""
        return tuple(record for record in self.records if isinstance(record, Compaction))

    @property
    def turn_count(self) -> int:
        """How many replies of the model were committed. It only ever grows."""
        return sum(message.role == "assistant" for message in self.messages)

    def build_reply(self, blocks: Iterable[Block], said_by: str) -> Message:
        """The model's next message. An id names one call here: some servers number those of each reply anew."""
        known = {call.id for message in self.messages for call in message.tool_uses}
        own: list[Block] = []
        for block in blocks:
            if block.type == "tool_use":
                while block.id in known:
                    block = block.replace(id=f"{block.id}_{self.next_message_id}")  # noqa: PLW2901
                known.add(block.id)
            own.append(block)
        return Message(id=self.next_message_id, role="assistant", blocks=tuple(own), said_by=said_by)

    def find_message_index(self, message_id: str) -> int | None:
        """Where a message stands, from 0; None where there is none of that id."""
        return next((place for place, message in enumerate(self.messages) if message.id == message_id), None)

    def with_message(self, message: Message) -> "Transcript":
        """One commit further."""
        return self.replace(messages=(*self.messages, message), version=self.version + 1)

    @property
    def next_message_id(self) -> str:
        """Id of the next message that is no status."""
        return f"m{1 + sum(not message.is_status for message in self.messages)}"

    @property
    def next_status_id(self) -> str:
        """Id of the next status message: they have numbers of their own."""
        return f"{_STATUS_ID}{1 + sum(message.is_status for message in self.messages)}"


class Fence(Value):
    """The right to write to one agent run. Every attempt takes a new one; only the newest holds."""

    run_id: str
    number: int


class CallIntent(Value):
    """Recorded before a model call: without a charge of the same key it is shown as possibly billed.

    The key is of the agent run and the turn (`turn-12`), the compaction (`summary-…`), the plan (`plan-1`) or the
    call of the tool (`search-…`); it has no attempt number.
    """

    key: str
    model: str
    worst_case: Amount
    """A certain upper bound of the input, and the reply's maximum."""
    at: datetime


class Charge(Value):
    """What a committed reply cost. Counts once for its key."""

    key: str
    kind: Literal["turn", "summary", "plan", "review", "search"]
    model: str
    usage: Usage
    cost_micro_usd: int | None
    """Millionths of a dollar; None where the model has no known price."""
    at: datetime
    answered_by: str = ""
    """The model that the reply names, where it is another than was asked for."""
    stop: str = ""
    """Why the reply ended, in the provider's word; empty for searches."""
    dropped_thinking: int = 0
    """Thinking blocks of the request that the provider left out because they did not fit what stood before them."""
    cache_miss: str = ""
    """Why the provider could not read the last request's prefix from its cache, in its word; empty where it said
    nothing.
    """

    @property
    def amount(self) -> Amount:
        """What budgets count: fresh tokens, and dollars as far as the price is known."""
        return Amount(tokens=self.usage.fresh, micro_usd=self.cost_micro_usd or 0)


_MESSAGE = compile_bounded(r"\A[^\W\d_]{1,2}\d{1,9}(?!\w)")
_BEGINS_LABEL = compile_bounded(r"\A[^\W\d_]{1,2}\d{1,9}\s")
_MESSAGE_CHARACTERS = 12
"""More than an id and the sign behind it."""
_LISTED = compile_bounded(r"\w{1,4}[^\w\s]")
"""A mark of a list, like `1.` or `b)`."""
_NO_LABEL = frozenset("(){}\u201a\u201e")
"""Signs that open something else than a label."""
_TURNING = frozenset({"LRE", "LRO", "RLE", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})
"""Classes of signs that show others in another order."""
_DOTS = frozenset(".\u00b7\u2022\u22ee\u22ef\u3002")
"""Of which the mark for what is left out might be made."""


def is_question(text: str) -> bool:
    """Whether it ends with a question mark."""
    return text.rstrip().endswith(("?", "\uff1f"))


def looks_like_label(line: str) -> bool:
    """Whether it might pass for the label of a turn, or for the mark of what is left out.

    It does with a bracket before its first word, or before the second where the first is a mark of a list; where it
    begins with a message's id or has one behind a bracket; where it has no words, but dots; and where signs in it are
    shown in another order. Rather once too often.
    """
    if any(unicodedata.bidirectional(sign) in _TURNING for sign in line):
        return True
    seen = "".join(_seen(line))
    words = list(_words(seen))
    if not words:
        return not _DOTS.isdisjoint(seen) or _opens(seen)
    listed = len(words) > 1 and _LISTED.match(seen, words[0]) is not None
    begin = words[1 if listed else 0]
    return _opens(seen[:begin]) or _names_message(seen) or any(_is_message(seen, place) for place in (words[0], begin))


def with_quoted_labels(text: str, message_id: str) -> str:
    """The text behind the label of a message; what might pass for one in a line after the first is quoted."""
    first, *lines = text.splitlines(keepends=True) or [""]
    ours = f"[{message_id} "
    return first + "".join(f"> {line}" if line.startswith(ours) or _begins_as_label(line) else line for line in lines)


def _begins_as_label(line: str) -> bool:
    """Whether a bracket, the id of a message and a blank stand where it begins, as in every label."""
    opened, signs = False, _seen(line)
    for sign in signs:
        if sign.isalnum():
            return opened and _BEGINS_LABEL.match(sign + "".join(islice(signs, _MESSAGE_CHARACTERS))) is not None
        opened = opened or _opens(sign)
    return False


def _names_message(seen: str) -> bool:
    """Whether a message's id stands in it behind a bracket."""
    end = 0
    for place in _words(seen):
        if _opens(seen[end:place]) and _is_message(seen, place):
            return True
        end = place + 1
    return False


def _seen(line: str) -> Iterator[str]:
    """As it is read: each sign as the plain one that it stands for, without those that nobody sees."""
    for sign in line:
        if sign.isascii():
            yield sign
        elif unicodedata.category(sign) not in {"Cf", "Mn", "Me"}:
            yield from (plain for plain in unicodedata.normalize("NFKC", sign) if plain not in UNSEEN)


def _words(seen: str) -> Iterator[int]:
    """Where each begins."""
    within = False
    for place, sign in enumerate(seen):
        if sign.isalnum() and not within:
            yield place
        within = sign.isalnum()


def _opens(seen: str) -> bool:
    """Whether a bracket of a label is in it, either one."""
    return any(unicodedata.category(sign) in {"Ps", "Pe"} and sign not in _NO_LABEL for sign in seen)


def _is_message(seen: str, place: int) -> bool:
    return _MESSAGE.match(seen[place : place + _MESSAGE_CHARACTERS]) is not None
