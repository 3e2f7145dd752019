from collections.abc import Sequence
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from waystation.cli.render import format_cost_report, format_temporal_actions
from waystation.context.transcript import CallIntent, Charge
from waystation.kernel.amount import Amount
from waystation.kernel.usage import Usage
from waystation.tasks.progress import (
    AgentCharge,
    CostBreakdown,
    CostLine,
    TemporalActionCounts,
    UnansweredCall,
    build_cost_breakdown,
)
from waystation.tasks.view import CostView, SessionView, SpendingView

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
COUNTS = st.integers(0, 100_000)
CHARGES = st.builds(
    Charge,
    key=st.text("abc123-", min_size=1, max_size=8),
    kind=st.sampled_from(["turn", "summary", "plan"]),
    model=st.sampled_from(["large", "small"]),
    usage=st.builds(Usage, input=COUNTS, cache_write=COUNTS, cache_read=COUNTS, output=COUNTS),
    cost_micro_usd=st.none() | COUNTS,
    at=st.just(NOON),
)
PAID = st.lists(
    st.builds(AgentCharge, agent=st.sampled_from(["plan", "research-1", "writing"]), charge=CHARGES), max_size=20
)


def make_paid_turn(
    agent: str, cost: int | None = 5, model: str = "large", kind: str = "turn", key: str = "turn-1"
) -> AgentCharge:
    charge = Charge.model_validate(
        {
            "key": key,
            "kind": kind,
            "model": model,
            "usage": Usage(input=10, output=2),
            "cost_micro_usd": cost,
            "at": NOON,
        }
    )
    return AgentCharge(agent=agent, charge=charge)


def added(lines: Sequence[CostLine]) -> tuple[int, Usage, int | None]:
    """Calls, usage and cost together; an unknown cost makes the sum unknown."""
    costs = [line.cost_micro_usd for line in lines]
    return (
        sum(line.calls for line in lines),
        sum((line.usage for line in lines), Usage()),
        None if None in costs else sum(cost or 0 for cost in costs),
    )


@given(PAID)
def test_every_charge_is_on_the_bill_once_whatever_it_is_grouped_by(paid: list[AgentCharge]) -> None:
    made = build_cost_breakdown(paid)
    assert added(made.lines) == added([made.total])
    assert made.total.calls == len(paid)
    assert made.total.usage == sum((entry.charge.usage for entry in paid), Usage())
    for agent in {entry.agent for entry in paid}:
        theirs = [entry for entry in paid if entry.agent == agent]
        assert added([line for line in made.lines if line.agent == agent]) == added(
            [build_cost_breakdown(theirs).total]
        )
    summaries = [line for line in made.lines if line.kind == "summary"]
    assert added(made.compactions) == added(summaries)


@given(PAID)
def test_a_line_is_unknown_exactly_where_one_of_its_calls_is(paid: list[AgentCharge]) -> None:
    for line in build_cost_breakdown(paid).lines:
        charges = [
            entry.charge
            for entry in paid
            if (entry.agent, entry.charge.model, entry.charge.kind) == (line.agent, line.model, line.kind)
        ]
        unknown = any(charge.cost_micro_usd is None for charge in charges)
        assert (line.cost_micro_usd is None) == unknown
        assert (line.calls, line.usage) == (len(charges), sum((charge.usage for charge in charges), Usage()))


@given(PAID.flatmap(lambda paid: st.tuples(st.just(paid), st.permutations(paid))))
def test_the_sums_do_not_depend_on_the_order_of_the_charges(
    orders: tuple[list[AgentCharge], list[AgentCharge]],
) -> None:
    made, turned = map(build_cost_breakdown, orders)
    assert made.total == turned.total
    assert sorted(map(repr, made.lines)) == sorted(map(repr, turned.lines))


def test_one_unknown_price_makes_its_line_and_the_total_unknown_and_no_other_line() -> None:
    made = build_cost_breakdown(
        [make_paid_turn("research-1", 5), make_paid_turn("research-1", None), make_paid_turn("writing", 7)]
    )
    assert [(line.agent, line.calls, line.cost_micro_usd) for line in made.lines] == [
        ("research-1", 2, None),
        ("writing", 1, 7),
    ]
    assert made.total.cost_micro_usd is None


