"""How hard a model is to work: the effort and the thinking that may be asked of it, and what a model takes of both."""

from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from waystation.domain.value import Value

LEAST_THINKING = 1_024
"""Tokens. Providers take no smaller budget for thinking."""
THINKING_PART = 4
"""The thinking of one reply takes at most this part of what an agent starts with: no single call is to stop it."""

Effort = Literal["low", "medium", "high", "xhigh", "max"]
Thinking = Literal["adaptive", "off"] | Annotated[int, Field(ge=LEAST_THINKING)]
"""As the model sees fit, not at all, or at most so many tokens a reply."""
Way = Literal["adaptive", "off", "a number of tokens"]

TO_HIGH: tuple[Effort, ...] = ("low", "medium", "high")
EFFORTS: tuple[Effort, ...] = (*TO_HIGH, "xhigh", "max")
DEEP: tuple[Effort, ...] = ("xhigh", "max")
"""Efforts whose replies are long for the thinking in them."""


class Working(NamedTuple):
    """Which model works, and how hard. None: as the provider has it for this model."""

    model: str
    effort: Effort | None = None
    thinking: Thinking | None = None


class Spoken(NamedTuple):
    """The names of the settings that say how hard a role's model works: its own, or those for all roles."""

    effort: str
    thinking: str


class Refused(NamedTuple):
    """What a model does not take, and what it takes instead."""

    setting: Literal["effort", "thinking"]
    asked: str
    allowed: tuple[str, ...]


class Takes(Value):
    """What a model takes. Anything else its provider answers with an error."""

    efforts: tuple[Effort, ...] = EFFORTS
    thinking: tuple[Way, ...] = ("adaptive", "off")
    quiet_efforts: tuple[Effort, ...] = EFFORTS
    """Those that go with thinking switched off."""

    def refused(self, effort: Effort | None, thinking: Thinking | None) -> Refused | None:
        """The first thing that it does not take; None where it takes both."""
        if effort is not None and effort not in self.efforts:
            return Refused("effort", f"effort {effort}", self.efforts)
        way = "a number of tokens" if isinstance(thinking, int) else thinking
        if way is not None and way not in self.thinking:
            return Refused("thinking", f"thinking {thinking}", self.thinking)
        if way == "off" and effort is not None and effort not in self.quiet_efforts:
            return Refused("effort", f"effort {effort} with thinking off", self.quiet_efforts)
        return None


def budgeted(thinking: Thinking | None) -> int:
    """Tokens of every reply that are set aside for thinking."""
    return thinking if isinstance(thinking, int) else 0
