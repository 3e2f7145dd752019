"""Orders, queries and results of permanent removal: tasks to forget, and one person, or one value, to erase."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TypeVar

from waystation.context.transcript import Block, Message, Text
from waystation.kernel.erasure_locations import ErasureLocation
from waystation.kernel.identifiers import iter_field_strings, map_field_strings
from waystation.kernel.ids import short_hash
from waystation.kernel.patterns import compile_bounded, compile_dynamic
from waystation.kernel.refs import TaskRef
from waystation.kernel.text import FORGOTTEN
from waystation.kernel.value import Value
from waystation.tasks.task import TaskProgress, TaskRequest, TaskRow

Erased = TypeVar("Erased", bound=Value)
ERASED_MARKER = "<ERASED>"
"""Replaces what was erased of a person."""
WANTED_TYPE = "WANTED"
"""Type under which the vault holds a value while it is being erased: Temporal only gets its placeholder."""
_DIGITS_OF_A_NUMBER = 6
_NUMBER = compile_bounded(r"\+?[\w\s./()-]+")
_ADDRESS = compile_bounded(r"\A\d++(?:\.\d++){3}")
_BETWEEN_WORDS = r"(?:[\s_-]|\\[nrt]){1,400}+"
"""Names are written across line ends, in file names, and in JSON. The pattern never backtracks, so that the work on a
text is linear: no word begins like it.
"""
_BETWEEN_DIGITS = r"[ \t\u00a0./()-]{0,2}"
_BEGINS = r"(?:(?<![^\W_])|(?<=\\[nrt]))"
_ENDS = r"(?![^\W_])"
_LINE_ENDS = compile_bounded(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_BESIDE = 200
"""Maximum characters on either side of a match that count as its line, if that is longer."""
_PART_OF_A_NAME = compile_bounded(r"[^\W\d_]{3,}+")
_UNMISTAKABLE = 5
"""Minimum letters of a part that is also looked for within words: *lovelace* in `alovelace@x.org`, but not *ada* in
Adam.
"""
_WITHOUT_SPACES = "\u2e80"
"""From this character on, scripts do not separate words."""


class ErasureMatch(Value):
    """How often one place contains a person; never what it says."""

    place: ErasureLocation
    task_id: str = ""
    """Empty in the vault, which belongs to all tasks; a session's workflow for histories of sessions."""
    count: int


class MatchedHistory(Value):
    """A workflow whose history contains what was looked for."""

    workflow_id: str
    run_id: str
    closed: bool
    count: int


class PersonErasureOrder(Value):
    """Whom to erase from everything of a tenant. Nothing in it can be read without the key."""

    store_id: str
    tenant: str
    """Hash of the tenant."""
    wanted_placeholder: str
    """Placeholder under which the vault holds the value as it was entered."""
    placeholders: tuple[str, ...]
    """All placeholders of the value."""
    histories: tuple[MatchedHistory, ...] = ()
    """Histories that contain the person."""
    delete_histories: bool = False
    """Whether the closed ones are deleted completely."""

    @property
    def workflow_id(self) -> str:
        """Id of the workflow that carries it out: the same for the same value."""
        return make_erasure_workflow_id(self.tenant, self.wanted_placeholder)

    @property
    def histories_to_delete(self) -> tuple[MatchedHistory, ...]:
        """Histories that are deleted."""
        return tuple([one for one in self.histories if self.delete_histories and one.closed])


class ErasureMatches(Value):
    """Everything that was found."""

    matches: tuple[ErasureMatch, ...] = ()


class ErasureResult(Value):
    """Result of an order."""

    order: PersonErasureOrder
    id: str
    at: datetime
    found: tuple[ErasureMatch, ...]
    remaining: tuple[ErasureMatch, ...]
    """What was still there afterwards."""
    originals: int
    """Number of originals removed from the vault."""
    files: int
    """Number of reports rewritten in the home folder of the workers."""
    histories_deleted: int


class RelatedValue(Value):
    """Another value that may be the same person's, to be checked by the person who orders the erasure."""

    text: str
    type: str
    lines: int
    """Number of different lines that contain both; 0 if it is only similar."""
    alike: bool
    """Whether a part of one name is in the other."""


