"""What a task spent over time against its limit, as its page draws it."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from waystation.context.transcript import CallIntent, Charge
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.usage import Usage
from waystation.plugins.web.charts import CURVE_HEIGHT, CURVE_TOP, SpendingChart, build_spending_charts
from waystation.plugins.web.diagrams import LEFT, WIDTH, TimeAxis
from waystation.tasks.progress import AgentCharge, TaskCharges, UnansweredCall
from waystation.tasks.task import ApprovalRequest, BudgetProgress, TaskPhase, TaskProgress
from waystation.tasks.view import TaskView

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
AXIS = TimeAxis(NOON, NOON + timedelta(seconds=100))


def paid(second: int, tokens: int, micro_usd: int | None = None, cached: int = 0) -> AgentCharge:
    usage = Usage(input=tokens, cache_read=cached)
    at = NOON + timedelta(seconds=second)
    charge = Charge(key=f"turn-{second}", kind="turn", model="m", usage=usage, cost_micro_usd=micro_usd, at=at)
    return AgentCharge(agent="research-1", charge=charge)


def unanswered(second: int, tokens: int, micro_usd: int = 0) -> UnansweredCall:
    worst_case = Amount(tokens=tokens, micro_usd=micro_usd)
    intent = CallIntent(key=f"turn-{second}", model="m", worst_case=worst_case, at=NOON + timedelta(seconds=second))
    return UnansweredCall(agent="research-1", intent=intent)


def granted(second: int, amount: Amount, decision: str = "approved") -> ApprovalRequest:
    told = {"request_id": f"r{second}", "agent": "research-1", "requested": amount, "granted": amount}
    return ApprovalRequest.model_validate(
        {**told, "decision": decision, "answered_at": NOON + timedelta(seconds=second)}
    )


def drawn(payments: TaskCharges, limit: Limit, *approvals: ApprovalRequest) -> dict[str, SpendingChart]:
    budget = BudgetProgress(limit=limit, spent=Amount(), reserved=Amount())
    progress = TaskProgress(
        task_id="task-1", phase=TaskPhase.WORKING, title="", budget=budget, steps=(), approvals=approvals, model="m"
    )
    return {curve.name: curve for curve in build_spending_charts(payments, TaskView.from_progress(progress), AXIS)}


def points(line: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, _, y in (point.partition(",") for point in line.split())]


def height(share: float) -> float:
    return round(CURVE_HEIGHT - (CURVE_HEIGHT - CURVE_TOP) * share, 1)


def test_what_budgets_count_rises_with_every_charge_against_the_limit() -> None:
    payments = TaskCharges(paid=(paid(20, 100, cached=5_000), paid(60, 300)))
    (curve,) = drawn(payments, Limit(tokens=1_000)).values()
    assert curve.words == "400 of 1,000 tokens"
    line = points(curve.spent)
    assert (line[0], line[-1]) == ((LEFT, height(0)), (WIDTH - 10, height(0.4)))
    assert (AXIS.to_x(NOON + timedelta(seconds=20)), height(0.1)) in line
    assert points(curve.limit) == [(LEFT, height(1)), (WIDTH - 10, height(1))]
    assert (curve.limit_y, curve.limit_words, curve.possibly) == (height(1), "1k", "")


def test_the_limit_rises_when_somebody_grants_more() -> None:
    more, later = granted(40, Amount(tokens=500)), granted(70, Amount(tokens=100))
    denied = granted(50, Amount(tokens=900), "denied")
    (curve,) = drawn(TaskCharges(paid=(paid(20, 100),)), Limit(tokens=1_000), later, more, denied).values()
    x, then = AXIS.to_x(more.answered_at or NOON), AXIS.to_x(later.answered_at or NOON)
    rising = [(LEFT, 0.4), (x, 0.4), (x, 0.9), (then, 0.9), (then, 1), (WIDTH - 10, 1)]
    assert points(curve.limit) == [(x, height(share)) for x, share in rising]


def test_what_was_possibly_billed_lies_above_what_was_certainly_spent() -> None:
    payments = TaskCharges(paid=(paid(20, 100), paid(80, 100)), unanswered=(unanswered(50, 300),))
    (curve,) = drawn(payments, Limit(tokens=1_000)).values()
    assert curve.words == "200 of 1,000 tokens; at most 300 tokens more may have been billed"
    around = points(curve.possibly)
    assert (WIDTH - 10, height(0.5)) in around
    assert points(curve.spent)[-1] == (WIDTH - 10, height(0.2))
    assert around[0] == around[-1] == (LEFT, height(0))


def test_dollars_have_a_curve_of_their_own_where_they_were_spent() -> None:
    both = drawn(TaskCharges(paid=(paid(20, 100, 250_000),)), Limit(micro_usd=1_000_000))
    assert {name: curve.words for name, curve in both.items()} == {"tokens": "100 tokens", "dollars": "$0.25 of $1.00"}
    assert both["tokens"].limit == ""
    assert both["dollars"].limit_words == "$1.00"
    assert drawn(TaskCharges(paid=(paid(20, 100, 0),)), Limit()).keys() == {"tokens"}


def test_before_anything_was_paid_there_is_no_curve() -> None:
    assert drawn(TaskCharges(), Limit(tokens=1_000)) == {}


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 10**7)), max_size=60),
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 10**7)), max_size=5),
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 10**7)), max_size=5),
    st.none() | st.integers(1, 10**8),
)
def test_every_point_is_in_the_picture_and_no_line_falls_or_goes_back(
    charges: list[tuple[int, int]],
    silent: list[tuple[int, int]],
    grants: list[tuple[int, int]],
    limit: int | None,
) -> None:
    payments = TaskCharges(
        paid=tuple(paid(*one) for one in charges), unanswered=tuple(unanswered(*one) for one in silent)
    )
    raises = [granted(second, Amount(tokens=tokens)) for second, tokens in grants]
    for curve in drawn(payments, Limit(tokens=limit), *raises).values():
        for line in (points(curve.spent), points(curve.limit)):
            assert line == sorted(line, key=lambda point: (point[0], -point[1]))
        for x, y in points(f"{curve.spent} {curve.possibly} {curve.limit}"):
            assert LEFT <= x <= WIDTH - 10
            assert CURVE_TOP <= y <= CURVE_HEIGHT
