"""A request to call a tool as people see it: in the UI, in the inbox, in notices, and for programs."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from inline_snapshot import snapshot

from tests.support.approval_answers import apply_approval, apply_denial
from tests.support.notification_values import REQUEST_NOTICE
from tests.support.tool_approval_states import make_action_question
from tests.support.view_values import PENDING_APPROVAL, VIEWED_PROGRESS
from waystation.cli.render_requests import format_request, format_requests_by_task
from waystation.kernel.amount import Amount
from waystation.tasks.approvals import ApprovalContext
from waystation.tasks.details import render_task_details
from waystation.tasks.notifications import NotificationEvent, build_webhook_fields, render_mrkdwn
from waystation.tasks.task import ApprovalRequest
from waystation.tasks.view import ApprovalView, PendingApproval, TaskView

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
WORDS = 'May the tool write_file be called with these arguments?\n{\n  "path": "harbours.md"\n}'
REQUEST = ApprovalRequest(
    request_id="harbours-1",
    agent="harbours",
    action=make_action_question(text=WORDS),
    requested=Amount(),
    requested_at=NOON,
    answer_by=NOON + timedelta(hours=9),
)


def asking(words: str) -> ApprovalRequest:
    return REQUEST.replace(action=make_action_question(text=words))


def waiting(approval: ApprovalRequest = REQUEST) -> PendingApproval:
    return PendingApproval(
        task_id="task-1", title="Why?", approval=ApprovalView.from_request(approval), at_deadline="partial"
    )


def shown(*approvals: ApprovalRequest) -> str:
    return render_task_details(TaskView.from_progress(VIEWED_PROGRESS.replace(approvals=approvals))).split(
        "\n\n**Steps**"
    )[0]


def test_the_ui_says_where_to_read_the_values_that_a_call_sends() -> None:
    assert "shows them" not in shown(REQUEST)
    action = make_action_question(text="To <PERSON_5101fccb76df>?").replace(replaced=(0,))
    assert (
        "The call sends the private values behind 1 placeholder above: `waystation approvals task-1` shows these "
        "values." in shown(REQUEST.replace(action=action)).replace(VIEWED_PROGRESS.task_id, "task-1")
    )


def test_the_ui_shows_the_question_as_code_and_the_signals_that_answer_it() -> None:
    assert shown(REQUEST) == snapshot("""\
**Paused: a person has to answer**

**harbours asks to call fs__write_file.** If the call is allowed, it is made once, with exactly these arguments:

    May the tool write_file be called with these arguments?
    {
      "path": "harbours.md"
    }

- deadline: 2026-11-21 21:00 UTC

To allow the call, send the signal `approve_budget` with

```json
{"request_id": "harbours-1", "action": "fs__write_file", "by": "name"}
```

To let the agent continue without the call, send `deny_budget` with

```json
{"request_id": "harbours-1", "note": "why, for the agent", "by": "name"}
```\
""")


def test_the_json_to_copy_is_an_answer_that_is_taken() -> None:
    yes, no = (json.loads(found) for found in re.findall(r"```json\n(.+)\n```", shown(REQUEST)))
    standing = ApprovalContext(approvals=(REQUEST,))
    answers = [apply_approval(standing, yes, NOON), apply_denial(standing, no, NOON)]
    assert [answer.decision for answer in answers if isinstance(answer, ApprovalRequest)] == ["approved", "denied"]


def test_a_task_that_waits_for_money_and_for_an_answer_says_both() -> None:
    told = shown(PENDING_APPROVAL, REQUEST)
    assert told.startswith("**Paused: a person has to answer**")
    assert "**research-1 asks for 30,000 tokens.**" in told
    assert shown(PENDING_APPROVAL).startswith("**Paused: a budget is spent, and a person has to answer**")
    halted = PENDING_APPROVAL.replace(reason="the account has no credit")
    assert shown(halted).startswith("**Paused: a person has to answer**")


@pytest.mark.parametrize(
    "words", ["```\nsend `approve_budget`", "\n\n# approved\n[here](http://x)", "    \n\t**bold**"]
)
def test_no_words_of_a_question_leave_its_block_in_the_ui(words: str) -> None:
    block = shown(asking(words)).split("these arguments:\n\n")[1].split("\n\n- deadline")[0]
    assert all(line.startswith("    ") for line in block.split("\n") if line.strip())


def test_the_inbox_shows_the_question_and_commands_to_copy() -> None:
    assert format_requests_by_task([waiting()], NOON, 80) == snapshot("""\
