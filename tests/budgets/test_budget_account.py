from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from waystation.budgets.budget import BudgetAccount
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.errors import InsufficientBudgetError

UNITS = ("tokens", "micro_usd")
CHILDREN = st.sampled_from(["a", "b", "c", "d"])
AMOUNTS = st.builds(Amount, tokens=st.integers(0, 5_000), micro_usd=st.integers(0, 5_000))
LIMITS = st.builds(Limit, tokens=st.none() | st.integers(0, 100_000), micro_usd=st.none() | st.integers(0, 100_000))


class PlainCount:
    """One unit of an account, counted as a child would: what each operation should have changed."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.spent = 0
        self.held: dict[str, int] = {}
        self.over = 0
        """What was spent beyond what was held for it."""

    @property
    def free(self) -> int | None:
        return None if self.limit is None else max(0, self.limit - self.spent - sum(self.held.values()))

    def fits(self, number: int) -> bool:
        return self.free is None or number <= self.free

    def drawable(self, wanted: int) -> int:
        return min(wanted, self.free or 0)

    def hold(self, child: str, number: int) -> None:
        self.held[child] = self.held.get(child, 0) + number

    def settle(self, child: str, number: int) -> None:
        self.spent += number
        self.over += max(0, number - self.held.pop(child))

    def charge(self, number: int) -> None:
        self.over += max(0, number - self.free) if self.free is not None else 0
        self.spent += number

    def grant(self, number: int) -> None:
        self.limit = None if self.limit is None else self.limit + number


def of(amount: Amount, unit: str) -> int:
    return amount.tokens if unit == "tokens" else amount.micro_usd


class OneAccount(RuleBasedStateMachine):
    """Any sequence of operations, beside a plain count of each unit."""

    @initialize(limit=LIMITS)
    def opened(self, limit: Limit) -> None:
        self.account = BudgetAccount(limit=limit)
        self.plain = {"tokens": PlainCount(limit.tokens), "micro_usd": PlainCount(limit.micro_usd)}

    @rule(child=CHILDREN, amount=AMOUNTS)
    def reserve(self, child: str, amount: Amount) -> None:
        if all(self.plain[unit].fits(of(amount, unit)) for unit in UNITS):
            self.account = self.account.reserve(child, amount)
            self._hold(child, amount)
        else:
            with pytest.raises(InsufficientBudgetError):
                self.account.reserve(child, amount)

    @rule(child=CHILDREN, wanted=AMOUNTS)
    def draw(self, child: str, wanted: Amount) -> None:
        expected = {unit: self.plain[unit].drawable(of(wanted, unit)) for unit in UNITS}
        self.account, drawn = self.account.reserve_available(child, wanted)
        assert drawn == Amount(**expected)
        if not drawn.is_zero:
            self._hold(child, drawn)

    @rule(child=CHILDREN, spent=AMOUNTS)
    def settle(self, child: str, spent: Amount) -> None:
        self.account = self.account.settle(child, spent)
        for unit in UNITS:
            if child in self.plain[unit].held:
                self.plain[unit].settle(child, of(spent, unit))

    @rule(spent=AMOUNTS)
    def charge(self, spent: Amount) -> None:
        self.account = self.account.charge(spent)
        for unit in UNITS:
            self.plain[unit].charge(of(spent, unit))

    @rule(amount=AMOUNTS)
    def grant(self, amount: Amount) -> None:
        self.account = self.account.grant(amount)
        for unit in UNITS:
            self.plain[unit].grant(of(amount, unit))

    @rule(child=CHILDREN, amount=AMOUNTS)
    def grant_to(self, child: str, amount: Amount) -> None:
        self.account = self.account.grant_to(child, amount)
        for unit in UNITS:
            self.plain[unit].grant(of(amount, unit))
        self._hold(child, amount)

    def _hold(self, child: str, amount: Amount) -> None:
        for unit in UNITS:
            self.plain[unit].hold(child, of(amount, unit))

    @invariant()
    def nothing_is_lost_and_nothing_passes_the_limit(self) -> None:
        account, plain = self.account, self.plain
        assert account.limit == Limit(**{unit: plain[unit].limit for unit in UNITS})
        assert account.unreserved == Limit(**{unit: plain[unit].free for unit in UNITS})
        for unit in UNITS:
            counted = plain[unit]
            assert of(account.spent, unit) == counted.spent
            assert {child: of(held, unit) for child, held in account.reserved.items()} == counted.held
            if counted.limit is not None:
                assert of(account.spent + account.total_reserved, unit) <= counted.limit + counted.over


TestOneAccount = OneAccount.TestCase


def each(amount: Amount) -> dict[str, Amount]:
    return dict.fromkeys("abcd", amount)


LARGE = Amount(tokens=10_000, micro_usd=10_000)
FOUR_LARGE = Limit(tokens=40_000, micro_usd=40_000)


@given(st.lists(st.tuples(CHILDREN, AMOUNTS), max_size=12))
def test_a_child_settles_once_whatever_is_repeated(settlements: Sequence[tuple[str, Amount]]) -> None:
    held = BudgetAccount(limit=FOUR_LARGE, reserved=each(LARGE))
    once, seen = held, set[str]()
    for child, spent in settlements:
        if child not in seen:
            once = once.settle(child, spent)
        seen.add(child)
    repeated = held
    for child, spent in settlements:
        repeated = repeated.settle(child, spent).settle(child, spent + Amount(tokens=1, micro_usd=1))
    assert repeated == once


@given(st.permutations(["a", "b", "c", "d"]), st.lists(AMOUNTS, min_size=4, max_size=4))
def test_children_may_settle_in_any_order(order: list[str], spent: list[Amount]) -> None:
    spending = dict(zip("abcd", spent, strict=True))
    account = BudgetAccount(limit=FOUR_LARGE, reserved=each(LARGE))
    for child in order:
        account = account.settle(child, spending[child])
    assert account == BudgetAccount(limit=FOUR_LARGE, spent=sum(spent, Amount()))


@given(LIMITS, st.lists(AMOUNTS, min_size=32, max_size=32))
def test_32_children_at_once_cannot_together_pass_the_limit_of_their_parent(limit: Limit, wanted: list[Amount]) -> None:
    account, given_out = BudgetAccount(limit=limit), Amount()
    for number, amount in enumerate(wanted):
        account, drawn = account.reserve_available(f"child-{number}", amount)
        given_out += drawn
    assert given_out == sum(wanted, Amount()).min_with(limit.amount)
    for number in range(32):
        account = account.settle(f"child-{number}", account.reserved.get(f"child-{number}", Amount()))
    assert account.spent == given_out
    assert limit.can_cover(account.spent)


@given(LIMITS, st.lists(AMOUNTS, min_size=32, max_size=32))
def test_of_32_children_that_reserve_at_once_only_those_are_let_in_whose_sum_fits(
    limit: Limit, wanted: list[Amount]
) -> None:
    account = BudgetAccount(limit=limit)
    for number, amount in enumerate(wanted):
        if account.unreserved.can_cover(amount):
            account = account.reserve(f"child-{number}", amount)
        else:
            with pytest.raises(InsufficientBudgetError) as refused:
                account.reserve(f"child-{number}", amount)
            assert (refused.value.asked, refused.value.left) == (amount, account.unreserved)
        assert limit.can_cover(account.total_reserved)


def test_a_child_of_a_parent_with_nothing_left_is_given_nothing_and_holds_nothing() -> None:
    spent = BudgetAccount(limit=Limit(tokens=100), spent=Amount(tokens=100))
    assert spent.reserve_available("late", Amount(tokens=50)) == (spent, Amount())
    with pytest.raises(
        InsufficientBudgetError, match=r"^late asks for 1 tokens, but the budget has only 0 tokens left$"
    ):
        spent.reserve("late", Amount(tokens=1))


def test_a_reservation_that_fits_in_one_unit_only_is_refused_with_both_numbers() -> None:
    account = BudgetAccount(limit=Limit(tokens=1_000, micro_usd=500_000))
    with pytest.raises(
        InsufficientBudgetError,
        match=r"^a asks for 900 tokens and \$0\.60, but the budget has only 1,000 tokens and \$0\.50 left$",
    ):
        account.reserve("a", Amount(tokens=900, micro_usd=600_000))


def test_an_account_without_a_limit_reserves_but_never_gives_by_draw() -> None:
    unlimited, fifty = BudgetAccount(limit=Limit()), Amount(tokens=50, micro_usd=50)
    assert unlimited.unreserved.is_unlimited
    assert unlimited.reserve_available("child", fifty) == (unlimited, Amount())
    spent = unlimited.reserve("child", fifty).grant(Amount(tokens=1_000)).settle("child", Amount(tokens=40))
    assert spent == BudgetAccount(limit=Limit(), spent=Amount(tokens=40))


def test_an_account_that_is_limited_in_dollars_gives_no_tokens_by_draw() -> None:
    account = BudgetAccount(limit=Limit(micro_usd=30))
    _, drawn = account.reserve_available("child", Amount(tokens=50, micro_usd=50))
    assert drawn == Amount(micro_usd=30)


def test_new_money_for_a_child_arrives_whole_also_where_the_account_is_overdrawn() -> None:
    overdrawn = BudgetAccount(limit=Limit(tokens=100), spent=Amount(tokens=150), reserved={"child": Amount(tokens=10)})
    assert overdrawn.grant_to("child", Amount(tokens=30)) == BudgetAccount(
        limit=Limit(tokens=130), spent=Amount(tokens=150), reserved={"child": Amount(tokens=40)}
    )


@pytest.mark.parametrize(("wanted", "carved"), [(40, 40), (100, 100), (150, 100)])
def test_no_more_is_carved_from_a_child_than_it_holds(wanted: int, carved: int) -> None:
    account = BudgetAccount(limit=Limit(tokens=300), reserved={"parent": Amount(tokens=100)})
    assert account.transfer("parent", "child", Amount(tokens=wanted)).reserved == {
        "parent": Amount(tokens=100 - carved),
        "child": Amount(tokens=carved),
    }