@dataclass(frozen=True)
class ErasureQuery:
    """A value, and its placeholders."""

    value: str
    placeholders: tuple[str, ...] = ()

    def count_matches(self, text: str) -> int:
        """Count the matches in the text."""
        return sum(1 for _ in self._pattern.finditer(text))

    def erase_text(self, text: str) -> str:
        """Replace matches by `<ERASED>`, keeping the number of lines.

        Line ends within a match go before the marker, since one at the very end of a text begins no line.
        """
        return self._pattern.sub(lambda found: "".join(_LINE_ENDS.findall(found[0])) + ERASED_MARKER, text)

    def iter_matching_lines(self, text: str) -> Iterator[str]:
        """Yield the line around each match; of a long line 200 characters on either side, in whole words."""
        for found in self._pattern.finditer(text):
            before = text[max(0, found.start() - _BESIDE) : found.start()]
            behind = text[found.end() : found.end() + _BESIDE]
            if len(before) == _BESIDE and not _LINE_ENDS.search(before):
                before = before.partition(" ")[2]
            if len(behind) == _BESIDE and not _LINE_ENDS.search(behind):
                behind = behind.rpartition(" ")[0]
            yield _LINE_ENDS.split(before)[-1] + found[0] + _LINE_ENDS.split(behind)[0]

    def is_similar_to(self, other: str) -> bool:
        """Whether a part of one value is a part of the other: names among names and in addresses."""
        own, others = _parts(self.value), _parts(other)
        return any(_is_part(one, others) for one in own) or any(_is_part(one, own) for one in others)

    def count_in_identifiers(self, value: Value) -> int:
        """Count the matches in strings that stay unchanged."""
        return sum(self.count_matches(one.text) for one in iter_field_strings(value) if not one.is_text)

    def count_in_texts(self, value: Value) -> int:
        """Count the matches in free text."""
        return sum(map(self.count_matches, iter_erasable_texts(value)))

    def erase_value(self, value: Erased) -> Erased:
        """Return the value without the person in free text. What identifies something stays."""
        erased = map_field_strings(value, lambda one: self.erase_text(one.text) if one.is_text else one.text)
        if isinstance(value, Message) and isinstance(erased, Message):
            pairs = zip(value.blocks, erased.blocks, strict=True)
            return erased.replace(blocks=tuple([_without_changed_thinking(*pair) for pair in pairs]))
        return erased

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return compile_dynamic("|".join([*map(re.escape, self.placeholders), _written(self.value)]))


def _without_changed_thinking(before: Block, after: Block) -> Block:
    """Return the block. Signed reasoning about the person goes as a whole: providers refuse a changed one."""
    return Text(text=ERASED_MARKER) if before.type == "thinking" and after != before else after


def iter_erasable_texts(value: Value) -> Iterator[str]:
    """Yield the free texts of the value."""
    return (one.text for one in iter_field_strings(value) if one.is_text)


def make_erasure_workflow_id(tenant: str, wanted: str) -> str:
    """Return the id of the workflow that erases the value that the vault holds under this placeholder."""
    return f"erase-{short_hash(tenant, wanted)}"


def compute_fingerprints(placeholders: Sequence[str]) -> tuple[str, ...]:
    """Return the SHA-256 of each placeholder in hex."""
    return tuple([hashlib.sha256(one.encode()).hexdigest() for one in placeholders])


def find_related_values(
    query: ErasureQuery, beside: Mapping[tuple[str, str], int], known: Mapping[str, str]
) -> list[RelatedValue]:
    """Return other values that may be the same person's: similar ones first, then those that most often share a line.

    Values that are neither similar nor on a line with the value are left out, and so are those that contain it.

    Args:
        sought: the value.
        beside: number of shared lines, by type and value.
        known: types of all stored values.
    """
    counts, spelled = Counter[tuple[str, str]](), dict[tuple[str, str], str]()
    for (kind, text), lines in [*beside.items(), *[((kind, text), 0) for text, kind in known.items()]]:
        if not query.count_matches(text) and (lines or query.is_similar_to(text)):
            same = (kind, " ".join(text.casefold().split()))
            spelled.setdefault(same, text)
            counts[same] += lines
    near = [
        RelatedValue(text=spelled[one], type=one[0], lines=lines, alike=query.is_similar_to(one[1]))
        for one, lines in counts.items()
    ]
    return sorted(near, key=lambda one: (not one.alike, -one.lines, one.text))


def sum_matches_by_location(traces: tuple[ErasureMatch, ...]) -> dict[ErasureLocation, int]:
    """Return the number of matches for each kind of location, in the order of `ErasureLocation`, without zeros."""
    counts = {place: sum(trace.count for trace in traces if trace.place is place) for place in ErasureLocation}
    return {place: count for place, count in counts.items() if count}


