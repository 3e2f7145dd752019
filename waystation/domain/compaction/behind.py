"""What a compaction hides in truth: what it covers, and what the summaries and markers among that stood for."""

from collections.abc import Iterable

from waystation.domain.compaction.history import stand_in
from waystation.domain.transcript import Compaction, Masked


def behind(covered: Iterable[str], compactions: Iterable[Compaction]) -> frozenset[str]:
    """The covered ids with everything that is behind them; those of summaries and markers stay among them."""
    inside = {stand_in(record).id: record.covered for record in compactions if not isinstance(record, Masked)}
    found: set[str] = set()
    waiting = list(covered)
    while waiting:
        message_id = waiting.pop()
        if message_id not in found:
            found.add(message_id)
            waiting += inside.get(message_id, ())
    return frozenset(found)
