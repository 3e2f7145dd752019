"""How one agent's context is compacted: strategy and numbers, fixed when its task was submitted."""

from typing import Literal

from waystation.kernel.value import Value

PRIMERS, RECENTS = 3, 20
"""Default numbers of first and last messages that stay."""
MAX_MIN_SAVING_TOKENS = 20_000
"""In a large window, a saving of this many tokens is worth a compaction even if it is a small share."""


StrategyName = Literal["window", "snapshot", "replace", "ends"]
"""How the summary stage chooses the messages that a summary replaces (`context.strategies`)."""


class CompactionPolicy(Value):
    """Compaction policy of one agent. Sizes are tokens of the whole request, with system prompt and tools."""

    strategy: StrategyName = "window"
    instructions: str = ""
    """A person's instructions for the summary, redacted; only for a manual compaction."""
    window: int
    """Working window: the largest request that is sent on purpose."""
    trigger: int
    """Size at which the context counts as full."""
    target: int
    """Size that a compaction aims for; well below the trigger, so that another one does not follow at once."""
    primers: int = PRIMERS
    """Maximum number of first messages that stay."""
    recents: int = RECENTS
    """Maximum number of last messages that stay."""
    snapshot_share: int = 70
    """Percentage of the size that `snapshot` covers, as closely as whole units allow."""
    keep_last: int | None = None
    """Maximum number of last messages that stay with `ends` and `replace`. None: 3 with `ends`, 0 with `replace`."""
    min_masked_tokens: int = 1_000
    """Results up to this many tokens are not worth masking."""
    unmasked_results: int = 3
    """Number of the last maskable results that stay."""
    can_recall: bool = True
    """Whether the agent can recall hidden messages; what is in no store cannot be found again."""
    too_many_messages: bool = False
    """Whether there are too many messages, whatever their size: any saving is then worth a compaction."""

    @property
    def max_pinned_tokens(self) -> int:
        """Maximum tokens of all pinned messages together: a fifth of the window."""
        return self.window // 5

    @property
    def min_saving_tokens(self) -> int:
        """Minimum saving in tokens that is worth a compaction, especially one that costs a model call."""
        return 1 if self.too_many_messages else min(MAX_MIN_SAVING_TOKENS, self.window // 10)

    def for_too_many_messages(self, request_tokens: int) -> "CompactionPolicy":
        """Return the policy for a context with too many messages.

        The context counts as full, and masking is off, since it keeps the number of messages.
        """
        return self.replace(
            trigger=min(self.trigger, request_tokens),
            target=min(self.target, request_tokens - 1),
            min_masked_tokens=self.window,
            too_many_messages=True,
        )
