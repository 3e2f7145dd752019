"""Audits what a compaction kept and lost, and shows people the whole log with what hides each message."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from waystation.context.constraints import (
    IDENTIFIER_PATTERNS,
    contains_phrase,
    extract_identifiers,
    extract_recorded_decisions,
    extract_user_constraints,
    normalise_words,
)
from waystation.context.history import (
    expand_covered_ids,
    get_effective_transcript,
    get_masked_call_ids,
    get_pinned_message_ids,
    get_pinned_unit_message_ids,
    get_replacement,
)
from waystation.context.summary import CUT_MARK, strip_frame_tags, strip_summary_frame, without_ledger
from waystation.context.transcript import (
    Compaction,
    MaskRecord,
    Message,
    RestoreRecord,
    SummaryRecord,
    Transcript,
    TruncationRecord,
)
from waystation.kernel.value import Value

DECISIONS, CONSTRAINTS = "decisions", "constraints"
AUDIT_KINDS = (*(kind for kind, _ in IDENTIFIER_PATTERNS), DECISIONS, CONSTRAINTS)
"""Kinds of items that are looked for in hidden messages."""

_Place = Literal["summary", "ledger", "elsewhere"]


class RedactedConversation(Value):
    """A conversation as summariser and memory may see it: everything private replaced."""

    texts: Mapping[str, str]
    """Rendering of each message of the log, by its ID."""
    user_messages: Mapping[str, Message]
    """Text of each message of the user's role in the log, and of each summary and marker, by ID."""
    view: Mapping[str, str]
    """Rendering of each message of the view, by its ID."""


class AuditItem(Value):
    """An item of the hidden messages, and where the model view still has it."""

    kind: str
    """One of `AUDIT_KINDS`."""
    text: str
    """Redacted."""
    kept: _Place | None
    """Where the view still has it: in the compaction's own summary or marker, in that one's ledger, or elsewhere."""
    recallable: bool = False
    """Whether a search in memory finds it, although the view does not have it."""


class CompactionAudit(Value):
    """One compaction whose summary or marker is in the view."""

    id: str
    type: Literal["summarised", "truncated"]
    strategy: str | None
    hidden: tuple[str, ...]
    """IDs of the original messages, including those that an earlier compaction had hidden."""
    earlier: tuple[str, ...]
    """IDs of the earlier compactions whose summaries or markers it covers."""
    items: tuple[AuditItem, ...]

    @property
    def lost(self) -> tuple[AuditItem, ...]:
        """Items that the view does not have."""
        return tuple(item for item in self.items if item.kept is None)

    def with_recalled(self, found: frozenset[AuditItem]) -> "CompactionAudit":
        """Return the audit with the items that memory found marked as recallable."""
        items = tuple(item.replace(recallable=item in found) for item in self.items)
        return self.replace(items=items)


# Not a pydantic value: made once for each searched text, and never stored.
@dataclass(frozen=True)
class SearchableText:
    """A text that is searched many times."""

    text: str

    @cached_property
    def _identifiers(self) -> Mapping[str, Mapping[str, int]]:
        return extract_identifiers(self.text)

    @cached_property
    def _words(self) -> str:
        return normalise_words(self.text)

    def contains_value(self, kind: str, text: str) -> bool:
        """Return whether the text has this identifier as a whole, or these words in a row."""
        if kind in self._identifiers:
            return text in self._identifiers[kind]
        return contains_phrase(self._words, text.removesuffix(CUT_MARK))


def build_compaction_audits(transcript: Transcript, redaction: RedactedConversation) -> tuple[CompactionAudit, ...]:
    """Audit every compaction in the view against the messages of the log that it hides."""
    now = get_effective_transcript(transcript)
    covering = [record for record in now.compactions if not isinstance(record, MaskRecord)]
    return tuple(_audit(record, now, redaction) for record in covering if get_replacement(record).id in redaction.view)


def _audit(
    record: SummaryRecord | TruncationRecord, now: Transcript, redaction: RedactedConversation
) -> CompactionAudit:
    hidden = expand_covered_ids(record.covered, now.compactions)
    messages = tuple(message.id for message in now.messages if message.id in hidden)
    earlier = [one for one in now.compactions if not isinstance(one, MaskRecord) and get_replacement(one).id in hidden]
    places = _places(get_replacement(record), redaction)
    found = dict.fromkeys(_found(messages, [get_replacement(one).id for one in earlier], redaction))
    return CompactionAudit(
        id=record.id,
        type=record.type,
        strategy=record.strategy if isinstance(record, SummaryRecord) else None,
        hidden=messages,
        earlier=tuple(one.id for one in earlier),
        items=tuple(AuditItem(kind=kind, text=text, kept=_place(kind, text, places)) for kind, text in found),
    )


def _found(
    messages: Iterable[str], earlier: Iterable[str], redaction: RedactedConversation
) -> Iterator[tuple[str, str]]:
    text = "\n".join(strip_frame_tags(redaction.texts[message_id]) for message_id in messages)
    for kind, values in extract_identifiers(text).items():
        yield from ((kind, value) for value, _ in values.most_common())
    # Only decisions that an earlier summary recorded: in the raw conversation, only a model could recognise one.
    yield from (
        (DECISIONS, line) for line in extract_recorded_decisions([redaction.user_messages[name] for name in earlier])
    )
    said = [redaction.user_messages[message_id] for message_id in messages if message_id in redaction.user_messages]
    yield from ((CONSTRAINTS, sentence) for sentence in extract_user_constraints(said))


