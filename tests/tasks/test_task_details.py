import json
import re

from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from tests.support.approval_answers import apply_approval, apply_denial
from tests.support.progress_values import NOON, PAUSED_PROGRESS, PENDING_APPROVAL
from waystation.budgets.budget import RunUsage
from waystation.kernel.amount import Amount, Limit
from waystation.tasks.approvals import ApprovalContext
from waystation.tasks.details import MAX_DETAILS_BYTES, render_task_details
from waystation.tasks.task import ApprovalRequest, BudgetProgress, RejectedMessage, TaskPhase, TaskProgress
from waystation.tasks.view import TaskView

BOTH = Limit(tokens=100_000, micro_usd=10_000_000)


def test_what_people_see_of_a_paused_task() -> None:
    assert render_task_details(TaskView.from_progress(PAUSED_PROGRESS)) == snapshot("""\
**Paused: a budget is spent, and a person has to answer**

**research-2 asks for 30,000 tokens.** It has spent 29,500 of 30,000 tokens.

- estimate for the requested amount: about 7 more calls at an average of 4,200 tokens, with room for the longest reply
- minimum: 900 tokens; if you grant less, and the task has no budget to spare, the agent cannot make its \
next call and asks again
- when the agent asked, the task had spent 41,200 tokens, with 1 of 4 steps finished; 60,000 \
tokens reserved for 2 later steps
- so far: 3 notes
- if denied: research-2 ends with 3 notes; analysis continues with this result; the report is partial

To continue, send the signal `approve_budget` with

```json
{"request_id": "research-2-1", "tokens": 30000, "by": "name"}
```

To end this step with what it has, send `deny_budget` with

```json
{"request_id": "research-2-1", "finish": "partial", "by": "name"}
```

- The message `approve_budget` had no effect: tokens: Input should be greater than 0

**Steps**

- ◐ **research-1** The research (research): partial, 3 legs, 11,700 of 35,000 tokens: a person denied it more
- ‖ **research-2** The research (research): paused, 1 leg, 29,500 of 30,000 tokens
- ○ **analysis** The analysis (analysis): waiting, 0 of 30,000 tokens
- ○ **writing** The writing (writing): waiting, 0 of 30,000 tokens

**Budget** 41,200 of 200,000 tokens spent, 60,500 tokens reserved; 2,500 tokens possibly billed without a reply; \
cost: $0.123456

**Context** 1 compaction, 22,000 tokens saved

**Notes**

- Memory did not answer a search; the agent continued without it.\
""")


def test_what_people_see_of_a_task_that_has_just_begun() -> None:
    begun = TaskProgress(
        task_id="task-1",
        phase=TaskPhase.PLANNING,
        title="Why?",
        model="m",
        budget=BudgetProgress(limit=Limit(tokens=200_000), spent=Amount(), reserved=Amount()),
    )
    assert render_task_details(TaskView.from_progress(begun)) == snapshot("""\
**Planning**

**Budget** 0 of 200,000 tokens spent, 0 tokens reserved; cost: $0.00\
""")


def test_what_people_see_of_a_task_that_is_over() -> None:
    over = PAUSED_PROGRESS.replace(phase=TaskPhase.PARTIAL, report="blob")
    shown = render_task_details(TaskView.from_progress(over))
    assert shown.startswith("**Partial**")
    assert "`waystation report task-0123456789abcdef`" in shown
    assert "asks for" not in shown


def test_the_json_to_copy_is_an_answer_that_is_taken() -> None:
    yes, no = (
        json.loads(block)
        for block in re.findall(r"```json\n(.*?)\n```", render_task_details(TaskView.from_progress(PAUSED_PROGRESS)))
    )
    standing = ApprovalContext(approvals=(PENDING_APPROVAL,), limit=BOTH)
    granted, denied = apply_approval(standing, yes, NOON), apply_denial(standing, no, NOON)
    assert isinstance(granted, ApprovalRequest)
    assert isinstance(denied, ApprovalRequest)
    assert (granted.granted, denied.finish) == (Amount(tokens=30_000), "partial")


@given(st.builds(Amount, tokens=st.integers(0, 10**9), micro_usd=st.integers(0, 10**12)))
def test_the_json_to_copy_grants_exactly_what_is_asked_for_in_whichever_unit(asked: Amount) -> None:
    asking = PENDING_APPROVAL.replace(requested=asked)
    shown = render_task_details(TaskView.from_progress(PAUSED_PROGRESS.replace(approvals=(asking,))))
    yes = json.loads(re.findall(r"```json\n(.*?)\n```", shown)[0])
    granted = apply_approval(ApprovalContext(approvals=(asking,), limit=BOTH), yes, NOON)
    assert isinstance(granted, ApprovalRequest)
    assert granted.granted == asked


def test_a_request_for_dollars_is_shown_in_dollars() -> None:
    asking = PENDING_APPROVAL.replace(
        requested=Amount(micro_usd=500_000),
        spent=Amount(tokens=29_500, micro_usd=490_000),
        limit=Limit(micro_usd=500_000),
        needed=Amount(micro_usd=12_000),
    )
    shown = render_task_details(TaskView.from_progress(PAUSED_PROGRESS.replace(approvals=(asking,))))
    assert "**research-2 asks for $0.50.** It has spent $0.49 of $0.50.\n" in shown
    assert "- minimum: $0.012; if you grant less, and the task has no budget to spare, the agent" in shown
    assert '{"request_id": "research-2-1", "usd": 0.5, "by": "name"}' in shown


def test_only_the_newest_refusals_are_shown() -> None:
    refusals = tuple(RejectedMessage(signal="deny_budget", reason=f"reason {n}", at=NOON) for n in range(5))
    shown = render_task_details(TaskView.from_progress(PAUSED_PROGRESS.replace(rejected_messages=refusals)))
    assert re.findall(r"reason \d", shown) == ["reason 2", "reason 3", "reason 4"]


def test_details_stay_under_the_limit_of_the_server_and_are_cut_between_characters() -> None:
    notes = tuple(f"{n} – schöne Grüße, 港" * 20 for n in range(200))
    shown = render_task_details(TaskView.from_progress(PAUSED_PROGRESS.replace(notes=notes)))
    assert shown.endswith(" …")
    assert MAX_DETAILS_BYTES - 3 <= len(shown.encode()) <= MAX_DETAILS_BYTES + 4
    assert shown.startswith(render_task_details(TaskView.from_progress(PAUSED_PROGRESS))[:1_000])


def test_a_cost_is_shown_in_dollars_and_an_unknown_one_is_said() -> None:
    priced = PAUSED_PROGRESS.replace(totals=RunUsage(cost_micro_usd=123_456))
    assert "$0.123456" in render_task_details(TaskView.from_progress(priced))
    unpriced = PAUSED_PROGRESS.replace(totals=RunUsage(cost_micro_usd=None))
    assert "price unknown" in render_task_details(TaskView.from_progress(unpriced))
