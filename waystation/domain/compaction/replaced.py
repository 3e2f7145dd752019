"""What a summary is to stand for, as far as the check before commit needs to know it."""

from waystation.domain.value import Value


class Replaced(Value):
    """The middle of a conversation, and what of it must not be lost. Redacted, but for the user's own words in it."""

    text: str
    """The middle, as the summariser reads it."""
    tokens: int
    """Plain estimate of the middle that the view holds."""
    room: int
    """Most tokens that the summary was asked to have."""
    cap: int
    """Most tokens that the user's constraints may have, and open work likewise: a fifth of the window."""
    constraints: tuple[str, ...] = ()
    """Of `user_constraints`."""
    asked: tuple[str, ...] = ()
    """Of `user_requests`."""
    decisions: tuple[str, ...] = ()
    """Of `recorded_decisions`."""
    open_work: tuple[str, ...] = ()
    """What is not done: pending approvals, running subagents, unfinished items of the plan."""
    user_said: tuple[str, ...] = ()
    """Every message of the user's in the conversation so far: what may be quoted as the user's words."""
    sources: str = ""
    """Of `compaction.sources`: the ledger's line about the passages behind the summary."""
    pinned: tuple[str, ...] = ()
    """Ids of pinned messages in the middle: there must be none."""