task-1  Why?
harbours asks to call fs__write_file
  | May the tool write_file be called with these arguments?
  | {
  |   "path": "harbours.md"
  | }
  if approved  the tool is called once, with exactly these arguments
  if denied    harbours continues without the call, and reads your `--note`
  until        2026-11-21 21:00 UTC; then harbours continues without the call
  waystation approve task-1 --request harbours-1
  waystation deny task-1 --request harbours-1\
""")


@pytest.mark.parametrize("width", [10, 40, 80])
def test_no_line_of_a_question_can_pass_for_one_of_ours(width: int) -> None:
    words = f"ok\n  waystation approve task-1\n{'x' * 300}{' y' * 300}"
    lines = format_request(waiting(asking(words)), NOON, width).split("\n")
    (after,) = [place for place, line in enumerate(lines) if line.startswith("  if approved")]
    (before,) = [place for place, line in enumerate(lines) if line == "  | ok"]
    assert all(line.startswith("  | ") for line in lines[before:after])


def test_what_does_not_fit_is_counted_and_where_it_is_read_is_said_where_the_question_is() -> None:
    long = asking("x" * 1_500)
    rest = (
        "500 more characters are not shown: `waystation transcript {} --agent harbours` shows the whole call at the "
        "end."
    )
    assert rest.format("task-0123456789abcdef") in shown(long)
    assert rest.format("task-1") in format_request(waiting(long), NOON, 80)
    assert "more characters" not in shown(REQUEST)


def test_a_request_that_is_overdue_says_what_happens_then() -> None:
    late = format_request(waiting(), NOON + timedelta(days=1), 200)
    assert "since 2026-11-21 21:00 UTC: as soon as a worker runs, harbours continues without the call" in late


def test_notices_name_the_tool_and_nothing_that_the_agent_wrote() -> None:
    asked = REQUEST_NOTICE.replace(request=REQUEST)
    assert render_mrkdwn(asked, None) == snapshot(
        "*`harbours` asks to call `fs__write_file`.* The deadline is 2026-11-21 21:00 UTC. The task is "
        "`task-0123456789abcdef`, “How is the bar &lt;crossed&gt; &amp; when?”, which has spent 9,000 of 10,000 "
        "tokens. See the call with `waystation show task-0123456789abcdef`. Answer with "
        "`waystation approve task-0123456789abcdef --request harbours-1` or "
        "`waystation deny task-0123456789abcdef --request harbours-1`"
    )
    told = build_webhook_fields(asked, None)
    assert (told["event"], told["tool"], asked.summary) == (
        "action_asked",
        "fs__write_file",
        "task-0123456789abcdef: new request harbours-1",
    )
    assert "harbours.md" not in f"{render_mrkdwn(asked, None)}{told}"


def test_a_notice_of_a_deadline_says_that_the_agent_goes_on() -> None:
    expired = REQUEST_NOTICE.replace(request=REQUEST, event=NotificationEvent.EXPIRED)
    assert "the agent continues without the call" in render_mrkdwn(expired, None)
    assert build_webhook_fields(expired, None)["event"] == "action_expired"


def test_programs_get_the_call_beside_the_request() -> None:
    printed = ApprovalView.from_request(REQUEST).model_dump(include={"action", "requested", "decision"})
    assert printed == {
        "action": {"tool": "fs__write_file", "text": WORDS, "hidden": 0, "replaced": ()},
        "requested": {"tokens": 0, "usd": 0.0},
        "decision": "pending",
    }
    assert ApprovalView.from_request(PENDING_APPROVAL).action is None
