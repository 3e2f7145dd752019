"""Presets: numbers for kinds of work under one name; and what holds where request, preset and settings all speak."""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from waystation.domain.amount import Limit
from waystation.domain.budget import Mode
from waystation.domain.compaction.policy import PRIMERS, RECENTS, Strategy
from waystation.domain.models import CONDENSE_MODEL
from waystation.domain.value import Value

REQUEST = "request"
"""The name of the source that is what the person who submits has just written."""
DEFAULT_BUDGET = Limit(tokens=600_000)
DEFAULT_AGENT_BUDGET = Limit(tokens=100_000)
TRIGGER_PERCENT = 75


class Preset(StrEnum):
    """Kinds of work."""

    QA = "qa"
    """Short questions: a small window, compacted often."""
    DEBUGGING = "debugging"
    """Long looks at details: a large window, of which much stays."""
    LONG = "long"
    """Agents that work for days: compacted by the number of messages, and bounded by it."""


class Wishes(Value):
    """What one source wants of a task. None: it says nothing."""

    budget: Limit | None = None
    agent_budget: Limit | None = None
    window: int | None = None
    mode: Mode | None = None
    trigger_percent: int | None = None
    strategy: Strategy | None = None
    primers: int | None = None
    recents: int | None = None
    keep_last: int | None = None
    condense_model: str | None = None
    messages: int | None = None
    history: int | None = None


class Choices(Value):
    """What holds."""

    budget: Limit = DEFAULT_BUDGET
    agent_budget: Limit = DEFAULT_AGENT_BUDGET
    window: int | None = None
    """Tokens; None: as large as budget and model allow."""
    mode: Mode = Mode.APPROVAL
    trigger_percent: int = TRIGGER_PERCENT
    """Share of the window from which on a context is full."""
    strategy: Strategy = "ends"
    primers: int = PRIMERS
    recents: int = RECENTS
    keep_last: int | None = None
    """See `Policy.keep_last`."""
    condense_model: str = CONDENSE_MODEL
    messages: int | None = None
    """A view of more messages is full, too."""
    history: int | None = None
    """Most messages that an agent's conversation has in all."""
    origins: dict[str, str] = {}
    """By field: the name of the source that spoke. What nobody spoke of is not in it."""


class Source(NamedTuple):
    """Somebody's wishes, under the name that people know it by."""

    name: str
    wishes: Wishes


PRESETS = {
    Preset.QA: Wishes(messages=30, window=25_000, primers=2, recents=10),
    # A window is at most half of what an agent starts with: without these 150k its window would be 50k.
    Preset.DEBUGGING: Wishes(
        messages=100, window=75_000, primers=5, recents=30, trigger_percent=85, agent_budget=Limit(tokens=150_000)
    ),
    Preset.LONG: Wishes(messages=75, budget=Limit(tokens=300_000), primers=PRIMERS, recents=RECENTS, history=1_000),
}
"""What stays after a compaction, `primers` and `recents`, is far less than `messages`, lest one follows another."""


def choose(sources: Iterable[Source]) -> Choices:
    """For each field the word of the first source that says something; the default where none does."""
    said: dict[str, object] = {}
    origins: dict[str, str] = {}
    for source in sources:
        for field, wish in source.wishes:
            if wish is not None and field not in said:
                said[field] = wish
                origins[field] = source.name
    if "strategy" not in said and said.keys() & {"primers", "recents"}:
        said["strategy"] = "window"  # whose numbers these are
    return Choices.model_validate({**said, "origins": origins})
