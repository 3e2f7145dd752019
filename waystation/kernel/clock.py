"""The one place that reads the clock."""

from datetime import UTC, datetime
from typing import Protocol


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


class Clock(Protocol):
    """Source of the current time for everything outside workflows."""

    def __call__(self) -> datetime:
        """Return the current time, with a time zone."""
        ...
