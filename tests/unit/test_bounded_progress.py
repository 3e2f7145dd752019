"""What a task's workflow says about itself has a bounded size, however large the task is."""

from datetime import timedelta

import pytest

from tests.unit.progress_values import APPROVED, ASKING, NOON, PAUSED, compaction, step
from waystation.tasks.progress import LEFT_OUT, PROGRESS_BYTES, bounded
from waystation.tasks.task import Refusal, TaskProgress, Telling


def large(agents: int = 100, approvals: int = 200, pending: int = 0) -> TaskProgress:
    subagents = tuple(step(f"research-1.{number}", "done", legs=3) for number in range(agents))
    closed = tuple(
        APPROVED.replace(request_id=f"research-1-{number}", note="x" * 2_000, answer_id=str(number))
        for number in range(approvals)
    )
    asking = tuple(ASKING.replace(request_id=f"research-2-{number}", note="x" * 900) for number in range(pending))
    return PAUSED.replace(
        steps=(*PAUSED.steps, *subagents),
        approvals=(*closed, *asking),
        compactions=tuple(compaction().replace(agent=one.id) for one in subagents for _ in "12345"),
        refusals=tuple(Refusal(signal="tell", reason="r" * 900, at=NOON) for _ in range(20)),
        tellings=tuple(
            Telling(number=number, text="a" * 64, told_at=NOON + timedelta(seconds=number)) for number in range(300)
        ),
        notes=tuple(f"Note {number}: {'n' * 300}" for number in range(500)),
    )


def test_a_small_task_is_shown_whole() -> None:
    assert bounded(PAUSED) is PAUSED


def test_a_large_task_shows_its_newest_entries_and_counts_all_compactions() -> None:
    whole, shown = large(), bounded(large())
    assert len(shown.model_dump_json()) <= PROGRESS_BYTES < len(whole.model_dump_json())
    assert shown.notes[-1] == LEFT_OUT
    assert shown.approvals[-1].request_id == whole.approvals[-1].request_id
    assert shown.approvals[-1].answer_id == whole.approvals[-1].answer_id
    assert shown.tellings[-1] == whole.tellings[-1]
    assert shown.all_compactions == whole.all_compactions
    assert shown.compactions_of({"research-1.7"}) == whole.compactions_of({"research-1.7"})
    assert [one.id for one in shown.steps[:4]] == [one.id for one in PAUSED.steps]
    assert (shown.totals, shown.budget) == (whole.totals, whole.budget)


def test_open_requests_are_shown_before_all_that_is_closed() -> None:
    shown = bounded(large(pending=40))
    assert sum(one.decision == "pending" for one in shown.approvals) == 40


@pytest.mark.parametrize("most", [4_000, 20_000, 60_000])
def test_no_task_is_larger_than_the_bound_whatever_it_consists_of(most: int) -> None:
    assert len(bounded(large(agents=400, pending=400), most).model_dump_json()) <= max(most, 4_000)
