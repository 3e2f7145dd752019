"""Questions that come back: whose tasks are whose, what a month may hold, and how a schedule is shown."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from inline_snapshot import snapshot
from pydantic import ValidationError

from tests.support.task_states import NOON, REF, TASK_CONFIG
from waystation.agents.action_approvals import TopUpPolicy, UnattendedPolicy
from waystation.budgets.budget import BudgetMode
from waystation.cli.main import run
from waystation.cli.schedules import format_schedule
from waystation.client.schedules import ScheduleDescription, build_schedule_json
from waystation.documents.procedures import ProcedureSource
from waystation.kernel.amount import Amount, Limit
from waystation.tasks.schedules import (
    MonthlyBudget,
    PauseScheduleRequest,
    ScheduleDefinition,
    ScheduledRunOrder,
    ScheduleTiming,
    ScheduleView,
    filter_schedule_rows,
    find_month_overrun_reason,
    format_pause_note,
    is_in_month,
    make_default_schedule_name,
    make_run_request_id,
)
from waystation.tasks.task import TaskRequest, TaskRow

ASKED = TaskRequest(question="What of the fees?", session="S", request_id="r", budget=Limit(tokens=200_000))
WISH = ScheduleDefinition(name="weekly", request=ASKED, paths=("/srv/fees",), timing=ScheduleTiming(cron="0 7 * * 1"))
SEEN = ScheduleView(
    schedule_id=WISH.schedule_id, order=ScheduledRunOrder(session_ref=REF, definition="0" * 64), paused=False
)


def row(request_id: str, at: datetime = NOON) -> TaskRow:
    return TaskRow(ref=REF, request=ASKED.replace(request_id=request_id), config=TASK_CONFIG, submitted_at=at)


def test_the_same_time_is_the_same_request_and_no_schedule_takes_the_tasks_of_one_whose_name_goes_on() -> None:
    weekly, other = "schedule-1-weekly", "schedule-1-weekly-2026"
    at = "2026-11-23T07:00:00Z"
    ids = [make_run_request_id(weekly, f"{weekly}-{at}"), make_run_request_id(other, f"{other}-{at}")]
    assert ids == [f"{weekly}@{at}", f"{other}@{at}"]
    rows = tuple(map(row, ids))
    assert [filter_schedule_rows(rows, schedule) for schedule in (weekly, other)] == [rows[:1], rows[1:]]


def test_a_month_is_one_of_the_calendar() -> None:
    now = datetime(2026, 12, 1, tzinfo=UTC)
    times = [now - timedelta(seconds=1), now, now + timedelta(days=30), now.replace(year=2025)]
    assert [is_in_month(row("r", at), now) for at in times] == [False, True, True, False]


def test_a_run_fits_into_a_month_with_all_that_it_may_spend() -> None:
    budget = Limit(tokens=200_000)
    assert find_month_overrun_reason(Limit(), Amount(tokens=10**9), budget) == ""
    assert find_month_overrun_reason(Limit(tokens=1_000_000), Amount(tokens=800_000), budget) == ""
    assert find_month_overrun_reason(Limit(tokens=1_000_000), Amount(tokens=800_001), budget) == snapshot(
        "this month's runs have spent or reserved 800,001 tokens, and another run with a budget of 200,000 "
        "tokens would exceed the monthly budget of 1,000,000 tokens"
    )


def test_the_same_question_about_the_same_files_has_the_same_name() -> None:
    names = [
        make_default_schedule_name(ASKED, WISH.paths),
        make_default_schedule_name(ASKED, WISH.paths),
        make_default_schedule_name(ASKED, ("/srv/tolls",)),
    ]
    assert names[0] == names[1] != names[2]


@pytest.mark.parametrize("name", ["", "Weekly", "a b", "-a", "a@b", "a/b", "a" * 61, "a\n", "é"])
def test_names_are_such_that_ids_can_hold_them(name: str) -> None:
    with pytest.raises(ValidationError):
        ScheduleDefinition.model_validate({**WISH.model_dump(), "name": name})


def test_a_note_says_how_often_it_failed_and_what_to_do() -> None:
    assert format_pause_note(PauseScheduleRequest(schedule_id="s", max_failures=3)) == snapshot(
        "paused after 3 failures in a row: look for the cause in the last run, then resume the schedule"
    )


@pytest.mark.parametrize(
    ("monthly", "budget"),
    [
        (Limit(tokens=1_000_000), Limit(micro_usd=1)),
        (Limit(micro_usd=5_000_000), Limit(tokens=1)),
        (Limit(tokens=1_000_000, micro_usd=5_000_000), Limit(tokens=1)),
        (Limit(tokens=1_000_000), Limit()),
    ],
)
def test_a_ceiling_in_a_unit_in_which_no_run_is_limited_lets_none_begin(monthly: Limit, budget: Limit) -> None:
    assert "each run needs a budget in the same unit" in find_month_overrun_reason(monthly, Amount(), budget)
    month = MonthlyBudget(schedule_id="s", limit=monthly, at=NOON, amounts={})
    assert month.find_overrun_reason((), budget)


@pytest.fixture
def _in_central_europe(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The reader's time zone, an hour east of UTC in November."""
    monkeypatch.setenv("TZ", "CET-1CEST")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_in_central_europe")
