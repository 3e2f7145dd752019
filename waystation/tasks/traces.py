"""Traces: what the store keeps of a task as spans.

A pure function of what was committed: a crash loses no span of a committed turn, and what is sent a second time has the
id that it had.

A task is one trace, however long it lives, and no span lasts while people think: its first span ends when it is
admitted, each leg is a span that ends with the leg, and what happened between two legs are events of the later one,
which links to the earlier.
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
"""Tools that look something up, and where. Searches of the web are charges, and are spans by these."""
OTHER_TOOL = "other"
"""In the place of a tool's name that no tool of the task has: that is a word of the model's."""
ABANDONED = "abandoned"
"""How a leg ended that was at work when its task ended."""
_OWN_TOOLS = frozenset({"web_search", "fetch_page", *(tool for role in ROLES.values() for tool in role.tools)})
_NOTED = frozenset({"asked", "answered", "told", "updated", "refused", "resolved", "edited", "rewound", "delivered"})
"""Kinds of events that become events of a leg."""


class RunTraceData(Value):
    """What the store keeps of an agent run."""

    role: str
    transcript: Transcript
    charges: tuple[Charge, ...]
    """In the order of their commits."""


class TaskTraceData(Value):
    """What the store keeps of a task that its trace is made of."""

    task_id: str
    tenant: str
    session: str
    model: str
    """Of its agents."""
    events: tuple[TaskEvent, ...]
    """All of the task's, in their order."""
    runs: Mapping[str, RunTraceData]
    """By agent: of those at least that `touched` names."""
    definitions: tuple[ToolDefinition, ...] = ()
    """Of tools of others."""


class TraceCursor(Value):
    """The next events of a tenant whose spans are to go out."""

    tenant: str
    since: int
    """The newest number when spans were first sent: of tasks that began before, all goes out with their next event."""
    sent: int
    """What has a number up to here has gone out, of tasks that are traced."""
    upto: int
    tasks: tuple[str, ...]
    """Those of these events."""

    def get_sent_up_to(self, events: Sequence[TaskEvent]) -> int:
        """Up to which number the spans of the task with these events have gone out: 0 where none has."""
        return self.sent if any(self.since < event.number <= self.sent for event in events) else 0


def find_touched_agents(events: Sequence[TaskEvent], after: int) -> frozenset[str]:
    """Agents of whom spans can have been finished since that number; all where the task ended since."""
    fresh = [event for event in events if event.number > after]
    chosen = events if any(event.kind == "ended" for event in fresh) else fresh
    return frozenset(event.agent for event in chosen if event.agent)


