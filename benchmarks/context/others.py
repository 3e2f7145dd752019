"""The published policies of other systems, on the same conversations, with the same summariser and the same window.

Their published sizes are followed; otherwise they get what serves them best: cuts between whole turns, so that every
request is legal, and clearings that stay unchanged until the next one is due.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.context.engine import MEASURE, WINDOW, Summariser, SummaryCall, render_messages
from waystation.context.pipeline import compute_summary_token_range
from waystation.context.repair import split_into_units
from waystation.context.tokens import estimate_messages, estimate_text
from waystation.context.transcript import Message, ToolResult, build_user_message

CLEARED = "[Old tool result content cleared]"
Units = Sequence[Sequence[Message]]


class ConversationPolicy(Protocol):
    """A policy with one conversation."""

    calls: list[SummaryCall]
    """Of the summariser, in order."""

    def say(self, message: Message, *, pin: bool = False) -> None:
        """The conversation goes on. Its user wants what is pinned kept."""
        ...

    def make_room(self) -> int:
        """Before a request: compact if it is time to. How often it did."""
        ...

    @property
    def shown(self) -> Sequence[Message]:
        """What the model is sent."""
        ...


@dataclass
class NoCompaction:
    """Everything is sent, always."""

    shown: list[Message] = field(default_factory=list[Message])
    calls: list[SummaryCall] = field(default_factory=list[SummaryCall])

    def say(self, message: Message, *, pin: bool = False) -> None:  # noqa: ARG002 - there are no pins here
        self.shown.append(message)

    def make_room(self) -> int:
        return 0


@dataclass
class SummarisingPolicy(NoCompaction):
    """From `percent` of the window on: `first` messages, a summary, and the last messages or the last share."""

    summariser: Summariser = field(kw_only=True)
    percent: int = field(kw_only=True)
    first: int = 0
    last: int = 0
    last_percent: int = 0

    def make_room(self) -> int:
        if MEASURE.request(self.shown) < WINDOW * self.percent // 100:
            return 0
        units = split_into_units(self.shown)
        start, end = min(self.first, len(units)), self._end(units)
        middle = tuple(message for unit in units[start:end] for message in unit)
        if not middle:
            return 0
        text = render_messages(middle, tuple(self.shown))
        summary = self.summariser(text, *compute_summary_token_range(estimate_messages(middle), WINDOW))
        self.calls.append(SummaryCall(estimate_text(text), estimate_text(summary)))
        head, tail = ([message for unit in part for message in unit] for part in (units[:start], units[end:]))
        self.shown = [*head, build_user_message(f"summary-{len(self.calls)}", summary), *tail]
        return 1

    def _end(self, units: Units) -> int:
        """The first unit that stays, of those after the middle."""
        room, messages = estimate_messages(self.shown) * self.last_percent // 100, self.last
        end = len(units)
        while end > self.first:
            room -= estimate_messages(units[end - 1])
            messages -= len(units[end - 1])
            if room < 0 and messages < 0:
                return end
            end -= 1
        return end


@dataclass
class ClearingPolicy(NoCompaction):
    """From `trigger` tokens of a request on: every tool result but the last `keep` is replaced by a placeholder."""

    trigger: int = 30_000
    keep: int = 3

    def make_room(self) -> int:
        if MEASURE.request(self.shown) < self.trigger:
            return 0
        carrying = [place for place, message in enumerate(self.shown) if message.tool_results]
        before = self.shown
        old = set(carrying[: -self.keep])
        self.shown = [_cleared(message) if place in old else message for place, message in enumerate(before)]
        return int(self.shown != before)


def _cleared(message: Message) -> Message:
    blocks = tuple(
        block.replace(content=CLEARED) if isinstance(block, ToolResult) else block for block in message.blocks
    )
    return message if blocks == message.blocks else message.replace(blocks=blocks)


def build_published_policies(summariser: Summariser) -> dict[str, ConversationPolicy]:
    """By what they do."""
    return {
        "from 92 %: all into a summary": SummarisingPolicy(summariser=summariser, percent=92),
        "from 50 %: the last 30 % stay": SummarisingPolicy(summariser=summariser, percent=50, last_percent=30),
        "from 75 %: the first and the last 3 stay": SummarisingPolicy(
            summariser=summariser, percent=75, first=1, last=3
        ),
        "from 30k: old tool results are cleared": ClearingPolicy(),
    }