def _places(standing: Message, redaction: RedactedConversation) -> dict[_Place, SearchableText]:
    text = strip_summary_frame(redaction.user_messages[standing.id])
    body = without_ledger(text)
    others = "\n".join(shown for message_id, shown in redaction.view.items() if message_id != standing.id)
    return {
        "summary": SearchableText(body),
        "ledger": SearchableText(text[len(body) :]),
        "elsewhere": SearchableText(others),
    }


def _place(kind: str, text: str, places: Mapping[_Place, SearchableText]) -> _Place | None:
    return next((place for place, searched in places.items() if searched.contains_value(kind, text)), None)


class MessageView(Message):
    """A message of a transcript, with what hides, masks or pins it now."""

    hidden_by: str | None
    """ID of the compaction that covers it, whose own summary may be hidden in turn. None if a pin keeps the message
    visible.
    """
    masked_by: dict[str, str]
    """By ID of the call of each masked result: ID of the compaction that masks it."""
    pinned: bool
    rewound: bool
    """Whether it was rewound and no longer counts."""


class CompactionView(Value):
    """A compaction in a transcript, with its current state."""

    id: str
    type: Literal["summarised", "masked", "truncated"]
    strategy: str | None
    covered: tuple[str, ...]
    """IDs of what it covers directly: messages, and summaries and markers of earlier compactions."""
    originals: tuple[str, ...]
    """IDs of the original messages behind those, in order. The first one determines its place."""
    added: tuple[str, ...]
    removed: tuple[str, ...]
    replacement: str | None
    """ID of the summary or marker in the view."""
    text: str
    """Text of the summary or marker; empty for a mask."""
    hidden_by: str | None
    """ID of the later compaction that covers this one's summary or marker."""
    undone: Literal["restored", "rewound"] | None


class AnnotatedTranscript(Value):
    """A whole transcript, with the effect of compactions on each message."""

    run_id: str
    version: int
    messages: tuple[MessageView, ...]
    compactions: tuple[CompactionView, ...]


def build_transcript_view(transcript: Transcript) -> AnnotatedTranscript:
    """Build the log with what currently hides, masks and pins each message."""
    now = get_effective_transcript(transcript)
    hiding, pins = _hiding(now), get_pinned_message_ids(now)
    masked, masking = get_masked_call_ids(now), [record for record in now.compactions if isinstance(record, MaskRecord)]
    masks = {call: record.id for record in masking for call in record.tool_use_ids if call in masked}
    there = {message.id for message in now.messages}
    return AnnotatedTranscript(
        run_id=transcript.run_id,
        version=transcript.version,
        messages=tuple(
            MessageView(
                id=message.id,
                role=message.role,
                blocks=message.blocks,
                task_message=message.task_message,
                documents_update_number=message.documents_update_number,
                hidden_by=hiding.get(message.id),
                masked_by={call: masks[call] for call in _answered(message) if call in masks},
                pinned=message.id in pins,
                rewound=message.id not in there,
            )
            for message in transcript.messages
        ),
        compactions=tuple(_compaction(record, transcript, now, hiding) for record in transcript.compactions),
    )


def _hiding(now: Transcript) -> dict[str, str]:
    """Map each hidden ID to the compaction that covers it: the first one, as in the view."""
    whole = get_pinned_unit_message_ids(now)
    covering = [record for record in now.compactions if not isinstance(record, MaskRecord)]
    return {covered: record.id for record in reversed(covering) for covered in record.covered if covered not in whole}


def _compaction(
    record: Compaction, transcript: Transcript, now: Transcript, hiding: Mapping[str, str]
) -> CompactionView:
    covered, replacement = (
        _covered(record, transcript),
        None if isinstance(record, MaskRecord) else get_replacement(record),
    )
    hidden = expand_covered_ids(covered, transcript.compactions)
    summarised = record if isinstance(record, SummaryRecord) else None
    undone = _undone(record, transcript, now)
    return CompactionView(
        id=record.id,
        type=record.type,
        strategy=summarised.strategy if summarised else None,
        covered=covered,
        originals=tuple(message.id for message in transcript.messages if message.id in hidden),
        added=summarised.added if summarised else (),
        removed=summarised.removed if summarised else (),
        replacement=replacement.id if replacement else None,
        text=replacement.text if replacement else "",
        hidden_by=hiding.get(replacement.id) if replacement and not undone else None,
        undone=undone,
    )


def _covered(record: Compaction, transcript: Transcript) -> tuple[str, ...]:
    if not isinstance(record, MaskRecord):
        return record.covered
    calls = frozenset(record.tool_use_ids)
    return tuple(message.id for message in transcript.messages if not calls.isdisjoint(_answered(message)))


def _undone(record: Compaction, transcript: Transcript, now: Transcript) -> Literal["restored", "rewound"] | None:
    if any(record.id == counting.id for counting in now.records):
        return None
    restored = any(isinstance(later, RestoreRecord) and later.record_id == record.id for later in transcript.records)
    return "restored" if restored else "rewound"


def _answered(message: Message) -> tuple[str, ...]:
    return tuple(result.tool_use_id for result in message.tool_results)
