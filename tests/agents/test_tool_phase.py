"""In which phase an agent is: its tools follow at compactions alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.agents.tool_visibility import get_tool_phase
from waystation.context.transcript import (
    MaskRecord,
    Message,
    Record,
    RestoreRecord,
    RewindRecord,
    Text,
    ToolResult,
    ToolUse,
    Transcript,
    build_user_message,
)
from waystation.kernel.roles import AgentPhase, AgentRole

ENDING = {"submit_findings"}


def turn(number: int, name: str, *, failed: bool = False) -> tuple[Message, Message]:
    """A reply with one call, and its result."""
    call = ToolUse(id=f"c{number}", name=name, input={})
    result = ToolResult(tool_use_id=call.id, content="x" * 4_000, is_error=failed)
    return (
        Message(id=f"m{2 * number}", role="assistant", blocks=(Text(text="So."), call)),
        Message(id=f"m{2 * number + 1}", role="user", blocks=(result,)),
    )


def log(*names: str, records: tuple[Record, ...] = ()) -> Transcript:
    turns = [message for number, name in enumerate(names, 1) for message in turn(number, name)]
    return Transcript(run_id="r", messages=(build_user_message("m1", "Go."), *turns), records=records)


def masked(after: int, record_id: str = "k1") -> MaskRecord:
    return MaskRecord(id=record_id, after=after, tool_use_ids=("c1",))


def phase(transcript: Transcript, role: AgentRole = "research") -> AgentPhase:
    return get_tool_phase(role, transcript, ENDING)


@pytest.mark.parametrize(
    ("role", "expected"), [("planning", "planning"), ("reviewing", "verifying"), ("writing", "executing")]
)
def test_a_run_begins_in_the_phase_of_its_role(role: AgentRole, expected: AgentPhase) -> None:
    assert phase(Transcript(run_id="r"), role=role) == expected


def test_an_agent_whose_context_was_compacted_reflects_until_that_is_undone() -> None:
    assert phase(log("read", "read")) == "executing"
    assert phase(log("read", "read", records=(masked(5),))) == "reflecting"
    undone = RestoreRecord(id="k2", after=5, record_id="k1")
    assert phase(log("read", "read", records=(masked(5), undone))) == "executing"


def test_a_result_that_came_back_changes_the_tools_only_at_the_next_compaction() -> None:
    assert phase(log("read", "submit_findings", "read")) == "executing"
    assert phase(log("read", "submit_findings", "read", records=(masked(7),))) == "verifying"
    assert phase(log("read", "submit_findings", "read", records=(masked(3),))) == "reflecting"


def test_a_try_that_was_taken_back_is_none() -> None:
    taken_back = RewindRecord(id="k1", after=5, message_id="m3")
    assert phase(log("read", "submit_findings", records=(taken_back,))) == "executing"


@given(st.lists(st.sampled_from(["read", "submit_findings"]), max_size=8), st.sets(st.integers(1, 17), max_size=3))
def test_between_two_compactions_a_phase_never_goes_back(names: list[str], places: set[int]) -> None:
    order = ("executing", "reflecting", "verifying")
    records = tuple(masked(after, f"k{after}") for after in sorted(places) if after <= 2 * len(names) + 1)
    whole = log(*names, records=records)
    seen: list[int] = []
    for length in range(1, len(whole.messages) + 1, 2):
        done = tuple(record for record in records if (record.after or 0) <= length)
        seen.append(order.index(phase(whole.replace(messages=whole.messages[:length], records=done))))
    assert seen == sorted(seen)
