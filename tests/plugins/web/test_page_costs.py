"""The cost on the page of a task: its columns add up to its last row, which is what is shown as spent."""

from datetime import UTC, datetime
from decimal import Decimal
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from waystation.context.transcript import CallIntent, Charge
from waystation.kernel.amount import Amount
from waystation.kernel.usage import Usage
from waystation.plugins.web.task_page import render_template
from waystation.tasks.progress import AgentCharge, CostBreakdown, UnansweredCall, build_cost_breakdown

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
COUNTS = st.integers(0, 3_000_000)
HEADS = ["Agent", "Model", "For", "Calls", "Counts against the budget", "Read from the cache", "Price"]


class Cells(HTMLParser):
    """The rows of the tables of a page, and the text outside of them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows = list[list[str]]()
        self.open = list[str]()
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in {"td", "th"}:
            self.rows[-1][-1] += data
        elif self.open and self.open[-1] == "p":
            self.text += data


def charge(cost: int | None, usage: Usage, kind: str = "turn") -> Charge:
    return Charge.model_validate(
        {"key": "turn-1", "kind": kind, "model": "large", "usage": usage, "cost_micro_usd": cost, "at": NOON}
    )


def intent(worst_case: Amount) -> CallIntent:
    known = {"key": "turn-9", "model": "large", "worst_case": worst_case, "at": NOON}
    return CallIntent.model_validate(known)


USAGES = st.builds(Usage, input=COUNTS, cache_write=COUNTS, cache_read=COUNTS, output=COUNTS)
PAID = st.lists(
    st.builds(
        AgentCharge,
        agent=st.sampled_from(["plan", "research-1", "writing"]),
        charge=st.builds(charge, COUNTS, USAGES, st.sampled_from(["turn", "summary"])),
    ),
    min_size=1,
    max_size=12,
)
UNANSWERED = st.lists(
    st.builds(
        UnansweredCall, agent=st.just("writing"), intent=st.builds(Amount, tokens=COUNTS, micro_usd=COUNTS).map(intent)
    ),
    max_size=3,
)


@given(PAID, UNANSWERED)
def test_each_column_adds_up_to_the_total_which_is_what_counts_as_spent(
    paid: list[AgentCharge], unanswered: list[UnansweredCall]
) -> None:
    made = build_cost_breakdown(paid, unanswered)
    head, *lines, total = Cells(render_template("bill.html", bill=made)).rows
    assert head == HEADS
    assert total[:3] == ["Total", "", ""]
    for column in range(3, 6):
        assert sum(_number(line[column]) for line in lines) == _number(total[column])
    assert sum(_dollars(line[6]) for line in lines) == _dollars(total[6])
    assert made.counted == Amount(tokens=_number(total[4]), micro_usd=int(_dollars(total[6]) * 1_000_000))
    assert [line[0] for line in lines].count("calls without a reply") == bool(unanswered)


def test_a_bill_with_an_unknown_price_says_so_in_its_line_and_its_total() -> None:
    made: CostBreakdown = build_cost_breakdown(
        [
            AgentCharge(agent="research-1", charge=charge(None, Usage(input=10, output=2))),
            AgentCharge(agent="<b>writing</b>", charge=charge(7, Usage(input=1))),
        ]
    )
    assert [row[6] for row in Cells(render_template("bill.html", bill=made)).rows[1:]] == [
        "not known",
        "$0.000007",
        "not known",
    ]
    assert "<b>" not in render_template("bill.html", bill=made)


def _number(cell: str) -> int:
    return int(cell.replace(",", ""))


def _dollars(cell: str) -> Decimal:
    return Decimal(cell.removeprefix("$").replace(",", ""))
