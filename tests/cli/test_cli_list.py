"""`waystation list`: a line a task, and which tasks a filter lets through."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest
from inline_snapshot import snapshot
from rich.cells import cell_len

from tests.support.finished_tasks import make_task_row
from tests.support.view_values import PAUSED_PROGRESS_IN_DOLLARS, VIEWED_PROGRESS
from waystation.cli.console import BAD_USAGE
from waystation.cli.main import run
from waystation.cli.options import format_moment, parse_past_moment
from waystation.cli.task_lists import PHASE_MARKS, format_phase_legend, format_short_usage, format_task_lines
from waystation.config.settings import Settings
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.details import format_time_span
from waystation.tasks.task import TaskPhase, TaskRequest
from waystation.tasks.view import TaskFilter, TaskView, as_stored

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def seen(phase: TaskPhase, title: str, submitted: datetime, ended: datetime | None = None) -> TaskView:
    progress = VIEWED_PROGRESS.replace(phase=phase, title=title)
    return TaskView.from_progress(progress).replace(submitted_at=submitted, ended_at=ended)


LISTED = (
    seen(TaskPhase.PAUSED, "Which licences [red]do[/red] they carry, and which of them want more than a name?", NOON),
    seen(
        TaskPhase.DONE,
        "どのライセンスがあり、それぞれ何を求めていますか。すべて挙げて",
        NOON - 26 * HOUR,
        NOON - HOUR,
    ),
    seen(TaskPhase.FAILED, "two\nlines \x1b[2J", NOON - 9_000 * HOUR),
    TaskView.from_progress(PAUSED_PROGRESS_IN_DOLLARS.replace(title="")),
)


def lines(width: int) -> list[str]:
    return [line.plain for line in format_task_lines(LISTED, NOON + 0.5 * HOUR, width)]


def test_a_task_is_one_line_however_narrow_the_terminal_is() -> None:
    assert "\n".join(lines(80)) == snapshot("""\
