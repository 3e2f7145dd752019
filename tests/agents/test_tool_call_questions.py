"""Questions on calls: what they are bound to, and how much of them people are shown."""

from hypothesis import given
from hypothesis import strategies as st

from waystation.agents.action_approvals import (
    QUESTION_CHARACTERS,
    QUESTION_LINES,
    ActionQuestion,
    build_action_question,
    compute_call_digest,
    restore_action_text,
)
from waystation.context.transcript import ToolUse
from waystation.privacy.policy import RedactionResult, Span, with_placeholders

CALL = ToolUse(id="c1", name="fs__write_file", input={"path": "a.md", "text": "one"})


def ask(text: str) -> ActionQuestion:
    return build_action_question("m4", CALL, RedactionResult(text=text))


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
    asked = ask("Write a.md?\none")
    assert (asked.call_id, asked.tool, asked.text, asked.hidden_characters) == (
        "c1",
        "fs__write_file",
        "Write a.md?\none",
        0,
    )


@given(st.text())
def test_whatever_is_asked_is_bounded_and_has_no_character_that_nobody_sees(text: str) -> None:
    shown = ask(text * 50)
    assert len(shown.text) <= QUESTION_CHARACTERS
    assert shown.text.count("\n") < QUESTION_LINES
    assert all(one.isprintable() or one == "\n" for one in shown.text)


def test_what_does_not_fit_is_counted() -> None:
    assert ask("x" * 1_500).hidden_characters == 500
    assert ask("line\n" * 100).hidden_characters == 500 - len("line\n" * 30) + 1


def test_characters_that_nobody_sees_are_spelled_out() -> None:
    assert ask("rm \u202egnp\x1b[2J").text == r"rm \u202egnp\u001b[2J"


ADA, MAIL, KEY = "<PERSON_5101fccb76df>", "<EMAIL_0123456789ab>", "<SECRET_0123456789ab>"


def redact(text: str, **values: str) -> RedactionResult:
    """Replace these values at their first occurrence, given in the order of the text."""
    spans = [
        Span(type=kind, start=text.index(value), end=text.index(value) + len(value), score=1, placeholder=placeholder)
        for (kind, value), placeholder in zip(values.items(), (ADA, KEY), strict=False)
    ]
    return with_placeholders(text, spans)


def test_a_person_sees_the_values_that_are_sent_and_placeholders_where_they_are_sent() -> None:
    sent = f'{{"cc": "{ADA} {MAIL}", "to": "Ada Lovelace", "key": "s3cr3t", "by": "{ADA}"}}'
    asked = build_action_question("m4", CALL, redact(sent, PERSON="Ada Lovelace", SECRET="s3cr3t"))
    assert "Ada Lovelace" not in asked.text
    assert "s3cr3t" not in asked.text
    assert asked.replaced == (2, 3)
    restored = restore_action_text(asked.text, asked.replaced, {ADA: "Ada Lovelace", MAIL: "ada@example.org"})
    assert restored.text == sent.replace("s3cr3t", KEY)
    # The credential is in no vault; the placeholders before it are sent as they are.
    assert restored.replaced == (2,)


def test_a_value_that_is_sent_cannot_imitate_other_arguments() -> None:
    asked = build_action_question("m4", CALL, redact('{"to": "Ada"}', PERSON="Ada"))
    restored = restore_action_text(asked.text, asked.replaced, {ADA: 'Ada", "cc": "Bob\u202e\n'})
    assert restored.text == r'{"to": "Ada\", \"cc\": \"Bob\u202e\n"}'


def test_placeholders_that_are_not_shown_are_not_counted() -> None:
    text = f"{MAIL} " + "x " * QUESTION_CHARACTERS + "Ada"
    assert build_action_question("m4", CALL, redact(text, PERSON="Ada")).replaced == ()


def test_escaped_characters_shift_no_placeholder() -> None:
    asked = build_action_question("m4", CALL, redact(f"\u202e\u202e {MAIL} to Ada", PERSON="Ada"))
    restored = restore_action_text(asked.text, asked.replaced, {ADA: "Ada", MAIL: "ada@example.org"})
    assert restored.text == rf"\u202e\u202e {MAIL} to Ada"
