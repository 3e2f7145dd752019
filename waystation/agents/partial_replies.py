"""What an agent's model is thinking or writing while its reply arrives, for people who watch the task: the value, and
the buffer.

Only whole paragraphs are shown, because half of a name or of a key is not recognised as one.
"""

from dataclasses import dataclass, field
from typing import Literal

from waystation.kernel.identifiers import Identifier
from waystation.kernel.value import Value, replace_surrogates
from waystation.models.ports import ReplyDelta

SHOWN_CHARACTERS = 600
"""Maximum length of the text that is shown."""
MAX_REDACTED_CHARACTERS = 20_000
"""Maximum length of the text that is redacted each time. Its end is shown; no key is long enough to begin before it."""
_BREAK = "\n\n"


class PartialReply(Value):
    """What an agent's model is thinking or writing now."""

    agent: Identifier
    """Id of its step, like research-1."""
    kind: Literal["thinking", "text"]
    text: str = ""
    """The end of what has arrived: whole paragraphs, redacted. Empty before the first paragraph is complete."""
    calls_tool: bool = False
    """Whether the model is writing the arguments of a tool call, which are not shown."""


@dataclass
class ReplyBuffer:
    """A `ReplyObserver`: the newest block of thinking or text of a reply, as far as it has arrived."""

    kind: Literal["thinking", "text"] | None = None
    """None before the first delta."""
    calls_tool: bool = False
    _pieces: list[str] = field(default_factory=list[str])

    def begin_reply(self) -> None:
        """See `ReplyObserver`."""
        self.kind, self.calls_tool, self._pieces = None, False, []

    def receive_delta(self, delta: ReplyDelta) -> None:
        """See `ReplyObserver`."""
        if delta.kind == "tool_call":
            self.kind, self.calls_tool = self.kind or "text", True
            return
        if delta.kind != self.kind or self.calls_tool:
            self.kind, self.calls_tool, self._pieces = delta.kind, False, []
        self._pieces.append(delta.text)

    @property
    def whole_paragraphs(self) -> str:
        """The end of the block up to its last paragraph break, from a paragraph's beginning; all of it if a tool call
        has followed, since the block is complete then.
        """
        text = replace_surrogates("".join(self._pieces))
        if not self.calls_tool:
            text = text[: max(0, text.rfind(_BREAK))]
        if len(text) <= MAX_REDACTED_CHARACTERS:
            return text
        begin = text.find(_BREAK, len(text) - MAX_REDACTED_CHARACTERS)
        return "" if begin < 0 else text[begin + len(_BREAK) :]


def shorten_to_end(text: str) -> str:
    """Return the last characters of a text, from the beginning of a word: a placeholder is one word."""
    text = text.strip()
    if len(text) <= SHOWN_CHARACTERS:
        return text
    return " ".join(["…", *text[-SHOWN_CHARACTERS:].split(maxsplit=1)[1:]])
