"""How one agent's context is compacted: the strategy and its numbers, fixed when its task was submitted."""

from typing import Literal

from waystation.kernel.value import Value

PRIMERS, RECENTS = 3, 20
"""How many messages stay, unless something else is asked for."""
MAX_MIN_SAVING_TOKENS = 20_000
"""Tokens: in a large window, a saving of this size is worth a compaction even if it is a small share."""


StrategyName = Literal["window", "snapshot", "replace", "ends"]
"""How rung 3 chooses what a summary is to stand for (`context.strategies`)."""


class CompactionPolicy(Value):
    """Sizes are tokens of the whole request, system prompt and tools included."""

    strategy: StrategyName = "window"
    instructions: str = ""
    """What a person wants the summary to heed, redacted; of a manual compaction only."""
    window: int
    """Working window: the largest request that is sent on purpose."""
    trigger: int
    """From here on the context counts as full."""
    target: int
    """What a compaction aims for; well under the trigger, so that one is not followed by another."""
    primers: int = PRIMERS
    """At most so many of the first messages stay."""
    recents: int = RECENTS
    """At most so many of the last messages stay."""
    snapshot_share: int = 70
    """Percent of the size that `snapshot` covers, as nearly as whole units allow."""
    keep_last: int | None = None
    """At most so many of the last messages stay under `ends` and `replace`. None: 3 under the one, none under the
    other.
    """
    mask_over: int = 1_000
    """Tokens: results up to this size are not worth masking."""
    mask_keep: int = 3
    """The last results that could be masked stay."""
    recall: bool = True
    """Whether the agent can recall what is hidden: what is in no store cannot be found again."""
    crowded: bool = False
    """There are too many messages, whatever their size: any saving is worth a compaction."""

    @property
    def max_pinned_tokens(self) -> int:
        """Tokens that all pinned messages may have together: a fifth of the window."""
        return self.window // 5

    @property
    def min_saving_tokens(self) -> int:
        """Tokens: under this no compaction is made, least of all one that costs a model call."""
        return 1 if self.crowded else min(MAX_MIN_SAVING_TOKENS, self.window // 10)

    def for_too_many_messages(self, request_tokens: int) -> "CompactionPolicy":
        """The same for a context of too many messages: full as it is now, and not to be helped by masks, which leave
        their number.
        """
        return self.replace(
            trigger=min(self.trigger, request_tokens),
            target=min(self.target, request_tokens - 1),
            mask_over=self.window,
            crowded=True,
        )
