"""What the pages say of a request before it is answered."""

from tests.support.view_values import PENDING_APPROVAL
from waystation.kernel.amount import Amount, Limit
from waystation.planning.plan import PLANNING_ID, build_standard_plan
from waystation.plugins.web.task_page import build_approval_rows
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
