"""Profiles: when the context of a model counts as full, and what writes its summaries, by the model's name."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Final

from pydantic import Field

from waystation.domain.models import CONDENSE_MODEL, plain_name
from waystation.domain.presets import TRIGGER_PERCENT, Wishes
from waystation.domain.value import Input

ITSELF: Final = "itself"
"""As the condensing model: the one that works."""
INHERITED: Final = -1
"""As a threshold: the default's."""
LEAST_THRESHOLD, MOST_THRESHOLD = 5, 100


class Profile(Input):
    """What holds for models of a kind, unless somebody says otherwise. None: the profile says nothing."""

    threshold: object = None
    """Percent of the window from which on a context is full: 5 to 100, or -1 for the default. Of anything else a
    person is told, and the default holds.
    """
    keep: Annotated[int, Field(ge=0)] | None = None
    """Messages at the end that outlive a compaction under `ends`."""
    condense_model: str | None = None
    """What writes the summaries; `itself` for the model at work."""

    @property
    def percent(self) -> int | None:
        """The threshold, where it is one."""
        value = self.threshold
        if isinstance(value, int) and not isinstance(value, bool) and LEAST_THRESHOLD <= value <= MOST_THRESHOLD:
            return value
        return None

    @property
    def fault(self) -> str | None:
        """What is wrong with the threshold."""
        if self.percent is not None or self.threshold is None or self.threshold == INHERITED:
            return None
        said = str(self.threshold)[:40]
        return (
            f"threshold {said} is neither a whole number from {LEAST_THRESHOLD} to {MOST_THRESHOLD} "
            f"nor {INHERITED}: the default, {TRIGGER_PERCENT}, takes its place"
        )


PROFILES: Mapping[str, Profile] = {
    "opus": Profile(threshold=80, keep=5, condense_model=ITSELF),
    "sonnet": Profile(threshold=75, keep=3, condense_model=CONDENSE_MODEL),
    "haiku": Profile(threshold=60, keep=3, condense_model=ITSELF),
}
"""By a part of the model's name."""


def profile_of(model: str, own: Mapping[str, Profile]) -> tuple[str, Profile] | None:
    """The profile of a model and its name; None where there is none.

    A profile's name is a part of the model's name. Where several fit, the longer name beats the shorter, and a profile
    of one's own beats the built-in one, field by field.
    """
    fitting = [(name, profile) for name, profile in _by_strength(own) if name in plain_name(model)]
    if not fitting:
        return None
    said = {field: value for _, profile in fitting for field, value in profile if value is not None}
    return fitting[-1][0], Profile.model_validate(said)


def _by_strength(own: Mapping[str, Profile]) -> Iterator[tuple[str, Profile]]:
    """The weakest first."""
    for name in sorted({*PROFILES, *own}, key=lambda name: (len(name), name)):
        for profiles in (PROFILES, own):
            if name in profiles:
                yield name, profiles[name]


def wishes_of(profile: Profile, model: str, *, keeps_ends: bool) -> Wishes:
    """What the profile wants of a task whose agents work with this model. `keeps_ends`: compactions keep a few of the
    last messages.
    """
    writer = model if profile.condense_model == ITSELF else profile.condense_model
    keep = profile.keep if keeps_ends else None
    return Wishes(trigger_percent=profile.percent, keep_last=keep, condense_model=writer)
