"""The times of a schedule as a form offers them, as a cron expression."""

import re
from collections.abc import Mapping

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
_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::00)?", re.ASCII)


def build_cron(every: str, at: str) -> str:
    """Return the cron expression of a day in the form and a time like `07:30`. Raises InvalidFieldError."""
    days, time = _DAYS_AND_WEEKDAYS.get(every), _TIME.fullmatch(at)
    if days is None:
        raise InvalidFieldError("every", "choose the days on which it runs")
    if time is None:
        raise InvalidFieldError("at", "give a time from 00:00 to 23:59, like 07:30")
    return f"{int(time[2])} {int(time[1])} {days}"
