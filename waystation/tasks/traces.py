"""Builds the trace of a task, as spans, from what the store has committed.

A pure function of the store: a crash loses no span of a committed turn, and a span that is sent again has the same ID.
A task is one trace, however long it lives, and no span lasts while people think: the first span ends when the task is
admitted, each leg is a span, and what happened between two legs are events of the later one, which links to the
earlier.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import pairwise

from pydantic import JsonValue

from waystation.context.transcript import Charge, Compaction, Transcript
from waystation.kernel.roles import ROLES
from waystation.kernel.value import Value
from waystation.models.profiles import OFFLINE_MODEL, parse_model_name
from waystation.planning.plan import RESERVED_STEP_ID_PATTERN
from waystation.security.untrusted import ToolDefinition, UntrustedToolName, assign_model_tool_names
from waystation.tasks.events import AnsweredCall, LegEvents, TaskEvent, iter_answered_calls, iter_legs
from waystation.tasks.spans import (
    AttributeValue,
    SpanEvent,
    SpanLink,
    TraceSpan,
    build_budget_attributes,
    build_conversation_attributes,
    build_span_events,
    build_tool_call_attributes,
    build_usage_attributes,
    make_span_id,
    make_trace_id,
)

RETRIEVALS: Mapping[str, str] = {"search_documents": "documents", "recall": "memory"}
"""Tools that look something up, with their data source. Web searches are charges, and have spans as such."""
OTHER_TOOL = "other"
"""Replaces a tool name that no tool of the task has: the model made it up."""
ABANDONED = "abandoned"
"""Outcome of a leg that was running when its task ended."""
_OWN_TOOLS = frozenset({"web_search", "fetch_page", *(tool for role in ROLES.values() for tool in role.tools)})
_NOTED = frozenset(
    {"asked", "answered", "messaged", "updated", "refused", "resolved", "edited", "rewound", "delivered"}
)
"""Kinds of task events that become events of a leg's span."""


class RunTraceData(Value):
    """What the store has of an agent run."""

    role: str
    transcript: Transcript
    charges: tuple[Charge, ...]
    """In commit order."""


class TaskTraceData(Value):
    """What the store has of a task, as far as its trace needs it."""

    task_id: str
    tenant: str
    session: str
    model: str
    """Model of its agents."""
    events: tuple[TaskEvent, ...]
    """All events of the task, in order."""
    runs: Mapping[str, RunTraceData]
    """By agent; at least those that `find_touched_agents` returns."""
    definitions: tuple[ToolDefinition, ...] = ()
    """Definitions of external tools."""


class TraceCursor(Value):
    """A tenant's next events whose spans are to be sent."""

    tenant: str
    since: int
    """Newest number when spans were first sent: tasks that began earlier are sent completely with their next event."""
    sent: int
    """Number up to which events of traced tasks were sent."""
    upto: int
    tasks: tuple[str, ...]
    """Tasks of these events."""

    def get_last_sent_number(self, task_events: Sequence[TaskEvent]) -> int:
        """Return the number up to which events of the task with these events were sent; 0 if it was never traced."""
        return self.sent if any(self.since < event.number <= self.sent for event in task_events) else 0


def find_touched_agents(events: Sequence[TaskEvent], after: int) -> frozenset[str]:
    """Return the agents with spans that may have finished since that number; all if the task has ended since."""
    fresh = [event for event in events if event.number > after]
    chosen = events if any(event.kind == "ended" for event in fresh) else fresh
    return frozenset(event.agent for event in chosen if event.agent)


def build_spans(task: TaskTraceData, after: int, providers: Mapping[str, str]) -> tuple[TraceSpan, ...]:
    """Build the task's spans that were finished by events after a number, in that order.

    Args:
        task: What the store has of the task.
        after: Number of the last event whose spans were sent.
        providers: Provider names of the conventions by endpoint name; the empty name is for models without an endpoint.
    """
    trace = _SpanBuilder(task, after, providers)
    made = [
        *trace.build_task_span(),
        *trace.build_oversight_spans(),
        *trace.build_leg_spans(),
        *trace.build_end_spans(),
    ]
    return tuple(sorted((span for span in made if span.number > after), key=lambda span: span.number))


