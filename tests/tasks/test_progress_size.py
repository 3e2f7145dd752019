"""What a task's workflow says about itself has a bounded size, however large the task is."""

from collections.abc import Collection
from datetime import timedelta

import pytest

from tests.support.progress_values import (
    APPROVED_APPROVAL,
    NOON,
    PAUSED_PROGRESS,
    PENDING_APPROVAL,
    make_compaction,
    make_step_progress,
)
from waystation.agents.task_messages import TaskMessage
from waystation.context.compaction import AgentCompaction, CompactionOutcome, CompactionTotals
from waystation.tasks.progress import MAX_PROGRESS_BYTES, TRUNCATION_NOTE, truncate_progress
from waystation.tasks.task import RejectedMessage, TaskProgress
from waystation.tasks.view import TaskView


def large(agents: int = 100, approvals: int = 200, pending: int = 0) -> TaskProgress:
    subagents = tuple(make_step_progress(f"research-1.{number}", "done", legs=3) for number in range(agents))
    closed = tuple(
        APPROVED_APPROVAL.replace(request_id=f"research-1-{number}", note="x" * 2_000, answer_id=str(number))
        for number in range(approvals)
    )
    asking = tuple(
        PENDING_APPROVAL.replace(request_id=f"research-2-{number}", note="x" * 900) for number in range(pending)
    )
    return PAUSED_PROGRESS.replace(
        steps=(*PAUSED_PROGRESS.steps, *subagents),
        approvals=(*closed, *asking),
        compactions=tuple(make_compaction().replace(agent=one.id) for one in subagents for _ in "12345"),
        rejected_messages=tuple(RejectedMessage(signal="send_message", reason="r" * 900, at=NOON) for _ in range(20)),
        task_messages=tuple(
            TaskMessage(number=number, text="a" * 64, sent_at=NOON + timedelta(seconds=number)) for number in range(300)
        ),
        notes=tuple(f"Note {number}: {'n' * 300}" for number in range(500)),
    )


def sum_compactions(progress: TaskProgress, agents: Collection[str] | None = None) -> CompactionTotals:
    return TaskView.from_progress(progress).sum_compactions(agents)


def test_a_compaction_as_people_see_it_has_every_field_of_its_outcome() -> None:
    told = make_compaction().replace(passages_waiting=1, added=("2 dates",), removed=("1 link",), notes=("Note.",))
    outcome = CompactionOutcome.model_validate(told.model_dump(exclude={"agent"}))
    assert all(getattr(outcome, name) for name in CompactionOutcome.model_fields if name != "totals")
    assert AgentCompaction.from_outcome(told.agent, outcome) == told


def test_a_small_task_is_shown_whole() -> None:
    assert truncate_progress(PAUSED_PROGRESS) is PAUSED_PROGRESS


def test_a_large_task_shows_its_newest_entries_and_counts_all_compactions() -> None:
    whole, shown = large(), truncate_progress(large())
    assert len(shown.model_dump_json()) <= MAX_PROGRESS_BYTES < len(whole.model_dump_json())
    assert shown.notes[-1] == TRUNCATION_NOTE
    assert shown.approvals[-1].request_id == whole.approvals[-1].request_id
    assert shown.approvals[-1].answer_id == whole.approvals[-1].answer_id
    assert shown.task_messages[-1] == whole.task_messages[-1]
    assert sum_compactions(shown) == sum_compactions(whole)
    assert sum_compactions(shown, {"research-1.7"}) == sum_compactions(whole, {"research-1.7"})
    assert [one.id for one in shown.steps[:4]] == [one.id for one in PAUSED_PROGRESS.steps]
    assert (shown.totals, shown.budget) == (whole.totals, whole.budget)


def test_open_requests_are_shown_before_all_that_is_closed() -> None:
    shown = truncate_progress(large(pending=40))
    assert sum(one.decision == "pending" for one in shown.approvals) == 40


@pytest.mark.parametrize("most", [4_000, 20_000, 60_000])
def test_no_task_is_larger_than_the_bound_whatever_it_consists_of(most: int) -> None:
    assert len(truncate_progress(large(agents=400, pending=400), most).model_dump_json()) <= max(most, 4_000)


def test_a_character_that_takes_several_bytes_counts_as_several() -> None:
    whole = PAUSED_PROGRESS.replace(notes=tuple("港" * 300 for _ in range(300)))
    assert len(whole.model_dump_json()) < MAX_PROGRESS_BYTES
    assert len(truncate_progress(whole).model_dump_json().encode()) <= MAX_PROGRESS_BYTES
