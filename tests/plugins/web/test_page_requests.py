"""What the pages say of a request before it is answered."""

import pytest

from tests.support.store_values import NOON
from tests.support.view_values import PENDING_APPROVAL
from waystation.context.audit import MessageView
from waystation.kernel.amount import Amount, Limit
from waystation.planning.plan import PLANNING_ID, build_standard_plan
from waystation.plugins.web.task_page import build_approval_rows, describe_closed_request, describe_message
from waystation.tasks.progress import build_waiting_step
from waystation.tasks.task import ApprovalRequest, StepProgress
from waystation.tasks.view import ApprovalView, PendingApproval, StepView


def rows(approval: ApprovalRequest, steps: tuple[StepProgress, ...] = ()) -> dict[str, str]:
    pending = PendingApproval(
        task_id="task-1",
        title="Why?",
        approval=ApprovalView.from_request(approval),
        steps=tuple(map(StepView.from_progress, steps)),
    )
    return dict(build_approval_rows(pending))


def test_a_plan_shows_its_steps_with_what_each_may_spend_and_what_the_answers_do() -> None:
    step = build_standard_plan("Why?").steps[0]
    asked = ApprovalRequest(request_id="plan-1", agent=PLANNING_ID, requested=Amount())
    assert rows(asked, steps=(build_waiting_step(step, Limit(tokens=9_000), skipped=False),)) == {
        "research": f"{step.title} (budget: 9,000 tokens)",
        "if approved": "the steps of the plan begin",
        "if denied": "the task ends; the cost of planning counts as spent",
    }


def test_a_request_for_money_says_what_the_smallest_grant_is_for_unless_money_is_not_what_is_missing() -> None:
    assert rows(PENDING_APPROVAL)["minimum"].startswith(
        "900 tokens; if you grant less, and the task has no budget to spare, the agent cannot make its next call and "
        "asks again"
    )
    halted = rows(PENDING_APPROVAL.replace(reason="the key is not known"))
    assert halted["why"] == "the key is not known"
    assert "minimum" not in halted


@pytest.mark.parametrize(
    ("closed", "words"),
    [
        ({"decision": "approved", "by": "Ada", "granted": Amount(tokens=9_000)}, "Ada granted research-1 9,000 tokens"),
        ({"decision": "approved", "by": "Ada", "agent": PLANNING_ID}, "Ada approved the plan"),
        ({"decision": "denied"}, "another person denied this request of research-1"),
        ({"decision": "expired"}, "this request of research-1 was not answered in time"),
        ({"decision": "withdrawn"}, "this request of research-1 no longer needs an answer"),
    ],
)
def test_who_answers_too_late_reads_what_became_of_the_request(closed: dict[str, object], words: str) -> None:
    request = ApprovalRequest.model_validate({**PENDING_APPROVAL.model_dump(), "answered_at": NOON, **closed})
    assert describe_closed_request(ApprovalView.from_request(request)) == (words, NOON)


def test_a_message_is_one_line_with_its_words_its_calls_and_its_results() -> None:
    def describe(*blocks: object) -> str:
        shown = {"id": "m1", "role": "assistant", "blocks": blocks, "pinned": False, "rewound": False}
        return describe_message(MessageView.model_validate({**shown, "hidden_by": "", "masked_by": {}}))

    def call(name: str, number: int) -> dict[str, object]:
        return {"type": "tool_use", "id": f"t{number}", "name": name, "input": {}}

    def result(number: int, *, is_error: bool) -> dict[str, object]:
        return {"type": "tool_result", "tool_use_id": f"t{number}", "content": "Text.", "is_error": is_error}

    calls = [call("take_note", 1), call("take_note", 2), call("read_document", 3)]
    assert describe({"type": "text", "text": "I\nread on."}, *calls) == (
        "I read on. · calls take_note 2 times · calls read_document"
    )
    assert describe(result(1, is_error=False), result(2, is_error=True)) == "1 result · 1 error"
    assert len(describe({"type": "text", "text": "word " * 100})) == 200
