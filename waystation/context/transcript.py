"""Transcripts: blocks and messages as in the Messages API, and the append-only log of an agent run with its records.

Nothing in the log is changed or removed; `context.history` says what of it counts. Also the intents and charges of
model calls, whose keys make each of them count once.
"""

import unicodedata
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import Field, JsonValue

from waystation.kernel.amount import Amount
from waystation.kernel.identifiers import Identifier
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.usage import Usage
from waystation.kernel.value import Value
from waystation.security.confusables import UNSEEN
from waystation.security.untrusted import SafeMarkup, escape_tags, wrap_untrusted_line

SYSTEM_MESSAGE_TYPE: Final = "system_message"
"""Type of a block that is a whole operator message in mid-conversation (role `system`)."""
USER_BLOCK_TYPES: Final = frozenset({"image", "document", "search_result", "container_upload", SYSTEM_MESSAGE_TYPE})
"""Types of user blocks that are passed through unread. All other unknown types are the assistant's."""
PLATFORM_OPEN, PLATFORM_CLOSE = "<platform>", "</platform>"
"""Tags around the platform's own messages to an agent, in the user's role."""
STATUS_OPEN, STATUS_CLOSE = "<status>", "</status>"
"""Tags around a status message: what an agent has left, and how its task stands."""
_STATUS_ID = "s"


class Text(Value):
    """Plain text."""

    type: Literal["text"] = "text"
    text: str


class Thinking(Value):
    """Signed reasoning. It is kept byte for byte, or removed together with its tool loop."""

    type: Literal["thinking"] = "thinking"
    thinking: str
    signature: Identifier


class RedactedThinking(Value):
    """Reasoning that the provider encrypted."""

    type: Literal["redacted_thinking"] = "redacted_thinking"
    data: str


UNPARSED_ARGUMENTS: Final = "_unparsed_arguments"
"""Name under which the input of a call holds arguments that are not a JSON object, as the model wrote them."""
MAX_UNPARSED_CHARACTERS: Final = 2_000
"""Maximum characters of such arguments that stay in the conversation: enough for the model to find its mistake."""


def build_unparsed_arguments(written: str) -> dict[str, JsonValue]:
    """Build the input of a call whose arguments are not a JSON object: the API takes back nothing but an object."""
    return {UNPARSED_ARGUMENTS: written[:MAX_UNPARSED_CHARACTERS]}


class ToolUse(Value):
    """A tool call that the model requests."""

    type: Literal["tool_use"] = "tool_use"
    id: Identifier
    name: str
    input: dict[str, JsonValue]

    @property
    def has_unparsed_arguments(self) -> bool:
        """Whether the model wrote arguments that are not a JSON object. Such a call is not run."""
        return self.input.keys() == {UNPARSED_ARGUMENTS}


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
"""Fields of Messages API blocks that hold no readable text."""
_UNREADABLE_SOURCES = frozenset({"base64", "file", "url"})


def iter_block_texts(value: JsonValue) -> Iterator[str]:
    """Yield every text in a Messages API block, in order: titles, contents, program output."""
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
    """Return whether a Messages API block holds more than text: a picture, a file elsewhere, or encrypted data."""
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
    """A block of the Messages API that is passed on unchanged: an image, a document, a search result, an earlier
    summary by the provider, or a call that the provider carried out itself.
    """

    type: Literal["opaque"] = "opaque"
    kind: Identifier
    """Its type in the Messages API."""
    tokens: int
    """Estimated tokens."""
    body: dict[str, JsonValue]
    """The block as in the Messages API."""

    @property
    def is_user_block(self) -> bool:
        """Whether it belongs in user messages."""
        return self.kind in USER_BLOCK_TYPES

    @property
    def readable_text(self) -> str:
        """Its readable text; empty if there is none."""
        return "\n".join(text for text in iter_block_texts(self.body) if text.strip())

    @property
    def is_readable(self) -> bool:
        """Whether text is all that it holds."""
        return self.kind != "image" and not has_unreadable_content(self.body)


class ToolResult(Value):
    """The result of a tool call."""

    type: Literal["tool_result"] = "tool_result"
    tool_use_id: Identifier
    content: str
    is_error: bool = False
    attachments: tuple[OpaqueBlock, ...] = ()
    """Blocks in addition to the text."""


