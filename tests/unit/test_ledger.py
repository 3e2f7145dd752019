from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from waystation.domain.errors import Overdrawn
from waystation.domain.ledger import Account

CHILDREN = st.sampled_from(["a", "b", "c", "d"])
TOKENS = st.integers(0, 5_000)


class OneAccount(RuleBasedStateMachine):
    """Any sequence of operations, beside a plain count of what each of them should have changed."""

    def __init__(self) -> None:
        super().__init__()
        self.account = Account(limit=10_000)
        self.limit = 10_000
        self.spent = 0
        self.held: dict[str, int] = {}
        self.over = 0
        """Tokens that were spent beyond what was held for them."""

    @property
    def free(self) -> int:
        return max(0, self.limit - self.spent - sum(self.held.values()))

    @rule(child=CHILDREN, tokens=TOKENS)
    def reserve(self, child: str, tokens: int) -> None:
        if tokens <= self.free:
            self.account = self.account.reserve(child, tokens)
            self.held[child] = self.held.get(child, 0) + tokens
        else:
            with pytest.raises(Overdrawn):
                self.account.reserve(child, tokens)

    @rule(child=CHILDREN, tokens=TOKENS)
    def draw(self, child: str, tokens: int) -> None:
        expected = min(tokens, self.free)
        self.account, drawn = self.account.draw(child, tokens)
        assert drawn == expected
        if drawn:
            self.held[child] = self.held.get(child, 0) + drawn

    @rule(child=CHILDREN, tokens=TOKENS)
    def settle(self, child: str, tokens: int) -> None:
        self.account = self.account.settle(child, tokens)
        if child in self.held:
            self.spent += tokens
            self.over += max(0, tokens - self.held.pop(child))

    @rule(tokens=TOKENS)
    def spend(self, tokens: int) -> None:
        self.over += max(0, tokens - self.free)
        self.account = self.account.spend(tokens)
        self.spent += tokens

    @rule(tokens=TOKENS)
    def grant(self, tokens: int) -> None:
        self.account = self.account.grant(tokens)
        self.limit += tokens

    @rule(child=CHILDREN, tokens=TOKENS)
    def grant_to(self, child: str, tokens: int) -> None:
        self.account = self.account.grant_to(child, tokens)
        self.limit += tokens
        self.held[child] = self.held.get(child, 0) + tokens

    @invariant()
    def nothing_is_lost_and_nothing_passes_the_limit(self) -> None:
        assert (self.account.limit, self.account.spent, self.account.reserved) == (self.limit, self.spent, self.held)
        assert self.account.spent + self.account.held <= self.limit + self.over
        assert self.account.unreserved == self.free


TestOneAccount = OneAccount.TestCase


@given(st.lists(st.tuples(CHILDREN, TOKENS), max_size=12))
def test_a_child_settles_once_whatever_is_repeated(settlements: Sequence[tuple[str, int]]) -> None:
    held = Account(limit=40_000, reserved=dict.fromkeys("abcd", 10_000))
    once, seen = held, set[str]()
    for child, spent in settlements:
        if child not in seen:
            once = once.settle(child, spent)
        seen.add(child)
    repeated = held
    for child, spent in settlements:
        repeated = repeated.settle(child, spent).settle(child, spent + 1)
    assert repeated == once


@given(st.permutations(["a", "b", "c", "d"]), st.lists(TOKENS, min_size=4, max_size=4))
def test_children_may_settle_in_any_order(order: list[str], spent: list[int]) -> None:
    spending = dict(zip("abcd", spent, strict=True))
    account = Account(limit=40_000, reserved=dict.fromkeys("abcd", 10_000))
    for child in order:
        account = account.settle(child, spending[child])
    assert account == Account(limit=40_000, spent=sum(spent))


@given(st.integers(0, 100_000), st.lists(st.integers(0, 10_000), min_size=32, max_size=32))
def test_32_children_at_once_cannot_together_pass_the_limit_of_their_parent(limit: int, wanted: list[int]) -> None:
    account, given_out = Account(limit=limit), 0
    for number, tokens in enumerate(wanted):
        account, drawn = account.draw(f"child-{number}", tokens)
        given_out += drawn
    assert given_out == min(limit, sum(wanted))
    for number in range(32):
        account = account.settle(f"child-{number}", account.reserved.get(f"child-{number}", 0))
    assert account.spent == given_out <= limit


def test_a_child_of_a_parent_with_nothing_left_is_given_nothing_and_holds_nothing() -> None:
    spent = Account(limit=100, spent=100)
    assert spent.draw("late", 50) == (spent, 0)
    with pytest.raises(Overdrawn, match=r"^late asks for 1 tokens, 0 are left$"):
        spent.reserve("late", 1)


def test_an_account_without_a_limit_reserves_but_never_gives_by_draw() -> None:
    unlimited = Account(limit=None)
    assert unlimited.unreserved is None
    assert unlimited.draw("child", 50) == (unlimited, 0)
    assert unlimited.reserve("child", 50).grant(1_000).settle("child", 40) == Account(limit=None, spent=40)


def test_new_money_for_a_child_arrives_whole_also_where_the_account_is_overdrawn() -> None:
    overdrawn = Account(limit=100, spent=150, reserved={"child": 10})
    assert overdrawn.grant_to("child", 30) == Account(limit=130, spent=150, reserved={"child": 40})
