"""The identity of a compaction: derived from what it does, so that a retry makes the same one and not a second."""

import json
from collections.abc import Sequence
from hashlib import sha256

from waystation.domain.compaction.policy import Policy


def compaction_id(run_id: str, covered: Sequence[str], policy: Policy) -> str:
    """The hash of run, covered ids and policy: 20 hexadecimal digits."""
    content = json.dumps([run_id, list(covered), policy.model_dump(mode="json")], sort_keys=True)
    return sha256(content.encode()).hexdigest()[:20]