‖  01234567  12:00         30m    41.2k/200k   Which licences [red]do[/red] the…
✓  01234567  20 Nov 10:00  1d 1h  41.2k/200k   どのライセンスがあり、それぞれ何…
✗  01234567  11 Nov 2025   -      41.2k/200k   two lines [2J
‖  01234567  -             -      $0.70/$2.00  -\
""")
    assert [cell_len(line) for line in lines(80)][:2] == [80, 80]


def test_a_wide_terminal_has_states_in_words_and_costs() -> None:
    assert "\n".join(lines(120)) == snapshot("""\
‖ paused  01234567  12:00         30m    41.2k/200k   $0.123456  Which licences [red]do[/red] they carry, and which of …
✓ done    01234567  20 Nov 10:00  1d 1h  41.2k/200k   $0.123456  どのライセンスがあり、それぞれ何を求めていますか。すべ…
✗ failed  01234567  11 Nov 2025   -      41.2k/200k   $0.123456  two lines [2J
‖ paused  01234567  -             -      $0.70/$2.00  $0.123456  -\
""")


def test_only_marks_that_were_shown_are_explained() -> None:
    assert format_phase_legend(LISTED) == "‖ paused   ✓ done   ✗ failed"
    assert set(PHASE_MARKS) == set(TaskPhase)


@pytest.mark.parametrize(
    ("span", "shown"),
    [
        (timedelta(seconds=-3), "0s"),
        (timedelta(seconds=59.9), "59s"),
        (timedelta(minutes=59, seconds=59), "59m"),
        (timedelta(hours=23, minutes=5), "23h 5m"),
        (timedelta(days=40, hours=2), "40d 2h"),
    ],
)
def test_a_span_is_read_at_a_glance(span: timedelta, shown: str) -> None:
    assert format_time_span(span) == shown


def test_a_day_is_said_where_it_is_not_today_and_a_year_where_it_is_another() -> None:
    assert [format_moment(NOON - ago, NOON) for ago in (HOUR, 13 * HOUR, 9_000 * HOUR)] == [
        "11:00",
        "20 Nov 23:00",
        "11 Nov 2025",
    ]


def test_of_two_budgets_the_one_is_shown_that_is_nearer_to_its_end() -> None:
    both = Limit(tokens=100_000, micro_usd=2_000_000)
    assert format_short_usage(Amount(tokens=50_000, micro_usd=120_000), both) == "50k/100k"
    assert format_short_usage(Amount(tokens=5_000, micro_usd=1_204_000), both) == "$1.20/$2.00"
    assert format_short_usage(Amount(tokens=5_000), Limit()) == "5k"


def test_a_moment_that_is_over_may_be_given_by_how_long_ago_it_is() -> None:
    assert parse_past_moment("2d", "--since", NOON) == NOON - 48 * HOUR
    assert parse_past_moment("2026-11-01", "--since", NOON) == datetime(2026, 11, 1, tzinfo=UTC)
    with pytest.raises(BadInput, match=r"--since takes a date .* or how long ago \(2d\), not 'yore'"):
        parse_past_moment("yore", "--since", NOON)


@pytest.fixture
def three(without_server: Settings) -> dict[str, str]:
    """Ids of tasks whose server does not answer, by what is asked: one is done, one failed, one at work."""
    return asyncio.run(_kept(without_server))


async def _kept(settings: Settings) -> dict[str, str]:
    settings.home.mkdir(exist_ok=True)
    store = await SqlStore.open(settings.database_url, utc_now)
    kept: dict[str, str] = {}
    asked = (("Tea?", TaskPhase.DONE), ("Coffee?", TaskPhase.FAILED), ("Tea ROOMS?", None))
    for days, (question, phase) in enumerate(asked):
        request = TaskRequest(question=question, session="S", request_id=question)
        row = make_task_row(request, settings, await store.get_store_id())
        row = row.replace(submitted_at=utc_now() - timedelta(days=3 * days))
        await store.register_task(row, ())
        await store.save_task_title(row.ref.task_id, question)
        if phase is not None:
            await store.save_task_progress(row.ref.task_id, as_stored(row.replace(title=question), phase))
        kept[question] = row.ref.task_id
    await store.aclose()
    return kept


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ([], ["Tea ROOMS?", "Coffee?", "Tea?"]),
        (["--state", "done"], ["Tea?"]),
        (["--state", "failed", "--state", "done"], ["Coffee?", "Tea?"]),
        (["--state", "submitted"], ["Tea ROOMS?"]),
        (["--since", "2d"], ["Tea?"]),
        (["--since", "5d"], ["Coffee?", "Tea?"]),
        (["--text", "tea"], ["Tea ROOMS?", "Tea?"]),
        (["--text", "tea", "--since", "1h"], ["Tea?"]),
        (["--session", "other"], []),
    ],
    ids=" ".join,
)
def test_tasks_are_found_by_state_time_and_text(
    given: list[str], found: list[str], three: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["list", *given, "--json"]) == 0
    assert [one["task_id"] for one in json.loads(capsys.readouterr().out)] == [three[title] for title in found]


def test_a_list_without_a_server_says_below_it_that_unfinished_tasks_are_as_last_stored(
    three: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert three
    assert run(["list"]) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert told.startswith("no Temporal server answers at ")
    assert " (1 unfinished task shown as last stored) " in told
    assert run(["list", "--state", "done"]) == 0
    assert "as last stored" not in capsys.readouterr().err


@pytest.mark.parametrize(("given", "is_said"), [([], True), (["--session", "S"], True), (["--since", "30d"], False)])
def test_a_list_that_ends_early_says_so(
    given: list[str], is_said: bool, without_server: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(_store_tasks(without_server, 51))
    assert run(["list", *given, "--json"]) == 0
    told = capsys.readouterr()
    assert len(json.loads(told.out)) == (50 if is_said else 51)
    assert ("These are the newest 50. Find older tasks with --since, --state or --text, " in told.err) is is_said


async def _store_tasks(settings: Settings, count: int) -> None:
    settings.home.mkdir(exist_ok=True)
    store = await SqlStore.open(settings.database_url, utc_now)
    for number in range(count):
        request = TaskRequest(question="Tea?", session="S", request_id=f"r{number}")
        row = make_task_row(request, settings, await store.get_store_id())
        await store.register_task(row, ())
        await store.save_task_progress(row.ref.task_id, as_stored(row, TaskPhase.DONE))
    await store.aclose()


def test_a_list_without_a_task_says_so(three: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert three
    assert run(["list", "--text", "cocoa"]) == 0
    assert capsys.readouterr() == ("", "No such task\n")


def test_a_state_that_there_is_not_is_refused_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "--state", "bogus"]) == BAD_USAGE
    told = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert "Invalid value for '--state': 'bogus' is not one of 'submitted', 'planning'," in told


def test_a_task_that_the_store_has_at_work_may_have_been_ended_by_force(without_server: Settings) -> None:
    row = make_task_row(TaskRequest(question="Which?", request_id="r"), without_server)
    assert TaskFilter(phases=frozenset({TaskPhase.FAILED})).may_match(row)
    assert not TaskFilter(phases=frozenset({TaskPhase.DONE, TaskPhase.PARTIAL})).may_match(row)
