"""Questions on calls: what they are bound to, and how much of them people are shown."""

from hypothesis import given
from hypothesis import strategies as st

from waystation.agents.action_approvals import (
    QUESTION_CHARACTERS,
    QUESTION_LINES,
    build_action_question,
    compute_call_digest,
)
from waystation.context.transcript import ToolUse

CALL = ToolUse(id="c1", name="fs__write_file", input={"path": "a.md", "text": "one"})


def test_a_decision_is_bound_to_message_call_tool_and_arguments() -> None:
    others = [
        compute_call_digest("m6", CALL),
        compute_call_digest("m4", CALL.replace(id="c2")),
        compute_call_digest("m4", CALL.replace(name="fs__move_file")),
        compute_call_digest("m4", CALL.replace(input={"path": "a.md", "text": "two"})),
    ]
    assert len({compute_call_digest("m4", CALL), *others}) == 5


def test_the_order_of_arguments_says_nothing() -> None:
    turned = CALL.replace(input=dict(reversed(CALL.input.items())))
    assert compute_call_digest("m4", turned) == compute_call_digest("m4", CALL)


def test_a_short_question_is_shown_whole() -> None:
    asked = build_action_question("m4", CALL, "Write a.md?\none")
    assert (asked.call_id, asked.tool, asked.text, asked.hidden_characters) == (
        "c1",
        "fs__write_file",
        "Write a.md?\none",
        0,
    )


@given(st.text())
def test_whatever_is_asked_is_bounded_and_has_no_character_that_nobody_sees(text: str) -> None:
    shown = build_action_question("m4", CALL, text * 50)
    assert len(shown.text) <= QUESTION_CHARACTERS
    assert shown.text.count("\n") < QUESTION_LINES
    assert all(one.isprintable() or one == "\n" for one in shown.text)


def test_what_does_not_fit_is_counted() -> None:
    assert build_action_question("m4", CALL, "x" * 1_500).hidden_characters == 500
    assert build_action_question("m4", CALL, "line\n" * 100).hidden_characters == 500 - len("line\n" * 30) + 1


def test_characters_that_nobody_sees_are_spelled_out() -> None:
    assert build_action_question("m4", CALL, "rm \u202egnp\x1b[2J").text == r"rm \u202egnp\u001b[2J"
