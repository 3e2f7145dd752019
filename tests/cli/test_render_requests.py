import shlex
from datetime import UTC, datetime, timedelta

from inline_snapshot import snapshot

from tests.support.view_values import (
    PAUSED_PROGRESS_IN_DOLLARS,
    PENDING_APPROVAL,
    PENDING_APPROVAL_FORECAST,
    VIEWED_PROGRESS,
)
from waystation.agents.deliverables import WorkCounts
from waystation.cli.options import Deadline, parse_amount
from waystation.cli.render import format_request_rows
from waystation.cli.render_requests import format_approve_command, format_request, format_requests_by_task
from waystation.kernel.amount import Amount, Limit
from waystation.planning.plan import PLANNING_ID
from waystation.tasks.task import ApprovalRequest
from waystation.tasks.view import ApprovalView, PendingApproval, TaskBudgetView, TaskView, list_pending_approvals

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
WIDE = 200


def waiting(approval: ApprovalRequest) -> PendingApproval:
    return PendingApproval(task_id="task-1", title="Why?", approval=ApprovalView.from_request(approval))


def line(text: str, label: str) -> str:
    return next(line.removeprefix(f"  {label}").strip() for line in text.splitlines() if line.startswith(f"  {label}"))


def test_the_command_to_approve_survives_the_shell_and_grants_what_was_asked_for() -> None:
    asked = ApprovalView.from_request(PAUSED_PROGRESS_IN_DOLLARS.approvals[0])
    words = shlex.split(format_approve_command("task-1", asked))
    assert words[-2:] == ["--add", "$0.50"]
    assert parse_amount(words[-1], "--add") == asked.requested


def test_the_inbox_tells_what_each_request_is_about_and_breaks_no_command() -> None:
    (asking,) = list_pending_approvals(TaskView.from_progress(VIEWED_PROGRESS))
    late = asking.approval.replace(requested_at=NOON, answer_by=NOON + timedelta(hours=9))
    shown = format_requests_by_task(
        [asking.replace(approval=late, at_deadline="wait"), waiting(PENDING_APPROVAL)], NOON, 80
    )
    assert shown == snapshot("""\
task-0123456789abcdef  Which licences [red]do[/red] they carry?
research-1 asks for 30,000 tokens more: it has spent 29,500 of 30,000 tokens
  estimate   about 7 more calls at an average of 4,200 tokens, with room for the
             longest reply
  if denied  research-1 ends with 3 notes; analysis continues with this result;
             the report is partial
  until      2026-11-21 21:00 UTC; after that, the request is overdue and keeps
             waiting
  waystation report task-0123456789abcdef --draft
  waystation approve task-0123456789abcdef --request r1 --add 30000
  waystation deny task-0123456789abcdef --request r1 --finish partial

task-1  Why?
research-1 asks for 30,000 tokens more: it has spent 29,500 of 30,000 tokens
  estimate   about 7 more calls at an average of 4,200 tokens, with room for the
             longest reply
  if denied  research-1 ends with 3 notes; analysis continues with this result;
             the report is partial
  waystation report task-1 --draft
  waystation approve task-1 --request r1 --add 30000
  waystation deny task-1 --request r1 --finish partial\
""")


def test_verbose_adds_what_the_task_has_and_the_minimum() -> None:
    (asking,) = list_pending_approvals(TaskView.from_progress(VIEWED_PROGRESS))
    asked_at_noon = asking.replace(approval=asking.approval.replace(requested_at=NOON))
    assert format_request(asked_at_noon, NOON, 80, verbose=True) == snapshot("""\
research-1 asks for 30,000 tokens more: it has spent 29,500 of 30,000 tokens
  estimate   about 7 more calls at an average of 4,200 tokens, with room for the
             longest reply
  if denied  research-1 ends with 3 notes; analysis continues with this result;
             the report is partial
  since      2026-11-21 12:00 UTC
  task       spent 41,200 of 200,000 tokens; 1 of 4 steps finished; 60,000
             tokens reserved for 2 later steps
  left       158,800 tokens unspent in the task: 89,500 tokens reserved for
             other steps, 500 tokens for this agent, 68,800 tokens unreserved
  minimum    900 tokens; if you grant less, and the task has no budget to spare,
             the agent cannot make its next call and asks again
  so far     3 notes, which the draft contains
  waystation report task-0123456789abcdef --draft
  waystation approve task-0123456789abcdef --request r1 --add 30000
  waystation deny task-0123456789abcdef --request r1 --finish partial\
""")


def test_a_request_of_a_provider_that_stopped_says_what_there_is_and_nothing_of_money() -> None:
    halted = PENDING_APPROVAL.replace(requested=Amount(), reason="the account has no credit")
    assert format_request(waiting(halted), NOON, 80) == snapshot("""\
research-1 makes no more calls: the account has no credit
  next       fix this, then approve
  if denied  research-1 ends with 3 notes; analysis continues with this result;
             the report is partial
  waystation report task-1 --draft
  waystation approve task-1 --request r1
  waystation deny task-1 --request r1 --finish partial\
""")