Block = Annotated[Text | Thinking | RedactedThinking | ToolUse | ToolResult | OpaqueBlock, Field(discriminator="type")]
MessageRole = Literal["user", "assistant"]


class MessageOutline(NamedTuple):
    """IDs of the results and calls of a message, in order."""

    results: tuple[str, ...]
    calls: tuple[str, ...]
    ordinary: bool
    """Whether the content fits the role and has the usual order: results, non-blank texts, calls."""


class Message(Value):
    """One message of a transcript. `id` is stable within its agent run and never reused."""

    id: Identifier
    role: MessageRole
    blocks: tuple[Block, ...]
    task_message: int = 0
    """Number of the person's message to the running task that it carries; 0 for every other message."""
    documents_update_number: int = 0
    """Number of the newest document update that it reports; 0 for every other message."""
    fallback_model: str = ""
    """Full name of the fallback model that said it; empty for every other message."""
    refusal: Identifier = ""
    """Category under which the provider's safeguards stopped this reply; empty for every other message. A refused reply
    is not sent again: models keep refusing a conversation that has it.
    """

    @property
    def tool_uses(self) -> tuple[ToolUse, ...]:
        """The calls that this message makes, in order."""
        return tuple([block for block in self.blocks if block.type == "tool_use"])

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        """The results that this message carries, in order."""
        return tuple([block for block in self.blocks if block.type == "tool_result"])

    @property
    def text(self) -> str:
        """All text blocks, joined by newlines."""
        return "\n".join([block.text for block in self.blocks if block.type == "text"])

    # Cached: every turn and every planned compaction reads these of all messages of a long conversation.
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
        """Counts memoised by other modules, each under a key of its own."""
        return {}

    @property
    def is_platform_message(self) -> bool:
        """Whether `build_platform_message` or `build_status_message` built it, so that it is no request of anyone."""
        return self.is_status or self._framed(PLATFORM_OPEN, PLATFORM_CLOSE)

    @property
    def is_status(self) -> bool:
        """Whether `build_status_message` built it."""
        return self.id.startswith(_STATUS_ID) and self._framed(STATUS_OPEN, STATUS_CLOSE)

    def _framed(self, opening: str, closing: str) -> bool:
        if self.role != "user" or len(self.blocks) != 1:
            return False
        block = self.blocks[0]
        return block.type == "text" and block.text.startswith(opening) and block.text.endswith(closing)


def build_rejected_call_result(call: ToolUse, words: str) -> ToolResult:
    """Build the result of a call that did not run: why, and what to do instead."""
    return ToolResult(tool_use_id=call.id, content=words, is_error=True)


def build_user_message(message_id: str, text: str) -> Message:
    """Build a user message of one text block."""
    return Message(id=message_id, role="user", blocks=(Text(text=text),))


def build_platform_message(message_id: str, text: str) -> Message:
    """Build a message from the platform: in the user's role, as the Messages API requires, but not the user's words.

    Text by others in it must be escaped already; this escapes the platform's own tag only.
    """
    return build_user_message(message_id, wrap_untrusted_line("platform", SafeMarkup(escape_tags(text, "platform"))))


def build_status_message(message_id: str, status: str) -> Message:
    """Build a status message. `status` is already in its tag; see `agents.prompt_sections.StatusMessage`."""
    return build_user_message(message_id, status)


class ToolSpec(Value):
    """A tool as the model sees it. `input_schema` is a JSON schema of type object."""

    name: str
    description: str
    input_schema: dict[str, JsonValue]
    strict: bool = False
    """Whether the provider is asked to let the model write only arguments that fit the schema, if it can do that."""


class _Record(Value):
    id: Identifier
    after: int | None = None
    """Number of messages in the transcript when this was committed: its place among them. Set by `with_record`."""


class SummaryRecord(_Record):
    """`summary` replaces the covered messages. Covered IDs may include summaries of earlier records."""

    type: Literal["summarised"] = "summarised"
    strategy: Identifier
    covered: tuple[Identifier, ...]
    summary: Message
    added: tuple[str, ...] = ()
    """What the check before commit added below the summary: kinds and counts."""
    removed: tuple[str, ...] = ()
    """What the check before commit removed from the summary: kinds and counts."""


class MaskRecord(_Record):
    """The results of these tool calls are shown as placeholders; the originals stay in the transcript."""

    type: Literal["masked"] = "masked"
    tool_use_ids: tuple[Identifier, ...]


