"""Decisions that an earlier summary recorded: the next one has them, or its ledger does."""

import re
from collections.abc import Iterator, Sequence

from waystation.domain.compaction.ledger import DECIDED, entries, is_stand_in, one_line, shortened, without_ledger
from waystation.domain.compaction.restored import without_files
from waystation.domain.compaction.summary import inner_text, is_summary
from waystation.domain.messages import Message
from waystation.patterns import proven

MOST_CHARACTERS = 300
_NAMES = (
    r"(?:key |recorded |main )?decisions?(?: made| and reasons)?|entscheidungen|décisions|decisiones|决定|決定(?:事項)?"
)
_HEADING = proven(rf"^[\s#*_<]{{0,8}}(?:{_NAMES})[\s*_>]{{0,4}}(?:[:：][\s*_]{{0,4}}(?P<rest>.*)|$)", re.IGNORECASE)
_BULLET = proven(r"^\s*(?:[-*•]|\d{1,3}[.)])\s+")
_OTHER_HEADING = proven(r"^\s*(?:#|<|\*\*[^*]{1,80}\*\*:?\s*$|[^:：]{1,60}[:：]\s*$)")


def recorded_decisions(middle: Sequence[Message]) -> tuple[str, ...]:
    """The lines under "Decisions" in earlier summaries, and those that their ledgers carry; in order, each once.

    Notes that an agent takes are kept elsewhere and are not in need of this.
    """
    found = (line for message in middle if message.role == "user" and is_stand_in(message) for line in _of(message))
    return tuple(dict.fromkeys(shortened(line, MOST_CHARACTERS) for line in found))


def _of(message: Message) -> Iterator[str]:
    yield from entries(message, DECIDED)
    if is_summary(message):
        yield from filter(None, map(one_line, _listed(without_ledger(without_files(inner_text(message))))))


def _listed(text: str) -> Iterator[str]:
    inside, only_bullets = False, False
    for line in text.split("\n"):
        bullet = _BULLET.match(line)
        if heading := _HEADING.match(line):
            rest: str = heading["rest"] or ""
            inside, only_bullets = True, bool(rest.strip())
            yield rest
        elif inside and bullet is None and (only_bullets or _OTHER_HEADING.match(line)):
            inside = False
        elif inside:
            yield line[bullet.end() :] if bullet else line
