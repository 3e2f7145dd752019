from inline_snapshot import snapshot

from tests.tasks.test_cost_report import NOON, make_paid_turn
from waystation.cli.render import format_cost_report
from waystation.context.transcript import CallIntent
from waystation.kernel.amount import Amount
from waystation.kernel.usage import Usage
from waystation.models.profiles import OFFLINE_MODEL
from waystation.tasks.progress import AgentCharge, CostBreakdown, UnansweredCall, build_cost_breakdown

LARGE = Usage(input=1_234, cache_write=456_789, cache_read=12_345_678, output=98_765)


def large(paid: AgentCharge, cost: int | None) -> AgentCharge:
    return paid.replace(charge=paid.charge.replace(usage=LARGE, cost_micro_usd=cost))


def paid(*, priced: bool = True) -> CostBreakdown:
    return build_cost_breakdown(
        [
            make_paid_turn("plan", model="claude-opus-5-5", kind="plan"),
            large(make_paid_turn("research-1", model="claude-sonnet-5-5"), 12_345_678 if priced else None),
            make_paid_turn("research-1", model="claude-haiku-5-5", kind="summary", key="summary-e9d71abdefc0dd32a3a0"),
            make_paid_turn("research-1", model="claude-haiku-5-5", kind="summary", key="summary-6f426c0d9c8f75b56223"),
        ],
        [
            UnansweredCall(
                agent="research-1",
                intent=CallIntent(key="turn-7", model="claude-sonnet-5-5", worst_case=Amount(tokens=9_000), at=NOON),
            )
        ],
    )


def test_a_bill_of_large_numbers_and_several_models_fits_eighty_columns() -> None:
    assert format_cost_report(paid(), 80) == snapshot("""\
                                       cache       cache
              kind     calls  input    write        read  output        cost
claude-opus-5-5
  plan        plan         1     10        0           0       2   $0.000005
claude-sonnet-5-5
  research-1  turn         1  1,234  456,789  12,345,678  98,765  $12.345678
claude-haiku-5-5
  research-1  summary      2     20        0           0       4    $0.00001
total                      4  1,264  456,789  12,345,678  98,771  $12.345693
of these, compactions
  research-1  no. 1        1     10        0           0       2   $0.000005
  research-1  no. 2        1     10        0           0       2   $0.000005

96.4% of the input was read from the provider's cache
counts as spent: 556,824 tokens (uncached input, cache writes and output)
counts as spent, including calls that may have been billed without a reply: 565,824 tokens and $12.345693
research-1: call turn-7 has no reply so far; possibly billed, 9,000 tokens at most\
""")


def test_what_no_endpoint_reported_is_named_as_estimated() -> None:
    charge = make_paid_turn("research-1").charge.replace(usage=Usage(input=9_000, estimated=9_000))
    lines = format_cost_report(build_cost_breakdown([AgentCharge(agent="research-1", charge=charge)]), 80).splitlines()
    assert "estimated upper bound, because the endpoint did not report the usage: 9,000 tokens" in lines
    assert "estimated" not in format_cost_report(paid(), 80)


def test_who_answered_in_the_place_of_another_is_named() -> None:
    charge = make_paid_turn("research-1").charge.replace(answered_by="m-2")
    lines = format_cost_report(build_cost_breakdown([AgentCharge(agent="research-1", charge=charge)]), 80).splitlines()
    assert lines[-1] == "the model large was requested, but the replies name m-2"
    assert "the replies name" not in format_cost_report(paid(), 80)


def test_searches_of_the_web_stand_below_what_they_cost() -> None:
    searching = make_paid_turn("research-1", kind="search").charge
    charge = searching.replace(usage=Usage(input=9, searches=3))
    lines = format_cost_report(build_cost_breakdown([AgentCharge(agent="research-1", charge=charge)]), 80).splitlines()
    assert lines[-1] == "web searches by the provider, included in the cost: 3"
    assert "searches" not in format_cost_report(paid(), 80)


def test_where_the_table_does_not_fit_the_bill_is_a_list_with_every_number() -> None:
    assert format_cost_report(paid(), 60) == snapshot("""\
claude-opus-5-5
  plan plan: 1 call, $0.000005
    10 input, 2 output
    cache: 0 written, 0 read
claude-sonnet-5-5
  research-1 turn: 1 call, $12.345678
    1,234 input, 98,765 output
    cache: 456,789 written, 12,345,678 read
claude-haiku-5-5
  research-1 summary: 2 calls, $0.00001
    20 input, 4 output
    cache: 0 written, 0 read
total: 4 calls, $12.345693
    1,264 input, 98,771 output
    cache: 456,789 written, 12,345,678 read
of these, compactions
  research-1 no. 1: 1 call, $0.000005
    10 input, 2 output
    cache: 0 written, 0 read
  research-1 no. 2: 1 call, $0.000005
    10 input, 2 output
    cache: 0 written, 0 read

96.4% of the input was read from the provider's cache
counts as spent: 556,824 tokens (uncached input, cache writes and output)
counts as spent, including calls that may have been billed without a reply: 565,824 tokens and $12.345693
research-1: call turn-7 has no reply so far; possibly billed, 9,000 tokens at most\
""")


def test_an_unknown_price_is_said_of_its_lines_and_of_the_total() -> None:
    shown = format_cost_report(paid(priced=False), 120)
    assert shown.count("price unknown") == 3
    assert shown.endswith(
        "price unknown: claude-sonnet-5-5; add prices to a file and set WAYSTATION_PRICES to its path"
    )


def test_a_task_that_called_no_model_has_no_bill() -> None:
    assert format_cost_report(build_cost_breakdown([]), 80) == "no cost yet: no model was called"


def unanswered(model: str, worst: Amount) -> UnansweredCall:
    return UnansweredCall(agent="plan", intent=CallIntent(key="plan-1", model=model, worst_case=worst, at=NOON))


def test_calls_without_a_reply_are_the_bill_where_there_is_nothing_else() -> None:
    tokens = Amount(tokens=29_487)
    assert format_cost_report(build_cost_breakdown([], [unanswered("local::m", tokens)]), 80) == snapshot("""\
no model call has a reply yet
plan: call plan-1 has no reply so far; possibly billed, 29,487 tokens at most
price unknown: local::m; add prices to a file and set WAYSTATION_PRICES to its path\
""")
    priced = format_cost_report(
        build_cost_breakdown([], [unanswered("large", Amount(tokens=29_487, micro_usd=90_000))]), 80
    )
    assert priced.endswith("possibly billed, 29,487 tokens and $0.09 at most")
    assert "price unknown" not in format_cost_report(build_cost_breakdown([], [unanswered(OFFLINE_MODEL, tokens)]), 80)
    free = AgentCharge(agent="plan", charge=make_paid_turn("plan").charge.replace(model="free", cost_micro_usd=0))
    assert "price unknown" not in format_cost_report(build_cost_breakdown([free], [unanswered("free", tokens)]), 80)
    assert "price unknown: dear;" in format_cost_report(build_cost_breakdown([free], [unanswered("dear", tokens)]), 80)


def test_the_parts_of_a_bill_add_up_by_column_to_what_counts_as_spent() -> None:
    made = paid()
    assert sum((line.usage for line in made.lines), Usage()) == made.total.usage
    assert made.counted == Amount(tokens=1_264 + 456_789 + 98_771 + 9_000, micro_usd=made.total.cost_micro_usd or 0)
    assert "counts as spent: 556,824 tokens (uncached input, cache writes and output)" in format_cost_report(made, 80)
