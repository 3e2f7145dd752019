"""The identity of a compaction: derived from what it does, so that a retry makes the same one and not a second."""

import json
from collections.abc import Sequence
from hashlib import sha256

from waystation.domain.compaction.policy import Policy
from waystation.domain.transcript import Restored, Rewound, Transcript


def compaction_id(transcript: Transcript, covered: Sequence[str], policy: Policy) -> str:
    """The hash of run, covered ids, policy and instructions: 20 hexadecimal digits.

    How often something was undone belongs to it, lest what is compacted again after that be taken for the undone one.
    """
    undone = sum(isinstance(record, Restored | Rewound) for record in transcript.records)
    content = json.dumps([transcript.run_id, list(covered), policy.model_dump(mode="json"), undone], sort_keys=True)
    return sha256(content.encode()).hexdigest()[:20]
