"""Deadlines of requests for money, a week ahead: the server's clock is moved on, workers are restarted meanwhile."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from temporalio.testing import WorkflowEnvironment

from tests.crew import WORK_TOKENS, Crew, tight
from tests.readers import ANYONE
from tests.running import opened_parts, until, working
from tests.workflows_live.moving import WaitingTask, admitted, moving_server
from waystation.agents.decisions import UnattendedPolicy
from waystation.kernel.amount import Amount
from waystation.privacy.ports import Redactor
from waystation.tasks.approvals import APPROVE_BUDGET
from waystation.tasks.task import Approval, TaskPhase, TaskProgress, TaskTerms

WEEK, DAY, HOUR = timedelta(days=7), timedelta(days=1), timedelta(hours=1)
REQUESTS = ["harbours-1", "tides-1"]


@pytest.fixture
async def server() -> AsyncIterator[WorkflowEnvironment]:
    async with moving_server() as environment:
        yield environment


def within_a_week(decided: UnattendedPolicy) -> TaskTerms:
    return tight().replace(unattended=decided.replace(answer_within=WEEK))


def decisions(progress: TaskProgress) -> dict[str, str]:
    return {asked.request_id: asked.decision for asked in progress.approvals}


def between(first: datetime | None, then: datetime | None) -> timedelta:
    assert first
    assert then
    return then - first


def waited(asked: Approval) -> timedelta:
    return between(asked.requested_at, asked.answered_at)


def overdue(progress: TaskProgress) -> list[str]:
    return [note for note in progress.notes if "is overdue" in note]


async def test_a_request_waits_for_seven_days_and_then_its_agent_delivers_what_it_has(
    server: WorkflowEnvironment, tmp_path: Path, redactor: Redactor
) -> None:
    crew = Crew()
    async with opened_parts(tmp_path, redactor, crew) as parts:
        start = await admitted(parts.store, within_a_week(UnattendedPolicy(then="partial")))
        async with working(server.client, parts):
            task = await WaitingTask.paused(server, start)
            await task.sleep(6 * DAY + 23 * HOUR)
            almost, busy, called = await task.progress(), await task.busy(), list(crew.calls)
        async with working(server.client, parts):
            await task.sleep(HOUR)
            over = await task.result()
        trail = await parts.store.list_audit_entries(task.handle.id, ANYONE)
        report = await parts.store.get_text(over.report or "", ANYONE)
    assert (almost.phase, decisions(almost), busy) == (TaskPhase.PAUSED, dict.fromkeys(REQUESTS, "pending"), False)
    assert all(between(asked.requested_at, asked.answer_by) == WEEK for asked in almost.approvals)
    assert over.phase is TaskPhase.PARTIAL
    assert decisions(over) == dict.fromkeys(REQUESTS, "expired")
    assert all(WEEK <= waited(asked) < WEEK + HOUR for asked in over.approvals)
    assert [step.state for step in over.steps] == ["partial", "partial", "done", "done"]
    assert crew.calls[: len(called)] == called
    assert len(crew.calls) == len(set(crew.calls))
    assert [entry.decision for entry in trail if isinstance(entry, Approval)].count("expired") == len(REQUESTS)
    assert "tides ended partial: nobody answered its request for money until its deadline" in report


async def test_a_request_that_shall_wait_is_overdue_after_seven_days_and_takes_an_approval_on_the_eighth(
    server: WorkflowEnvironment, tmp_path: Path, redactor: Redactor
) -> None:
    crew = Crew()
    async with opened_parts(tmp_path, redactor, crew) as parts:
        start = await admitted(parts.store, within_a_week(UnattendedPolicy(then="wait")))
        async with working(server.client, parts):
            task = await WaitingTask.paused(server, start)
            await task.sleep(6 * DAY + 23 * HOUR)
            in_time = await task.progress()
        async with working(server.client, parts):
            await task.sleep(DAY + HOUR)

            async def noted() -> bool:
                return len(overdue(await task.progress())) == len(REQUESTS)

            await until(noted)
            late = await task.progress()
        async with working(server.client, parts):
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
