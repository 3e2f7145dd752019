import json
import re

from inline_snapshot import snapshot

from tests.unit.progress_values import ASKING, NOON, PAUSED
from waystation.domain.approvals import approve, deny
from waystation.domain.budget import RunTotals
from waystation.domain.details import MAX_BYTES, details
from waystation.domain.task import Approval, BudgetProgress, Refusal, TaskPhase, TaskProgress


def test_what_people_see_of_a_paused_task() -> None:
    assert details(PAUSED) == snapshot("""\
**Paused: a budget is spent and a person has to answer**

**research-2 asks for 30,000 tokens.** It has spent 29,500 of 0, and its next call may need 0 more than it has left. The task had spent 41,200, with 3 steps to finish. To grant it, send the signal `approve_budget` with

```json
{"request_id": "research-2-1", "tokens": 30000, "by": "name"}
```

To end this step with what it has, send `deny_budget` with

```json
{"request_id": "research-2-1", "finish": "partial", "by": "name"}
```

- `approve_budget` had no effect: tokens: Input should be greater than 0

**Steps**

- ◐ **research-1** The research (research): partial, 3 legs, 11,700 of 35,000 tokens: a person denied it more tokens
- ‖ **research-2** The research (research): paused, 1 leg, 29,500 of 30,000 tokens
- ○ **analysis** The analysis (analysis): waiting, 0 of 30,000 tokens
- ○ **writing** The writing (writing): waiting, 0 of 30,000 tokens

**Budget** 41,200 of 200,000 tokens spent, 60,500 reserved; 2,500 possibly billed without a reply; $0.1235

**Context** 1 compaction, 22,000 tokens compressed away

**Notes**

- Memory did not answer a recall; the agent went on without it.\
""")  # noqa: E501 it is shown as it is


def test_what_people_see_of_a_task_that_has_just_begun() -> None:
    begun = TaskProgress(
        task_id="task-1",
        phase=TaskPhase.PLANNING,
        title="Why?",
        model="m",
        budget=BudgetProgress(limit=200_000, spent=0, reserved=0),
    )
    assert details(begun) == snapshot("""\
**Planning**

**Budget** 0 of 200,000 tokens spent, 0 reserved; $0.0000\
""")


def test_what_people_see_of_a_task_that_is_over() -> None:
    over = PAUSED.model_copy(update={"phase": TaskPhase.PARTIAL, "report": "blob"})
    shown = details(over)
    assert shown.startswith("**Partial**")
    assert "`waystation report task-0123456789abcdef`" in shown
    assert "asks for" not in shown


def test_the_json_to_copy_is_an_answer_that_is_taken() -> None:
    yes, no = (json.loads(block) for block in re.findall(r"```json\n(.*?)\n```", details(PAUSED)))
    granted, denied = approve([ASKING], yes, NOON), deny([ASKING], no, NOON)
    assert isinstance(granted, Approval)
    assert isinstance(denied, Approval)
    assert (granted.granted_tokens, denied.finish) == (30_000, "partial")


def test_only_the_newest_refusals_are_shown() -> None:
    refusals = tuple(Refusal(signal="deny_budget", reason=f"reason {n}", at=NOON) for n in range(5))
    shown = details(PAUSED.model_copy(update={"refusals": refusals}))
    assert re.findall(r"reason \d", shown) == ["reason 2", "reason 3", "reason 4"]


def test_details_stay_under_the_limit_of_the_server_and_are_cut_between_characters() -> None:
    notes = tuple(f"{n} – schöne Grüße, 港" * 20 for n in range(200))
    shown = details(PAUSED.model_copy(update={"notes": notes}))
    assert shown.endswith(" …")
    assert MAX_BYTES - 3 <= len(shown.encode()) <= MAX_BYTES + 4
    assert shown.startswith(details(PAUSED)[:1_000])


def test_a_cost_is_shown_in_dollars_and_an_unknown_one_is_said() -> None:
    priced = PAUSED.model_copy(update={"totals": RunTotals(cost_micro_usd=123_456)})
    assert "$0.1235" in details(priced)
    unpriced = PAUSED.model_copy(update={"totals": RunTotals(cost_micro_usd=None)})
    assert "price unknown" in details(unpriced)
