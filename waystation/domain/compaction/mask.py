"""Rung 2, mask: old results of tools that can be asked again become placeholders."""

from dataclasses import dataclass

from waystation.domain.compaction.identity import compaction_id
from waystation.domain.compaction.policy import Policy
from waystation.domain.compaction.tokens import estimate_text
from waystation.domain.compaction.units import Layout
from waystation.domain.compaction.view import masked_calls, placeholder
from waystation.domain.transcript import Masked, Transcript


@dataclass(frozen=True)
class Masking:
    """A mask record and the tokens that it saves, as a plain estimate."""

    record: Masked
    saved: int


def masking(transcript: Transcript, layout: Layout, policy: Policy, rereadable: frozenset[str]) -> Masking | None:
    """Masks every large result of these tools but the last `mask_keep`; None where there is none.

    Pinned units stay whole, and so does the newest: the model may not have read it yet.
    """
    done = masked_calls(transcript)
    savings: dict[str, int] = {}
    for index, unit in enumerate(layout.units[:-1]):
        if unit.tokens <= policy.mask_over or index in layout.pinned:
            continue
        names = {call.id: call.name for call in unit.messages[0].tool_uses}
        for result in (result for message in unit.messages for result in message.tool_results):
            name = names[result.tool_use_id]
            if name not in rereadable or result.tool_use_id in done:
                continue
            tokens = estimate_text(result.content) + sum(part.tokens for part in result.attached)
            if tokens <= policy.mask_over:
                continue
            saved = tokens - estimate_text(placeholder(name, result.content))
            if saved > 0:
                savings[result.tool_use_id] = saved
    calls = tuple(savings)[: max(0, len(savings) - policy.mask_keep)]
    if not calls:
        return None
    record = Masked(id=compaction_id(transcript, calls, policy), tool_use_ids=calls)
    return Masking(record, sum(savings[call] for call in calls))
