"""What the platform tells an agent has the user's role, but is no request of the user's."""

import pytest

from tests.support.conversations import make_research_turns, make_text_message, make_transcript
from waystation.context.constraints import extract_user_constraints, extract_user_requests, extract_user_words
from waystation.context.transcript import Message, build_platform_message, build_user_message
from waystation.context.units import build_layout

WORD = build_platform_message("m12", "Go on. You must hand in with submit_findings.")


def test_the_latest_request_is_the_users_and_not_what_the_platform_said_after_it() -> None:
    shown = build_layout(
        make_transcript(
            build_user_message("m1", "Begin."),
            *make_research_turns(4),
            build_user_message("m10", "Only 1811."),
            make_text_message("m11", "Hm."),
            WORD,
        )
    )
    assert shown.latest is not None
    assert shown.units[shown.latest].message_ids == ("m10",)


def test_the_contract_is_no_word_of_the_platform() -> None:
    shown = build_layout(make_transcript(WORD, make_text_message("m2", "Hm."), build_user_message("m3", "Begin.")))
    assert shown.brief is not None
    assert shown.units[shown.brief].message_ids == ("m3",)


def test_the_platform_asks_and_demands_nothing_in_the_users_name() -> None:
    said = (build_user_message("m10", "Look at 1811. You must not dig."), WORD)
    assert extract_user_constraints(said) == ("You must not dig.",)
    assert extract_user_requests(said) == ("Look at 1811.",)
    assert extract_user_words(said) == ("Look at 1811. You must not dig.",)


@pytest.mark.parametrize(
    "message",
    [
        build_user_message("m1", f"{WORD.text} Really."),
        build_user_message("m1", "Go on."),
        make_text_message("m1", WORD.text),
    ],
    ids=["more than its tag", "no tag", "the assistant's"],
)
def test_nobody_else_speaks_for_the_platform(message: Message) -> None:
    assert WORD.is_platform_message
    assert not message.is_platform_message
