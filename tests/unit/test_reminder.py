"""What an agent is told at the end of a request: within its share, the most important first."""

from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from waystation.domain.amount import Limit
from waystation.domain.compaction.tokens import estimate_text
from waystation.domain.delegation import Teammate, team_of
from waystation.domain.layers import SHOWN_FAILURES, WHY_CHARACTERS, Failure, Layer, Reminder, recent_failures, share_of
from waystation.domain.transcript import Message, ToolResult, ToolUse

PLAN = (
    Teammate(id="research-1", state="delegating"),
    Teammate(id="research-1.1", state="working"),
    Teammate(id="research-1.2", state="done"),
    Teammate(id="writing", state="waiting"),
)


def reminder(step_id: str = "research-1.1", **changes: object) -> Reminder:
    told = Reminder(step_id=step_id, turn=3, left=Limit(tokens=9_000), final=False, team=team_of(PLAN, step_id))
    return told.model_copy(update=changes)


def results(*contents: str, failed: bool = True) -> list[Message]:
    calls = [ToolUse(id=f"c{number}", name="read_document", input={}) for number in range(len(contents))]
    answers = [
        ToolResult(tool_use_id=call.id, content=content, is_error=failed)
        for call, content in zip(calls, contents, strict=True)
    ]
    return [
        Message(id="m1", role="assistant", blocks=tuple(calls)),
        Message(id="m2", role="user", blocks=tuple(answers)),
    ]


def test_a_reminder_says_turn_budget_plan_siblings_and_failures() -> None:
    told = reminder(failures=(Failure(tool="read_document", why="There is no such document."),))
    assert told.text(20_000) == snapshot("""\
<status>turn 3; budget left 9,000 tokens (more is asked for when it is spent)
<plan>research-1 delegating, writing waiting</plan>
<siblings>research-1.2 done</siblings>
<failed>read_document: There is no such document.</failed></status>\
""")


def test_an_agent_of_the_plan_sees_itself_in_it_and_no_subagents_of_others() -> None:
    assert reminder("writing", final=True, left=Limit(tokens=9_000, micro_usd=50_000)).text(20_000) == snapshot("""\
<status>turn 3; budget left 9,000 tokens and $0.05
<plan>research-1 delegating, writing (you)</plan></status>\
""")


@given(st.integers(2_000, 400_000), st.lists(st.text(max_size=400), max_size=20))
def test_a_reminder_keeps_to_its_share_of_any_window(window: int, failures: list[str]) -> None:
    told = reminder(failures=recent_failures(results(*failures)))
    assert estimate_text(told.text(window)) <= max(share_of(Layer.RUNTIME, window), estimate_text(told.least))
    assert told.text(window).startswith("<status>turn 3; budget left 9,000 tokens")


def test_in_a_small_window_turn_and_budget_are_left() -> None:
    many = reminder(team=tuple(Teammate(id=f"research-{number}", state="waiting") for number in range(90)))
    assert many.text(2_000) == "<status>turn 3; budget left 9,000 tokens (more is asked for when it is spent)</status>"


def test_the_widest_reminder_is_no_shorter_than_that_of_any_budget() -> None:
    for left in (Limit(tokens=0), Limit(tokens=1_000_000_000), Limit(micro_usd=123_456), Limit(tokens=1, micro_usd=1)):
        told = reminder(left=left)
        assert len(told.widest.least) >= len(told.least)
        assert told.widest.least == reminder(left=told.widest.left).least


def test_failures_are_recent_few_short_and_open_no_tags() -> None:
    failed = recent_failures(results("old", "a", "b", "b", "</failed> " + "x" * 500))
    assert [failure.why for failure in failed[1:]] == ["b", "a"]
    assert failed[0].why.startswith("(/failed) xxx")
    assert len(failed[0].why) == WHY_CHARACTERS
    assert len(failed) == SHOWN_FAILURES
    assert recent_failures(results("a", failed=False)) == ()
    assert recent_failures([*results("long ago"), *results(*"abcdefghijklm", failed=False)]) == ()
