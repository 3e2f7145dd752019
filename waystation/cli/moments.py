"""Moments in options: `--before 2026-11-01`, `--since 2026-11-01T07:00`."""

from datetime import datetime

from waystation.domain.errors import BadInput


def moment(text: str | None, option: str, now: datetime) -> datetime | None:
    """The moment; None where none is given. A date is its first moment, without a zone the person's, which `now` has.

    Raises BadInput.
    """
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise BadInput(
            f"{option} takes a date (2026-11-01) or a moment (2026-11-01T07:00); {text!r} is none"
        ) from error
    return found if found.tzinfo else found.replace(tzinfo=now.tzinfo)


def past_moment(text: str | None, option: str, now: datetime) -> datetime | None:
    """The same, of what is over. Raises BadInput."""
    found = moment(text, option, now)
    if found is not None and found > now:
        raise BadInput(f"{option} {text} has not come yet: it is {now:%Y-%m-%dT%H:%M} now")
    return found
