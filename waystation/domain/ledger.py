"""An account of one budget level: what it may spend, what it spent, and what it holds for its children.

Session, task and agent each have one. The unit is whole tokens; a budget in money is a second account beside it,
in millionths of a dollar. Children settle once: a repeated settlement has no effect, whatever is retried or replayed.
"""

from waystation.domain.errors import Overdrawn
from waystation.domain.value import Value


class Account(Value):
    """One level's budget. Invariant: spent + all reservations ≤ limit. Only `spend` and `settle` may break it, where
    more was spent than was held: that money is gone, and the ledger never hides it.
    """

    limit: int | None
    """Tokens; None means without a limit, and is only ever written out."""
    spent: int = 0
    reserved: dict[str, int] = {}
    """By child: what is held for it, until it settles."""

    @property
    def held(self) -> int:
        """Tokens held for all children together."""
        return sum(self.reserved.values())

    @property
    def unreserved(self) -> int | None:
        """What may still be reserved or spent; None without a limit, never negative."""
        return None if self.limit is None else max(0, self.limit - self.spent - self.held)

    def reserve(self, child: str, tokens: int) -> "Account":
        """Hold tokens for a child, on top of what it already holds.

        Raises:
            Overdrawn: more than is unreserved. Nothing changes then.
        """
        left = self.unreserved
        if left is not None and tokens > left:
            raise Overdrawn(child, tokens, left)
        return self._holding(child, tokens)

    def settle(self, child: str, spent: int) -> "Account":
        """Turn a child's reservation into what it spent; the rest is unreserved again.

        A child without a reservation (settled before, or unknown) changes nothing.
        """
        if child not in self.reserved:
            return self
        rest = {name: held for name, held in self.reserved.items() if name != child}
        return Account(limit=self.limit, spent=self.spent + spent, reserved=rest)

    def spend(self, tokens: int) -> "Account":
        """Book tokens that this level spent itself (planning)."""
        return Account(limit=self.limit, spent=self.spent + tokens, reserved=self.reserved)

    def grant(self, tokens: int) -> "Account":
        """New money from a person: raises the limit. Without a limit there is nothing to raise."""
        limit = None if self.limit is None else self.limit + tokens
        return Account(limit=limit, spent=self.spent, reserved=self.reserved)

    def grant_to(self, child: str, tokens: int) -> "Account":
        """New money for a child: limit and reservation grow together, also where more is booked than the limit."""
        return self.grant(tokens)._holding(child, tokens)

    def draw(self, child: str, wanted: int) -> tuple["Account", int]:
        """Hold up to `wanted` more tokens for a child: as much as is unreserved. Returns the account and the amount.

        An account without a limit gives nothing here: "no limit was set" is not a permission to spend without one.
        """
        drawn = min(wanted, self.unreserved or 0)
        return (self.reserve(child, drawn) if drawn > 0 else self), max(0, drawn)

    def _holding(self, child: str, tokens: int) -> "Account":
        reserved = {**self.reserved, child: self.reserved.get(child, 0) + tokens}
        return Account(limit=self.limit, spent=self.spent, reserved=reserved)
