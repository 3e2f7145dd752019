"""The times of a schedule as a form offers them, as a cron expression."""

from collections.abc import Mapping
from datetime import time

from waystation.kernel.errors import InvalidFieldError

SCHEDULE_DAYS: Mapping[str, str] = {
    "week": "week, on Monday",
    "tuesday": "week, on Tuesday",
    "wednesday": "week, on Wednesday",
    "thursday": "week, on Thursday",
    "friday": "week, on Friday",
    "saturday": "week, on Saturday",
    "sunday": "week, on Sunday",
    "workday": "day from Monday to Friday",
    "day": "day",
    "month": "month, on the first day",
}
"""What *Every* offers, by its value."""
_DAYS_AND_WEEKDAYS: Mapping[str, str] = {
    "week": "* * 1",
    "tuesday": "* * 2",
    "wednesday": "* * 3",
    "thursday": "* * 4",
    "friday": "* * 5",
    "saturday": "* * 6",
    "sunday": "* * 0",
    "workday": "* * 1-5",
    "day": "* * *",
    "month": "1 * *",
}


def build_cron(every: str, at: str) -> str:
    """Return the cron expression of a day in the form and a time like `07:30`. Raises InvalidFieldError."""
    days = _DAYS_AND_WEEKDAYS.get(every)
    if days is None:
        raise InvalidFieldError("every", "choose the days on which the schedule runs")
    moment = _parse_time(at)
    if moment is None:
        raise InvalidFieldError("at", "give a time from 00:00 to 23:59, like 07:30")
    return f"{moment.minute} {moment.hour} {days}"


def describe_cron(cron: str) -> str:
    """Return the times of a cron expression in the words of the form; empty if the form cannot make it."""
    minute, hour, days = (*cron.split(" ", 2), "", "")[:3]
    every = next((one for one, fields in _DAYS_AND_WEEKDAYS.items() if fields == days), None)
    if every is None or not (minute.isdecimal() and hour.isdecimal() and int(minute) < 60 and int(hour) < 24):
        return ""
    return f"every {SCHEDULE_DAYS[every]}, at {int(hour):02}:{int(minute):02}"


def _parse_time(at: str) -> time | None:
    """Return the time that a field has; None if it is none. Of the forms of ISO 8601, only `07:30` and `07:30:00`."""
    if at[2:3] != ":" or len(at) not in {5, 8}:
        return None
    try:
        return time.fromisoformat(at)
    except ValueError:
        return None
