"""What holds for every strategy and any conversation."""

from typing import get_args

from hypothesis import given, reject
from hypothesis import strategies as st

from tests.support.conversations import (
    arbitrary_messages,
    further_messages,
    make_filler_text,
    make_small_policy,
    make_transcript,
)
from waystation.context.history import build_model_view, with_record
from waystation.context.message_rules import find_violations
from waystation.context.pipeline import SummariseDecision, select_next_stage
from waystation.context.policy import CompactionPolicy, StrategyName
from waystation.context.strategies import STRATEGIES
from waystation.context.summary import build_summary_message
from waystation.context.tokens import TokenEstimator
from waystation.context.transcript import Message, PinRecord, SummaryRecord, Transcript, build_user_message
from waystation.context.units import build_layout

CONTRACT = build_user_message("m1", "Find out what changed. Never guess.")
NOTHING = frozenset[str]()


@st.composite
def policies(draw: st.DrawFn) -> CompactionPolicy:
    strategy: StrategyName = draw(st.sampled_from(get_args(StrategyName)))
    policy = make_small_policy(draw(st.sampled_from([4_000, 8_000, 20_000]))).replace(
        strategy=strategy, keep_last=draw(st.sampled_from([None, 0, 1, 3, 5]))
    )
    return policy.for_too_many_messages(draw(st.integers(1_000, 9_000))) if draw(st.booleans()) else policy


@st.composite
def conversations(draw: st.DrawFn) -> Transcript:
    messages = draw(st.one_of(further_messages(first=2, most=16), arbitrary_messages()))
    over = make_transcript(CONTRACT, *(message for message in messages if message.id != CONTRACT.id))
    if draw(st.booleans()):
        pinned = draw(st.sampled_from(over.messages)).id
        over = with_record(over, PinRecord(id="p1", message_id=pinned))
    return over


def summarised(over: Transcript, made: SummariseDecision, strategy: str, text: str) -> Transcript:
    message = build_summary_message(made.compaction_id, text)
    return with_record(
        over, SummaryRecord(id=made.compaction_id, strategy=strategy, covered=made.covered_ids, summary=message)
    )


@given(conversations(), policies(), st.integers(0, 3_000), st.booleans())
def test_what_is_covered_is_whole_units_that_nothing_protects(
    over: Transcript, policy: CompactionPolicy, summary_room: int, again: bool
) -> None:
    measure = TokenEstimator(fixed_tokens=200)
    if again:
        made = select_next_stage(over, measure, policy, NOTHING)
        if not isinstance(made, SummariseDecision):
            reject()
        over = summarised(over, made, policy.strategy, make_filler_text(300))
    shown = build_layout(over)
    covered = STRATEGIES[policy.strategy].select_units(shown, policy, measure, summary_room)
    places = [shown.units.index(unit) for unit in covered]
    assert places == sorted(set(places))
    assert not shown.protected_indices & set(places)
    assert not covered or any(not unit.is_replacement for unit in covered)
    left = [unit for index, unit in enumerate(shown.units) if index not in set(places)]
    assert not covered or not any(unit.is_replacement for unit in left), "earlier summaries never pile up"


@given(conversations(), policies(), st.sampled_from([0.5, 1.0, 2.0]))
def test_with_a_small_summary_the_view_is_legal_and_smaller_and_is_not_compacted_again(
    over: Transcript, policy: CompactionPolicy, scale: float
) -> None:
    measure = TokenEstimator(fixed_tokens=200, token_ratio=scale)
    made = select_next_stage(over, measure, policy, NOTHING)
    if not isinstance(made, SummariseDecision):
        reject()
    after = summarised(over, made, policy.strategy, "Little happened.")
    shown = build_model_view(after)
    assert find_violations(shown, pending_allowed=True) == ()
    assert measure.request(shown) < measure.request(build_model_view(over))
    assert _protected_fit(over, measure, policy, made) is (measure.request(shown) <= policy.target)
    assert policy.too_many_messages or measure.request(shown) < policy.trigger
    assert after.messages == over.messages
    assert {message.id for message in build_model_view(over)} - set(made.covered_ids) <= {
        message.id for message in shown
    }


def _protected_fit(
    over: Transcript, measure: TokenEstimator, policy: CompactionPolicy, made: SummariseDecision
) -> bool:
    """Whether what no strategy may cover leaves room for the summary under the target."""
    shown = build_layout(over)
    protected: list[Message] = [
        message for index in sorted(shown.protected_indices) for message in shown.units[index].messages
    ]
    stays = measure.request([*protected, build_summary_message(made.compaction_id, "Little happened.")])
    return stays <= policy.target
