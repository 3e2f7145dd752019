"""People take agents back: of a task that waits for money, and of one that had ended and goes on."""

from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowFailureError

from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import (
    CALL_TOKENS,
    SCRIPTED_CALLS,
    WORK_TOKENS,
    CallGate,
    ModelCall,
    ScriptedTaskModel,
    make_task_config,
    make_tight_budget_config,
)
from tests.support.temporal_platform import TaskSubmitter, run_platform, wait_for_both_requests, wait_until
from waystation.context.compaction import ContextEdit
from waystation.context.history import build_model_view
from waystation.context.message_rules import find_violations
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.errors import BadInput
from waystation.privacy.ports import Redactor
from waystation.tasks.approvals import APPROVE_BUDGET, DENY_BUDGET
from waystation.tasks.signals import EDIT_CONTEXT, AnswerResult, ContextEditInput
from waystation.tasks.task import TaskPhase, TaskProgress
from waystation.tasks.view import select_shown_version
from waystation.workflows.session import SessionWorkflow
from waystation.workflows.task import TaskWorkflow

BACK = ContextEditInput(action="rewind", agent="harbours", message="m5", by="Ada", note="it went astray")
"""To the result of the second of seven calls."""
AGAIN = [ModelCall("harbours", turn) for turn in range(3, 8)] + [
    ModelCall("weigh", 1),
    ModelCall("write", 1),
    ModelCall("write", 2),
]
"""What is left to do after that, and by whom."""


async def progress_of(counter: TaskSubmitter) -> TaskProgress:
    return await counter.get_task_handle().query(TaskWorkflow.progress)


async def settled(counter: TaskSubmitter) -> Amount:
    """What the session has spent, once no task holds anything in it."""

    async def free() -> bool:
        return not (await counter.session.query(SessionWorkflow.account)).reserved

    await wait_until(free)
    return (await counter.session.query(SessionWorkflow.account)).spent


async def test_a_finished_task_goes_on_from_a_message_and_pays_no_finished_turn_again(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    crew = ScriptedTaskModel()
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.set_session_limit(Limit(tokens=60_000))
        await counter.submit(under=make_task_config())
        first = await counter.get_task_handle().result()
        before = await settled(counter)
        crew.calls.clear()

        answer = await counter.edit(BACK)
        second = await counter.get_task_handle().result()
        after = await settled(counter)
        ref = (await counter.store.get_task(second.task_id, SYSTEM_SCOPE)).ref
        notes = await counter.store.list_notes(ref.task_id, SYSTEM_SCOPE, f"{ref.task_id}/harbours")
        said = await counter.store.load_transcript(f"{ref.task_id}/harbours", SYSTEM_SCOPE)
        report = await counter.store.get_text(str(second.report), SYSTEM_SCOPE)
        trail = await counter.store.list_audit_entries(ref.task_id, SYSTEM_SCOPE)
        bill = (await counter.store.list_task_charges(ref.task_id, SYSTEM_SCOPE)).cost_breakdown

    assert answer.outcome == "done"
    assert (first.phase, second.phase) == (TaskPhase.DONE, TaskPhase.DONE)
    assert crew.calls == AGAIN
    spent = Amount(tokens=WORK_TOKENS + len(AGAIN) * CALL_TOKENS)
    assert (before.tokens, after, second.totals.spent) == (WORK_TOKENS, spent, spent)
    assert bill.total.calls * CALL_TOKENS == spent.tokens
    assert len(notes) == [name for name, _ in SCRIPTED_CALLS["submit_findings"]].count("take_note")
    assert find_violations(build_model_view(said)) == ()
    assert "# Pilotage" in report
    (edit,) = [entry for entry in trail if isinstance(entry, ContextEdit)]
    assert (edit.short_description, edit.state, edit.by, edit.note) == ("rewind to m5", "done", "Ada", "it went astray")
    assert second.context_edits == (edit,)


async def test_a_task_that_was_cancelled_goes_on_also_with_steps_that_had_never_begun(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=make_tight_budget_config())
        task = counter.get_task_handle()
        await wait_for_both_requests(task)
        await task.signal(DENY_BUDGET, {"request_id": "harbours-1", "finish": "cancel", "by": "Ada"})
        first = await task.result()
        await counter.edit(BACK)

        granted = set[str]()

        async def ended() -> bool:
            now = await progress_of(counter)
            for one in now.approvals:
                if one.decision == "pending" and one.request_id not in granted:
                    granted.add(one.request_id)
                    await task.signal(APPROVE_BUDGET, {"request_id": one.request_id})
            return now.phase.over

        await wait_until(ended)
        second = await task.result()
        spent = await settled(counter)
    assert first.phase is TaskPhase.CANCELLED
    assert [step.state for step in second.steps] == ["done", "partial", "done", "done"]
    assert second.totals.spent == spent


async def test_an_agent_that_waits_for_money_goes_back_and_on_when_it_is_paid(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    crew = ScriptedTaskModel()
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=make_tight_budget_config())
        task = counter.get_task_handle()
        await wait_for_both_requests(task)
        before = await counter.store.list_notes(task.id, SYSTEM_SCOPE, f"{task.id}/harbours")
        await task.signal(EDIT_CONTEXT, {"action": "rewind", "agent": "harbours", "message": "m3"})

        async def edited() -> bool:
            return any(edit.state == "done" for edit in (await progress_of(counter)).context_edits)

        await wait_until(edited)
        after = await counter.store.list_notes(task.id, SYSTEM_SCOPE, f"{task.id}/harbours")
        waiting = await progress_of(counter)
        crew.calls.clear()
        for request_id in ("harbours-1", "tides-1"):
            await task.signal(APPROVE_BUDGET, {"request_id": request_id, "tokens": 5_000})
        ended = await task.result()
    assert (len(before), len(after)) == (4, 0)
    assert waiting.phase is TaskPhase.PAUSED
    assert ModelCall("harbours", 2) in crew.calls
    assert ModelCall("harbours", 1) not in crew.calls
    assert ended.phase is TaskPhase.DONE


async def test_what_cannot_be_taken_back_is_refused_and_the_task_stays_as_it_ended(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    gate = CallGate(ModelCall("weigh", 1))
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel(before=gate)) as counter:
        await counter.set_session_limit(Limit(tokens=50_000))
        await counter.submit(under=make_task_config())
        task = counter.get_task_handle()
        await gate.reached.wait()
        await task.signal(EDIT_CONTEXT, BACK.model_dump(mode="json", exclude_none=True))

        async def refused() -> bool:
            return bool((await progress_of(counter)).rejected_messages)

        await wait_until(refused)
        gate.opened.set()
        ended = await task.result()
        await settled(counter)
        for wrong, why in (
            (BACK.replace(message="m99"), "there is no message 'm99'"),
            (BACK.replace(agent="plan"), "no agent 'plan' has worked; agents that have worked: harbours"),
        ):
            with pytest.raises(BadInput, match=why):
                await counter.edit(wrong)
        with pytest.raises(BadInput, match="has ended: the edit 'pin' works only while agents run"):
            await counter.edit(ContextEditInput(action="pin", agent="harbours", message="m5"))
        await counter.set_session_limit(Limit(tokens=WORK_TOKENS))
        with pytest.raises(BadInput, match="the session refused the task"):
            await counter.edit(BACK)
        stays = (await counter.store.get_task(task.id, SYSTEM_SCOPE)).progress
        spent = await settled(counter)
    (refusal,) = ended.rejected_messages
    assert "harbours has finished" in refusal.reason
    assert stays is not None
    assert (stays.phase, stays.report) == (TaskPhase.DONE, ended.report)
    assert spent == ended.totals.spent


async def test_of_two_rewinds_at_once_one_takes_effect(server: Client, tmp_path: Path, redactor: Redactor) -> None:
    gate = CallGate(ModelCall("harbours", 3))
    crew = ScriptedTaskModel()
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=make_task_config())
        before = await counter.get_task_handle().result()
        await settled(counter)
        crew.before = gate
        first = await counter.edit(BACK)
        shown = (await counter.store.get_task(before.task_id, SYSTEM_SCOPE)).progress
        second = await refused_or(counter)
        gate.opened.set()
        ended = await counter.get_task_handle().result()
    assert first.outcome == "done"
    assert shown is not None
    assert not shown.phase.over, "who asks right after the answer finds it at work"
    assert second == "refused"
    assert len(ended.context_edits) == 1


