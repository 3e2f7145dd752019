"""What the Temporal UI says of the messages that a task takes."""

APPROVE = (
    'Grant a budget request: {"request_id": "research-1-1", "tokens": 20000, "by": "your name", "note": "why"}. '
    "tokens: as many as were asked for, if left out."
)
DENY = (
    'Deny a budget request: {"request_id": "research-1-1", "finish": "partial" or "cancel", "by": "your name", '
    '"note": "why"}.'
)
EDIT = (
    'Change the context of an agent at work, between two legs: {"action": "compact", "pin", "unpin" or "restore", '
    '"agent": "research-1", "message": "m4" or "compaction": "its id", "by": "your name"}.'
)
TELL = 'Tell all agents, each at its next turn: {"text": "…", "by": "your name"}.'
UPDATE = "New versions of the documents, which `waystation documents` puts into the store before it sends this."
