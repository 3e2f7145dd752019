import pytest
from inline_snapshot import snapshot

from tests.support.notification_values import AT, PENDING_APPROVAL, REQUEST_NOTICE, make_end_notice
from waystation.agents.agent_run import BudgetForecast
from waystation.agents.deliverables import WorkCounts
from waystation.kernel.amount import Amount
from waystation.tasks.notifications import (
    NotificationEvent,
    ScheduleEvent,
    ScheduleNotification,
    TaskNotification,
    build_webhook_fields,
    render_digest,
    render_mrkdwn,
)
from waystation.tasks.reallocation import FREED_BUDGET_NOTE
from waystation.tasks.task import TaskPhase

PAGE = "http://127.0.0.1:8233/namespaces/default/workflows/task-0123456789abcdef?a=1&b=2"
TASK = "`task-0123456789abcdef`, “How is the bar &lt;crossed&gt; &amp; when?”"
ANSWER = (
    "Answer with `waystation approve task-0123456789abcdef --request harbours-1` or "
    "`waystation deny task-0123456789abcdef --request harbours-1`"
)


def of(event: NotificationEvent) -> TaskNotification:
    return REQUEST_NOTICE.replace(event=event)


def test_a_request_says_who_asks_for_how_much_and_how_to_answer() -> None:
    assert render_mrkdwn(REQUEST_NOTICE, PAGE) == (
        "*`harbours` asks for 2,387 tokens.* The deadline is 2026-11-22 00:00 UTC. "
        f"The task is {TASK}, which has spent 9,000 of 10,000 tokens. {ANSWER} · "
        "<http://127.0.0.1:8233/namespaces/default/workflows/task-0123456789abcdef?a=1&amp;b=2|details>"
    )


def test_backticks_of_a_title_neither_end_code_nor_begin_it() -> None:
    plain, told = render_mrkdwn(REQUEST_NOTICE, None), render_mrkdwn(REQUEST_NOTICE.replace(title="Why ```a` b?"), None)
    assert "“Why ｀｀｀a｀ b?”" in told
    assert told.split("`")[1::2] == plain.split("`")[1::2]


def test_a_request_that_no_budget_can_help_says_what_to_see_to() -> None:
    reason = "the provider's account has no credit"
    request = PENDING_APPROVAL.replace(requested=Amount(), answer_by=None, reason=reason)
    notice = REQUEST_NOTICE.replace(request=request)
    assert render_mrkdwn(notice, None) == (
        f"*`harbours` makes no more calls until someone resolves this:* {reason}. "
        f"The task is {TASK}, which has spent 9,000 of 10,000 tokens. {ANSWER}"
    )
    assert build_webhook_fields(notice, None)["reason"] == reason


def test_a_request_for_money_that_calls_without_a_reply_have_spent_names_the_cause() -> None:
    seen = BudgetForecast(
        turns=0,
        average_turn_cost=Amount(),
        turns_covered=0,
        finished_steps=0,
        pending_steps=0,
        reserved_for_pending=Amount(),
        work_counts=WorkCounts(),
        dependent_steps=(),
        no_reply_reason="<x>",
    )
    told = render_mrkdwn(REQUEST_NOTICE.replace(request=PENDING_APPROVAL.replace(forecast=seen)), PAGE)
    assert (
        "tokens.* The agent's last model call got no reply and may have been billed: &lt;x&gt;. The deadline is" in told
    )


def test_a_request_that_no_grant_under_the_ceiling_can_help_names_what_is_left_to_do() -> None:
    seen = BudgetForecast(
        turns=5,
        average_turn_cost=Amount(),
        turns_covered=5,
        finished_steps=0,
        pending_steps=2,
        reserved_for_pending=Amount(),
        work_counts=WorkCounts(),
        dependent_steps=(),
        covers_next_call=False,
    )
    told = render_mrkdwn(REQUEST_NOTICE.replace(request=PENDING_APPROVAL.replace(forecast=seen)), PAGE)
    assert "`waystation approve" not in told
    assert (
        "is enough for the agent's next call. Deny the request with "
        "`waystation deny task-0123456789abcdef --request harbours-1`, or cancel the task with " in told
    )
    assert "`waystation cancel task-0123456789abcdef`" in told


def test_a_deadline_that_passed_says_what_happens_now() -> None:
    assert render_mrkdwn(of(NotificationEvent.OVERDUE), None) == (
        f"*The request `harbours-1` was not answered by its deadline: it still waits.* Its task is {TASK}. {ANSWER}"
    )
    assert render_mrkdwn(of(NotificationEvent.EXPIRED), None) == (
        "*The request `harbours-1` was not answered by its deadline: the agent delivers what it has.* "
        f"Its task is {TASK}. Its state: `waystation show task-0123456789abcdef`"
    )


def test_a_request_that_needs_no_answer_any_more_says_why() -> None:
    request = PENDING_APPROVAL.replace(decision="withdrawn", note=FREED_BUDGET_NOTE)
    told = render_mrkdwn(of(NotificationEvent.WITHDRAWN).replace(request=request), None)
    assert told == (
        "*The request `harbours-1` no longer needs an answer: budget was released elsewhere, and the agent continues "
        f"with it.* Its task is {TASK}. Its state: `waystation show task-0123456789abcdef`"
    )


