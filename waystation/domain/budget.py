"""What was used and what may be used, in tokens."""

from enum import StrEnum

from waystation.domain.value import Value


class Usage(Value):
    """Tokens of model calls by kind, as the provider reported them."""

    input: int = 0
    """Uncached input."""
    cache_write: int = 0
    cache_read: int = 0
    output: int = 0

    @property
    def fresh(self) -> int:
        """What counts against a token budget: cache reads are shown and priced, but do not count."""
        return self.input + self.cache_write + self.output

    @property
    def prompt(self) -> int:
        """The whole request's length, cached or not."""
        return self.input + self.cache_write + self.cache_read

    @property
    def total(self) -> int:
        """All four kinds together."""
        return self.prompt + self.output

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input=self.input + other.input,
            cache_write=self.cache_write + other.cache_write,
            cache_read=self.cache_read + other.cache_read,
            output=self.output + other.output,
        )


class Mode(StrEnum):
    """What happens when an agent's budget, and what its parents have left, is spent."""

    HARD = "hard"
    """Stop and deliver what there is, marked partial."""
    APPROVAL = "approval"
    """Pause, hold no worker slot, and ask a person."""


class RunTotals(Value):
    """What one agent run has cost so far, read from the store: cumulative, so that counting it again is harmless."""

    usage: Usage = Usage()
    """Every charge of the run: turns, summaries, planning."""
    turns: int = 0
    possibly_billed: int = 0
    """Worst case, in tokens, of calls whose reply was never committed (a crash in between). Counted as spent."""
    last_prompt: int = 0
    """Prompt tokens of the newest turn, as the provider counted them; 0 before the first."""
    cost_micro_usd: int | None = 0
    """Cost in millionths of a dollar; None where a model without a known price was used."""

    @property
    def spent(self) -> int:
        """Tokens that count against the budget."""
        return self.usage.fresh + self.possibly_billed
