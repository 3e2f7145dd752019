from collections.abc import Sequence

import pytest
from hypothesis import given

from tests.support.conversations import arbitrary_messages, make_call_message, make_result_message, make_text_message
from waystation.context.message_rules import find_violations
from waystation.context.repair import repair_messages
from waystation.context.transcript import Message, Text, Thinking, ToolResult, ToolUse, build_user_message

ASKS = build_user_message("m1", "Go.")


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ((make_text_message("m1", "Hi"),), "m1: the first message is not the user's"),
        ((ASKS, make_text_message("m1", "Hi")), "a message id occurs twice"),
        ((ASKS, make_call_message("m2", "a", "a"), make_result_message("m3", a="1")), "a call id occurs twice"),
        ((Message(id="m1", role="user", blocks=()),), "m1: no blocks"),
        ((build_user_message("m1", " \n"),), "m1: blank text"),
        (
            (Message(id="m1", role="user", blocks=(ToolUse(id="a", name="t", input={}),)),),
            "tool_use is not allowed",
        ),
        (
            (ASKS, Message(id="m2", role="assistant", blocks=(ToolResult(tool_use_id="a", content="1"),))),
            "m2: a block of type tool_result is not allowed in a message of the assistant",
        ),
        (
            (ASKS, Message(id="m2", role="assistant", blocks=(Thinking(thinking="Hm", signature="s"),))),
            "m2: reasoning is the last block",
        ),
        ((ASKS, make_result_message("m2", a="1")), "m2: a result of a call that is not in the previous message"),
        (
            (ASKS, make_call_message("m2", "a"), ASKS, make_result_message("m3", a="1")),
            "m3: a result of a call that is not in the previous message",
        ),
        (
            (ASKS, make_call_message("m2", "a"), make_text_message("m3", "Hi")),
            "m3: calls of the previous message lack results",
        ),
        (
            (ASKS, make_call_message("m2", "a", "b"), make_result_message("m3", a="1")),
            "m3: calls of the previous message lack results",
        ),
        (
            (
                ASKS,
                make_call_message("m2", "a"),
                make_result_message("m3", ToolResult(tool_use_id="a", content="2"), a="1"),
            ),
            "m3: two results of one call",
        ),
        (
            (
                ASKS,
                make_call_message("m2", "a"),
                Message(id="m3", role="user", blocks=(Text(text="x"), ToolResult(tool_use_id="a", content="1"))),
            ),
            "m3: results do not come first",
        ),
        ((ASKS, make_call_message("m2", "a")), "m2: the last calls have no results"),
    ],
)
def test_what_the_api_refuses_is_named(messages: tuple[Message, ...], fault: str) -> None:
    assert any(fault in found for found in find_violations(messages))


def test_an_orderly_conversation_breaks_no_rule() -> None:
    assert find_violations(()) == ()
    assert (
        find_violations(
            (
                ASKS,
                make_call_message("m2", "a", "b", thinking="Hm"),
                make_result_message("m3", a="1", b="2"),
                make_text_message("m4", "Hi"),
            )
        )
        == ()
    )


def test_calls_at_the_very_end_may_be_pending_only_where_that_is_allowed() -> None:
    waiting = (ASKS, make_call_message("m2", "a", "b"))
    assert find_violations(waiting) != ()
    assert find_violations(waiting, pending_allowed=True) == ()
    assert find_violations((*waiting, make_result_message("m3", a="1")), pending_allowed=True) == ()
    assert find_violations((*waiting, build_user_message("m3", "Well?")), pending_allowed=True) != ()


@given(arbitrary_messages())
def test_any_sequence_of_messages_becomes_legal_and_stays_as_it_is_then(messages: tuple[Message, ...]) -> None:
    repaired = repair_messages(messages)
    assert find_violations(repaired, pending_allowed=True) == ()
    assert repair_messages(repaired) == repaired


@given(arbitrary_messages())
def test_repair_keeps_every_text_in_its_order(messages: tuple[Message, ...]) -> None:
    repaired = [message for message in repair_messages(messages) if message.id != "opening"]
    assert _texts(repaired) == _texts(messages)


def _texts(messages: Sequence[Message]) -> list[str]:
    blocks = [block for message in messages for block in message.blocks]
    return [block.text for block in blocks if isinstance(block, Text) and block.text.strip()]