class SummaryPartRecord(_Record):
    """Summary of one part of a middle too long for the summariser, kept so that no later attempt pays for it again.

    It does not change the view. Its ID is that of the compaction, a hyphen, and the number of the part.
    """

    type: Literal["summary_part"] = "summary_part"
    text: str


class SummaryFailureRecord(_Record):
    """An automatic summary that failed and is not tried again at once (`context.pipeline`).

    It does not change the view. Its ID is that of the compaction, and `-failed`.
    """

    type: Literal["summary_failed"] = "summary_failed"
    middle_tokens: int
    """Plain estimate of the middle that could not be summarised."""


class TruncationRecord(_Record):
    """The covered messages are hidden behind a marker with their number and IDs."""

    type: Literal["truncated"] = "truncated"
    covered: tuple[Identifier, ...]
    marker: Message


class PromptPrefixRecord(_Record):
    """System prompt and tools as sent from here until the next compaction, even if they change meanwhile.

    Models that sign their thinking sign it over everything before it: if one word there changes, all their thinking is
    lost. So between two of these records what was sent is only appended to. One is committed before the first call,
    before the first call after a compaction, and when a tool is taken away. Thinking from before the newest one is no
    longer valid (`context.history.build_view_without_outdated_thinking`).
    """

    type: Literal["prompt_prefix"] = "prompt_prefix"
    system: str
    tools: tuple[ToolSpec, ...]


class PinRecord(_Record):
    """No compaction covers this message."""

    type: Literal["pinned"] = "pinned"
    message_id: Identifier


class RestoreRecord(_Record):
    """An earlier record (not a rewind) no longer counts."""

    type: Literal["restored"] = "restored"
    record_id: Identifier


class RewindRecord(_Record):
    """The conversation continues from this message: later messages and compactions no longer count."""

    type: Literal["rewound"] = "rewound"
    message_id: Identifier
    keeps_message: bool = True
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

    `version` grows by one with every commit (message or record) and is used for compare-and-set.
    """

    run_id: str
    version: int = 0
    messages: tuple[Message, ...] = ()
    records: tuple[Record, ...] = ()
    """Everything done to the conversation, in commit order."""

    @property
    def compactions(self) -> tuple[Compaction, ...]:
        """The records that hide something, including undone ones."""
        return tuple(record for record in self.records if isinstance(record, Compaction))

    @property
    def turn_count(self) -> int:
        """Number of committed model replies. It only grows."""
        return sum(message.role == "assistant" for message in self.messages)

    def build_reply(self, blocks: Iterable[Block], said_by: str, refusal: str = "") -> Message:
        """Build the model's next message.

        Call IDs are made unique in the run: some servers restart them in each reply.
        """
        known = {call.id for message in self.messages for call in message.tool_uses}
        own: list[Block] = []
        for block in blocks:
            if block.type == "tool_use":
                while block.id in known:
                    block = block.replace(id=f"{block.id}_{self.next_message_id}")  # noqa: PLW2901
                known.add(block.id)
            own.append(block)
        return Message(
            id=self.next_message_id,
            role="assistant",
            blocks=tuple(own),
            fallback_model=said_by,
            refusal=refusal,
        )

    def find_message_index(self, message_id: str) -> int | None:
        """Return the index of a message, or None."""
        return next((place for place, message in enumerate(self.messages) if message.id == message_id), None)

    def with_message(self, message: Message) -> "Transcript":
        """Return the transcript with the message appended, one version later."""
        return self.replace(messages=(*self.messages, message), version=self.version + 1)

    @property
    def next_message_id(self) -> str:
        """ID of the next message that is not a status."""
        return f"m{1 + sum(not message.is_status for message in self.messages)}"

    @property
    def next_status_id(self) -> str:
        """ID of the next status message; these are numbered separately."""
        return f"{_STATUS_ID}{1 + sum(message.is_status for message in self.messages)}"


class Fence(Value):
    """Fencing token: the right to write to one agent run. Every attempt takes a new one; only the newest is valid."""

    run_id: str
    number: int


class CallIntent(Value):
    """A record that is written before each model call. Without a charge of the same key, the call was possibly billed.

    The key names the agent run and the turn (`turn-12`), the compaction (`summary-…`), the plan (`plan-1`) or the tool
    call (`search-…`). It has no attempt number.
    """

    key: str
    model: str
    worst_case: Amount
    """A certain upper bound of the input, plus the reply's maximum."""
    at: datetime