def test_agents_are_in_the_order_of_their_first_call_with_their_models_and_kinds_together() -> None:
    made = build_cost_breakdown(
        [
            make_paid_turn("plan", kind="plan"),
            make_paid_turn("b"),
            make_paid_turn("a"),
            make_paid_turn("b", model="small", kind="summary"),
            make_paid_turn("b"),
            make_paid_turn("plan"),
        ]
    )
    assert [(line.agent, line.model, line.kind, line.calls) for line in made.lines] == [
        ("plan", "large", "plan", 1),
        ("plan", "large", "turn", 1),
        ("b", "large", "turn", 2),
        ("b", "small", "summary", 1),
        ("a", "large", "turn", 1),
    ]


def test_who_answered_in_the_place_of_another_is_named_once_for_each_model() -> None:
    said = make_paid_turn("a")
    others = [said.replace(charge=said.charge.replace(answered_by=name)) for name in ("", "m-2", "m-1", "m-2")]
    made = build_cost_breakdown([*others, make_paid_turn("b", model="small"), *others[1:2]])
    assert [line.answered_by for line in made.lines] == [("m-2", "m-1"), ()]
    assert made.total.answered_by == ()
    assert made.model_substitutions == ["the model large was requested, but the replies name m-2, m-1"]


def test_summaries_are_listed_one_by_one_with_their_keys() -> None:
    made = build_cost_breakdown(
        [
            make_paid_turn("a", kind="summary", key="summary-c1"),
            make_paid_turn("a", kind="summary", key="summary-c2", cost=None),
        ]
    )
    assert [(line.agent, line.kind, line.calls, line.cost_micro_usd) for line in made.compactions] == [
        ("a", "summary-c1", 1, 5),
        ("a", "summary-c2", 1, None),
    ]


def test_a_bill_of_nothing_costs_nothing_and_calls_without_an_answer_are_listed_but_not_added() -> None:
    open_call = UnansweredCall(
        agent="a", intent=CallIntent(key="turn-1", model="large", worst_case=Amount(tokens=9, micro_usd=4), at=NOON)
    )
    made = build_cost_breakdown([], [open_call])
    nothing = CostLine(agent="", model="", kind="", calls=0, usage=Usage(), cost_micro_usd=0)
    assert made == CostBreakdown(lines=(), compactions=(), total=nothing, possibly_billed=(open_call,))


def test_thinking_that_was_left_out_and_prefixes_that_were_not_read_are_on_the_bill_with_the_reasons() -> None:
    said = make_paid_turn("a").charge
    told = [
        said.replace(dropped_thinking=3, cache_miss="tools_changed"),
        said.replace(dropped_thinking=1, cache_miss="tools_changed"),
        said.replace(cache_miss="messages_changed"),
        said,
    ]
    made = build_cost_breakdown([AgentCharge(agent="a", charge=charge) for charge in told])
    assert made.total.dropped_thinking == 4
    assert made.total.cache_misses == {"tools_changed": 2, "messages_changed": 1}
    shown = format_cost_report(made, 120)
    assert "blocks of thinking that the provider left out, because the text before them had changed: 4" in shown
    assert "beginning of a request not read from the cache, according to the provider: tools_changed (2 times)" in shown
    assert "the provider left out" not in format_cost_report(build_cost_breakdown([make_paid_turn("a")]), 120)


def test_costs_are_shown_in_dollars() -> None:
    open_call = UnansweredCall(
        agent="a", intent=CallIntent(key="turn-2", model="large", worst_case=Amount(tokens=9, micro_usd=4), at=NOON)
    )
    made = build_cost_breakdown([make_paid_turn("a"), make_paid_turn("b", cost=None)], [open_call])
    shown = CostView.from_breakdown(made)
    assert [line.cost_usd for line in shown.lines] == [0.000005, None]
    assert shown.model_dump(mode="json")["possibly_billed"][0]["worst_case"] == {"tokens": 9, "usd": 0.000004}
    views = (CostView, SpendingView, SessionView)
    assert [view.__name__ for view in views if "micro_usd" in str(view.model_json_schema(mode="serialization"))] == []


def test_temporal_actions_are_added_up_and_listed() -> None:
    counted = TemporalActionCounts(workflows=3, activities=17, updates=1, timers=2)
    shown = format_temporal_actions(counted)
    assert shown.splitlines() == [
        "Temporal actions of the task and its child workflows: 23",
        "  3 starts of workflows (each child workflow is two actions)",
        "  17 attempts of activities",
        "  1 Update",
        "  2 timers",
        "  not included: queries, heartbeats, and the session's workflow",
    ]
    assert "at least 23" in format_temporal_actions(counted.replace(complete=False))
    assert "no longer has" in format_temporal_actions(None)
    cost = CostView.from_breakdown(build_cost_breakdown([make_paid_turn("a")]), counted)
    assert cost.model_dump(mode="json")["temporal_actions"]["activities"] == 17
