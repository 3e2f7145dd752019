"""How well memory finds again what it was given: conversations, questions about them, and the measures."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from statistics import fmean, median
from typing import Annotated

from pydantic import AwareDatetime, ConfigDict, Field, NaiveDatetime, model_validator

from waystation.domain.excerpts import Excerpt
from waystation.domain.messages import Message, Text
from waystation.domain.value import Value

ROLES = {"user", "assistant"}
MessageId = Annotated[str, Field(pattern=r"^[^\s\[\]]+$")]
"""It stands in brackets before what was said."""


class _Line(Value):
    """Of a file. Fields that are not known are not looked at; ids may be numbers."""

    model_config = ConfigDict(coerce_numbers_to_str=True)


class Line(_Line):
    """What somebody said."""

    id: MessageId
    role: str = ""
    speaker: str = ""
    text: str
    time: AwareDatetime | NaiveDatetime | None = None
    session: str = ""

    @model_validator(mode="after")
    def _said_by_somebody(self) -> "Line":
        if not self.role and not self.speaker:
            raise ValueError("role or speaker is missing")
        return self

    @property
    def message(self) -> Message:
        """As an agent's transcript would have it: who is neither user nor assistant is named in the text."""
        speaker = self.speaker or ("" if self.role in ROLES else self.role)
        said = f"{speaker}: {self.text}" if speaker else self.text
        return Message(id=self.id, role="assistant" if self.role == "assistant" else "user", blocks=(Text(text=said),))


class Question(_Line):
    """What is asked later, and which messages answer it."""

    id: str
    text: str = Field(min_length=1)
    relevant: tuple[str, ...] = Field(min_length=1)


class Recall(Value):
    """Within so many tokens."""

    tokens: int
    recall: float
    """Share of a question's relevant messages of which a part is there; the mean over the questions."""


class Measured(Value):
    """What came of all questions."""

    recall: tuple[Recall, ...]
    mrr: float
    """Mean of one over the rank of the first stretch that has a relevant message, 0 where none has."""
    median_ms: float
    """Of a question: redacted, embedded, searched, and the best chosen."""
    missed: tuple[str, ...]
    """Questions that do not have all of their messages within the most tokens."""


class Answer(Value):
    """What one question brought back."""

    question: Question
    shown: Mapping[int, tuple[frozenset[str], ...]]
    """By number of tokens: the messages of each stretch, best first."""
    milliseconds: float

    def recall(self, tokens: int) -> float:
        """From 0 to 1."""
        relevant, shown = set(self.question.relevant), set[str]().union(*self.shown[tokens])
        return len(relevant & shown) / len(relevant)

    def reciprocal_rank(self, tokens: int) -> float:
        """From 0 to 1."""
        relevant = set(self.question.relevant)
        return next((1 / rank for rank, ids in enumerate(self.shown[tokens], 1) if ids & relevant), 0.0)


def messages_of(excerpt: Excerpt, places: Mapping[str, int]) -> frozenset[str]:
    """Ids of the messages of which the excerpt has a part; `places` has their order."""
    spans = [(places[one.first_message], places[one.last_message]) for one in excerpt.passages]
    return frozenset(name for name, place in places.items() if any(first <= place <= last for first, last in spans))


def measured(answers: Sequence[Answer], budgets: Sequence[int]) -> Measured:
    """The means over all questions, of which there is one at least."""
    most = max(budgets)
    return Measured(
        recall=tuple(
            Recall(tokens=tokens, recall=fmean(answer.recall(tokens) for answer in answers)) for tokens in budgets
        ),
        mrr=fmean(answer.reciprocal_rank(most) for answer in answers),
        median_ms=median(answer.milliseconds for answer in answers),
        missed=tuple(answer.question.id for answer in answers if answer.recall(most) < 1),
    )


def by_session(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """The lines of each session, in the order in which both come."""
    sessions: dict[str, list[Line]] = {}
    for line in lines:
        sessions.setdefault(line.session, []).append(line)
    return sessions


def ended_at(lines: Sequence[Line], place: int, start: datetime) -> datetime:
    """When a session was over; of sessions without times a later one ended later."""
    times = [line.time if line.time.tzinfo else line.time.replace(tzinfo=start.tzinfo) for line in lines if line.time]
    return max(times, default=start.replace(microsecond=place % 1_000_000))
