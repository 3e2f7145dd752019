import shlex
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.view_values import PENDING_APPROVAL, VIEWED_PROGRESS
from waystation.agents.action_approvals import ActionQuestion
from waystation.cli.approvals import (
    AnswerCommand,
    describe_insufficient_grant,
    describe_late_answer,
    describe_previous_answer,
    format_announcement,
    format_answer_outcome,
    print_answer,
    select_requests,
)
from waystation.cli.main import run
from waystation.client.submission import NOT_FOLLOWED, annotate_message_answer
from waystation.kernel.amount import Amount
from waystation.models.profiles import OFFLINE_MODEL
from waystation.planning.plan import PLANNING_ID
from waystation.tasks.approvals import AnswerOrigin
from waystation.tasks.signals import AnswerResult
from waystation.tasks.task import ApprovalRequest
from waystation.tasks.view import ApprovalView, TaskView

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def view(*approvals: ApprovalRequest) -> TaskView:
    return TaskView.from_progress(VIEWED_PROGRESS.replace(approvals=approvals)).with_origins(
        {"r1": AnswerOrigin(identities=("ada@laptop (waystation)",))}
    )


def answered(request_id: str, minutes: int) -> ApprovalRequest:
    return PENDING_APPROVAL.replace(
        request_id=request_id,
        decision="approved",
        granted=Amount(tokens=9_000),
        by="Ada",
        note="go on",
        answered_at=NOON + timedelta(minutes=minutes),
    )


def test_a_command_is_given_again_as_it_was_typed_with_the_request_named() -> None:
    typed = AnswerCommand("approve", "0123", (), {"--add": "$0.50", "--note": "it's fine", "--by": None})
    again = typed.render_command_for("task-0123456789abcdef", "research-1-1")
    assert again.startswith("waystation approve task-0123456789abcdef --request research-1-1 --add '$0.50' --note ")
    assert shlex.split(again)[-1] == "it's fine"
    assert typed.render_command_for_all("task-1").startswith("waystation approve task-1 --all --add '$0.50' --note ")


def test_who_comes_late_is_told_who_answered_when_and_what() -> None:
    assert describe_previous_answer(view(answered("r1", 3)), "r1") == (
        "research-1 asked for 30,000 tokens after 7 calls; 9,000 tokens approved by Ada (name not verified; sent from "
        "ada@laptop (waystation)): go on (2026-11-21 12:03 UTC)"
    )


def test_where_no_request_is_named_the_newest_answer_is_told() -> None:
    told = describe_previous_answer(view(answered("r2", 9), answered("r1", 3)), None)
    assert told.endswith(": go on (2026-11-21 12:09 UTC)")


def test_of_an_open_request_and_of_one_that_never_was_there_is_nothing_to_tell() -> None:
    assert describe_previous_answer(view(PENDING_APPROVAL, answered("r2", 1)), "r1") == ""
    assert describe_previous_answer(view(), None) == ""


# ------------------------------------------------------------------------------------------------ several at once

SEND_LETTER = ActionQuestion(call_id="c", digest="d", tool="send_letter", text="Send it?")
FOR_A_CALL = PENDING_APPROVAL.replace(request_id="r3", requested=Amount(), action=SEND_LETTER)
HALTED = PENDING_APPROVAL.replace(request_id="r4", requested=Amount(), reason="no credit at the provider")
DEARER = PENDING_APPROVAL.replace(request_id="r2", requested=Amount(tokens=50_000))
OPEN = view(PENDING_APPROVAL, answered("r0", 1), FOR_A_CALL, DEARER, HALTED)


def approving(*request_ids: str, add: int | None = None) -> AnswerCommand:
    """What is typed to approve these requests; with none of them, all."""
    amount = None if add is None else Amount(tokens=add)
    return AnswerCommand("approve", "0123", request_ids, {}, amount=amount, all_requests=not request_ids)


def test_all_means_every_open_request_for_money_and_no_call_of_a_tool() -> None:
    meant = select_requests(approving(add=9_000), OPEN)
    assert meant.request_ids == ("r1", "r2")
    assert meant.skipped == (
        f"request r3 asks to call send_letter, so --all skips it: look at the request "
        f"(`waystation approvals {OPEN.task_id}`), then run "
        "`waystation approve task-0123456789abcdef --request r3`",
        f"request r4 is not a budget request, so --all skips it: look at the request "
        f"(`waystation approvals {OPEN.task_id}`), then run "
        "`waystation approve task-0123456789abcdef --request r4`",
    )


