"""What holds for any conversation, however often and by whichever rung it is compacted."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.conversations import (
    REREADABLE,
    further_messages,
    make_filler_text,
    make_small_policy,
    make_transcript,
)
from waystation.context.constraints import extract_user_constraints, extract_user_requests
from waystation.context.history import build_model_view, with_record
from waystation.context.message_rules import find_violations
from waystation.context.pipeline import (
    CannotFitDecision,
    MaskDecision,
    NoopDecision,
    SummariseDecision,
    TruncateDecision,
    select_next_stage,
)
from waystation.context.summary import build_summary_message
from waystation.context.summary_validator import AcceptedSummary, SummaryCheckInput, check_summary
from waystation.context.tokens import TokenEstimator
from waystation.context.transcript import Message, SummaryRecord, Transcript, build_user_message

CONTRACT = build_user_message("m1", "Find out what changed. Never guess.")
POLICY = make_small_policy(8_000)


def compacted(over: Transcript, measure: TokenEstimator, *, skip_summary: bool, summary: str) -> Transcript:
    """The transcript after whatever the ladder says now."""
    match select_next_stage(over, measure, POLICY, REREADABLE, skip_summary=skip_summary):
        case NoopDecision() | CannotFitDecision():
            return over
        case MaskDecision() as masked:
            after = with_record(over, masked.record)
            assert measure.request(build_model_view(after)) == masked.tokens_after <= POLICY.target
            return after
        case TruncateDecision() as truncated:
            after = with_record(over, truncated.record)
            assert measure.request(build_model_view(after)) == truncated.tokens_after < truncated.tokens_before
            return after
        case SummariseDecision() as asked:
            checked = check_summary(summary, replaced(asked))
            if not isinstance(checked, AcceptedSummary):
                return over
            message = build_summary_message(asked.compaction_id, checked.text)
            record = SummaryRecord(
                id=asked.compaction_id, strategy="window", covered=asked.covered_ids, summary=message
            )
            return with_record(over, record)


def replaced(asked: SummariseDecision) -> SummaryCheckInput:
    return SummaryCheckInput(
        text="\n".join(message.text for message in asked.middle),
        tokens=asked.middle_tokens,
        target_tokens=asked.summary_tokens[1],
        max_constraint_tokens=POLICY.max_pinned_tokens,
        constraints=extract_user_constraints(asked.middle),
        requests=extract_user_requests(asked.middle),
    )


def said_by_the_user(over: Transcript) -> list[Message]:
    return [message for message in over.messages if message.role == "user" and message.text]


steps = st.lists(
    st.tuples(
        further_messages(first=0),
        st.booleans(),
        st.sampled_from([make_filler_text(200), make_filler_text(3_000), "", "Short."]),
    ),
    min_size=1,
    max_size=6,
)


@given(steps, st.sampled_from([0.5, 1.0, 2.0]))
def test_however_a_run_goes_on_its_view_is_legal_never_grows_by_a_compaction_and_keeps_what_the_user_wants(
    steps: list[tuple[tuple[Message, ...], bool, str]], scale: float
) -> None:
    measure = TokenEstimator(fixed_tokens=200, token_ratio=scale)
    over = make_transcript(CONTRACT)
    for number, (added, skip_summary, summary) in enumerate(steps):
        over = over.replace(messages=(*over.messages, *(_renamed(message, number) for message in added)))
        before = build_model_view(over)
        over = compacted(over, measure, skip_summary=skip_summary, summary=summary)
        shown = build_model_view(over)
        assert find_violations(shown) == ()
        assert set(extract_user_constraints(before)) <= set(extract_user_constraints(shown))
        assert measure.request(shown) <= measure.request(before)
        assert shown[0] == CONTRACT
        assert said_by_the_user(over)[-1].text in [message.text for message in shown]
        assert compacted(over, measure, skip_summary=True, summary="").messages == over.messages


@given(further_messages(first=2, most=12), st.booleans())
def test_planning_again_plans_the_same(messages: tuple[Message, ...], skip_summary: bool) -> None:
    over = make_transcript(CONTRACT, *messages)
    measure = TokenEstimator(fixed_tokens=200)
    stored = Transcript.model_validate_json(over.model_dump_json())
    assert select_next_stage(over, measure, POLICY, REREADABLE, skip_summary=skip_summary) == select_next_stage(
        stored, measure, POLICY, REREADABLE, skip_summary=skip_summary
    )


@given(further_messages(first=2, most=16))
def test_repeated_truncation_makes_the_view_strictly_smaller_until_nothing_is_left_to_do(
    messages: tuple[Message, ...],
) -> None:
    over, measure = make_transcript(CONTRACT, *messages), TokenEstimator(fixed_tokens=200)
    for _ in range(12):
        size = measure.request(build_model_view(over))
        after = compacted(over, measure, skip_summary=True, summary="")
        if after is over:
            return
        assert measure.request(build_model_view(after)) < size
        over = after
    raise AssertionError("truncation goes on and on")


def _renamed(message: Message, step: int) -> Message:
    """Ids are used once in a run; the strategy draws each step on its own."""
    raw = message.model_dump_json().replace('"id":"', f'"id":"{step}.').replace('_use_id":"', f'_use_id":"{step}.')
    return Message.model_validate_json(raw)