def _parts(value: str) -> set[str]:
    """Return the parts of a name, or of an e-mail address before its domain."""
    return set(_PART_OF_A_NAME.findall(value.partition("@")[0].casefold()))


def _is_part(one: str, others: set[str]) -> bool:
    return one in others or (len(one) >= _UNMISTAKABLE and any(one in other for other in others))


def _written(value: str) -> str:
    """Return the source of a pattern for all spellings of the value.

    Numbers match with and without separators; several words, and addresses, in any case; a single word, which may also
    be an ordinary one, as it is or in capitals.
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
    """Whether it is a phone, card or account number: mostly digits, with meaningless separators."""
    digits = sum(character.isdigit() for character in value)
    letters = sum(character.isalpha() for character in value)
    is_number = digits >= _DIGITS_OF_A_NUMBER and digits > letters
    return is_number and bool(_NUMBER.fullmatch(value)) and not _ADDRESS.fullmatch(value)


MAX_TASKS_PER_ORDER = 500
"""Maximum tasks in an order that no person gave."""


class ForgetOrder(Value):
    """Which tasks of a tenant to forget. They are over, and the order contains no text."""

    store_id: str
    tenant: str
    """Hash of the tenant."""
    task_ids: tuple[str, ...]
    everything: bool
    """Whether to remove more than memory could find: transcripts, documents, notes, reports and the question itself."""

    @property
    def workflow_id(self) -> str:
        """Id of the workflow that carries it out."""
        return f"forget-{short_hash(*self.task_ids, str(self.everything))}"


class ExpiredTasks(Value):
    """Tasks whose retention period is over."""

    days: int | None
    """Retention period in days; None: for ever."""
    orders: tuple[ForgetOrder, ...] = ()


class ForgetCounts(Value):
    """Number of removed items of each kind."""

    tasks: int = 0
    """Tasks of which there was something to forget."""
    passages: int = 0
    """They are no longer in memory when the order has been carried out."""
    originals: int = 0
    """Originals of placeholders that nothing refers to any longer."""
    messages: int = 0
    """Messages, compactions and outcomes of agents."""
    work: int = 0
    """Notes and deliverables of agents."""
    documents: int = 0
    """A text that another task has too stays there."""
    texts: int = 0
    """Contents of documents, reports and long tool results."""
    audits: int = 0


class CleanupStep(Value):
    """An order of which nothing is left in the store and memory."""

    order: ForgetOrder
    removed: ForgetCounts


class ErasureReceipt(Value):
    """Result of an order."""

    removed: ForgetCounts
    histories: int = 0
    """Workflow histories that the server was told to delete."""
    files: int = 0
    """Reports in home folders."""


def split_into_forget_orders(tasks: Sequence[TaskRef]) -> tuple[ForgetOrder, ...]:
    """Build orders to forget every word of these tasks, one for each store, tenant and MAX_TASKS_PER_ORDER tasks."""
    by_owner: dict[tuple[str, str], list[str]] = {}
    for ref in tasks:
        by_owner.setdefault((ref.store_id, ref.tenant), []).append(ref.task_id)
    return tuple(
        ForgetOrder(
            store_id=store, tenant=tenant, task_ids=tuple(ids[first : first + MAX_TASKS_PER_ORDER]), everything=True
        )
        for (store, tenant), ids in by_owner.items()
        for first in range(0, len(ids), MAX_TASKS_PER_ORDER)
    )


def build_forgotten_row(row: TaskRow) -> TaskRow:
    """Return the task row without anyone's words: what it cost and how it ended stays."""
    nothing: dict[str, object] = {"instructions": "", "accept": (), "left_out": (), "procedures": (), "servers": None}
    request = TaskRequest.model_validate({**row.request.model_dump(), "question": FORGOTTEN, **nothing})
    progress = None if row.progress is None else _without_text(row.progress)
    return row.replace(request=request, title=FORGOTTEN, progress=progress)


def _without_text(progress: TaskProgress) -> TaskProgress:
    return TaskProgress(
        task_id=progress.task_id,
        phase=progress.phase,
        title=FORGOTTEN,
        model=progress.model,
        steps=tuple(step.replace(title="", reason="") for step in progress.steps),
        budget=progress.budget,
        totals=progress.totals,
        legs=progress.legs,
    )