@pytest.mark.parametrize(
    ("phase", "reason", "words", "next_step"),
    [
        (TaskPhase.DONE, "", "*A task is done*", "Its report: `waystation report"),
        (TaskPhase.PARTIAL, "", "*A task ended with an incomplete report*", "Its report: `waystation report"),
        (
            TaskPhase.CANCELLED,
            "",
            "*A task was cancelled, and its report has the work so far*",
            "Its report: `waystation report",
        ),
        (
            TaskPhase.FAILED,
            "no such <model>",
            "*A task failed* (no such &lt;model&gt;)",
            "Its state: `waystation show",
        ),
    ],
)
def test_an_end_says_how_the_task_ended_and_where_to_read_on(
    phase: TaskPhase, reason: str, words: str, next_step: str
) -> None:
    told = f"{words}: {TASK}. It spent 9,000 of 10,000 tokens. {next_step} task-0123456789abcdef`"
    assert render_mrkdwn(make_end_notice(phase, reason), None) == told


def test_programs_get_the_same_flat_and_without_nulls() -> None:
    assert build_webhook_fields(REQUEST_NOTICE, PAGE) == snapshot(
        {
            "event": "budget_asked",
            "delivery_id": "notice-task-0123456789abcdef-budget_asked-harbours-1",
            "task_id": "task-0123456789abcdef",
            "title": "How is the bar <crossed> & when?",
            "phase": "paused",
            "at": "2026-11-21T12:00:00+00:00",
            "spent_tokens": 9000,
            "spent_usd": 0.0125,
            "request_id": "harbours-1",
            "agent": "harbours",
            "asked_tokens": 2387,
            "asked_usd": 0.0,
            "answer_by": "2026-11-22T00:00:00+00:00",
            "link": "http://127.0.0.1:8233/namespaces/default/workflows/task-0123456789abcdef?a=1&b=2",
        }
    )
    assert build_webhook_fields(make_end_notice(TaskPhase.DONE), None) == snapshot(
        {
            "event": "task_finished",
            "delivery_id": "notice-task-0123456789abcdef-done",
            "task_id": "task-0123456789abcdef",
            "title": "How is the bar <crossed> & when?",
            "phase": "done",
            "at": "2026-11-21T12:00:00+00:00",
            "spent_tokens": 9000,
            "spent_usd": 0.0125,
        }
    )


def test_a_notice_has_the_same_id_whenever_it_is_made_and_another_for_every_other_event() -> None:
    later = REQUEST_NOTICE.replace(phase=TaskPhase.WORKING, spent=Amount(tokens=9_500))
    assert later.delivery_id == REQUEST_NOTICE.delivery_id
    second = REQUEST_NOTICE.replace(request=PENDING_APPROVAL.replace(request_id="harbours-2"))
    endings = [make_end_notice(phase) for phase in TaskPhase if phase.over]
    ids = {
        notice.delivery_id
        for notice in (
            REQUEST_NOTICE,
            second,
            of(NotificationEvent.OVERDUE),
            of(NotificationEvent.EXPIRED),
            of(NotificationEvent.WITHDRAWN),
            *endings,
        )
    }
    assert len(ids) == 5 + len(endings)


def test_the_summary_fits_the_temporal_ui() -> None:
    assert (REQUEST_NOTICE.summary, make_end_notice(TaskPhase.DONE).summary) == snapshot(
        ("task-0123456789abcdef: new request harbours-1", "task-0123456789abcdef: done")
    )


def test_events_of_a_schedule_name_it_with_the_reason_and_the_next_step() -> None:
    schedule_id, at = "schedule-43ec2d25925eefe6-board-pack", "2026-11-23T07:00:00Z"
    failed = ScheduleNotification(
        event=ScheduleEvent.RUN_FAILED,
        schedule_id=schedule_id,
        run_id=f"{schedule_id}-{at}",
        at=AT,
        reason="1 of the paths of its documents no longer exist (failure 1 in a row)",
    )
    told = [render_mrkdwn(failed.replace(event=event), "https://w.example.org/schedules") for event in ScheduleEvent]
    because, page = failed.reason, " · <https://w.example.org/schedules|details>"
    assert told == [
        f"*A run of the schedule `board-pack` failed:* {because}. State of the schedule: "
        f"`waystation schedule list`{page}",
        "*A run of the schedule `board-pack` started no task, because the task could exceed the monthly budget:* "
        f"{because}.{page}",
        f"*The schedule `board-pack` is paused, because its runs failed:* {because}. Continue with "
        f"`waystation schedule resume board-pack`{page}",
    ]
    assert build_webhook_fields(failed, None) == {
        "event": "schedule_run_failed",
        "delivery_id": f"notice-{failed.run_id}-schedule_run_failed",
        "schedule": "board-pack",
        "at": "2026-11-21T12:00:00+00:00",
        "reason": because,
    }
    assert render_digest([(failed, None), (REQUEST_NOTICE, None)], None) == snapshot(
        (
            "2 notices",
            """\
- schedule board-pack: run failed: “1 of the paths of its documents no longer exist (failure 1 in a row)”
- task-0123456789abcdef: new request harbours-1: “How is the bar ‹crossed› & when?”

Answer with `waystation approvals`\
""",
        )
    )
