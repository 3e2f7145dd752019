"""One person, or one value of theirs: how it may be written, where that was seen, and what stands there once erased."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property

from pydantic import JsonValue

from waystation.domain.json_texts import ARGUMENTS, mapped, strings
from waystation.domain.messages import Text
from waystation.domain.task import short_hash
from waystation.domain.value import Value
from waystation.patterns import proven, transient

ERASED = "<ERASED>"
"""Stands where something of a person stood."""
WANTED = "WANTED"
"""The type under which the vault has a value while it is being erased: Temporal gets its placeholder only."""
IDENTIFYING = frozenset(
    {
        *("id", "task_id", "run_id", "step_id", "store_id", "request_id", "record_id", "tool_use_id", "answer_id"),
        *("session", "tenant", "agent", "needs", "model", "signature", "first_message", "last_message", "signal"),
        *("type", "role", "kind", "phase", "state", "status", "decision", "action", "outcome", "finish", "then"),
        *("strategy", "privacy", "trigger", "event", "undone", "made_by"),
    }
)
"""Fields by which things are found again, or whose words are the program's own: they stay as they are."""

_DIGITS_OF_A_NUMBER = 6
_NUMBER = proven(r"\+?[\w\s./()-]+")
_ADDRESS = proven(r"\A\d++(?:\.\d++){3}")
_BETWEEN_WORDS = r"(?:[\s_-]|\\[nrt]){1,400}+"
"""Names are written over line ends, in names of files, and in JSON. It gives nothing back, so that the work on a text
is linear: no word begins like it.
"""
_BETWEEN_DIGITS = r"[ \t\u00a0./()-]{0,2}"
_BEGINS = r"(?:(?<![^\W_])|(?<=\\[nrt]))"
_ENDS = r"(?![^\W_])"
_LINE_ENDS = proven(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_WITHOUT_SPACES = "\u2e80"
"""From this character on scripts part no words."""


class Whereabouts(StrEnum):
    """A kind of place where a person may be found."""

    REQUEST = "requests"
    DOCUMENT_NAME = "names of documents"
    DOCUMENT = "documents"
    TEXT = "reports and long results"
    TITLE = "titles"
    PLAN = "plans"
    PROGRESS = "progress"
    AUDIT = "audit trail"
    TRANSCRIPT = "transcripts"
    SUMMARY = "summaries and other compactions"
    OUTCOME = "outcomes of legs"
    NOTE = "notes"
    FINDING = "findings and sections"
    REMEMBERED = "passages in memory"
    OUTBOX = "passages that wait or were withdrawn"
    VAULT = "vault"
    REPORT_FILE = "files of reports"
    HISTORY = "workflow histories"
    IDENTIFIER = "names of sessions and requests"
    """They are kept: things are found by them."""


class Trace(Value):
    """How often one place has a person, and never what it says."""

    place: Whereabouts
    task_id: str = ""
    """Empty in the vault, which belongs to all tasks; a session's workflow in histories of sessions."""
    count: int


class SeenHistory(Value):
    """A workflow whose history has what was looked for."""

    workflow_id: str
    run_id: str
    closed: bool
    count: int


class PersonOrder(Value):
    """Whom to erase from everything of a tenant. Nothing in it can be read without the key."""

    store_id: str
    tenant: str
    """The tenant's hash."""
    wanted: str
    """The placeholder under which the vault has the value as it was given."""
    placeholders: tuple[str, ...]
    """All that stand for the value."""
    histories: tuple[SeenHistory, ...] = ()
    """Those that have the person."""
    delete_histories: bool = False
    """Closed ones of them go as a whole."""

    @property
    def workflow_id(self) -> str:
        """Of what carries it out: the same for the same value."""
        return erasing_id(self.tenant, self.wanted)

    @property
    def doomed(self) -> tuple[SeenHistory, ...]:
        """Histories that are deleted."""
        return tuple([one for one in self.histories if self.delete_histories and one.closed])


class Traces(Value):
    """What was found."""

    traces: tuple[Trace, ...] = ()


class Erasure(Value):
    """What became of an order."""

    order: PersonOrder
    id: str
    at: datetime
    found: tuple[Trace, ...]
    left: tuple[Trace, ...]
    """What was still there afterwards."""
    originals: int
    """Entries that the vault has no more."""
    files: int
    """Reports in the home folder of the workers that were written anew."""
    histories_deleted: int


@dataclass(frozen=True)
class Sought:
    """A value, and the placeholders that stand for it."""

    value: str
    placeholders: tuple[str, ...] = ()

    def count(self, text: str) -> int:
        """How often the text has any of them."""
        return sum(1 for _ in self._pattern.finditer(text))

    def without(self, text: str) -> str:
        """The text with `<ERASED>` in their place, and as many lines as before: behind the line ends that stood among
        them, since one at the very end of a text begins no line.
        """
        return self._pattern.sub(lambda found: "".join(_LINE_ENDS.findall(found[0])) + ERASED, text)

    def in_names(self, body: JsonValue) -> int:
        """How often fields that stay have it."""
        return sum(self.count(text) for key, text in strings(body) if key in IDENTIFYING)

    def in_words(self, body: JsonValue) -> int:
        """How often all other fields have it."""
        return sum(self.count(text) for key, text in strings(body) if key not in IDENTIFYING)

    def erased(self, body: JsonValue) -> JsonValue:
        """The same value without the person, but in fields that stay."""
        match body:
            case {"type": "thinking", "thinking": str(thought)} if self.count(thought):
                # Signed: a provider takes it unchanged or not at all.
                return Text(text=ERASED).model_dump()
            case dict():
                return {key: self._erased_in(key, part) for key, part in body.items()}
            case list():
                return [self.erased(part) for part in body]
            case str():
                return self.without(body)
            case _:
                return body

    def _erased_in(self, key: str, part: JsonValue) -> JsonValue:
        if key == ARGUMENTS:
            return mapped(part, self.without)
        return part if key in IDENTIFYING else self.erased(part)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return transient("|".join([*map(re.escape, self.placeholders), _written(self.value)]))


def erasing_id(tenant: str, wanted: str) -> str:
    """Workflow id of what erases the value that the vault has under this placeholder."""
    return f"erase-{short_hash(tenant, wanted)}"


def fingerprints(placeholders: Sequence[str]) -> tuple[str, ...]:
    """SHA-256 of each."""
    return tuple([hashlib.sha256(one.encode()).hexdigest() for one in placeholders])


def summed(traces: tuple[Trace, ...]) -> dict[Whereabouts, int]:
    """How often each kind of place has it, in the order of `Whereabouts`; those without it are left out."""
    counts = {place: sum(trace.count for trace in traces if trace.place is place) for place in Whereabouts}
    return {place: count for place, count in counts.items() if count}


def _written(value: str) -> str:
    """A pattern of all ways to write the value.

    Numbers with and without separators; several words, and addresses, in any case; a single word, which may be an
    ordinary one too, as it is or in capitals.
    """
    if _is_number(value):
        spelled = _BETWEEN_DIGITS.join(re.escape(character) for character in value if character.isalnum())
    else:
        first, *rest = value.split()
        spelled = _BETWEEN_WORDS.join(map(re.escape, [first, *filter(None, (word.lstrip("_-") for word in rest))]))
    spelled = f"(?:{spelled}|{re.escape(value.upper())})" if value.isalpha() else f"(?i:{spelled})"
    begins = "" if value[0] >= _WITHOUT_SPACES else _BEGINS
    ends = "" if value[-1] >= _WITHOUT_SPACES else _ENDS
    return f"{begins}{spelled}{ends}"


def _is_number(value: str) -> bool:
    """Phones, cards, accounts: mostly digits, whose separators mean nothing."""
    digits = sum(character.isdigit() for character in value)
    letters = sum(character.isalpha() for character in value)
    is_number = digits >= _DIGITS_OF_A_NUMBER and digits > letters
    return is_number and bool(_NUMBER.fullmatch(value)) and not _ADDRESS.fullmatch(value)
