"""What a person decides in advance, so that a task can go on or end while nobody looks."""

from datetime import datetime, timedelta
from typing import Literal

from pydantic import Field

from waystation.domain.amount import Amount
from waystation.domain.value import Value

IN_ADVANCE = "authorised in advance"
"""The name under which a raise stands that nobody was asked for."""


class TopUp(Value):
    """Raises that were authorised when the task was submitted."""

    amount: Amount
    times: int = Field(ge=1, le=1_000)


class Unattended(Value):
    """What happens to requests for money that nobody answers. By default they wait, for as long as it takes."""

    top_up: TopUp | None = None
    answer_by: datetime | None = None
    """Requests that are open then, and those that come later, are not waited for."""
    answer_within: timedelta | None = None
    """So long each request waits."""
    then: Literal["partial", "wait"] = "partial"
    """At the deadline: the agent delivers what it has, or the request stays open and is noted as overdue."""

    def deadline(self, asked_at: datetime) -> datetime | None:
        """Until when a request of that moment is waited for; None: for ever."""
        within = [asked_at + self.answer_within] if self.answer_within is not None else []
        return min([*within, *([self.answer_by] if self.answer_by is not None else [])], default=None)
