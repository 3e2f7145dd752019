"""Which days are asked for, and how what was spent on them is drawn and told."""

import json
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.cli.main import run
from waystation.cli.task_lists import build_spending_rows, format_spending_line
from waystation.kernel.errors import BadInput
from waystation.kernel.usage import Usage
from waystation.plugins.web.charts import (
    DAYS_FOOT,
    DAYS_HEIGHT,
    DAYS_LEFT,
    MAX_COLOURED_GROUPS,
    build_daily_spending_chart,
)
from waystation.plugins.web.diagrams import WIDTH
from waystation.tasks.progress import MAX_DAYS, DayRange, SpendingLine, build_spending_report

TODAY = date(2026, 11, 25)
DAYS = st.dates(TODAY - timedelta(days=60), TODAY)
COUNTS = st.integers(0, 10**9)
LINES = st.builds(
    SpendingLine,
    day=DAYS,
    task_id=st.sampled_from([f"task-{number}" for number in range(10)]),
    role=st.sampled_from(["research", "writing"]),
    model=st.sampled_from(["large", "small"]),
    session=st.sampled_from(["weekly", "survey"]),
    calls=st.integers(1, 50),
    usage=st.builds(Usage, input=COUNTS, output=COUNTS),
    cost_micro_usd=COUNTS,
)
SPENT = st.lists(LINES, max_size=30)
WHOLE = DayRange(since=TODAY - timedelta(days=60), until=TODAY)


def test_without_days_the_last_thirty_are_meant_and_none_that_is_to_come() -> None:
    assert DayRange.resolve(None, None, TODAY) == DayRange(since=date(2026, 10, 27), until=TODAY)
    assert DayRange.resolve(None, date(9999, 12, 31), TODAY) == DayRange.resolve(None, None, TODAY)
    assert DayRange.resolve(None, date(2026, 1, 30), TODAY) == DayRange(since=date(2026, 1, 1), until=date(2026, 1, 30))
    assert DayRange.resolve(None, date.min, TODAY).dates == (date.min,)


@pytest.mark.parametrize(
    ("since", "until", "said"),
    [(TODAY, TODAY - timedelta(days=1), "is after the last day"), (TODAY - timedelta(days=MAX_DAYS), TODAY, "fewer")],
)
def test_days_that_are_none_or_too_many_are_refused(since: date, until: date, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        DayRange.resolve(since, until, TODAY)
    with pytest.raises(BadInput):
        DayRange.resolve(date.max, None, TODAY)


@given(SPENT, st.sampled_from(["task", "agent", "model", "session"]))
def test_every_amount_is_in_the_picture_once_whatever_it_is_grouped_by(spent: list[SpendingLine], by: str) -> None:
    spending = build_spending_report(WHOLE, spent, {})
    drawn = build_daily_spending_chart(spending, by)  # pyright: ignore[reportArgumentType]
    assert sum(group.spent.calls for group in drawn.groups) == sum(line.calls for line in spent)
    assert sum((bar.spent.usage for bar in drawn.bars), Usage()) == sum((line.usage for line in spent), Usage())
    assert [bar.day for bar in drawn.bars] == list(WHOLE.dates)
    assert all(group.colour == min(place, MAX_COLOURED_GROUPS) for place, group in enumerate(drawn.groups))


@given(SPENT)
def test_no_bar_leaves_the_picture_and_the_longest_nearly_fills_it(spent: list[SpendingLine]) -> None:
    drawn = build_daily_spending_chart(build_spending_report(WHOLE, spent, {}), "task")
    foot = DAYS_HEIGHT - DAYS_FOOT
    tops = [min([one.y for one in bar.stacks], default=foot) for bar in drawn.bars]
    assert all(0 <= top <= foot for top in tops)
    assert all(bar.x >= DAYS_LEFT and bar.x + bar.width <= WIDTH for bar in drawn.bars)
    for bar, top in zip(drawn.bars, tops, strict=True):
        # Stacked without gaps: as high as its parts.
        assert sum(one.height for one in bar.stacks) == pytest.approx(foot - top, abs=0.1 * len(bar.stacks))
    if any(line.cost_micro_usd for line in spent):
        assert min(tops) <= foot / 2 + 14
    # What is longer has no room beside the picture, and would lose its first digits.
    assert max(len(words) for _, words in drawn.steps) <= DAYS_LEFT // 7


def test_without_prices_tokens_are_drawn() -> None:
    line = SpendingLine(day=TODAY, task_id="task-1", role="writing", model="m", calls=2, usage=Usage(input=30))
    drawn = build_daily_spending_chart(
        build_spending_report(DayRange(since=TODAY, until=TODAY), [line], {"task-1": "Which?"}), "task"
    )
    assert [one.title for one in drawn.bars[0].stacks] == ["25 Nov, Which?: 30 tokens"]
    assert [words for _, words in drawn.steps] == ["0 tokens", "10 tokens", "20 tokens", "30 tokens"]


def test_at_a_terminal_the_dearest_comes_first_and_unknown_prices_are_said() -> None:
    cheap = SpendingLine(
        day=TODAY, task_id="task-00", role="writing", model="a", calls=1, cost_micro_usd=5, unpriced_calls=1
    )
    dear = SpendingLine(day=TODAY, task_id="task-11", role="research", model="b", calls=2, cost_micro_usd=90_000)
    spending = build_spending_report(DayRange(since=TODAY, until=TODAY), [cheap, dear], {"task-11": "Which?"})
    assert [row[-1] for row in build_spending_rows(spending, "task")] == ["11 Which?", "00"]
    assert [row[0] for row in build_spending_rows(spending, "model")] == ["$0.09", "$0.000005"]
    named = spending.replace(lines=(cheap.replace(session="weekly"), dear.replace(session="weekly")))
    assert [row[1:] for row in build_spending_rows(named, "session")] == [("0", "3 calls", "weekly")]
    assert format_spending_line(spending.total) == "$0.09 (not including 1 call without a known price), 0 fresh tokens"


@pytest.mark.usefixtures("ended_id")
def test_commands_print_what_the_routes_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["spending", "--since", "2d", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["total"]["calls"] == 0
    assert run(["session", "list", "--json"]) == 0
    (session,) = json.loads(capsys.readouterr().out)
    assert (session["session"], session["tasks"], session["spent"]) == ("default", 1, {"tokens": 0, "usd": 0})
    assert run(["session", "list"]) == 0
    assert "1 task  $0.00  0 spent  0 reserved  no limit  default" in capsys.readouterr().out
    assert run(["spending", "--until", "2020-01-01", "--since", "2020-02-01"]) == 2
    assert "is after the last day, 2020-01-01: give an earlier first day" in capsys.readouterr().err
