"""Deadlines of requests for money, a week ahead: the server's clock is moved on, workers are restarted meanwhile."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from temporalio.testing import WorkflowEnvironment

from tests.live.time_skipping import WaitingTask, register_admitted_task, run_time_skipping_server
from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import WORK_TOKENS, ScriptedTaskModel, make_tight_budget_config
from tests.support.temporal_platform import open_activity_deps, run_all_workers, wait_until
from waystation.agents.action_approvals import UnattendedPolicy
from waystation.kernel.amount import Amount
from waystation.privacy.ports import Redactor
from waystation.tasks.approvals import APPROVE_BUDGET
from waystation.tasks.task import ApprovalRequest, TaskConfig, TaskPhase, TaskProgress

WEEK, DAY, HOUR = timedelta(days=7), timedelta(days=1), timedelta(hours=1)
REQUESTS = ["harbours-1", "tides-1"]


@pytest.fixture
async def server() -> AsyncIterator[WorkflowEnvironment]:
    async with run_time_skipping_server() as environment:
        yield environment


def within_a_week(decided: UnattendedPolicy) -> TaskConfig:
    return make_tight_budget_config().replace(unattended=decided.replace(answer_within=WEEK))


def decisions(progress: TaskProgress) -> dict[str, str]:
    return {asked.request_id: asked.decision for asked in progress.approvals}


def between(first: datetime | None, then: datetime | None) -> timedelta:
    assert first
    assert then
    return then - first


def waited(asked: ApprovalRequest) -> timedelta:
    return between(asked.requested_at, asked.answered_at)


def overdue(progress: TaskProgress) -> list[str]:
    return [note for note in progress.notes if "is overdue" in note]


async def test_a_request_waits_for_seven_days_and_then_its_agent_delivers_what_it_has(
    server: WorkflowEnvironment, tmp_path: Path, redactor: Redactor
) -> None:
    crew = ScriptedTaskModel()
    async with open_activity_deps(tmp_path, redactor, crew) as parts:
        start = await register_admitted_task(parts.store, within_a_week(UnattendedPolicy(at_deadline="partial")))
        async with run_all_workers(server.client, parts):
            task = await WaitingTask.start_paused(server, start)
            await task.skip_time(6 * DAY + 23 * HOUR)
            almost, busy, called = await task.progress(), await task.has_pending_activities(), list(crew.calls)
        async with run_all_workers(server.client, parts):
            await task.skip_time(HOUR)
            over = await task.result()
        trail = await parts.store.list_audit_entries(task.handle.id, SYSTEM_SCOPE)
        report = await parts.store.get_text(over.report or "", SYSTEM_SCOPE)
    assert (almost.phase, decisions(almost), busy) == (TaskPhase.PAUSED, dict.fromkeys(REQUESTS, "pending"), False)
    assert all(between(asked.requested_at, asked.answer_by) == WEEK for asked in almost.approvals)
    assert over.phase is TaskPhase.PARTIAL
    assert decisions(over) == dict.fromkeys(REQUESTS, "expired")
    assert all(WEEK <= waited(asked) < WEEK + HOUR for asked in over.approvals)
    assert [step.state for step in over.steps] == ["partial", "partial", "done", "done"]
    assert crew.calls[: len(called)] == called
    assert len(crew.calls) == len(set(crew.calls))
    assert [entry.decision for entry in trail if isinstance(entry, ApprovalRequest)].count("expired") == len(REQUESTS)
    assert "tides ended early: its budget request was not answered by its deadline" in report


async def test_a_request_that_shall_wait_is_overdue_after_seven_days_and_takes_an_approval_on_the_eighth(
    server: WorkflowEnvironment, tmp_path: Path, redactor: Redactor
) -> None:
    crew = ScriptedTaskModel()
    async with open_activity_deps(tmp_path, redactor, crew) as parts:
        start = await register_admitted_task(parts.store, within_a_week(UnattendedPolicy(at_deadline="wait")))
        async with run_all_workers(server.client, parts):
            task = await WaitingTask.start_paused(server, start)
            await task.skip_time(6 * DAY + 23 * HOUR)
            in_time = await task.progress()
        async with run_all_workers(server.client, parts):
            await task.skip_time(DAY + HOUR)

            async def noted() -> bool:
                return len(overdue(await task.progress())) == len(REQUESTS)

            await wait_until(noted)
            late = await task.progress()
        async with run_all_workers(server.client, parts):
            for request_id in REQUESTS:
                await task.handle.signal(APPROVE_BUDGET, {"request_id": request_id, "by": "Ada"})
            over = await task.result()
    assert overdue(in_time) == []
    assert (late.phase, decisions(late)) == (TaskPhase.PAUSED, dict.fromkeys(REQUESTS, "pending"))
    assert over.phase is TaskPhase.DONE
    assert decisions(over) == dict.fromkeys(REQUESTS, "approved")
    assert all(waited(asked) >= WEEK + DAY for asked in over.approvals)
    assert over.budget.spent == Amount(tokens=WORK_TOKENS)
    assert len(overdue(over)) == len(REQUESTS)
    assert len(crew.calls) == len(set(crew.calls))
