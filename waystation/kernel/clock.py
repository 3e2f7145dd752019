"""The one place that reads the clock."""

from datetime import UTC, datetime
from typing import Protocol


def utc_now() -> datetime:
    """Now, in UTC."""
    return datetime.now(UTC)


class Clock(Protocol):
    """The time, for everything outside workflows."""

    def __call__(self) -> datetime:
        """Now, with a time zone."""
        ...