def test_all_leaves_a_revised_plan_open_although_its_new_steps_cost_something() -> None:
    revised = PENDING_APPROVAL.replace(request_id="plan-1", agent=PLANNING_ID)
    meant = select_requests(approving(), view(PENDING_APPROVAL, revised))
    assert meant.request_ids == ("r1",)
    assert [line.partition(":")[0] for line in meant.skipped] == [
        "request plan-1 is not a budget request, so --all skips it"
    ]


def test_requests_that_are_named_are_answered_once_each_in_that_order_also_for_calls() -> None:
    assert select_requests(approving("r3", "r1", "r3"), OPEN).request_ids == ("r3", "r1")


def test_the_sum_of_several_grants_is_told_before_they_are_made() -> None:
    as_asked, given = approving(), approving(add=9_000)
    assert format_announcement(as_asked, select_requests(as_asked, OPEN)) == (
        "approving 2 requests with the requested amounts, 80,000 tokens in all"
    )
    assert (
        format_announcement(given, select_requests(given, OPEN))
        == "approving 2 requests with 9,000 tokens each, 18,000 tokens in all"
    )


def test_of_all_requests_one_that_needs_no_money_any_more_fails_nobody_and_a_named_one_is_refused() -> None:
    refused = AnswerResult(outcome="refused", reason="the request r1 was already withdrawn")
    freed = view(PENDING_APPROVAL.replace(decision="withdrawn", note="money came free", answered_at=NOON))
    needless = describe_late_answer(approving(), refused, freed, "r1")
    assert needless.outcome == "not_needed"
    assert format_answer_outcome(needless).startswith(
        "no longer needed: research-1 asked for 30,000 tokens after 7 calls; "
    )
    assert describe_late_answer(approving("r1"), refused, freed, "r1").outcome == "refused"
    assert describe_late_answer(approving(), refused, view(answered("r1", 3)), "r1").outcome == "refused"


def test_several_denials_are_counted() -> None:
    denying = AnswerCommand("deny", "0123", (), {}, all_requests=True)
    assert format_announcement(denying, select_requests(denying, OPEN)) == "denying 2 requests"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["approve", "abc", "--all", "--request", "r1"], "--request and --all cannot be combined"),
        (
            ["deny", "abc", "--all", "--finish", "cancel"],
            "--finish cancel ends the whole task, so it takes only one request: name one with --request, or run",
        ),
        (["deny", "abc", "--request", "r1", "--request", "r2", "--finish", "cancel"], "`waystation cancel abc`"),
    ],
)
def test_what_cannot_be_meant_of_several_is_bad_usage(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert words in capsys.readouterr().err


# ------------------------------------------------------------------------------------------- grants that are too small

APPROVED = AnswerResult(outcome="approved")
ASKED = ApprovalView.from_request(PENDING_APPROVAL)


def test_an_answer_is_printed_with_the_request_and_the_agent_that_it_answers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_answer(APPROVED, ASKED)
    print_answer(AnswerResult(outcome="refused", reason="no open request"))
    assert capsys.readouterr().err == f"{ASKED.request_id} (research-1): approved\nrefused: no open request\n"


def test_a_grant_under_what_the_next_call_may_need_is_warned_of() -> None:
    assert describe_insufficient_grant(Amount(tokens=899), ASKED, APPROVED) == (
        "899 tokens may not be enough: the next call of research-1 may need 900 tokens. If the task has no budget "
        "to spare, the agent asks again"
    )


def test_of_enough_and_of_what_was_asked_for_and_of_what_was_refused_nothing_is_said() -> None:
    assert describe_insufficient_grant(Amount(tokens=900), ASKED, APPROVED) == ""
    assert describe_insufficient_grant(None, ASKED, APPROVED) == ""
    assert describe_insufficient_grant(Amount(tokens=1), ASKED, AnswerResult(outcome="refused")) == ""


def test_of_a_message_to_the_built_in_model_it_is_said_that_nothing_follows_it() -> None:
    for outcome in ("done", "unseen"):
        told = annotate_message_answer(AnswerResult(outcome=outcome), OFFLINE_MODEL)
        assert (told.outcome, told.reason) == (outcome, NOT_FOLLOWED)
        assert "cannot follow a message" in format_answer_outcome(told)
        assert annotate_message_answer(AnswerResult(outcome=outcome), "claude-opus-4-8").reason == ""
    assert annotate_message_answer(AnswerResult(outcome="refused", reason="over"), OFFLINE_MODEL).reason == "over"