def test_a_schedule_is_shown_with_its_times_its_limits_and_its_last_run() -> None:
    monthly = WISH.replace(monthly=Limit(tokens=1_000_000))
    ran = SEEN.replace(next_run=NOON + timedelta(days=7), last_run=NOON, last="done, task-1", skipped=1, missed=2)
    tides = ProcedureSource(name="tides", text="---\nname: tides\n---\nTwice.", skill=True)
    with_tools = ASKED.replace(servers=(), procedures=(tides,))
    raised = UnattendedPolicy(top_up=TopUpPolicy(amount=Amount(tokens=50_000), times=3))
    decided = ASKED.replace(mode=BudgetMode.APPROVAL, ceiling=Limit(tokens=400_000), unattended=raised)
    shown = [
        ScheduleDescription(name="weekly", view=SEEN, definition=WISH.replace(request=with_tools)),
        ScheduleDescription(name="weekly", view=ran, definition=monthly),
        ScheduleDescription(name="weekly", view=SEEN, definition=WISH.replace(request=decided)),
        ScheduleDescription(name="lost", view=ran.replace(paused=True, note="why", last="")),
    ]
    assert "\n".join(map(format_schedule, shown)) == snapshot("""\
weekly  0 7 * * 1 UTC  on
  What of the fees?
  /srv/fees; session S; 200,000 tokens for each run
  tool servers: none
  procedures and skills: tides
  next: -; last: -
weekly  0 7 * * 1 UTC  on
  What of the fees?
  /srv/fees; session S; 200,000 tokens for each run, at most 1,000,000 tokens a month
  next: 2026-11-28 13:00 CET; last: 2026-11-21 13:00 CET, done, task-1
  runs skipped during another run: 1; runs too late for --catch-up: 2
weekly  0 7 * * 1 UTC  on
  What of the fees?
  /srv/fees; session S; 200,000 tokens for each run
  you are asked when the budget is spent
  grants may raise the budget to 400,000 tokens
  while no one answers: automatic grants of 50,000 tokens, up to 3 times
  next: -; last: -
lost    paused (why)
  the question is no longer in the store: remove the schedule and add it again
  next: -; last: 2026-11-21 13:00 CET, result no longer known
  runs skipped during another run: 1; runs too late for --catch-up: 2\
""")
    paused = ScheduleDescription(name="lost", view=SEEN.replace(paused=True, note="paused by Ada: holidays"))
    assert format_schedule(paused).startswith("lost    paused by Ada: holidays\n")
    assert list(build_schedule_json(shown[0]).model_dump()) == [
        *(
            "name",
            "question",
            "session",
            "documents",
            "servers",
            "procedures",
            "cron",
            "zone",
            "budget",
            "mode",
            "monthly",
        ),
        *("paused", "note", "next_run", "last_run", "last", "running", "skipped", "missed"),
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--name", "Über"), "a name may have lower-case letters"),
        (("--catch-up", "1s"), "--catch-up takes minutes, hours or days"),
        (("--catch-up", "900d"), "--catch-up: it should be at most 365 days\n"),
        (("--monthly", "much"), "--monthly takes tokens"),
        (("--budget", "10"), "--budget 10 is 10 tokens, too few"),
        (("--docs", "/nowhere"), "cannot use /nowhere: no such file"),
        (("--failures", "0"), "--failures"),
        (("--answer-by", "07:00"), "--answer-by 07:00 is a single moment, but a schedule runs repeatedly"),
        (("--then", "wait"), "give --answer-by, too"),
        (("--top-up", "50k"), "--top-up takes an amount and how often"),
        (("--ceiling", "much"), "--ceiling takes tokens"),
        (("--mode", "later"), "--mode"),
        (("--servers", "a,,b"), "separate names with commas, like time,wiki; or give only `none`"),
        (("--skills", "/nowhere"), "neither the folder nor a folder in it has a SKILL.md"),
    ],
)
def test_what_cannot_be_scheduled_is_refused_before_a_server_is_asked(
    options: tuple[str, str], said: str, capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("docs")
    (folder / "fees.md").write_text("Fees are 12 crowns.\n")
    assert run(["schedule", "add", "Why?", "--docs", str(folder), "--cron", "0 7 * * 1", *options]) == 2
    assert said in capsys.readouterr().err