def build_spans(task: TaskTraceData, after: int, providers: Mapping[str, str]) -> tuple[TraceSpan, ...]:
    """The task's spans that were finished by events of higher numbers, in the order in which they were.

    `providers`: by name of an endpoint, and under the empty name where models without one are, how the conventions call
    who is spoken to there.
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
        """Names that the task's agents have tools by."""
        foreign = [UntrustedToolName(one.server, one.tool) for one in self.task.definitions]
        return _OWN_TOOLS.union(assign_model_tool_names(foreign, _OWN_TOOLS).values())

    @cached_property
    def legs(self) -> Mapping[str, tuple[LegEvents, ...]]:
        """By agent, its stretches."""
        agents = dict.fromkeys(event.agent for event in self.task.events if event.agent)
        return {
            agent: tuple(iter_legs(agent, self.task.events))
            for agent in agents
            if not RESERVED_STEP_ID_PATTERN.fullmatch(agent)
        }

    @cached_property
    def started_legs(self) -> Sequence[LegEvents]:
        """Every leg, in the order in which they began."""
        every = (leg for legs in self.legs.values() for leg in legs if leg.at_work)
        return sorted(every, key=lambda leg: leg.first_event_number)

    def id_of(self, *parts: str | int) -> str:
        """Of a span."""
        return make_span_id(self.task.task_id, *parts)

    def span(self, name: str, number: int, span_id: str, when: tuple[datetime, datetime], **more: object) -> TraceSpan:
        """A span under the task's first, if nothing else is said. A clock that was put back makes none negative."""
        begun, ended = when
        fields = {"trace_id": make_trace_id(self.task.task_id), "parent": self.id_of(), **more}
        times = {"start": min(begun, ended), "end": ended}
        return TraceSpan.model_validate({"name": name, "number": number, "span_id": span_id, **times, **fields})

    def build_task_span(self) -> Iterator[TraceSpan]:
        """The task itself, from when it was handed in until something became of it."""
        opened, *rest = self.task.events or (None,)
        if opened is None or (taken_up := next((event for event in rest if event.kind != "submitted"), None)) is None:
            return
        forked = opened.reference if opened.detail == "fork" else ""
        links = [SpanLink(trace_id=make_trace_id(forked), span_id=make_span_id(forked), why="fork")] if forked else []
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
        """Whose every span is: hashes, no names."""
        task = self.task
        return {
            "waystation.task.id": task.task_id,
            "waystation.session.id": task.session,
            "waystation.tenant.id": task.tenant,
        }

    def provider(self, model: str) -> str:
        """Who is asked, as the conventions call them."""
        if parse_model_name(model).model == OFFLINE_MODEL:
            return "waystation"
        return self.providers.get(parse_model_name(model).endpoint, "anthropic")

    def agent_attributes(self, agent: str, operation: str) -> dict[str, AttributeValue]:
        """Of a span of an agent's."""
        return {
            "gen_ai.operation.name": operation,
            "gen_ai.agent.name": agent,
            "gen_ai.conversation.id": f"{self.task.task_id}/{agent}",
            **self.identity_attributes(),
        }

    def build_oversight_spans(self) -> Iterator[TraceSpan]:
        """Planning, revisions and reviews: one span a question that a model answered, and its call below."""
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
        """A model call that was answered, with what it cost."""
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
        more = {"parent": parent, "client": True, "attributes": attributes, "said": said}
        name = f"{operation} {'web' if operation == 'retrieval' else parse_model_name(model).model}"
        return self.span(name, event.number, self.id_of(agent, "call", call.key), (call.began, event.at), **more)

    def build_leg_spans(self) -> Iterator[TraceSpan]:
        """The legs, and what was done in them and between them."""
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
        """What one event of an agent finished."""
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
        """The calls that a message answers. They have one time: from reply, or from when they were taken up, to it."""
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
                "said": build_tool_call_attributes(call, result),
            }
            yield self.span(f"execute_tool {name}", event.number, span_id, when, **more)
            if (source := RETRIEVALS.get(name)) is not None:
                looked = {**self.agent_attributes(event.agent, "retrieval"), "gen_ai.data_source.id": source}
                below = self.id_of(event.agent, "retrieval", call.id)
                more = {"parent": span_id, "attributes": looked, "error": error}
                yield self.span(f"retrieval {source}", event.number, below, when, **more)

    def build_leg_span(self, leg: LegEvents, span_id: str) -> TraceSpan:
        """A leg that is over."""
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
        """Of a subagent's, the leg by which it was started; of any other the task."""
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
        """To the agent's leg before, and to the last legs of the subagents that came back meanwhile."""
        trace_id = make_trace_id(self.task.task_id)
        if leg.ordinal > 1:
            answered = any(event.kind == "answered" for event in leg.before)
            before, why = self.id_of(leg.agent, "leg", leg.ordinal - 1), "approval" if answered else "leg before"
            yield SpanLink(trace_id=trace_id, span_id=before, why=why)
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
                    yield SpanLink(trace_id=trace_id, span_id=last, why="subagent")

    def list_leg_events(self, leg: LegEvents) -> tuple[SpanEvent, ...]:
        """What people did since the agent's leg before, what became of the task, and attempts that were taken over."""
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
        """Whether it is about the task as a whole, or about its plan."""
        return event.kind in _NOTED and event.agent not in self.legs

    def build_end_spans(self) -> Iterator[TraceSpan]:
        """The task's end, or its ends: how it ended, after how long, for how much."""
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
        """What happened before this end of the task, and after what the spans of legs tell."""
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
