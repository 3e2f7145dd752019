"""What the agents of a task did: its events, filtered, and figures about their tool calls and compactions.

Built from events, transcripts and the listed compactions; nothing of it is stored.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Literal

from waystation.context.compaction import CompactionStatus
from waystation.context.history import (
    build_model_view,
    count_messages_before,
    get_effective_transcript,
    get_pinned_message_ids,
    with_record,
)
from waystation.context.transcript import Compaction, SummaryRecord, Transcript
from waystation.kernel.value import UtcMoment, Value
from waystation.store.events import EventKind
from waystation.tasks.events import TaskEvent
from waystation.tasks.view import AgentCompactionView


class ActivityFilter(Value):
    """Filter of a task's activity. An omitted field filters nothing."""

    agents: frozenset[str] = frozenset()
    """Any of these; empty: every agent, and the task as a whole."""
    kinds: frozenset[EventKind] = frozenset()
    """Events of any of these kinds; empty: any kind. Does not filter tool calls and compactions."""
    since: UtcMoment | None = None
    until: UtcMoment | None = None
    """Both ends of the time range are included."""

    def matches_agent(self, agent: str) -> bool:
        """Return whether the agent matches."""
        return not self.agents or agent in self.agents

    def matches_time(self, at: datetime | None) -> bool:
        """Return whether the time matches. An unknown time matches unless the range is limited."""
        if at is None:
            return self.since is None and self.until is None
        return (self.since is None or at >= self.since) and (self.until is None or at <= self.until)

    def matches_event(self, event: TaskEvent) -> bool:
        """Return whether the event matches."""
        kind_matches = not self.kinds or event.kind in self.kinds
        return kind_matches and self.matches_agent(event.agent) and self.matches_time(event.at)


class ToolCallTotals(Value):
    """Totals of the calls of one tool."""

    tool: str
    """Its name as the model wrote it."""
    calls: int
    failures: int
    """Calls whose result is an error: refused, denied, or unusable arguments, for example."""
    unanswered: int
    """Calls without a result yet."""
    median_seconds: float | None
    """Median of the seconds from the reply that asked for the call until its result. Calls of one reply have the same
    time. Waiting for people and subagents does not count. None if no call has a result.
    """


class CompactionDetails(Value):
    """What one compaction kept."""

    id: str
    agent: str
    type: Literal["summarised", "masked", "truncated"] | None
    """None: nothing was committed."""
    strategy: str
    """Strategy of a summary; otherwise empty."""
    status: CompactionStatus | None
    """None if it is not among the newest compactions of its agent, of which alone this is stored."""
    at: datetime | None
    """When it was committed."""
    messages_before: int | None
    """Messages that the model was sent before it, and `messages_after` after it."""
    messages_after: int | None
    tokens_before: int | None
    """Tokens of the whole request before it, and `tokens_after` after it; None as for `status`."""
    tokens_after: int | None
    pinned: int | None
    """Pinned messages at that time, which it kept."""
    undone: bool
    """Whether it was undone later, by a restore or a rewind."""


class ActivityView(Value):
    """What the agents of a task did."""

    events: tuple[TaskEvent, ...]
    """The matching events, in order, or a part of them."""
    event_count: int
    """Number of all matching events."""
    tools: tuple[ToolCallTotals, ...]
    """By tool, those with most calls first."""
    compactions: tuple[CompactionDetails, ...]
    """In the order of agents, and of each agent's compactions."""


def build_activity_view(
    events: Sequence[TaskEvent],
    transcripts: Mapping[str, Transcript],
    listed: Iterable[AgentCompactionView],
    activity_filter: ActivityFilter,
) -> ActivityView:
    """Build the view of a task's activity.

    Args:
        events: All events of the task, in order.
        transcripts: Transcripts by agent. Agents without one have no tool calls and compactions.
        listed: The newest compactions of each agent.
        activity_filter: What to show.
    """
    by_agent: defaultdict[str, list[TaskEvent]] = defaultdict(list)
    for event in events:
        by_agent[event.agent].append(event)
    outcomes: defaultdict[str, list[AgentCompactionView]] = defaultdict(list)
    for one in listed:
        outcomes[one.agent].append(one)
    agents = [
        agent for agent in dict.fromkeys((*by_agent, *outcomes)) if agent and activity_filter.matches_agent(agent)
    ]
    logs = {agent: transcripts[agent] for agent in agents if agent in transcripts}
    calls = [call for agent, log in logs.items() for call in iter_tool_calls(by_agent[agent], log)]
    compactions = [
        one
        for agent in agents
        for one in iter_compaction_details(agent, by_agent[agent], logs.get(agent), outcomes[agent])
    ]
    matching = tuple(event for event in events if activity_filter.matches_event(event))
    return ActivityView(
        events=matching,
        event_count=len(matching),
        tools=sum_tool_calls(call for call in calls if activity_filter.matches_time(call.at)),
        compactions=tuple(one for one in compactions if activity_filter.matches_time(one.at)),
    )


