"""An account of one budget level: what it may spend, what it spent, and what it holds for its children.

Session, task and agent each have one, in tokens, dollars or both. Children settle once: a repeated settlement has no
effect, whatever is retried or replayed.
"""

from waystation.domain.amount import Amount, Limit
from waystation.domain.errors import Overdrawn
from waystation.domain.value import Value


class Account(Value):
    """One level's budget. Invariant, in each unit: spent + all reservations ≤ limit. Only `spend` and `settle` may
    break it, where more was spent than was held: that money is gone, and the ledger never hides it.
    """

    limit: Limit
    spent: Amount = Amount()
    reserved: dict[str, Amount] = {}
    """By child: what is held for it, until it settles."""

    @property
    def held(self) -> Amount:
        """What is held for all children together."""
        return sum(self.reserved.values(), Amount())

    @property
    def unreserved(self) -> Limit:
        """What may still be reserved or spent."""
        return self.limit.after(self.spent + self.held)

    def reserve(self, child: str, amount: Amount) -> "Account":
        """Hold an amount for a child, on top of what it already holds.

        Raises:
            Overdrawn: more than is unreserved. Nothing changes then.
        """
        left = self.unreserved
        if not left.covers(amount):
            raise Overdrawn(child, amount, left)
        return self._holding(child, amount)

    def settle(self, child: str, spent: Amount) -> "Account":
        """Turn a child's reservation into what it spent; the rest is unreserved again.

        A child without a reservation (settled before, or unknown) changes nothing.
        """
        if child not in self.reserved:
            return self
        rest = {name: held for name, held in self.reserved.items() if name != child}
        return Account(limit=self.limit, spent=self.spent + spent, reserved=rest)

    def carve(self, parent: str, child: str, amount: Amount) -> "Account":
        """Part of what is held for one child becomes held for another: at most as much as there is."""
        carved = amount.at_most(self.reserved.get(parent, Amount()))
        kept = {**self.reserved, parent: self.reserved.get(parent, Amount()).less(carved)}
        return Account(limit=self.limit, spent=self.spent, reserved=kept)._holding(child, carved)

    def hand_back(self, child: str, parent: str, spent: Amount) -> tuple["Account", Amount]:
        """Settle a child whose reservation was carved from another's, which holds the rest again. Returns the account
        and that rest; nothing where the parent has settled, so that the rest is unreserved.
        """
        rest = self.reserved.get(child, Amount()).less(spent)
        settled = self.settle(child, spent)
        if parent not in settled.reserved or child not in self.reserved:
            return settled, Amount()
        return settled._holding(parent, rest), rest

    def take_back(self, child: str, spent: Amount) -> "Account":
        """Undo a settlement, because the child goes on: what it spent is held for it again, and settled later."""
        rest = Account(limit=self.limit, spent=self.spent.less(spent), reserved=self.reserved)
        return rest._holding(child, spent)

    def spend(self, amount: Amount) -> "Account":
        """Book what this level spent itself (planning)."""
        return Account(limit=self.limit, spent=self.spent + amount, reserved=self.reserved)

    def grant(self, amount: Amount) -> "Account":
        """New money from a person: raises the limit. Without a limit there is nothing to raise."""
        return Account(limit=self.limit.raised(amount), spent=self.spent, reserved=self.reserved)

    def grant_to(self, child: str, amount: Amount) -> "Account":
        """New money for a child: limit and reservation grow together, also where more is booked than the limit."""
        return self.grant(amount)._holding(child, amount)

    def draw(self, child: str, wanted: Amount) -> tuple["Account", Amount]:
        """Hold up to `wanted` more for a child: as much as is unreserved. Returns the account and the amount.

        An account without a limit gives nothing here: "no limit was set" is not a permission to spend without one.
        """
        drawn = wanted.at_most(self.unreserved.amount)
        return (self if drawn.nothing else self.reserve(child, drawn)), drawn

    def _holding(self, child: str, amount: Amount) -> "Account":
        reserved = {**self.reserved, child: self.reserved.get(child, Amount()) + amount}
        return Account(limit=self.limit, spent=self.spent, reserved=reserved)
