"""Work that an agent says is not done: the open items of the newest list that it keeps of what there is to do."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile
from typing import Final, NamedTuple

from pydantic import JsonValue

from waystation.domain.compaction.ledger import UNDONE, entries, is_stand_in, one_line, shortened
from waystation.domain.compaction.summary import is_summary
from waystation.domain.messages import Message
from waystation.patterns import proven

MOST_ITEMS, MOST_CHARACTERS = 20, 200
STEP: Final = "this step: "
"""How what the platform itself knows to be open begins: it is said anew each time, and not carried on."""
_ITEM = proven(
    r"^[ \t]*(?:(?:[-*•]|\d{1,3}[.)])[ \t]+)?\[(?P<status>TODO|IN PROGRESS|DONE|[ xX])\][ \t]+(?P<text>\S.*)$", re.M
)
_DONE = frozenset({"done", "x", "completed", "complete", "cancelled", "canceled"})


class _Item(NamedTuple):
    status: str
    text: str

    @property
    def open(self) -> bool:
        return self.status.lower() not in _DONE

    @property
    def line(self) -> str:
        return shortened(one_line(f"[{self.status}] {self.text}"), MOST_CHARACTERS)


def open_items(middle: Sequence[Message], shown: Sequence[Message]) -> tuple[str, ...]:
    """What is open where the middle of this view ends; nothing where a newer list follows it, which stays in view.

    The newest list counts, and nothing older: what an agent leaves out of it is no work any more. A list is lines such
    as `[TODO] …`, `[IN PROGRESS] …`, `- [x] …`, or the input of a call with items of a `content` and a `status`. An
    earlier summary has in its ledger what was open at its end.
    """
    hidden = {message.id for message in middle}
    newest_first = list(reversed(shown))
    before = list(dropwhile(lambda message: message.id not in hidden, newest_first))
    if any(_listed(message) for message in newest_first[: len(newest_first) - len(before)]):
        return ()
    return tuple(dict.fromkeys(_newest(before)))[:MOST_ITEMS]


def _newest(newest_first: Iterable[Message]) -> Sequence[str]:
    for message in newest_first:
        if is_summary(message):
            return [line for line in entries(message, UNDONE) if not line.startswith(STEP)]
        if listed := _listed(message):
            return [item.line for item in listed if item.open]
    return ()


def _listed(message: Message) -> list[_Item]:
    if message.role != "assistant" or is_stand_in(message):
        return []
    text = message.text
    written = [_Item(found["status"], found["text"]) for found in _ITEM.finditer(text)] if "[" in text else []
    return [*written, *(item for call in message.tool_uses for value in call.input.values() for item in _kept(value))]


def _kept(value: JsonValue) -> Iterator[_Item]:
    """The items of a list as tools keep them."""
    for entry in value if isinstance(value, list) else ():
        if isinstance(entry, dict):
            text, status = entry.get("content"), entry.get("status")
            if isinstance(text, str) and text.strip() and isinstance(status, str):
                yield _Item(status, text)
