"""What each strategy of rung 3 covers and keeps."""

import pytest

from tests.support.conversations import (
    make_call_message,
    make_filler_text,
    make_research_transcript,
    make_research_turns,
    make_result_message,
    make_small_policy,
    make_text_message,
    make_transcript,
)
from waystation.context.history import build_model_view, with_record
from waystation.context.pipeline import SummariseDecision, select_next_stage
from waystation.context.policy import CompactionPolicy, StrategyName
from waystation.context.strategies import STRATEGIES
from waystation.context.summary import build_summary_message
from waystation.context.tokens import TokenEstimator
from waystation.context.transcript import (
    SYSTEM_MESSAGE_TYPE,
    Message,
    OpaqueBlock,
    PinRecord,
    SummaryRecord,
    Transcript,
    build_user_message,
)
from waystation.context.units import build_layout

MEASURE = TokenEstimator(fixed_tokens=500)
CONTRACT = build_user_message("m1", "Find out what changed.")
ALL: tuple[StrategyName, ...] = ("window", "snapshot", "replace", "ends")


def policy(strategy: StrategyName, window: int = 20_000) -> CompactionPolicy:
    return make_small_policy(window).replace(strategy=strategy)


def covered(over: Transcript, by: CompactionPolicy, summary_room: int = 1_000) -> list[str]:
    middle = STRATEGIES[by.strategy].select_units(build_layout(over), by, MEASURE, summary_room)
    return [message_id for unit in middle for message_id in unit.message_ids]


def ids(first: int, last: int) -> list[str]:
    """Ids of the messages from the first to the last."""
    return [f"m{number}" for number in range(first, last + 1)]


def compacted(over: Transcript, by: CompactionPolicy, text: str = "What was found.") -> Transcript:
    made = select_next_stage(over, MEASURE, by, frozenset())
    assert isinstance(made, SummariseDecision)
    message = build_summary_message(made.compaction_id, text)
    return with_record(
        over, SummaryRecord(id=made.compaction_id, strategy=by.strategy, covered=made.covered_ids, summary=message)
    )


def with_user_turn(before: int, after: int, tokens: int = 300) -> Transcript:
    """So many turns of the agent's, a remark of the user's, more turns, and a last remark."""
    remark = build_user_message("remark", "Look at the annex, too.")
    turns = [*make_research_turns(before, tokens), remark, *make_research_turns(after, tokens, start=before + 1)]
    return make_transcript(CONTRACT, *turns, build_user_message("last", "Hurry."))


# ---------------------------------------------------------------------------------------------------------- snapshot


def test_a_snapshot_is_cut_at_the_turn_of_the_user_nearest_to_seventy_percent_of_the_size() -> None:
    assert covered(with_user_turn(12, 8), policy("snapshot")) == ids(2, 25)


@pytest.mark.parametrize(("before", "after", "reached"), [(11, 9, True), (18, 2, True), (8, 12, False), (19, 1, False)])
def test_a_turn_of_the_user_is_preferred_where_it_is_in_reach(before: int, after: int, reached: bool) -> None:
    last = covered(with_user_turn(before, after), policy("snapshot"))[-1]
    assert (last == f"m{2 * before + 1}") is reached


def test_where_no_turn_of_the_user_is_in_reach_a_snapshot_is_cut_at_the_nearest_whole_unit() -> None:
    # Of ten turns of the same size, seven are 70 %.
    assert covered(make_research_transcript(10, 300), policy("snapshot")) == ids(2, 15)
    wide = [
        make_call_message("m2", "a", "b"),
        make_result_message("m3", a=make_filler_text(900), b=make_filler_text(900)),
        make_text_message("m4", make_filler_text(700)),
    ]
    assert covered(make_transcript(CONTRACT, *wide), policy("snapshot")) == ids(2, 3)


def test_the_share_of_a_snapshot_is_of_the_policy() -> None:
    assert covered(make_research_transcript(10, 300), policy("snapshot").replace(snapshot_share=50)) == ids(2, 11)


def test_a_snapshot_covers_more_than_its_share_where_the_rest_would_be_over_the_target() -> None:
    # The target of 7,500 has room for the last turn of 4,000, and not for two of them.
    over = make_transcript(CONTRACT, *make_research_turns(4, 1_000), *make_research_turns(2, 4_000, start=5))
    assert covered(over, policy("snapshot")) == ids(2, 11)
    assert covered(over, policy("snapshot").replace(target=3_000)) == ids(2, 13)


