"""What a person decides in advance, as options: `--top-up 50kx3`, `--answer-by 07:00`, `--then partial`."""

import re
from datetime import datetime, time, timedelta
from typing import Literal

from waystation.cli.amounts import parse_amount
from waystation.domain.errors import BadInput
from waystation.domain.unattended import TopUp, Unattended
from waystation.patterns import proven

_TIMES = proven(r"\A(?P<amount>.*\S)\s*+[x×*]\s*+(?P<times>\d{1,4})", re.ASCII)
_SPAN = proven(r"(?P<number>\d{1,4})\s*(?P<unit>[mhd])", re.ASCII)
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
MOST_TIMES = 1_000


Deadline = Literal["partial", "wait"]
"""What happens at a deadline."""


def unattended(top_up: str | None, answer_by: str | None, then: Deadline | None, now: datetime) -> Unattended:
    """The options as they hold for the task. `now` has the person's time zone. Raises BadInput."""
    raises = None if top_up is None else _top_up(top_up)
    if answer_by is None:
        if then is not None:
            raise BadInput(f"--then {then} says what happens at a deadline: give --answer-by, too")
        return Unattended(top_up=raises)
    then = then or "partial"
    span = _SPAN.fullmatch(answer_by.strip())
    if span is not None:
        within = timedelta(**{_UNITS[span["unit"]]: int(span["number"])})
        if not within:
            raise BadInput(f"--answer-by {answer_by} leaves no time to answer: give a minute (1m) or more")
        return Unattended(top_up=raises, answer_within=within, then=then)
    return Unattended(top_up=raises, answer_by=_moment(answer_by.strip(), now), then=then)


def _top_up(text: str) -> TopUp:
    found = _TIMES.fullmatch(text.strip())
    if found is None or not 1 <= int(found["times"]) <= MOST_TIMES:
        raise BadInput(f"--top-up takes an amount and how often, like 50kx3 or $0.25x4; {text!r} is none")
    return TopUp(amount=parse_amount(found["amount"], "--top-up"), times=int(found["times"]))


def _moment(text: str, now: datetime) -> datetime:
    """A clock time is the next one; a date with time without a zone is the person's."""
    try:
        clock = time.fromisoformat(text)
    except ValueError:
        return _date(text, now)
    today = datetime.combine(now.date(), clock, tzinfo=now.tzinfo)
    return today if today > now else today + timedelta(days=1)


def _date(text: str, now: datetime) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInput(
            "--answer-by takes a time (07:00), a moment (2026-11-30T07:00), or how long each request waits (90m, 7d); "
            f"{text!r} is none"
        ) from error
    moment = moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo)
    if moment <= now:
        raise BadInput(f"--answer-by {text} is over already")
    return moment
