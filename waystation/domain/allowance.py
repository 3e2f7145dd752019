"""Whether one more call fits under a limit, whatever the model does with it."""

from decimal import ROUND_CEILING, Decimal

from waystation.domain.amount import Amount, Limit
from waystation.domain.value import Value


class WorstRates(Value):
    """The most that a call's tokens can cost, in millionths of a dollar a token."""

    input: Decimal
    output: Decimal


class Bound(Value):
    """What a call can cost at most, before the model is asked."""

    input_tokens: int
    """Certain upper bound of the request's input."""
    rates: WorstRates | None
    """None: the model has no known price, and a limit in dollars then lets no call through."""

    def worst_case(self, output: int) -> Amount:
        """What the call costs at most with a reply of so many tokens. Dollars of an unpriced model count nothing."""
        tokens = self.input_tokens + output
        if self.rates is None:
            return Amount(tokens=tokens)
        cost = self.input_tokens * self.rates.input + output * self.rates.output
        return Amount(tokens=tokens, micro_usd=int(cost.to_integral_value(rounding=ROUND_CEILING)))

    def reply_room(self, left: Limit, max_output: int, floor: int) -> int | None:
        """The most tokens that a reply may have so that the whole call stays within `left`, in each unit.

        None: not even `floor` tokens of reply fit.
        """
        room = max_output
        if left.tokens is not None:
            room = min(room, left.tokens - self.input_tokens)
        if left.micro_usd is not None:
            room = min(room, self._reply_for(left.micro_usd))
        return room if room >= floor else None

    def shortfall(self, left: Limit, floor: int) -> Amount:
        """By how much the smallest useful call passes what is left."""
        return left.excess(self.worst_case(floor))

    def _reply_for(self, micro_usd: int) -> int:
        if self.rates is None:
            return 0
        return max(0, int((micro_usd - self.input_tokens * self.rates.input) // self.rates.output))