def test_of_too_many_messages_a_snapshot_leaves_half_at_most() -> None:
    over = make_transcript(CONTRACT, *make_research_turns(2, 2_000), *make_research_turns(18, 20, start=3))
    assert covered(over, policy("snapshot")) == ids(2, 5)
    crowd = policy("snapshot").for_too_many_messages(MEASURE.request(build_model_view(over)))
    assert len(covered(over, crowd)) >= len(over.messages) // 2


# --------------------------------------------------------------------------------------------------- replace and ends


def test_replace_covers_everything_that_is_not_protected() -> None:
    assert covered(make_research_transcript(6), policy("replace")) == ids(2, 13)
    over = with_user_turn(5, 5)
    assert covered(over, policy("replace")) == [*ids(2, 11), "remark", *ids(12, 21)]


def test_replace_keeps_the_last_messages_in_whole_units_where_the_policy_says_so() -> None:
    assert covered(make_research_transcript(6, 300), policy("replace").replace(keep_last=5)) == ids(2, 9)
    assert covered(make_research_transcript(6, 4_000), policy("replace").replace(keep_last=5)) == ids(2, 11), (
        "only one of them has room"
    )


def test_ends_keeps_the_first_message_and_the_last_three_in_whole_units() -> None:
    over = make_transcript(
        CONTRACT, *make_research_turns(9, 300), make_text_message("m20", "I see."), build_user_message("m21", "Go on.")
    )
    assert covered(over, policy("ends")) == ids(2, 19)
    assert covered(make_research_transcript(9, 300), policy("ends")) == ids(2, 17)
    assert covered(make_research_transcript(9, 300), policy("ends").replace(keep_last=5)) == ids(2, 15)


def test_under_ends_the_newest_unit_stays_also_where_it_is_longer() -> None:
    assert covered(make_research_transcript(9, 300), policy("ends").replace(keep_last=1)) == ids(2, 17)
    assert covered(make_research_transcript(9, 300), policy("replace").replace(keep_last=1)) == ids(2, 19)


def test_under_ends_a_first_message_that_is_not_the_users_stays_too() -> None:
    rules = Message(id="m0", role="user", blocks=(OpaqueBlock(kind=SYSTEM_MESSAGE_TYPE, tokens=900, body={}),))
    over = make_transcript(rules, CONTRACT, *make_research_turns(9, 300))
    assert covered(over, policy("ends")) == ids(2, 17)
    assert covered(over, policy("replace")) == ["m0", *ids(2, 19)]


# --------------------------------------------------------------------------------------------------------------- all


@pytest.mark.parametrize("strategy", ALL)
def test_contract_latest_request_pins_and_pending_calls_are_never_covered(strategy: StrategyName) -> None:
    turns: list[Message] = make_research_turns(12, 900)
    turns.insert(8, build_user_message("newest", "Do it by Friday."))
    over = make_transcript(CONTRACT, *turns, make_call_message("pending", "x", "y"))
    over = with_record(over, PinRecord(id="p1", message_id="m3"))
    gone = covered(over, policy(strategy))
    assert gone
    assert not {"m1", "m2", "m3", "newest", "pending"} & set(gone)


@pytest.mark.parametrize("strategy", ALL)
def test_an_earlier_summary_goes_into_the_next_one(strategy: StrategyName) -> None:
    over = compacted(make_research_transcript(12), policy(strategy), make_filler_text(600))
    over = over.replace(messages=(*over.messages, *make_research_turns(10, start=13)))
    (earlier,) = over.compactions
    assert f"s-{earlier.id}" in covered(over, policy(strategy))
    again = compacted(over, policy(strategy))
    assert sum(message.id.startswith("s-") for message in build_model_view(again)) == 1


@pytest.mark.parametrize("strategy", ALL)
def test_there_is_nothing_to_cover_but_earlier_summaries(strategy: StrategyName) -> None:
    over = compacted(make_research_transcript(12), policy("replace"), make_filler_text(6_000))
    assert covered(over, policy(strategy)) == []
    assert covered(make_transcript(), policy(strategy)) == []
    assert covered(make_transcript(CONTRACT), policy(strategy)) == []


@pytest.mark.parametrize("strategy", ALL)
def test_a_strategy_names_a_prompt_and_only_replace_brings_files_back(strategy: StrategyName) -> None:
    assert STRATEGIES[strategy].prompt == ("snapshot" if strategy == "snapshot" else "condense")
    assert STRATEGIES[strategy].restores_files is (strategy == "replace")
