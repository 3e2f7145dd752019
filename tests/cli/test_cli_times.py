"""Times that a person types or reads, in a zone whose clocks change."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from waystation.cli.options import (
    format_moment,
    parse_moment,
    parse_moment_or_age,
    parse_past_moment,
    parse_unattended_options,
)
from waystation.kernel import clock
from waystation.kernel.clock import local_now
from waystation.kernel.errors import BadInput

NOVEMBER = datetime(2026, 11, 29, 22, tzinfo=UTC)
BEFORE_CHANGE = datetime(2026, 10, 24, 20, tzinfo=UTC)
"""The evening before the clocks go back in Berlin."""


@pytest.fixture(autouse=True)
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def at(moment: datetime, monkeypatch: pytest.MonkeyPatch) -> datetime:
    monkeypatch.setattr(clock, "utc_now", lambda: moment)
    return local_now()


def answered_by(text: str, now: datetime) -> datetime:
    found = parse_unattended_options(None, text, None, now).answer_by
    assert found is not None
    return found.astimezone(UTC)


def test_a_date_and_time_have_the_offset_of_their_own_season(monkeypatch: pytest.MonkeyPatch) -> None:
    now = at(NOVEMBER, monkeypatch)
    assert answered_by("2027-06-01T07:00", now) == datetime(2027, 6, 1, 5, tzinfo=UTC)
    assert answered_by("2027-01-01T07:00", now) == datetime(2027, 1, 1, 6, tzinfo=UTC)
    moment, day = parse_moment("2027-06-01T07:00", "--until", now), parse_past_moment("2026-07-01", "--since", now)
    assert moment is not None
    assert day is not None
    assert moment.astimezone(UTC) == datetime(2027, 6, 1, 5, tzinfo=UTC)
    assert day.astimezone(UTC) == datetime(2026, 6, 30, 22, tzinfo=UTC)


def test_a_clock_time_after_a_change_of_the_clocks_has_the_new_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    now = at(BEFORE_CHANGE, monkeypatch)
    assert answered_by("07:00", now) == datetime(2026, 10, 25, 6, tzinfo=UTC)
    assert answered_by("23:00", now) == datetime(2026, 10, 24, 21, tzinfo=UTC)
    assert answered_by("23:30+00:00", now) == datetime(2026, 10, 24, 23, 30, tzinfo=UTC)


def test_an_age_is_a_span_of_real_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    morning = datetime(2026, 10, 25, 8, tzinfo=UTC)
    assert parse_moment_or_age("12h", "--since", at(morning, monkeypatch)) == morning - timedelta(hours=12)


def test_a_time_is_shown_as_the_clock_showed_it_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = at(NOVEMBER, monkeypatch)
    assert format_moment(datetime(2026, 6, 1, 5, tzinfo=UTC), now) == "01 Jun 07:00"
    assert format_moment(NOVEMBER - timedelta(hours=1), now) == "22:00"


def test_the_hour_that_happens_twice_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    for hour, name, offset in ((0, "CEST", 2), (1, "CET", 1)):
        moment = datetime(2026, 10, 25, hour, 30, tzinfo=UTC)
        now = at(moment, monkeypatch)
        assert (f"{now:%H:%M %Z}", now.utcoffset()) == (f"02:30 {name}", timedelta(hours=offset))
        assert now.astimezone(UTC) == moment


@pytest.mark.parametrize("text", ["0001-01-01", "0001-01-01T00:00"])
def test_a_time_before_the_calendar_of_utc_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput, match="--until: in UTC, the time is before the year 1"):
        parse_moment(text, "--until", at(NOVEMBER, monkeypatch))
