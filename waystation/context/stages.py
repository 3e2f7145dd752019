"""The compaction stages that need no model: offload large results, mask old ones, truncate the oldest half.

Also the ID of a compaction, derived from what it does, so that a retry makes the same one.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from waystation.context.constraints import extract_user_constraints
from waystation.context.history import (
    expand_covered_ids,
    get_effective_transcript,
    get_masked_call_ids,
    render_masked_result,
)
from waystation.context.policy import CompactionPolicy
from waystation.context.summary import CONSTRAINT_PREFIX, MARKER_ID_PREFIX, estimate_line_tokens, render_ledger
from waystation.context.tokens import TokenEstimator, estimate_message, estimate_text
from waystation.context.transcript import (
    MaskRecord,
    Message,
    RestoreRecord,
    RewindRecord,
    Transcript,
    TruncationRecord,
    build_user_message,
)
from waystation.context.units import MessageUnit, TranscriptLayout
from waystation.privacy.policy import find_cut_position

_MAX_TOKENS = 40_000
_WINDOW_SHARE = 4
"""Maximum share of the working window for one result: 1/4."""
END_CHARACTERS = 2_000


def is_too_large(text: str, window: int) -> bool:
    """Return whether a result has more than 40,000 tokens, or more than a quarter of the working window."""
    return estimate_text(text) > min(_MAX_TOKENS, window // _WINDOW_SHARE)


def build_offload_preview(text: str, blob: str) -> str:
    """Build the preview of an offloaded result: head, pointer to the rest, tail.

    `blob` is the full ID of the stored text: the pointer must work as written.
    """
    return truncate_middle(text, f"All its {len(text):,} characters are stored: read_stored with id {blob} reads more")


def truncate_middle(text: str, pointer: str) -> str:
    """Return head and tail of a text, with the pointer in between.

    Each has 2,000 characters, and at most a quarter of the text.
    """
    end = find_cut_position(text, min(END_CHARACTERS, len(text) // 4))
    gap = f"[The middle of this result is not shown. {pointer}; the middle begins at character {end}.]"
    return f"{text[:end]}\n{gap}\n{text[len(text) - end :]}"


def compute_compaction_id(transcript: Transcript, covered: Sequence[str], policy: CompactionPolicy) -> str:
    """Return the hash of run, covered IDs, policy and instructions: 20 hexadecimal digits.

    The number of undone records is included, so that compacting again after an undo gets a new ID.
    """
    undone = sum(isinstance(record, RestoreRecord | RewindRecord) for record in transcript.records)
    content = json.dumps([transcript.run_id, list(covered), policy.model_dump(mode="json"), undone], sort_keys=True)
    return sha256(content.encode()).hexdigest()[:20]


@dataclass(frozen=True)
class MaskingResult:
    """A mask record and the tokens that it saves (plain estimate)."""

    record: MaskRecord
    saved_tokens: int


def mask_tool_results(
    transcript: Transcript, layout: TranscriptLayout, policy: CompactionPolicy, rereadable: frozenset[str]
) -> MaskingResult | None:
    """Mask every large result of these tools except the last `mask_keep`; None if there is none.

    Pinned units stay intact, and so does the newest unit: the model may not have read it yet.
    """
    done = get_masked_call_ids(transcript)
    savings: dict[str, int] = {}
    for index, unit in enumerate(layout.units[:-1]):
        if unit.tokens <= policy.min_masked_tokens or index in layout.pinned:
            continue
        names = {call.id: call.name for call in unit.messages[0].tool_uses}
        for result in (result for message in unit.messages for result in message.tool_results):
            name = names[result.tool_use_id]
            if name not in rereadable or result.tool_use_id in done:
                continue
            tokens = estimate_text(result.content) + sum(part.tokens for part in result.attachments)
            if tokens <= policy.min_masked_tokens:
                continue
            saved = tokens - estimate_text(render_masked_result(name, result.content))
            if saved > 0:
                savings[result.tool_use_id] = saved
    calls = tuple(savings)[: max(0, len(savings) - policy.unmasked_results)]
    if not calls:
        return None
    record = MaskRecord(id=compute_compaction_id(transcript, calls, policy), tool_use_ids=calls)
    return MaskingResult(record, sum(savings[call] for call in calls))


_NAMED_IDS = 6
MARKER_TOKENS = 100
"""Tokens allowed for a marker."""


def truncate_oldest_units(
    transcript: Transcript, layout: TranscriptLayout, policy: CompactionPolicy, measure: TokenEstimator
) -> TruncationRecord | None:
    """Hide the oldest half of the units that may be hidden, and more if the context would still be full.

    The marker keeps the user's demands in them verbatim; a unit whose demands would bring the marker's above a fifth of
    the window stays. None if the view would not become smaller.
    """
    may_go = list(_bearable(layout, policy.max_pinned_tokens))
    hidden = may_go[: (len(may_go) + 1) // 2]
    left = measure.fixed_tokens + MARKER_TOKENS + layout.tokens
    left -= sum(hiding.saved_tokens for hiding in hidden)
    for hiding in may_go[len(hidden) :]:
        if measure.scale_estimate(left) < policy.trigger:
            break
        hidden.append(hiding)
        left -= hiding.saved_tokens
    record = _record(transcript, hidden, policy)
    return record if estimate_message(record.marker) < sum(hiding.unit.tokens for hiding in hidden) else None


class _Hiding(NamedTuple):
    unit: MessageUnit
    demands: tuple[str, ...]
    """Demands that the marker does not have yet."""
    saved_tokens: int
    """Tokens saved (plain estimate)."""


def _bearable(layout: TranscriptLayout, cap: int) -> Iterator[_Hiding]:
    """Yield the units that may be hidden, oldest first."""
    carried: set[str] = set()
    for index, unit in enumerate(layout.units):
        if index in layout.protected_indices:
            continue
        demands = tuple(demand for demand in extract_user_constraints(unit.messages) if demand not in carried)
        size = sum(map(estimate_line_tokens, demands))
        if size <= cap:
            cap -= size
            carried.update(demands)
            yield _Hiding(unit, demands, unit.tokens - size)


def _record(transcript: Transcript, hidden: Sequence[_Hiding], policy: CompactionPolicy) -> TruncationRecord:
    covered = tuple(message_id for hiding in hidden for message_id in hiding.unit.message_ids)
    record_id = compute_compaction_id(transcript, covered, policy)
    demands = [demand for hiding in hidden for demand in hiding.demands]
    marker = _marker(record_id, _said(transcript, covered), demands, recall=policy.can_recall)
    return TruncationRecord(id=record_id, covered=covered, marker=marker)


def _marker(record_id: str, ids: Sequence[str], demands: Sequence[str], *, recall: bool) -> Message:
    half = _NAMED_IDS // 2
    names = ", ".join(ids) if len(ids) <= _NAMED_IDS else f"{', '.join(ids[:half])} … {', '.join(ids[-half:])}"
    there = " They stay in the record of this conversation; recall may find what they said." if recall else ""
    text = f"[{len(ids):,} earlier messages are hidden here to save space: {names}.{there}]"
    if demands:
        text += (
            f"\nWhat the user demanded in them:\n{render_ledger(f'{CONSTRAINT_PREFIX}{demand}' for demand in demands)}"
        )
    return build_user_message(f"{MARKER_ID_PREFIX}{record_id}", text)


def _said(transcript: Transcript, covered: tuple[str, ...]) -> list[str]:
    """Return the IDs of the original messages behind the covered ones."""
    now = get_effective_transcript(transcript)
    hidden = expand_covered_ids(covered, now.compactions)
    return [message.id for message in now.messages if message.id in hidden]
