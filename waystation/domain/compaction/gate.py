"""The check before a summary is committed, and the ledger of what it lost. Code, not another model call."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from typing import Literal

from waystation.domain.compaction.constraints import LEDGER_CLOSE, LEDGER_OPEN, LINE
from waystation.domain.compaction.identifiers import identifiers
from waystation.domain.compaction.outcome import Status
from waystation.domain.compaction.summary import ledger_room, summary_message, unframed
from waystation.domain.compaction.tokens import estimate_message, estimate_text
from waystation.domain.value import Value

SHORT_CHARACTERS = 300
"""A longer text that begins like a refusal may well be a summary of one."""
_REFUSAL = re.compile(
    r"(?:error\s*[:\d]|traceback\b|\{\s*\"(?:type\"\s*:\s*\")?error\"|sorry\b|i['’]m (?:sorry|unable|not able)"
    r"|i am (?:sorry|unable|not able)|i (?:cannot|can['’]t|could not|couldn['’]t|won['’]t)\b|as an ai\b)",
    re.IGNORECASE,
)


class Accepted(Value):
    """What goes into the summary message: the summary, and the ledger of what it lost."""

    text: str


class Rejected(Value):
    """The summary is not used, and everything stays as it was. `rule` says which check it failed."""

    status: Literal[Status.FAILED_EMPTY_SUMMARY, Status.FAILED_INFLATED, Status.FAILED_CHECK]
    rule: str


def check_summary(
    summary: str, middle_text: str, middle_tokens: int, constraints: Sequence[str], room: int
) -> Accepted | Rejected:
    """Whether the summary may stand for the middle.

    `middle_text` and `constraints` (from `user_constraints`) are of the redacted middle, so that the ledger repeats
    nothing private; `middle_tokens` is the plain estimate of the middle that the view holds; `room` is the most
    tokens the summary was asked to have.
    """
    body = unframed(summary).strip()
    if not body:
        return Rejected(status=Status.FAILED_EMPTY_SUMMARY, rule="the summary is blank")
    if len(body) <= SHORT_CHARACTERS and _REFUSAL.match(body):
        return Rejected(status=Status.FAILED_CHECK, rule="the summary is an error or a refusal")
    text = "\n\n".join(filter(None, [body, _ledger(body, middle_text, constraints, room)]))
    if estimate_message(summary_message("", text)) >= middle_tokens:
        return Rejected(status=Status.FAILED_INFLATED, rule="the summary is not smaller than what it replaces")
    return Accepted(text=text)


def _ledger(body: str, middle_text: str, constraints: Sequence[str], room: int) -> str:
    # Constraints are written down even where the summary has them word for word: in a later compaction only the
    # ledger tells a demand of the user's from the summariser's prose.
    newest_first = _fitting(reversed(constraints), room)
    lines = [f"{LINE}{sentence}" for sentence in reversed(newest_first)]
    lines += _lost(body, middle_text, ledger_room(room))
    return "\n".join([LEDGER_OPEN, *lines, LEDGER_CLOSE]) if lines else ""


def _lost(body: str, middle_text: str, room: int) -> list[str]:
    """A line for each kind of identifier that the summary lost, as far as there is room."""
    kept = identifiers(body)
    lost = {kind: _most_mentioned(found, kept[kind]) for kind, found in identifiers(unframed(middle_text)).items()}
    # The best of every kind in turn, so that a table full of figures does not crowd out the one path.
    in_turn = (value for value in chain.from_iterable(zip_longest(*lost.values())) if value is not None)
    chosen = set(_fitting(in_turn, room))
    lines = {kind: [value for value in values if value in chosen] for kind, values in lost.items()}
    return [f"{kind}: {' | '.join(values)}" for kind, values in lines.items() if values]


def _most_mentioned(found: Counter[str], kept: Counter[str]) -> list[str]:
    return [value for value, _ in found.most_common() if value not in kept]


def _fitting(texts: Iterable[str], room: int) -> list[str]:
    """The texts, in order, that fit the room (tokens) together with the marks between them."""
    fitting: list[str] = []
    for text in texts:
        room -= estimate_text(text) + 1
        if room < 0:
            break
        fitting.append(text)
    return fitting
