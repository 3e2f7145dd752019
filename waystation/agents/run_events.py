"""Events of an agent run: of its charges and its records."""

from waystation.context.transcript import Charge, Compaction, Message, PromptPrefixRecord, Record, RewindRecord
from waystation.kernel.usage import Usage
from waystation.store.events import EventKind, UnnumberedEvent


def build_charge_event(kind: EventKind, charge: Charge, message: Message | None = None) -> UnnumberedEvent:
    """Build the event of a charge, with or without the message that it paid for."""
    usage: Usage = charge.usage
    return UnnumberedEvent(
        kind=kind,
        reference=charge.key if message is None else message.id,
        detail=charge.kind,
        tokens=usage.total,
        context=usage.prompt_tokens if charge.kind == "turn" else 0,
        micro_usd=charge.cost_micro_usd or 0,
    )


def build_wait_event(charge: Charge) -> UnnumberedEvent:
    """Build the event that a call waited because of the provider's rate limit."""
    return UnnumberedEvent(kind="throttled", reference=charge.key, detail=f"{charge.waited_ms / 1000:.1f} s")


def build_record_event(record: Record) -> UnnumberedEvent | None:
    """Build the event of a record. None for one that only records what is sent."""
    if isinstance(record, PromptPrefixRecord):
        return None
    kind: EventKind = "edited"
    if isinstance(record, Compaction):
        kind = "compacted"
    elif isinstance(record, RewindRecord):
        kind = "rewound"
    return UnnumberedEvent(kind=kind, reference=record.id, detail=record.type)
