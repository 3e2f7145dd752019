"""The check before a summary is committed. Code, not another model call."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Literal, NamedTuple

from waystation.domain.compaction.ledger import ledger, line_tokens, without_ledger
from waystation.domain.compaction.lost import Entries, always_there, taken_in
from waystation.domain.compaction.outcome import Status
from waystation.domain.compaction.quotations import without_invented
from waystation.domain.compaction.refusals import is_refusal
from waystation.domain.compaction.replaced import Replaced
from waystation.domain.compaction.summary import summary_message, unframed
from waystation.domain.compaction.tokens import estimate_message, estimate_text
from waystation.domain.value import Value
from waystation.patterns import proven

MOST_TIMES_ROOM = 3
"""A summary may be so many times as long as it was asked to be: models do not count exactly, and nor do estimates."""
_WORD = proven(r"\w")
_THOUGHT = proven(r"\A(?:\s*<(thinking|analysis)>.*?(?:</\1>|\Z))+", re.DOTALL)


class Rule(StrEnum):
    """What a summary can be rejected for."""

    EMPTY = "empty"
    ERROR_TEXT = "error text"
    PINS = "pins"
    CONSTRAINTS = "constraints"
    OPEN_WORK = "open work"
    INFLATED = "inflated"
    TARGET_SIZE = "target size"


class Accepted(Value):
    """What goes into the summary message: the summary, and the ledger of what it lost."""

    text: str
    added: tuple[str, ...] = ()
    """What the ledger took in: kinds and counts, nothing of the conversation."""
    removed: tuple[str, ...] = ()
    """What was taken out of the summary: likewise."""


class Rejected(Value):
    """The summary is not used, and everything stays as it was."""

    status: Literal[Status.FAILED_EMPTY_SUMMARY, Status.FAILED_INFLATED, Status.FAILED_CHECK]
    rule: Rule
    message: str
    """Why, in words for a person; nothing of the conversation."""


class _Draft(NamedTuple):
    body: str
    text: str
    """With its ledger."""
    added: tuple[str, ...]
    replaced: Replaced


def check_summary(summary: str, replaced: Replaced) -> Accepted | Rejected:
    """Whether the summary may stand for the middle, and what goes into the message if it may.

    What a model wrote of a ledger is not one: it is written anew, so that checking an accepted text changes nothing.
    """
    if hopeless := check_middle(replaced):
        return hopeless
    checked = without_invented(_plain(summary), replaced.user_said)
    needed, lost = always_there(replaced), taken_in(checked.text, replaced)
    full = _draft(checked.text, replaced, needed, lost)
    # What is added by choice may be what inflates it.
    draft = full if _broken(full) is None else _draft(checked.text, replaced, needed)
    return _broken(draft) or Accepted(text=draft.text, added=draft.added, removed=checked.removed)


def _plain(summary: str) -> str:
    """The summary without ledger, frames and thoughts; its lines end as lines do, so that none hides its beginning."""
    thought = _THOUGHT.sub("", unframed(without_ledger(summary)))
    return "\n".join(line.rstrip() for line in thought.splitlines()).strip()


def check_middle(replaced: Replaced) -> Rejected | None:
    """Why no summary whatever may stand for the middle: known before a model is asked for one."""
    return _first(((rule, breaks(replaced)) for rule, breaks in RULES_OF_MIDDLES.items()))


def _pins(replaced: Replaced) -> str | None:
    names = ", ".join(replaced.pinned)
    return f"the summary would hide what is pinned: {names}" if names else None


def _constraints(replaced: Replaced) -> str | None:
    return _over_cap(replaced.constraints, replaced.cap, "what the user demanded, word for word,")


def _open_work(replaced: Replaced) -> str | None:
    return _over_cap(replaced.open_work, replaced.cap, "the list of open work")


def _empty(draft: _Draft) -> str | None:
    return None if _WORD.search(draft.body) else "the summary is blank"


def _error_text(draft: _Draft) -> str | None:
    return "the summary is an error or a refusal" if is_refusal(draft.body) else None


def _inflated(draft: _Draft) -> str | None:
    smaller = estimate_message(summary_message("", draft.text)) < draft.replaced.tokens
    return None if smaller else "the summary is not smaller than what it replaces"


def _target_size(draft: _Draft) -> str | None:
    size, room = estimate_text(draft.body), draft.replaced.room
    return f"the summary has {size:,} tokens; {room:,} were asked for" if size > MOST_TIMES_ROOM * room else None


RULES_OF_MIDDLES: Mapping[Rule, Callable[[Replaced], str | None]] = {
    Rule.PINS: _pins,
    Rule.CONSTRAINTS: _constraints,
    Rule.OPEN_WORK: _open_work,
}
RULES_OF_SUMMARIES: Mapping[Rule, Callable[[_Draft], str | None]] = {
    Rule.EMPTY: _empty,
    Rule.ERROR_TEXT: _error_text,
    Rule.INFLATED: _inflated,
    Rule.TARGET_SIZE: _target_size,
}
"""Each says what is wrong, or nothing; the first that does counts."""


def _draft(body: str, replaced: Replaced, *entries: Entries) -> _Draft:
    lines = [line for part in entries for line in part.lines]
    added = tuple(what for part in entries for what in part.what)
    return _Draft(body, "\n\n".join(filter(None, [body, ledger(lines)])), added, replaced)


def _broken(draft: _Draft) -> Rejected | None:
    return _first((rule, breaks(draft)) for rule, breaks in RULES_OF_SUMMARIES.items())


def _first(checked: Iterable[tuple[Rule, str | None]]) -> Rejected | None:
    return next(
        (Rejected(status=_status(rule), rule=rule, message=message) for rule, message in checked if message), None
    )


def _status(rule: Rule) -> Literal[Status.FAILED_EMPTY_SUMMARY, Status.FAILED_INFLATED, Status.FAILED_CHECK]:
    if rule is Rule.EMPTY:
        return Status.FAILED_EMPTY_SUMMARY
    return Status.FAILED_INFLATED if rule is Rule.INFLATED else Status.FAILED_CHECK


def _over_cap(texts: Sequence[str], cap: int, what: str) -> str | None:
    size = sum(map(line_tokens, texts))
    return f"{what} has {size:,} tokens; a fifth of the window is {cap:,}: raise the window" if size > cap else None
