"""How a view becomes legal: the cases of structure, each as it was reported somewhere."""

import pytest

from tests.support.conversations import make_call_message, make_result_message, make_text_message, make_transcript
from waystation.context.history import build_model_view
from waystation.context.message_rules import find_violations
from waystation.context.repair import NO_RESULT
from waystation.context.transcript import Message, RedactedThinking, Text, Thinking, ToolResult, build_user_message

ASKS = build_user_message("m1", "Go.")


def shown(*messages: Message) -> tuple[Message, ...]:
    made = build_model_view(make_transcript(*messages))
    assert find_violations(made, pending_allowed=True) == ()
    return made


def test_an_empty_transcript_has_an_empty_view() -> None:
    assert shown() == ()


def test_a_legal_transcript_is_shown_as_it_is() -> None:
    messages = (
        ASKS,
        make_call_message("m2", "a", thinking="Hm"),
        make_result_message("m3", a="1"),
        make_text_message("m4", "Done"),
        make_text_message("m5", "Really"),
    )
    made = shown(*messages)
    assert made == messages
    assert all(a is b for a, b in zip(made, messages, strict=True))


def test_a_pending_call_at_the_end_stays_without_an_invented_result() -> None:
    assert shown(ASKS, make_call_message("m2", "a")) == (ASKS, make_call_message("m2", "a"))
    assert shown(ASKS, make_call_message("m2", "a", "b"), make_result_message("m3", b="2"))[-1] == make_result_message(
        "m3", b="2"
    )


@pytest.mark.parametrize(
    "carriers",
    [
        (make_result_message("m3", c="3", a="1", b="2"),),
        (make_result_message("m3", a="1"), make_result_message("m4", c="3"), make_result_message("m5", b="2")),
    ],
)
def test_parallel_results_stand_in_one_message_in_the_order_of_their_calls(carriers: tuple[Message, ...]) -> None:
    assert shown(ASKS, make_call_message("m2", "a", "b", "c"), *carriers)[2:] == (
        make_result_message("m3", a="1", b="2", c="3"),
    )


def test_a_call_in_the_middle_without_a_result_gets_a_synthetic_one_with_stable_bytes() -> None:
    history = (ASKS, make_call_message("m2", "a"), make_text_message("m3", "Going on."))
    synthetic = Message(
        id="m2.results", role="user", blocks=(ToolResult(tool_use_id="a", content=NO_RESULT, is_error=True),)
    )
    assert shown(*history) == (ASKS, make_call_message("m2", "a"), synthetic, make_text_message("m3", "Going on."))
    assert shown(*history, make_text_message("m4", "And on."))[:4] == shown(*history)


def test_a_missing_result_does_not_mix_with_what_the_user_said_next() -> None:
    made = shown(ASKS, make_call_message("m2", "a"), build_user_message("m3", "Stop."))
    assert [message.id for message in made] == ["m1", "m2", "m2.results", "m3"]
    assert made[3] == build_user_message("m3", "Stop.")


def test_results_come_before_text_and_right_after_their_call() -> None:
    mixed = Message(id="m3", role="user", blocks=(Text(text="Look!"), ToolResult(tool_use_id="a", content="1")))
    assert shown(ASKS, make_call_message("m2", "a"), mixed)[2] == make_result_message("m3", Text(text="Look!"), a="1")
    late = shown(
        ASKS, make_call_message("m2", "a"), build_user_message("m3", "Look!"), make_result_message("m4", a="1")
    )
    assert late[2:] == (make_result_message("m2.results", a="1"), build_user_message("m3", "Look!"))


def test_an_orphan_result_goes_and_the_text_beside_it_stays() -> None:
    orphan = make_result_message("m2", Text(text="Also this."), lost="1")
    assert shown(ASKS, orphan) == (ASKS, build_user_message("m2", "Also this."))
    assert shown(ASKS, make_result_message("m2", lost="1")) == (ASKS,)


def test_of_two_results_of_one_call_the_first_wins() -> None:
    twice = (
        ASKS,
        make_call_message("m2", "a"),
        make_result_message("m3", a="outcome unknown"),
        make_result_message("m4", a="late"),
    )
    assert shown(*twice) == twice[:3]
    later = (
        ASKS,
        make_call_message("m2", "a"),
        make_result_message("m3", a="first"),
        make_text_message("m4", "Hm."),
        make_result_message("m5", a="late"),
    )
    assert shown(*later) == later[:4]


def test_a_repeated_call_id_goes_with_its_result() -> None:
    repeated = (
        ASKS,
        make_call_message("m2", "a"),
        make_result_message("m3", a="1"),
        make_call_message("m4", "a"),
        make_result_message("m5", a="2"),
    )
    assert shown(*repeated) == repeated[:3]


def test_blank_text_and_messages_of_nothing_else_are_dropped() -> None:
    padded = Message(id="m2", role="assistant", blocks=(Text(text=""), Text(text="Hi"), Text(text="\n")))
    assert shown(ASKS, padded, build_user_message("m3", "  "), make_text_message("m4", "Bye")) == (
        ASKS,
        make_text_message("m2", "Hi"),
        make_text_message("m4", "Bye"),
    )


def test_signed_reasoning_is_byte_identical_or_absent() -> None:
    loop = (ASKS, make_call_message("m2", "a", thinking="Because  \n so"), make_result_message("m3", a="1"))
    assert shown(*loop)[1] is loop[1]
    alone = Message(
        id="m4", role="assistant", blocks=(Thinking(thinking="Hm", signature="s"), RedactedThinking(data="d"))
    )
    assert shown(*loop, alone, make_text_message("m5", "Hi")) == (*loop, make_text_message("m5", "Hi"))


def test_a_conversation_whose_beginning_is_lost_gets_an_opening_of_the_users() -> None:
    made = shown(make_text_message("m1", "Where was I?"))
    assert [message.role for message in made] == ["user", "assistant"]