@dataclass(frozen=True)
class ToolCallTiming:
    """One tool call, with its time."""

    tool: str
    at: datetime
    """When its result was committed; without one, when the model asked for it."""
    seconds: float | None
    """None without a result."""
    failed: bool


def iter_tool_calls(events: Iterable[TaskEvent], transcript: Transcript) -> Iterator[ToolCallTiming]:
    """Yield the calls of one agent, in order. Calls that a fork copied from another task have no events here.

    Args:
        events: The events of the agent, in order.
        transcript: Its transcript.
    """
    asked: dict[str, datetime] = {}
    answered: dict[str, tuple[datetime, datetime]] = {}
    # As in traces: after a takeover, such as after an approval, calls last from the takeover.
    since: datetime | None = None
    for event in events:
        if event.kind in {"replied", "taken"}:
            since = event.at
        if event.kind == "replied":
            asked[event.reference] = event.at
        elif event.kind == "given":
            answered[event.reference] = (since or event.at, event.at)
    results = {
        result.tool_use_id: (message.id, result) for message in transcript.messages for result in message.tool_results
    }
    for message in transcript.messages:
        if (said_at := asked.get(message.id)) is None or message.refusal:
            continue
        for call in message.tool_uses:
            answer_id, result = results.get(call.id, ("", None))
            begun, ended = answered.get(answer_id, (said_at, said_at))
            yield ToolCallTiming(
                tool=call.name,
                at=ended,
                # A clock that was set back does not make a duration negative.
                seconds=None if result is None else max(0.0, (ended - begun).total_seconds()),
                failed=result is not None and result.is_error,
            )


def sum_tool_calls(calls: Iterable[ToolCallTiming]) -> tuple[ToolCallTotals, ...]:
    """Sum calls by tool, those with most calls first."""
    by_tool: defaultdict[str, list[ToolCallTiming]] = defaultdict(list)
    for call in calls:
        by_tool[call.tool].append(call)
    found: list[ToolCallTotals] = []
    for tool, own in by_tool.items():
        seconds = [call.seconds for call in own if call.seconds is not None]
        found.append(
            ToolCallTotals(
                tool=tool,
                calls=len(own),
                failures=sum(call.failed for call in own),
                unanswered=len(own) - len(seconds),
                median_seconds=round(median(seconds), 3) if seconds else None,
            )
        )
    return tuple(sorted(found, key=lambda one: (-one.calls, one.tool)))


def iter_compaction_details(
    agent: str, events: Iterable[TaskEvent], transcript: Transcript | None, listed: Iterable[AgentCompactionView]
) -> Iterator[CompactionDetails]:
    """Yield the compactions of one agent: those committed in this task, in order, then those that committed nothing.

    Args:
        agent: Id of the agent.
        events: The events of the agent, in order.
        transcript: Its transcript; None if there is none.
        listed: Its newest compactions.
    """
    times = {event.reference: event.at for event in events if event.kind == "compacted"}
    listed = tuple(listed)
    outcomes = {one.id: one for one in listed if one.id}
    records = () if transcript is None else transcript.records
    counting = set[str]() if transcript is None else {one.id for one in get_effective_transcript(transcript).records}
    for place, record in enumerate(records):
        if transcript is None or not isinstance(record, Compaction) or record.id not in times:
            continue
        before = transcript.replace(
            messages=transcript.messages[: count_messages_before(record, transcript)],
            records=transcript.records[:place],
        )
        outcome = outcomes.get(record.id)
        yield CompactionDetails(
            id=record.id,
            agent=agent,
            type=record.type,
            strategy=record.strategy if isinstance(record, SummaryRecord) else "",
            status=None if outcome is None else outcome.status,
            at=times[record.id],
            messages_before=len(build_model_view(before)),
            messages_after=len(build_model_view(with_record(before, record))),
            tokens_before=None if outcome is None else outcome.tokens_before,
            tokens_after=None if outcome is None else outcome.tokens_after,
            pinned=len(get_pinned_message_ids(before)),
            undone=record.id not in counting,
        )
    committed = {record.id for record in records}
    for one in listed:
        if one.id in committed:
            continue
        yield CompactionDetails(
            id=one.id,
            agent=agent,
            type=None,
            strategy="",
            status=one.status,
            at=None,
            messages_before=None,
            messages_after=None,
            tokens_before=one.tokens_before,
            tokens_after=one.tokens_after,
            pinned=None,
            undone=False,
        )
