"""Usage of model calls: tokens by kind, and web searches."""

from collections.abc import Sequence

from waystation.kernel.value import Value


class Usage(Value):
    """Tokens of model calls by kind, and web searches, as reported by the provider."""

    input: int = 0
    """Uncached input tokens."""
    cache_write: int = 0
    cache_read: int = 0
    output: int = 0
    searches: int = 0
    """Web searches by the provider. They cost money, but no tokens besides those of the call that makes them."""
    estimated: int = 0
    """Tokens among these that the provider did not report, so that upper bounds are used."""

    @property
    def fresh(self) -> int:
        """Tokens that count against a token budget. Cache reads are shown and priced, but do not count."""
        return self.input + self.cache_write + self.output

    @property
    def prompt_tokens(self) -> int:
        """Length of the whole request in tokens, cached or not."""
        return self.input + self.cache_write + self.cache_read

    @property
    def reported_prompt_tokens(self) -> int:
        """The same as the provider counted it; 0 if it is a bound, from which estimates can learn nothing."""
        return 0 if self.estimated else self.prompt_tokens

    @property
    def cached_share(self) -> float:
        """Share of the prompt that was read from the provider's cache, from 0 to 1; 0 if there was no prompt."""
        return self.cache_read / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def total(self) -> int:
        """All four kinds of tokens together."""
        return self.prompt_tokens + self.output

    def __add__(self, other: "Usage") -> "Usage":
        return sum_usage((self, other))

    def fill_missing(self, most_input: int, most_output: int) -> "Usage":
        """Return the usage with bounds for what was not reported: no request is empty, so a missing count is not 0."""
        missing = Usage(input=0 if self.prompt_tokens else most_input, output=0 if self.output else most_output)
        return self + missing.replace(estimated=missing.total)


def sum_usage(parts: Sequence[Usage]) -> Usage:
    """Return the sum. It is validated once, however many parts it has: a task's state adds up all its agents."""
    return Usage(
        input=sum(part.input for part in parts),
        cache_write=sum(part.cache_write for part in parts),
        cache_read=sum(part.cache_read for part in parts),
        output=sum(part.output for part in parts),
        searches=sum(part.searches for part in parts),
        estimated=sum(part.estimated for part in parts),
    )
