"""What an agent is told in a status message: within its share, the most important first, and seldom."""

from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from waystation.agents.delegation import TeammateState, list_teammates
from waystation.agents.prompt_sections import (
    MAX_REASON_CHARACTERS,
    MAX_SHOWN_FAILURES,
    PromptSection,
    StatusMessage,
    ToolFailure,
    compute_section_tokens,
    find_recent_failures,
    round_down_to_step,
    round_limit_down,
    round_up_to_step,
    with_status,
)
from waystation.context.tokens import estimate_text
from waystation.context.transcript import Message, ToolResult, ToolUse, build_user_message
from waystation.kernel.amount import Amount, Limit

PLAN = (
    TeammateState(id="research-1", state="delegating"),
    TeammateState(id="research-1.1", state="working"),
    TeammateState(id="research-1.2", state="done"),
    TeammateState(id="writing", state="waiting"),
)


def reminder(step_id: str = "research-1.1") -> StatusMessage:
    return StatusMessage(
        step_id=step_id, remaining=Limit(tokens=9_000), final=False, teammates=list_teammates(PLAN, step_id)
    )


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


def test_a_reminder_says_budget_plan_siblings_and_failures() -> None:
    told = reminder().replace(failures=(ToolFailure(tool="read_document", reason="There is no such document."),))
    assert told.text(20_000) == snapshot("""\
<status>budget left 9,000 tokens (when it is spent, the system asks a person for more)
<plan>research-1 delegating, writing waiting</plan>
<siblings>research-1.2 done</siblings>
<failed>read_document: There is no such document.</failed></status>\
""")


def test_an_agent_of_the_plan_sees_itself_in_it_and_no_subagents_of_others() -> None:
    told = reminder("writing").replace(final=True, remaining=Limit(tokens=9_000, micro_usd=50_000))
    assert told.text(20_000) == snapshot("""\
<status>budget left 9,000 tokens and $0.05
<plan>research-1 delegating, writing (you)</plan></status>\
""")


@given(st.integers(2_000, 400_000), st.lists(st.text(max_size=400), max_size=20))
def test_a_reminder_keeps_to_its_share_of_any_window(window: int, failures: list[str]) -> None:
    told = reminder().replace(failures=find_recent_failures(results(*failures)))
    assert estimate_text(told.text(window)) <= max(
        compute_section_tokens(PromptSection.RUNTIME, window), estimate_text(told.shortest_text)
    )
    assert told.text(window).startswith("<status>budget left 9,000 tokens")


def test_in_a_small_window_the_budget_is_left() -> None:
    many = reminder().replace(
        teammates=tuple(TeammateState(id=f"research-{number}", state="waiting") for number in range(90))
    )
    assert (
        many.text(2_000)
        == "<status>budget left 9,000 tokens (when it is spent, the system asks a person for more)</status>"
    )


def test_the_widest_reminder_is_no_shorter_than_that_of_any_budget() -> None:
    for left in (Limit(tokens=0), Limit(tokens=1_000_000_000), Limit(micro_usd=123_456), Limit(tokens=1, micro_usd=1)):
        told = reminder().replace(remaining=left)
        assert len(told.with_widest_amounts.shortest_text) >= len(told.shortest_text)
        assert (
            told.with_widest_amounts.shortest_text
            == reminder().replace(remaining=told.with_widest_amounts.remaining).shortest_text
        )


def test_failures_are_recent_few_short_and_open_no_tags() -> None:
    failed = find_recent_failures(results("old", "a", "b", "b", "</failed> " + "x" * 500))
    assert [failure.reason for failure in failed[1:]] == ["b", "a"]
    assert failed[0].reason.startswith("(/failed) xxx")
    assert len(failed[0].reason) == MAX_REASON_CHARACTERS
    assert len(failed) == MAX_SHOWN_FAILURES
    assert find_recent_failures(results("a", failed=False)) == ()
    assert find_recent_failures([*results("long ago"), *results(*"abcdefghijklm", failed=False)]) == ()


@given(st.integers(0, 10**13), st.integers(0, 10**13))
def test_what_is_named_is_no_more_than_what_is_left_nor_much_less_and_never_rises_with_less(a: int, b: int) -> None:
    less, more = sorted((a, b))
    assert round_down_to_step(less) <= round_down_to_step(more) <= more
    assert round_down_to_step(more) >= 0.75 * more
    assert round_down_to_step(round_down_to_step(more)) == round_down_to_step(more)


@given(st.integers(0, 10**13), st.integers(0, 10**13))
def test_the_amount_to_submit_at_is_no_less_than_a_call_needs_nor_much_more_and_never_falls_as_prompts_grow(
    a: int, b: int
) -> None:
    less, more = sorted((a, b))
    assert more <= round_up_to_step(more)
    assert round_up_to_step(less) <= round_up_to_step(more) <= max(more + 1, 1.35 * more)
    assert round_up_to_step(round_up_to_step(more)) == round_up_to_step(more)


@given(
    st.integers(1_000, 2_000_000),
    st.lists(st.tuples(st.integers(0, 90_000), st.sampled_from([0, 0, 0, 50_000])), max_size=30),
)
def test_as_spending_grows_what_a_status_says_is_left_never_grows_unless_a_grant_came(
    budget: int, turns: list[tuple[int, int]]
) -> None:
    limit, spent = Limit(tokens=budget, micro_usd=3 * budget), Amount()
    said = round_limit_down(limit)
    for cost, grant in turns:
        limit = limit.increase_by(Amount(tokens=grant, micro_usd=3 * grant))
        spent += Amount(tokens=cost, micro_usd=3 * cost)
        now = round_limit_down(limit.remaining_after(spent))
        assert grant or (said.can_cover(now.amount) and now.amount.tokens <= limit.remaining_after(spent).amount.tokens)
        said = now


def test_an_agent_for_whom_no_more_is_asked_reads_at_how_much_it_must_submit() -> None:
    told = reminder().replace(final=True, submit_below=Amount(tokens=5_000), teammates=())
    assert told.text(20_000) == (
        "<status>budget left 9,000 tokens; submit before less than 5,000 tokens are left</status>"
    )
    assert told.replace(final=False).text(20_000) == (
        "<status>budget left 9,000 tokens (when it is spent, the system asks a person for more)</status>"
    )


def test_a_budget_that_is_spent_bit_by_bit_is_named_anew_a_dozen_times_at_most_until_a_tenth_is_left() -> None:
    named = {round_limit_down(Limit(tokens=tokens)).tokens for tokens in range(10_000, 100_000, 7)}
    assert len(named) <= 12


def test_a_status_is_written_anew_for_another_budget_or_plan_but_not_for_a_failure() -> None:
    said = (build_user_message("m1", "Go."),)
    first = with_status(said, "s1", reminder().text(20_000))
    assert [message.id for message in first] == ["m1", "s1"]
    failed = reminder().replace(failures=(ToolFailure(tool="read_document", reason="There is no such document."),))
    assert with_status(first, "s2", failed.text(20_000)) == first
    assert with_status(with_status(said, "s1", failed.text(20_000)), "s2", reminder().text(20_000))[2:] == ()
    for changed in (
        reminder().replace(remaining=Limit(tokens=8_000)),
        reminder().replace(teammates=()),
        reminder().replace(final=True),
    ):
        assert len(with_status(first, "s2", changed.text(20_000))) == 3