@dataclass(frozen=True)
class _SpanBuilder:
    task: TaskTraceData
    after: int
    providers: Mapping[str, str]

    @cached_property
    def known_tools(self) -> frozenset[str]:
        """Names of the tools that the task's agents have."""
        foreign = [UntrustedToolName(one.server, one.tool) for one in self.task.definitions]
        return _OWN_TOOLS.union(assign_model_tool_names(foreign, _OWN_TOOLS).values())

    @cached_property
    def legs(self) -> Mapping[str, tuple[LegEvents, ...]]:
        """Legs by agent."""
        agents = dict.fromkeys(event.agent for event in self.task.events if event.agent)
        return {
            agent: tuple(iter_legs(agent, self.task.events))
            for agent in agents
            if not RESERVED_STEP_ID_PATTERN.fullmatch(agent)
        }

    @cached_property
    def started_legs(self) -> Sequence[LegEvents]:
        """Every leg, by start."""
        every = (leg for legs in self.legs.values() for leg in legs if leg.at_work)
        return sorted(every, key=lambda leg: leg.first_event_number)

    def id_of(self, *parts: str | int) -> str:
        """Return the ID of a span."""
        return make_span_id(self.task.task_id, *parts)

    def span(self, name: str, number: int, span_id: str, when: tuple[datetime, datetime], **more: object) -> TraceSpan:
        """Build a span, by default below the task's first.

        A clock that was set back does not make a duration negative.
        """
        begun, ended = when
        fields = {"trace_id": make_trace_id(self.task.task_id), "parent": self.id_of(), **more}
        times = {"start": min(begun, ended), "end": ended}
        return TraceSpan.model_validate({"name": name, "number": number, "span_id": span_id, **times, **fields})

    def build_task_span(self) -> Iterator[TraceSpan]:
        """Yield the span of the task itself, from its submission until something became of it."""
        opened, *rest = self.task.events or (None,)
        if opened is None or (taken_up := next((event for event in rest if event.kind != "submitted"), None)) is None:
            return
        forked = opened.reference if opened.detail == "fork" else ""
        links = (
            [SpanLink(trace_id=make_trace_id(forked), span_id=make_span_id(forked), reason="fork")] if forked else []
        )
        attributes = {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.agent.name": "task",
            "gen_ai.provider.name": self.provider(self.task.model),
            "gen_ai.request.model": parse_model_name(self.task.model).model,
            **self.identity_attributes(),
        }
        when = (opened.at, taken_up.at)
        more = {"parent": "", "attributes": attributes, "links": links}
        yield self.span("invoke_workflow task", taken_up.number, self.id_of(), when, **more)

    def identity_attributes(self) -> dict[str, AttributeValue]:
        """Build the attributes of the owner, in every span: hashes, no names."""
        task = self.task
        return {
            "waystation.task.id": task.task_id,
            "waystation.session.id": task.session,
            "waystation.tenant.id": task.tenant,
        }

    def provider(self, model: str) -> str:
        """Return the provider, as the conventions name it."""
        if parse_model_name(model).model == OFFLINE_MODEL:
            return "waystation"
        return self.providers.get(parse_model_name(model).endpoint, "anthropic")

    def agent_attributes(self, agent: str, operation: str) -> dict[str, AttributeValue]:
        """Build the attributes of an agent's span."""
        return {
            "gen_ai.operation.name": operation,
            "gen_ai.agent.name": agent,
            "gen_ai.conversation.id": f"{self.task.task_id}/{agent}",
            **self.identity_attributes(),
        }

    def build_oversight_spans(self) -> Iterator[TraceSpan]:
        """Yield the spans of planning, revisions and reviews: one span per answered question, and its call below."""
        for agent in dict.fromkeys(event.agent for event in self.task.events):
            if not agent or not RESERVED_STEP_ID_PATTERN.fullmatch(agent):
                continue
            for call in iter_answered_calls([event for event in self.task.events if event.agent == agent]):
                number, span_id = call.event.number, self.id_of(agent, call.key)
                if number > self.after:
                    operation = "plan" if call.event.detail == "plan" else "invoke_agent"
                    chat = self.build_call_span(agent, call, span_id)
                    asked = "gen_ai.provider.name"
                    attributes = {**self.agent_attributes(agent, operation), asked: chat.attributes[asked]}
                    when = (call.began, call.event.at)
                    name = operation if agent == operation else f"{operation} {agent}"
                    yield self.span(name, number, span_id, when, attributes=attributes)
                    yield chat

    def build_call_span(self, agent: str, call: AnsweredCall, parent: str) -> TraceSpan:
        """Build the span of an answered model call, with its cost."""
        event, run = call.event, self.task.runs.get(agent)
        charges = run.charges if run is not None else ()
        charge = next((one for one in charges if one.key == call.key), None)
        model = charge.model if charge is not None else self.task.model
        operation = "retrieval" if event.detail == "search" else "chat"
        attributes: dict[str, AttributeValue] = {
            **self.agent_attributes(agent, operation),
            "gen_ai.provider.name": self.provider(model),
            "gen_ai.request.model": parse_model_name(model).model,
            "gen_ai.request.stream": True,
            "waystation.call.key": call.key,
            "waystation.call.attempts": call.attempts,
        }
        if operation == "retrieval":
            attributes["gen_ai.data_source.id"] = "web"
        if charge is not None:
            attributes |= build_usage_attributes(charge, model) | build_budget_attributes(charges, charge)
        message = (
            run.transcript.find_message_index(event.reference) if run is not None and event.kind == "replied" else None
        )
        said: dict[str, JsonValue] = {}
        if run is not None and message is not None:
            said = build_conversation_attributes(
                run.transcript.messages[: message + 1], charge.stop if charge is not None else ""
            )
            if any(isinstance(one, Compaction) and (one.after or 0) <= message for one in run.transcript.records):
                attributes["gen_ai.conversation.compacted"] = True
        more = {"parent": parent, "client": True, "attributes": attributes, "content": said}
        name = f"{operation} {'web' if operation == 'retrieval' else parse_model_name(model).model}"
        return self.span(name, event.number, self.id_of(agent, "call", call.key), (call.began, event.at), **more)

    def build_leg_spans(self) -> Iterator[TraceSpan]:
        """Yield the spans of legs, and of what was done in and between them."""
        for agent, legs in self.legs.items():
            calls = {
                call.event.number: call
                for call in iter_answered_calls([one for one in self.task.events if one.agent == agent])
            }
            parent = self.id_of()
            for leg in legs:
                own = self.id_of(agent, "leg", leg.ordinal)
                for events, under in ((leg.before, parent), (leg.at_work, own)):
                    for place, event in enumerate(events):
                        if event.number > self.after:
                            yield from self.build_event_spans(event, events[:place], under, calls)
                if leg.at_work:
                    parent = own
                    if leg.closed is not None and leg.closed.number > self.after:
                        yield self.build_leg_span(leg, own)

    def build_event_spans(
        self, event: TaskEvent, earlier: Sequence[TaskEvent], parent: str, calls: Mapping[int, AnsweredCall]
    ) -> Iterator[TraceSpan]:
        """Yield the spans that one event of an agent finished."""
        since = next((one.at for one in reversed(earlier) if one.kind in {"replied", "taken"}), event.at)
        if event.kind in {"replied", "charged"}:
            yield self.build_call_span(event.agent, calls[event.number], parent)
        elif event.kind == "given":
            yield from self.build_tool_spans(event, since, parent)
        elif event.kind == "compacted":
            attributes = {**self.agent_attributes(event.agent, "compact"), "waystation.compaction.type": event.detail}
            span_id = self.id_of(event.agent, "record", event.reference)
            more = {"parent": parent, "attributes": attributes}
            yield self.span(f"compact {event.agent}", event.number, span_id, (since, event.at), **more)

    def build_tool_spans(self, event: TaskEvent, since: datetime, parent: str) -> Iterator[TraceSpan]:
        """Yield the spans of the calls that a message answers.

        All last from the reply, or the takeover, to the message.
        """
        run, when = self.task.runs.get(event.agent), (since, event.at)
        message = run.transcript.find_message_index(event.reference) if run is not None else None
        if run is None or message is None:
            return
        calls = {call.id: call for one in run.transcript.messages[:message] for call in one.tool_uses}
        for result in run.transcript.messages[message].tool_results:
            if (call := calls.get(result.tool_use_id)) is None:
                continue
            name = call.name if call.name in self.known_tools else OTHER_TOOL
            span_id = self.id_of(event.agent, "tool", call.id)
            attributes = {
                **self.agent_attributes(event.agent, "execute_tool"),
                "gen_ai.tool.name": name,
                "gen_ai.tool.call.id": self.id_of(event.agent, "call_id", call.id),
                "gen_ai.tool.type": "function",
            }
            error = "tool_error" if result.is_error else ""
            more = {
                "parent": parent,
                "attributes": attributes,
                "error": error,
                "content": build_tool_call_attributes(call, result),
            }
            yield self.span(f"execute_tool {name}", event.number, span_id, when, **more)
            if (source := RETRIEVALS.get(name)) is not None:
                looked = {**self.agent_attributes(event.agent, "retrieval"), "gen_ai.data_source.id": source}
                below = self.id_of(event.agent, "retrieval", call.id)
                more = {"parent": span_id, "attributes": looked, "error": error}
                yield self.span(f"retrieval {source}", event.number, below, when, **more)

    def build_leg_span(self, leg: LegEvents, span_id: str) -> TraceSpan:
        """Build the span of a leg that is over."""
        closed, run = leg.closed or leg.last_event, self.task.runs.get(leg.agent)
        charges = run.charges if run is not None else ()
        keys = [call.key for call in iter_answered_calls(leg.at_work)]
        attributes: dict[str, AttributeValue] = {
            **self.agent_attributes(leg.agent, "invoke_agent"),
            "gen_ai.provider.name": self.provider(self.task.model),
            "waystation.agent.role": run.role if run is not None else "",
            "waystation.leg": leg.ordinal,
            "waystation.leg.outcome": closed.detail if closed.kind == "left" else ABANDONED,
            "waystation.leg.attempts": sum(event.kind == "taken" for event in leg.at_work) or 1,
            "waystation.leg.calls": len(keys),
        }
        if own := [charge for charge in charges if charge.key in keys]:
            first, last = build_budget_attributes(charges, own[0]), build_budget_attributes(charges, own[-1])
            attributes |= {name: value for name, value in first.items() if name.endswith("before")}
            attributes |= {name: value for name, value in last.items() if name.endswith("after")}
        more = {
            "parent": self.get_parent_span_id(leg),
            "attributes": attributes,
            "events": self.list_leg_events(leg),
            "links": self.links(leg),
        }
        when = (leg.at_work[0].at, leg.last_event.at)
        return self.span(f"invoke_agent {leg.agent}", closed.number, span_id, when, **more)

    def get_parent_span_id(self, leg: LegEvents) -> str:
        """Return the parent of a leg: for a subagent, the leg that started it; otherwise the task."""
        starters = self.legs.get(leg.agent.rpartition(".")[0], ())
        started = [
            one
            for one in starters
            if one.at_work
            and one.closed
            and one.closed.detail == "delegated"
            and one.closed.number < leg.first_event_number
        ]
        return self.id_of(started[-1].agent, "leg", started[-1].ordinal) if started else self.id_of()

    def links(self, leg: LegEvents) -> Iterator[SpanLink]:
        """Yield links to the agent's previous leg, and to the last legs of the subagents that ended since."""
        trace_id = make_trace_id(self.task.task_id)
        if leg.ordinal > 1:
            answered = any(event.kind == "answered" for event in leg.before)
            before, why = self.id_of(leg.agent, "leg", leg.ordinal - 1), "approval" if answered else "leg before"
            yield SpanLink(trace_id=trace_id, span_id=before, reason=why)
        earlier = [
            one.last_event.number for one in self.started_legs if one.agent == leg.agent and one.ordinal < leg.ordinal
        ]
        since = max(earlier, default=0)
        for agent, others in self.legs.items():
            if agent.rpartition(".")[0] == leg.agent:
                ended = [
                    one
                    for one in others
                    if one.at_work and one.closed and since < one.closed.number < leg.first_event_number
                ]
                if ended:
                    last = self.id_of(agent, "leg", ended[-1].ordinal)
                    yield SpanLink(trace_id=trace_id, span_id=last, reason="subagent")

    def list_leg_events(self, leg: LegEvents) -> tuple[SpanEvent, ...]:
        """List people's actions since the agent's previous leg, events of the task, and takeovers by later attempts."""
        earlier = max(
            (one.first_event_number for one in self.started_legs if one.first_event_number < leg.first_event_number),
            default=0,
        )
        of_task = [
            event
            for event in self.task.events
            if earlier < event.number < leg.first_event_number and self.is_task_wide(event)
        ]
        own = [event for event in (*leg.before, *leg.at_work) if event.kind in _NOTED]
        again = [event for event in leg.at_work[1:] if event.kind == "taken"]
        return build_span_events([*of_task, *own, *again])

    def is_task_wide(self, event: TaskEvent) -> bool:
        """Return whether the event is about the task as a whole, or about its plan."""
        return event.kind in _NOTED and event.agent not in self.legs

    def build_end_spans(self) -> Iterator[TraceSpan]:
        """Yield the spans of the task's end, or ends: outcome, duration and cost."""
        events = self.task.events
        for before, event in pairwise(events):
            if event.kind == "ended" and event.number > self.after:
                so_far = [one for one in events if one.number <= event.number]
                attributes = {
                    **self.identity_attributes(),
                    "waystation.task.phase": event.detail,
                    "waystation.task.seconds": (event.at - events[0].at).total_seconds(),
                    "waystation.task.tokens": sum(one.tokens for one in so_far),
                    "waystation.task.cost_micro_usd": sum(one.micro_usd for one in so_far),
                    "waystation.task.legs": sum(leg.first_event_number <= event.number for leg in self.started_legs),
                }
                happened = self.list_unreported_events(event)
                error = "failed" if event.detail == "failed" else ""
                more = {"attributes": attributes, "events": happened, "error": error}
                when = (before.at, event.at)
                yield self.span("task ended", event.number, self.id_of("end", event.number), when, **more)

    def list_unreported_events(self, end: TaskEvent) -> tuple[SpanEvent, ...]:
        """List the events before this end of the task that no leg's span reports."""
        stretches = [one for legs in self.legs.values() for one in legs if one.closed == end and not one.at_work]
        own = [event for stretch in stretches for event in stretch.before if event.kind in _NOTED]
        since = max(
            (leg.first_event_number for leg in self.started_legs if leg.first_event_number < end.number), default=0
        )
        since = max(
            [since, *(one.number for one in self.task.events if one.kind == "ended" and one.number < end.number)]
        )
        of_task = [one for one in self.task.events if since < one.number < end.number and self.is_task_wide(one)]
        return build_span_events([*of_task, *own])
