from datetime import UTC, datetime, timedelta, timezone

import pytest

from waystation.agents.action_approvals import AUTHORISED_IN_ADVANCE, TopUpPolicy, UnattendedPolicy
from waystation.cli.options import parse_unattended_options
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.errors import BadInput
from waystation.tasks.approvals import ApprovalContext, grant_in_advance
from waystation.tasks.task import ApprovalRequest

NOW = datetime(2026, 11, 21, 22, 30, tzinfo=timezone(timedelta(hours=1)))
REQUEST = ApprovalRequest(request_id="r1-1", agent="r1", requested=Amount(tokens=20_000), needed=Amount(tokens=900))
TWICE = TopUpPolicy(amount=Amount(tokens=5_000), times=2)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("07:00", datetime(2026, 11, 22, 7, 0, tzinfo=NOW.tzinfo)),
        ("23:15", datetime(2026, 11, 21, 23, 15, tzinfo=NOW.tzinfo)),
        ("22:30", datetime(2026, 11, 22, 22, 30, tzinfo=NOW.tzinfo)),
        ("2026-12-01T07:00", datetime(2026, 12, 1, 7, 0, tzinfo=NOW.tzinfo)),
        ("2026-12-01T07:00+00:00", datetime(2026, 12, 1, 7, 0, tzinfo=UTC)),
    ],
)
def test_a_clock_time_is_the_next_one_and_a_moment_is_the_persons(text: str, moment: datetime) -> None:
    decided = parse_unattended_options(None, text, "partial", NOW)
    assert decided.answer_by == moment
    assert decided.compute_deadline(NOW) == moment
    assert decided.compute_deadline(NOW + timedelta(days=60)) == moment


@pytest.mark.parametrize(
    ("text", "span"), [("90m", timedelta(minutes=90)), ("12h", timedelta(hours=12)), ("7d", timedelta(days=7))]
)
def test_a_span_counts_from_each_request(text: str, span: timedelta) -> None:
    decided = parse_unattended_options(None, text, "wait", NOW)
    assert decided.compute_deadline(NOW) == NOW + span
    assert decided.at_deadline == "wait"


def test_without_options_requests_wait_for_ever() -> None:
    assert parse_unattended_options(None, None, None, NOW) == UnattendedPolicy()
    assert UnattendedPolicy().compute_deadline(NOW) is None


@pytest.mark.parametrize(
    ("text", "top_up"),
    [
        ("50kx3", TopUpPolicy(amount=Amount(tokens=50_000), times=3)),
        ("50k×3", TopUpPolicy(amount=Amount(tokens=50_000), times=3)),
        ("$0.25 x 4", TopUpPolicy(amount=Amount(micro_usd=250_000), times=4)),
    ],
)
def test_raises_in_advance_name_an_amount_and_how_often(text: str, top_up: TopUpPolicy) -> None:
    assert parse_unattended_options(text, None, None, NOW).top_up == top_up


@pytest.mark.parametrize("text", ["50k", "x3", "50kx0", "50kx1001", "-5kx2", "manyx2", "50kx2x", "50kx٣", "$0,25x4"])
def test_other_raises_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="--top-up takes"):
        parse_unattended_options(text, None, None, NOW)


@pytest.mark.parametrize("text", ["7", "tomorrow", "25:00", "0", "7w", "", "-5m", "٣d"])
def test_what_is_no_deadline_is_refused_with_what_it_should_look_like(text: str) -> None:
    with pytest.raises(BadInput, match=r"--answer-by takes a time \(07:00\)"):
        parse_unattended_options(None, text, "partial", NOW)


@pytest.mark.parametrize("text", ["0m", " 00h", "0d"])
def test_a_deadline_that_leaves_no_time_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"leaves no time to answer: give a minute \(1m\) or more"):
        parse_unattended_options(None, text, "wait", NOW)


def test_a_deadline_that_is_over_is_refused() -> None:
    with pytest.raises(BadInput, match="--answer-by 2026-11-20 is in the past"):
        parse_unattended_options(None, "2026-11-20", "partial", NOW)


def test_what_was_authorised_is_granted_as_often_as_it_was_and_under_that_name() -> None:
    standing = ApprovalContext(approvals=(), limit=Limit(tokens=100_000))
    for number in (1, 2):
        granted = grant_in_advance(standing, REQUEST, TWICE, NOW)
        assert granted is not None
        assert (granted.decision, granted.by, granted.granted) == ("approved", AUTHORISED_IN_ADVANCE, TWICE.amount)
        assert granted.note == f"{number} of 2"
        standing = standing.replace(approvals=(*standing.approvals, granted))
    assert grant_in_advance(standing, REQUEST, TWICE, NOW) is None


@pytest.mark.parametrize(
    ("standing", "top_up"),
    [
        (ApprovalContext(approvals=()), None),
        (ApprovalContext(approvals=()), TopUpPolicy(amount=Amount(tokens=899), times=1)),
        (ApprovalContext(approvals=()), TopUpPolicy(amount=Amount(micro_usd=10**9), times=1)),
        (ApprovalContext(approvals=(), limit=Limit(tokens=100_000), ceiling=Limit(tokens=104_999)), TWICE),
    ],
)
def test_a_person_is_asked_where_it_is_too_little_in_another_unit_or_over_the_ceiling(
    standing: ApprovalContext, top_up: TopUpPolicy | None
) -> None:
    assert grant_in_advance(standing, REQUEST, top_up, NOW) is None


def test_a_choice_for_a_deadline_without_a_deadline_is_refused() -> None:
    with pytest.raises(BadInput, match="give --answer-by"):
        parse_unattended_options(None, None, "wait", NOW)
