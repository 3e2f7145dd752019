"""The one place that reads the clock."""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Protocol


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


class LocalZone(tzinfo):
    """The time zone of this machine, with the offset that holds at each moment.

    `datetime.astimezone()` without a zone attaches the offset of that one moment, which is wrong for another moment
    beyond a change of the clocks.
    """

    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        """See base class. Raises OverflowError for a time at the ends of the calendar, as a conversion to UTC does."""
        return None if dt is None else _attach_local_offset(dt).utcoffset()

    def dst(self, dt: datetime | None) -> timedelta | None:
        """See base class. Unknown."""
        del dt

    def tzname(self, dt: datetime | None) -> str | None:
        """See base class."""
        return None if dt is None else _attach_local_offset(dt).tzname()

    def fromutc(self, dt: datetime) -> datetime:
        """See base class."""
        found = dt.replace(tzinfo=UTC).astimezone()
        first = found.replace(tzinfo=self)
        # When the clocks go back, an hour happens twice.
        return first if first.utcoffset() == found.utcoffset() else first.replace(fold=1)


def _attach_local_offset(moment: datetime) -> datetime:
    try:
        return moment.replace(tzinfo=None).astimezone()
    except ValueError as error:
        raise OverflowError(str(error)) from error


def local_now() -> datetime:
    """Return the current time in the zone of this machine."""
    return utc_now().astimezone(LocalZone())


class Clock(Protocol):
    """Source of the current time for everything outside workflows."""

    def __call__(self) -> datetime:
        """Return the current time, with a time zone."""
        ...