async def refused_or(counter: TaskSubmitter) -> str:
    """What becomes of a second rewind: the store may know already that the task is at work, or the session does."""
    try:
        answer: AnswerResult = await counter.edit(BACK)
    except BadInput:
        return "refused"
    return answer.outcome


async def test_a_report_once_delivered_stays_readable_while_its_task_goes_on_and_where_that_is_cancelled(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    crew = ScriptedTaskModel()
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=make_task_config())
        ended = await counter.get_task_handle().result()
        crew.before = gate = CallGate(ModelCall("weigh", 1))
        await counter.edit(BACK)
        await gate.reached.wait()
        goes_on = await counter.get_task_handle().query(TaskWorkflow.progress)
        stored = (await counter.store.get_task(ended.task_id, SYSTEM_SCOPE)).progress
        await counter.get_task_handle().cancel()
        gate.opened.set()
        with pytest.raises(WorkflowFailureError):
            await counter.get_task_handle().result()
        cancelled = (await counter.store.get_task(ended.task_id, SYSTEM_SCOPE)).progress
        texts = (
            [await counter.store.get_text(one.report, SYSTEM_SCOPE) for one in cancelled.reports] if cancelled else []
        )
        crew.before = ScriptedTaskModel().before
        await counter.edit(BACK)
        again = await counter.get_task_handle().result()

    (first,) = ended.reports
    assert (first.number, first.report, first.phase) == (1, ended.report, TaskPhase.DONE)
    assert first.stored_at is not None
    assert stored is not None
    assert cancelled is not None
    assert (goes_on.report, select_shown_version(goes_on.reports), select_shown_version(stored.reports)) == (
        None,
        first,
        first,
    )
    assert [(one.number, one.phase) for one in cancelled.reports] == [(1, TaskPhase.DONE), (2, TaskPhase.CANCELLED)]
    assert select_shown_version(cancelled.reports) == first
    assert ["**Partial.**" in text for text in texts] == [False, True]
    assert [one.number for one in again.reports] == [1, 2, 3]
    assert select_shown_version(again.reports) == again.reports[-1]