class Charge(Value):
    """Cost of a committed reply. Each key counts once."""

    key: str
    kind: Literal["turn", "summary", "plan", "review", "search", "warm"]
    model: str
    usage: Usage
    cost_micro_usd: int | None
    """In micro-USD; None if the model has no known price."""
    at: datetime
    answered_by: str = ""
    """The model that the reply names, if it differs from the requested one."""
    stop: str = ""
    """Why the reply ended, in the provider's word; empty for searches."""
    dropped_thinking: int = 0
    """Number of the request's thinking blocks that the provider dropped because they did not fit what preceded them."""
    cache_miss: str = ""
    """Why the provider could not read the last request's prefix from its cache, in its word; empty if it gave no
    reason.
    """
    waited_ms: int = 0
    """How long the call waited because of the provider's rate limit before it was answered, in milliseconds."""

    @property
    def amount(self) -> Amount:
        """What budgets count: fresh tokens, and dollars as far as the price is known."""
        return Amount(tokens=self.usage.fresh, micro_usd=self.cost_micro_usd or 0)


_MESSAGE = compile_bounded(r"\A[^\W\d_]{1,2}\d{1,9}(?!\w)")
_BEGINS_LABEL = compile_bounded(r"\A[^\W\d_]{1,2}\d{1,9}\s")
_MESSAGE_CHARACTERS = 12
"""More characters than an ID and the character after it."""
_LISTED = compile_bounded(r"\w{1,4}[^\w\s]")
"""A list marker such as `1.` or `b)`."""
_NO_LABEL = frozenset("(){}\u201a\u201e")
"""Characters that open something other than a label."""
_TURNING = frozenset({"LRE", "LRO", "RLE", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})
"""Bidirectional classes of characters that change the display order of others."""
_DOTS = frozenset(".\u00b7\u2022\u22ee\u22ef\u3002")
"""Characters that could imitate the omission mark."""


def is_question(text: str) -> bool:
    """Return whether the text ends with a question mark."""
    return text.rstrip().endswith(("?", "\uff1f"))


def looks_like_label(line: str) -> bool:
    """Return whether a line could be mistaken for the label of a turn, or for the omission mark.

    It could if it has a bracket before its first word, or before the second if the first is a list marker; if it begins
    with a message ID or has one after a bracket; if it has no words, but dots; or if characters in it change the
    display order. False positives are preferred.
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
    """Quote what could pass for a label in the lines after the first; the text follows the label of a message."""
    first, *lines = text.splitlines(keepends=True) or [""]
    ours = f"[{message_id} "
    return first + "".join(f"> {line}" if line.startswith(ours) or _begins_as_label(line) else line for line in lines)


def _begins_as_label(line: str) -> bool:
    """Return whether a line begins like a label: a bracket, a message ID and a blank."""
    opened, signs = False, _seen(line)
    for sign in signs:
        if sign.isalnum():
            return opened and _BEGINS_LABEL.match(sign + "".join(islice(signs, _MESSAGE_CHARACTERS))) is not None
        opened = opened or _opens(sign)
    return False


def _names_message(seen: str) -> bool:
    """Return whether a message ID follows a bracket in it."""
    end = 0
    for place in _words(seen):
        if _opens(seen[end:place]) and _is_message(seen, place):
            return True
        end = place + 1
    return False


def _seen(line: str) -> Iterator[str]:
    """Yield the line as it is read: each character as its plain equivalent, without invisible ones."""
    for sign in line:
        if sign.isascii():
            yield sign
        elif unicodedata.category(sign) not in {"Cf", "Mn", "Me"}:
            yield from (plain for plain in unicodedata.normalize("NFKC", sign) if plain not in UNSEEN)


def _words(seen: str) -> Iterator[int]:
    """Yield the start of each word."""
    within = False
    for place, sign in enumerate(seen):
        if sign.isalnum() and not within:
            yield place
        within = sign.isalnum()


def _opens(seen: str) -> bool:
    """Return whether it contains an opening or closing bracket as in a label."""
    return any(unicodedata.category(sign) in {"Ps", "Pe"} and sign not in _NO_LABEL for sign in seen)


def _is_message(seen: str, place: int) -> bool:
    return _MESSAGE.match(seen[place : place + _MESSAGE_CHARACTERS]) is not None
