"""What the user's messages asked for beside demands: the next view still shows it, the newest first of all."""

from collections.abc import Iterator, Sequence

from waystation.domain.compaction.constraints import sentences
from waystation.domain.compaction.ledger import ASKED, entries, is_stand_in, one_line, shortened
from waystation.domain.messages import Message
from waystation.patterns import proven

MOST_CHARACTERS = 500
"""Of one message: what was pasted into it shall not crowd out the others."""
_TAG = proven(r"<([A-Za-z][\w-]{0,40})[^<>]{0,200}>")


def user_requests(middle: Sequence[Message]) -> tuple[str, ...]:
    """For each of the user's messages one line of what it says beside its demands, in order, the last of equal ones.

    Those of earlier ledgers come along. A message that is all in one tag was wrapped by a program and says nothing.
    """
    lines = [line for message in middle if message.role == "user" for line in _of(message)]
    return tuple(dict.fromkeys(reversed(lines)))[::-1]


def _of(message: Message) -> Iterator[str]:
    if is_stand_in(message):
        yield from entries(message, ASKED)
    elif not _is_wrapped(message.text.strip()):
        said = one_line(" ".join(sentence for sentence, demands in sentences(message.text) if not demands))
        if said:
            yield shortened(said, MOST_CHARACTERS)


def _is_wrapped(text: str) -> bool:
    tag = _TAG.match(text)
    return tag is not None and text.endswith(f"</{tag[1]}>")
