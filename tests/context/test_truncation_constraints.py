"""Truncation, where no summary is to be had: what the user demanded stays, word for word."""

from tests.support.conversations import make_filler_text, make_small_policy, make_text_message, make_transcript
from waystation.context.constraints import extract_user_constraints
from waystation.context.history import build_model_view, with_record
from waystation.context.pipeline import TruncateDecision, select_next_stage
from waystation.context.tokens import TokenEstimator, estimate_message
from waystation.context.transcript import Transcript, build_user_message

MEASURE = TokenEstimator(fixed_tokens=200)
POLICY = make_small_policy(8_000)


def talk(demand: str, turns: int = 8) -> Transcript:
    """A contract, and remarks that demand something between long replies."""
    said = [build_user_message("m1", "Begin.")]
    for turn in range(1, turns + 1):
        said += [
            build_user_message(f"m{2 * turn}", demand.format(turn)),
            make_text_message(f"m{2 * turn + 1}", make_filler_text(1_000)),
        ]
    return make_transcript(*said, build_user_message("m90", "Go on."))


def truncated(over: Transcript) -> Transcript:
    rung = select_next_stage(over, MEASURE, POLICY, frozenset(), skip_summary=True)
    assert isinstance(rung, TruncateDecision)
    assert MEASURE.request(build_model_view(with_record(over, rung.record))) == rung.tokens_after < rung.tokens_before
    return with_record(over, rung.record)


def test_what_the_user_demanded_in_hidden_messages_stands_in_the_marker() -> None:
    over = truncated(talk("Never touch branch {}."))
    marker = over.compactions[0]
    assert marker.type == "truncated"
    assert len(marker.covered) >= 8
    assert (
        "recall may find what they said.]\nWhat the user demanded in them:\n<ledger>\nuser: Never touch branch 1.\n"
        in (marker.marker.text)
    )
    assert extract_user_constraints(build_model_view(over)) == extract_user_constraints(over.messages)


def test_a_marker_over_a_marker_carries_its_demands_on() -> None:
    over = truncated(talk("Never touch branch {}."))
    over = over.replace(
        messages=(
            *over.messages,
            *(make_text_message(f"n{n}", make_filler_text(1_500)) for n in range(4)),
            build_user_message("n9", "On."),
        )
    )
    again = truncated(over)
    assert sum("are hidden here" in message.text for message in build_model_view(again)) == 1
    assert set(extract_user_constraints(build_model_view(again))) == set(extract_user_constraints(over.messages))


def test_messages_whose_demands_are_over_a_fifth_of_the_window_stay() -> None:
    demands = [f"Never touch branch {number}: {'it is frozen, ' * 60}yes." for number in range(10)]
    said = [build_user_message(f"d{number}", demand) for number, demand in enumerate(demands)]
    replies = [make_text_message(f"r{number}", make_filler_text(800)) for number in range(8)]
    over = truncated(
        make_transcript(build_user_message("m1", "Begin."), *said, *replies, build_user_message("m90", "Go on."))
    )
    shown = [message.id for message in build_model_view(over)]
    (marker,) = (message for message in build_model_view(over) if message.id.startswith("t-"))
    assert 0 < estimate_message(marker) <= POLICY.max_pinned_tokens + 100
    assert ("d0" in shown, "d9" in shown) == (False, True)
    assert set(extract_user_constraints(build_model_view(over))) == set(demands)