def test_money_that_is_left_in_the_task_is_accounted_for() -> None:
    def left(spent: int, reserved: int) -> str:
        limit = Limit(tokens=100_000)
        budget = TaskBudgetView(limit=limit, spent=Amount(tokens=spent), reserved=Amount(tokens=reserved))
        text = format_request(waiting(PENDING_APPROVAL).replace(task_budget=budget), NOON, WIDE, verbose=True)
        return line(text, "left") if "\n  left" in text else ""

    assert left(41_200, 50_500) == (
        "58,800 tokens unspent in the task: 50,000 tokens reserved for other steps, 500 tokens for this agent, "
        "8,300 tokens unreserved"
    )
    assert left(99_500, 500) == "500 tokens unspent in the task: 500 tokens for this agent"
    assert left(100_000, 0) == ""


def test_a_deadline_that_has_passed_is_overdue_and_one_to_come_says_what_it_does() -> None:
    asking = PENDING_APPROVAL.replace(answer_by=NOON)
    before, after = NOON - timedelta(minutes=1), NOON + timedelta(minutes=1)

    def told(then: Deadline | None, now: datetime) -> str:
        text = format_request(waiting(asking).replace(at_deadline=then), now, WIDE)
        return text.splitlines()[-4].strip()

    assert [told(then, now) for now in (before, after) for then in ("partial", "wait", None)] == snapshot(
        [
            "until      2026-11-21 12:00 UTC; then research-1 delivers what it has",
            "until      2026-11-21 12:00 UTC; after that, the request is overdue and keeps waiting",
            "until      2026-11-21 12:00 UTC",
            "overdue    since 2026-11-21 12:00 UTC: as soon as a worker runs, research-1 delivers what it has",
            "overdue    since 2026-11-21 12:00 UTC: the request keeps waiting until someone answers",
            "overdue    since 2026-11-21 12:00 UTC: the request keeps waiting until someone answers",
        ]
    )


def test_a_revised_plan_is_named_once_and_stays_as_it_was_after_its_deadline() -> None:
    plan = PENDING_APPROVAL.replace(
        request_id="plan-2",
        agent=PLANNING_ID,
        requested=Amount(tokens=50_000),
        steps_left=2,
        forecast=None,
        answer_by=NOON,
    )
    late = format_request(waiting(plan).replace(at_deadline="partial"), NOON + timedelta(minutes=1), WIDE)
    assert late.startswith("revised plan of 2 steps waits for approval, with 50,000 tokens for new steps\n")
    assert "since 2026-11-21 12:00 UTC: as soon as a worker runs, the revised plan is discarded\n" in late


def test_the_draft_is_offered_where_there_is_one() -> None:
    nothing = PENDING_APPROVAL_FORECAST.replace(work_counts=WorkCounts(), finished_steps=0)
    others = nothing.replace(finished_steps=1)

    def told(asking: ApprovalRequest) -> tuple[str, bool]:
        text = format_request(waiting(asking), NOON, WIDE, verbose=True)
        return line(text, "so far"), "\n  waystation report task-1 --draft\n" in text

    assert told(PENDING_APPROVAL) == ("3 notes, which the draft contains", True)
    assert told(PENDING_APPROVAL.replace(forecast=nothing)) == ("nothing", False)
    assert told(PENDING_APPROVAL.replace(forecast=others)) == (
        "nothing; the draft contains the findings of other steps",
        True,
    )


def test_a_request_of_a_task_without_a_worker_and_one_of_an_earlier_release_show_what_is_known() -> None:
    assert format_request(
        waiting(PAUSED_PROGRESS_IN_DOLLARS.approvals[0].replace(forecast=None)), NOON, WIDE
    ) == snapshot("""\
research-1 asks for $0.50 more: it has spent $0.45 of $0.50
  waystation approve task-1 --request r1 --add '$0.50'
  waystation deny task-1 --request r1 --finish partial\
""")


def test_the_inbox_is_a_line_a_request() -> None:
    (asking,) = list_pending_approvals(TaskView.from_progress(VIEWED_PROGRESS))
    due = asking.approval.replace(answer_by=NOON + timedelta(hours=33))
    late = asking.approval.replace(request_id="research-1.2-4", answer_by=NOON, reason="no key")
    plan = asking.approval.replace(request_id="plan-1", agent=PLANNING_ID)
    shown = format_request_rows([asking.replace(approval=one) for one in (due, late, plan)], NOON, 80)
    assert "\n".join(line.plain for line in shown) == snapshot("""\
01234567  r1              until 22 Nov 21:00  30,000 tokens more  Which licence…
01234567  research-1.2-4  overdue             no more calls       Which licence…
01234567  plan-1          -                   plan of 3 steps     Which licence…\
""")
    assert {line.cell_len for line in shown} == {80}


def test_a_task_is_named_once_above_all_that_it_asks_for() -> None:
    shown = format_requests_by_task(
        [waiting(PENDING_APPROVAL), waiting(PENDING_APPROVAL), waiting(PENDING_APPROVAL).replace(task_id="task-2")],
        NOON,
        80,
    )
    assert [line for line in shown.splitlines() if line.startswith("task-")] == ["task-1  Why?", "task-2  Why?"]
    assert shown.count("asks for 30,000 tokens more: it has spent 29,500 of 30,000 tokens") == 3
