"""The spans of a task: a pure function of what was committed, under ids that never change."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from waystation.context.transcript import (
    Charge,
    Message,
    SummaryRecord,
    Text,
    ToolResult,
    ToolUse,
    Transcript,
    build_user_message,
)
from waystation.kernel.usage import Usage
from waystation.security.untrusted import ToolDefinition
from waystation.store.events import EventKind
from waystation.tasks.events import TaskEvent
from waystation.tasks.spans import TraceSpan, make_span_id
from waystation.tasks.traces import (
    ABANDONED,
    OTHER_TOOL,
    RunTraceData,
    TaskTraceData,
    TraceCursor,
    build_spans,
    find_touched_agents,
)

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
TASK = "task-0123456789abcdef"
SECRET = "Ada Lovelace keeps the northern light"
Told = tuple[EventKind, str, str, str]
"""Kind, agent, reference, detail."""


def event(number: int, told: Told, at: datetime) -> TaskEvent:
    kind, agent, reference, detail = told
    spent = {"tokens": 65, "micro_usd": 7} if kind in {"replied", "charged"} else {}
    fields = {"kind": kind, "agent": agent, "reference": reference, "detail": detail, **spent}
    return TaskEvent.model_validate({**fields, "number": number, "task_id": TASK, "at": at})


def turn(agent: str, number: int, tool: str = "search_documents") -> list[Told]:
    """A turn with one call, as it is told."""
    return [
        ("called", agent, f"turn-{number}", ""),
        ("replied", agent, f"reply-{number}", "turn"),
        ("given", agent, f"results-{number}", ""),
    ]


def charge(key: str) -> Charge:
    kind = key.partition("-")[0]
    usage = Usage(input=10, cache_write=20, cache_read=30, output=5)
    fields = {"key": key, "kind": kind, "model": "claude-sonnet-5-5", "usage": usage, "cost_micro_usd": 7, "at": NOON}
    return Charge.model_validate({**fields, "stop": "tool_use"})


def run_of(agent: str, told: Sequence[Told], tool: str = "search_documents", *, error: bool = False) -> RunTraceData:
    """The transcript and the charges behind these events."""
    said: list[Message] = []
    for kind, whose, reference, _ in told:
        if whose != agent:
            continue
        if kind == "replied":
            use = ToolUse(id=f"call-{reference.rpartition('-')[2]}", name=tool, input={"query": SECRET})
            said.append(Message(id=reference, role="assistant", blocks=(Text(text=SECRET), use)))
        elif kind == "given" and reference.startswith("results"):
            result = ToolResult(tool_use_id=f"call-{reference.rpartition('-')[2]}", content=SECRET, is_error=error)
            said.append(Message(id=reference, role="user", blocks=(result,)))
        elif kind == "given":
            said.append(build_user_message(reference, SECRET))
    keys = dict.fromkeys(one[2] for one in told if one[0] == "called" and one[1] == agent)
    transcript = Transcript(run_id=f"{TASK}/{agent}", messages=tuple(said))
    return RunTraceData(role="research", transcript=transcript, charges=tuple(map(charge, keys)))


def task_of(told: Sequence[Told], apart: Sequence[timedelta] = ()) -> TaskTraceData:
    at, events = NOON, list[TaskEvent]()
    for place, one in enumerate(told):
        at += apart[place] if place < len(apart) else timedelta(seconds=1)
        events.append(event(place + 1, one, at))
    agents = dict.fromkeys(one[1] for one in told if one[1])
    return TaskTraceData(
        task_id=TASK,
        tenant="tenant",
        session="session",
        model="claude-sonnet-5-5",
        events=tuple(events),
        runs={agent: run_of(agent, told) for agent in agents},
    )


BEGUN: list[Told] = [("submitted", "", "", ""), ("admitted", "", "", "")]
A = "research-1"
PLANNED: list[Told] = [
    ("taken", "plan", "1", ""),
    ("given", "plan", "question", ""),
    ("called", "plan", "plan-1", ""),
    ("replied", "plan", "answer", "plan"),
    ("planned", "", "1", ""),
]
LEG: list[Told] = [("taken", A, "1", ""), ("given", A, "contract", ""), *turn(A, 1), ("left", A, "1", "context_full")]
PAUSED: list[Told] = [
    ("asked", A, f"{A}-1", "pending"),
    ("answered", A, f"{A}-1", "approved"),
]
AGAIN: list[Told] = [("taken", A, "2", ""), *turn(A, 2), ("delivered", A, "", ""), ("left", A, "2", "finished")]
WHOLE: list[Told] = [*BEGUN, *PLANNED, *LEG, *PAUSED, *AGAIN, ("ended", "", "", "done")]


def spans(task: TaskTraceData, after: int = 0) -> tuple[TraceSpan, ...]:
    return build_spans(task, after, {})


def named(made: Sequence[TraceSpan], name: str) -> TraceSpan:
    (found,) = [span for span in made if span.name == name]
    return found


def test_a_task_is_one_trace_of_the_operations_of_the_conventions() -> None:
    made = spans(task_of(WHOLE))
    assert [span.name for span in made] == [
        "invoke_workflow task",
        "plan",
        "chat claude-sonnet-5-5",
        "chat claude-sonnet-5-5",
        "execute_tool search_documents",
        "retrieval documents",
        "invoke_agent research-1",
        "chat claude-sonnet-5-5",
        "execute_tool search_documents",
        "retrieval documents",
        "invoke_agent research-1",
        "task ended",
    ]
    assert len({span.trace_id for span in made}) == 1
    ended = named(made, "task ended").attributes
    assert (ended["waystation.task.phase"], ended["waystation.task.tokens"]) == ("done", 3 * 65)


def test_a_plan_says_whom_it_was_asked_of_as_its_call_does() -> None:
    made = build_spans(task_of(WHOLE), 0, {"": "aws.bedrock"})
    plan = named(made, "plan").attributes
    assert plan["gen_ai.provider.name"] == "aws.bedrock"
    asked = [span for span in made if "gen_ai.operation.name" in span.attributes and "tool" not in span.name]
    lacking = {span.name for span in asked if "gen_ai.provider.name" not in span.attributes}
    assert lacking == {"retrieval documents"}, "which no provider does"


def test_a_call_says_what_it_used_as_the_conventions_count() -> None:
    first, second = [span for span in spans(task_of(WHOLE)) if span.name.startswith("chat")][1:]
    used = second.attributes
    assert used["gen_ai.usage.input_tokens"] == 60, "with what the cache gave and took"
    assert used["gen_ai.usage.cache_read.input_tokens"] == 30
    assert used["gen_ai.usage.cache_write.input_tokens"] == 20
    assert used["gen_ai.usage.output_tokens"] == 5
    assert used["gen_ai.response.finish_reasons"] == ("tool_use",)
    assert (used["waystation.budget.tokens.before"], used["waystation.budget.tokens.after"]) == (35, 70)
    assert first.client
    assert first.parent == make_span_id(TASK, A, "leg", 1)
    assert second.parent == make_span_id(TASK, A, "leg", 2)


def test_a_pause_lies_between_two_spans_and_what_people_did_is_in_the_later_one() -> None:
    weeks = [timedelta(seconds=1)] * len(WHOLE)
    weeks[WHOLE.index(PAUSED[1])] = timedelta(weeks=3)
    made = spans(task_of(WHOLE, weeks))
    assert max(span.end - span.start for span in made) < timedelta(minutes=1)
    before, after = [span for span in made if span.name == "invoke_agent research-1"]
    assert [(link.span_id, link.reason) for link in after.links] == [(before.span_id, "approval")]
    assert [one.name for one in after.events] == ["asked", "answered", "delivered"]
    assert after.events[1].attributes["waystation.event.detail"] == "approved"
    assert not before.events


def test_a_leg_that_was_taken_over_says_so_and_its_unanswered_call_is_counted() -> None:
    killed: list[Told] = [("taken", A, "1", ""), *turn(A, 1), ("called", A, "turn-2", "")]
    told: list[Told] = [*BEGUN, *killed, ("taken", A, "2", ""), *turn(A, 2), ("left", A, "1", "finished")]
    made = spans(task_of(told))
    leg = named(made, "invoke_agent research-1")
    assert [one.name for one in leg.events] == ["leg taken over"]
    assert leg.attributes["waystation.leg.attempts"] == 2
    assert [span.attributes["waystation.call.attempts"] for span in made if span.client] == [1, 2]


def test_a_context_that_was_made_smaller_lies_between_two_legs() -> None:
    compacted: list[Told] = [
        ("taken", A, "2", ""),
        ("called", A, "summary-1", ""),
        ("compacted", A, "record-1", "summarised"),
        ("charged", A, "summary-1", "summary"),
        ("taken", A, "3", ""),
        *turn(A, 2),
        ("left", A, "2", "finished"),
    ]
    told = [*BEGUN, *LEG, *compacted]
    run = run_of(A, told)
    record = SummaryRecord(
        id="record-1", strategy="window", covered=("contract",), summary=build_user_message("s", "S"), after=3
    )
    run = run.replace(transcript=run.transcript.replace(records=(record,)))
    made = spans(task_of(told).replace(runs={A: run}))
    between = make_span_id(TASK, A, "leg", 1)
    assert named(made, "compact research-1").parent == between
    turns = [span for span in made if span.name.startswith("chat")]
    assert [span.parent for span in turns] == [between, between, make_span_id(TASK, A, "leg", 2)]
    assert ["gen_ai.conversation.compacted" in span.attributes for span in turns] == [False, False, True]


def test_subagents_lie_below_the_leg_that_started_them_and_the_next_links_to_them() -> None:
    b = "research-1.1"
    leg: list[Told] = [("taken", A, "1", ""), *turn(A, 1)[:2], ("left", A, "1", "delegated")]
    sub: list[Told] = [("taken", b, "1", ""), *turn(b, 1), ("left", b, "1", "finished")]
    back: list[Told] = [("taken", A, "2", ""), turn(A, 1)[2], *turn(A, 2), ("left", A, "2", "finished")]
    weeks = [timedelta(seconds=1)] * 8 + [timedelta(weeks=2)] * 5
    made = spans(task_of([*BEGUN, *leg, *sub, *back], weeks))
    first, second = [span for span in made if span.name == "invoke_agent research-1"]
    below = named(made, "invoke_agent research-1.1")
    assert below.parent == first.span_id
    assert {link.span_id: link.reason for link in second.links} == {
        first.span_id: "leg before",
        below.span_id: "subagent",
    }
    answered = next(span for span in made if span.name.startswith("execute_tool") and span.parent == second.span_id)
    assert answered.start >= second.start, "what was asked for before a pause is no span over it"


@pytest.mark.parametrize(("name", "shown"), [("recall", "recall"), ("mail__send", "mail__send"), (SECRET, OTHER_TOOL)])
def test_a_tools_name_is_told_only_where_there_is_such_a_tool(name: str, shown: str) -> None:
    told = [*BEGUN, *LEG]
    definitions = (ToolDefinition(server="mail", tool="send", parts={}),)
    made = spans(task_of(told).replace(runs={A: run_of(A, told, name, error=True)}, definitions=definitions))
    call = named(made, f"execute_tool {shown}")
    assert call.error == "tool_error"


def test_a_leg_that_was_at_work_when_its_task_ended_is_closed_with_it() -> None:
    told: list[Told] = [
        *BEGUN,
        ("taken", A, "1", ""),
        *turn(A, 1),
        ("asked", A, "1", "pending"),
        ("ended", "", "", "cancelled"),
    ]
    made = spans(task_of(told))
    assert named(made, "invoke_agent research-1").attributes["waystation.leg.outcome"] == ABANDONED
    assert {span.parent for span in made} <= {"", *(span.span_id for span in made)}


def test_what_nobody_went_on_from_is_told_with_the_end() -> None:
    told: list[Told] = [*BEGUN, *LEG, *PAUSED, ("messaged", "", "1", ""), ("ended", "", "", "cancelled")]
    assert [one.name for one in named(spans(task_of(told)), "task ended").events] == ["asked", "answered", "messaged"]


def test_what_was_said_is_in_no_attribute_and_apart_in_the_form_of_the_conventions() -> None:
    made = spans(task_of(WHOLE))
    bare = [span.replace(content={}).model_dump_json() for span in made]
    assert not [text for text in bare if SECRET in text]
    tool, call = [span for span in made if span.content][2:4]
    assert call.content == {
        "gen_ai.input.messages": [
            {"role": "user", "parts": [{"type": "tool_call_response", "response": SECRET}]},
        ],
        "gen_ai.output.messages": [
            {
                "role": "assistant",
                "parts": [
                    {"type": "text", "content": SECRET},
                    {"type": "tool_call", "name": "search_documents", "arguments": {"query": SECRET}},
                ],
                "finish_reason": "tool_use",
            }
        ],
    }
    assert tool.content == {"gen_ai.tool.call.arguments": {"query": SECRET}, "gen_ai.tool.call.result": SECRET}


def test_of_a_task_from_before_there_were_spans_all_goes_out_with_its_next_event() -> None:
    events = task_of(WHOLE).events
    place = TraceCursor(tenant="tenant", since=5, sent=5, upto=len(events), tasks=(TASK,))
    assert place.get_last_sent_number(events) == 0
    assert place.replace(sent=8).get_last_sent_number(events) == 8


def piece(kind: str, agent: str, number: int) -> list[Told]:
    """Something that may happen to a task."""
    work: list[Told] = [("taken", agent, str(number), ""), *turn(agent, number)]
    pieces: dict[str, list[Told]] = {
        "leg": [*work, ("left", agent, str(number), "context_full")],
        "delegation": [*work, ("left", agent, str(number), "delegated")],
        "killed at once": work[:1],
        "killed in a call": work[:2],
        "killed before the results": work[:3],
        "killed after a turn": work,
        "pause": [("asked", agent, str(number), "pending"), ("answered", agent, str(number), "approved")],
        "compaction": [("taken", agent, "9", ""), ("compacted", agent, f"record-{number}", "masked")],
        "words": [("messaged", "", str(number), "")],
        "end": [("ended", "", "", "done"), ("reopened", "", "", "working")],
    }
    return pieces[kind]


PIECES = (
    *("leg", "delegation", "pause", "compaction", "words", "end"),
    *("killed at once", "killed in a call", "killed before the results", "killed after a turn"),
)


@st.composite
def histories(draw: st.DrawFn) -> list[Told]:
    """What may happen to a task, piece after piece."""
    told = [*BEGUN, *PLANNED]
    for number in range(1, draw(st.integers(1, 9))):
        agent = draw(st.sampled_from([A, "research-2", "research-1.1"]))
        told += piece(draw(st.sampled_from(PIECES)), agent, number)
    return told


SUBAGENT_TAKEN_UP_LATER: list[Told] = [
    *BEGUN,
    *PLANNED,
    *piece("killed in a call", "research-1.1", 1),
    *piece("leg", A, 2),
    *piece("leg", "research-1.1", 3),
]


@given(told=histories(), cut=st.integers(0, 60))
@example(told=SUBAGENT_TAKEN_UP_LATER, cut=len(SUBAGENT_TAKEN_UP_LATER) - 5)
def test_what_was_finished_once_stays_as_it_was_however_the_task_goes_on(told: list[Told], cut: int) -> None:
    whole, upto = task_of(told), min(cut, len(told))
    before = spans(task_of(told[:upto]))
    assert before == tuple(span for span in spans(whole) if span.number <= upto)
    fresh = spans(whole.replace(runs={a: whole.runs[a] for a in find_touched_agents(whole.events, upto)}), upto)
    assert (*before, *fresh) == spans(whole), "those of agents that were touched are enough"


@given(told=histories())
def test_every_committed_turn_is_one_span_and_every_parent_is_there_at_the_end(told: list[Told]) -> None:
    made = spans(task_of([*told, ("ended", "", "", "done")]))
    replies = sum(one[0] == "replied" for one in told)
    assert sum(span.client for span in made) == replies
    ids = [span.span_id for span in made]
    assert len(ids) == len(set(ids))
    assert {span.parent for span in made} - {""} <= set(ids)
    assert {link.span_id for span in made for link in span.links} <= set(ids)
    assert all(span.start <= span.end for span in made)
    assert SECRET not in "".join(span.replace(content={}).model_dump_json() for span in made)
