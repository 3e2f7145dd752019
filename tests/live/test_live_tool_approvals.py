"""Calls that ask a person, on a real server: nothing is held while they wait, and each is carried out once or not."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Literal

import pytest
from temporalio.client import Client, WorkflowFailureError

from tests.support.delegating_model import SUBMIT_FINDINGS_CALL, make_delegate_call, make_delegating_task_config
from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import CALL_TOKENS, TAKE_NOTE_CALL, WORK_TOKENS
from tests.support.temporal_platform import POLL_SECONDS, run_all_workers, start_dev_server, wait_until
from tests.support.tool_approval_platform import (
    ONE_LETTER_SCRIPT,
    PRIVATE,
    make_send_letter_call,
    run_tool_approval_platform,
)
from tests.support.workflow_history import fetch_current_details, fetch_events, join_all_strings
from waystation.agents.action_approvals import UnattendedPolicy
from waystation.agents.loop import EXPIRED
from waystation.budgets.budget import BudgetMode
from waystation.kernel.amount import Amount
from waystation.kernel.scopes import TaskScope
from waystation.privacy.ports import Redactor
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.approvals import APPROVE_BUDGET, DENY_BUDGET
from waystation.tasks.signals import EDIT_CONTEXT, SEND_MESSAGE
from waystation.tasks.task import ApprovalRequest, RejectedMessage, TaskPhase

TWO = {"harbours": [[make_send_letter_call("Brest"), make_send_letter_call("Cadiz")], [SUBMIT_FINDINGS_CALL]]}
SAVED = 7 * CALL_TOKENS - 2 * CALL_TOKENS
"""What the researcher with a script of two turns spends less than the crew's."""


async def test_an_approved_call_is_carried_out_once_while_its_siblings_went_on(
    server: Client, tmp_path: Path, presidio: Redactor
) -> None:
    async with (
        run_tool_approval_platform(server, tmp_path, presidio, ONE_LETTER_SCRIPT) as at,
        run_all_workers(server, at.parts),
    ):
        await at.counter.submit()
        (request,) = await at.wait_for_pending_requests()

        async def paused() -> bool:
            return (await at.progress()).phase is TaskPhase.PAUSED

        await wait_until(paused)
        seen, described, sent_before = await at.progress(), await at.task.describe(), list(at.tool.sent)
        shown = await fetch_current_details(at.task)
        await at.task.signal(APPROVE_BUDGET, {"request_id": request.request_id, "action": "send_letter", "by": "Ada"})
        progress = await at.task.result()
        written = join_all_strings(await fetch_events(at.task))
        trail = await at.parts.store.list_audit_entries(at.task.id, SYSTEM_SCOPE)
    assert request.action is not None
    assert (request.action.tool, request.requested) == ("send_letter", Amount())
    assert {step.id: step.state for step in seen.steps}["tides"] == "done"
    assert described.raw_description.pending_activities == []
    assert sent_before == []
    assert shown.startswith("**Paused: a person has to answer**\n\n**harbours asks to call send_letter.**")
    assert at.tool.sent == ["the keeper"]
    assert [result.content for result in at.find_tool_results()][1] == "sent to the keeper"
    assert progress.phase is TaskPhase.DONE
    assert progress.budget.spent == Amount(tokens=WORK_TOKENS - SAVED)
    assert progress.budget.limit == seen.budget.limit
    assert PRIVATE not in written
    assert "Send this letter to the keeper?" in written
    assert [one.decision for one in trail if isinstance(one, ApprovalRequest)] == ["pending", "approved"]


async def test_a_denied_call_is_an_error_that_its_agent_works_with(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with run_tool_approval_platform(server, tmp_path, redactor, TWO) as at, run_all_workers(server, at.parts):
        await at.counter.submit()
        brest, cadiz = await at.wait_for_pending_requests(2)
        await at.task.signal(DENY_BUDGET, {"request_id": brest.request_id, "note": "Brest is closed"})
        await at.task.signal(APPROVE_BUDGET, {"request_id": cadiz.request_id})
        progress = await at.task.result()
    assert at.tool.sent == ["Cadiz"]
    refused, sent = at.find_tool_results()
    assert (refused.is_error, sent.is_error) == (True, False)
    assert "The person says: Brest is closed" in refused.content
    assert progress.phase is TaskPhase.DONE
    assert [one.decision for one in progress.approvals] == ["denied", "approved"]


async def test_a_grant_of_tokens_for_a_call_has_no_effect_and_says_why(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with (
        run_tool_approval_platform(server, tmp_path, redactor, ONE_LETTER_SCRIPT) as at,
        run_all_workers(server, at.parts),
    ):
        await at.counter.submit()
        (request,) = await at.wait_for_pending_requests()
        await at.task.signal(APPROVE_BUDGET, {"request_id": request.request_id, "tokens": 5_000})
        await at.task.signal(DENY_BUDGET, {"request_id": request.request_id, "finish": "cancel"})
        progress = await at.task.result()
    (refusal,) = progress.rejected_messages
    assert (
        refusal.reason
        == "the request harbours-1 asks to call send_letter, not for budget: approve it without an amount"
    )
    assert progress.phase is TaskPhase.CANCELLED
    assert progress.budget.reserved == Amount()
    assert at.tool.sent == []


async def test_workers_that_come_back_find_the_request_and_carry_the_call_out_once(
    tmp_path: Path, redactor: Redactor
) -> None:
    async with (
        start_dev_server(cached=False) as server,
        run_tool_approval_platform(server, tmp_path, redactor, TWO) as at,
    ):
        async with run_all_workers(server, at.parts):
            await at.counter.submit()
            brest, cadiz = await at.wait_for_pending_requests(2)
            await at.task.signal(APPROVE_BUDGET, {"request_id": brest.request_id})
        async with run_all_workers(server, at.parts):

            async def one_is_left() -> bool:  # the answer may have come when no worker was there any more
                # Its time is another one where the first worker stopped before the server had what it had been asked.
                return [one.request_id for one in await at.wait_for_pending_requests()] == [cadiz.request_id]

            await wait_until(one_is_left)
            await at.task.signal(APPROVE_BUDGET, {"request_id": cadiz.request_id})
            progress = await at.task.result()
    assert at.tool.sent == ["Brest", "Cadiz"]
    assert progress.phase is TaskPhase.DONE
    assert len(at.crew.calls) == len(set(at.crew.calls))


async def test_a_request_survives_a_task_that_continues_as_new(tmp_path: Path, redactor: Redactor) -> None:
    async with (
        start_dev_server("limit.historyCount.suggestContinueAsNew=40") as server,
        run_tool_approval_platform(server, tmp_path, redactor, ONE_LETTER_SCRIPT) as at,
        run_all_workers(server, at.parts),
    ):
        await at.counter.submit()
        (before,) = await at.wait_for_pending_requests()

        first = (await at.task.describe()).run_id

        async def went_on() -> bool:
            await at.task.signal(APPROVE_BUDGET, {"request_id": "nobody-1"})
            return (await at.task.describe()).run_id != first

        await wait_until(went_on)
        (after,) = await at.wait_for_pending_requests()
        await at.task.signal(APPROVE_BUDGET, {"request_id": after.request_id})
        progress = await at.task.result()
    assert after == before
    assert at.tool.sent == ["the keeper"]
    assert progress.phase is TaskPhase.DONE


class GatedStates:
    """A store that takes no piece of a task's state until the gate is opened."""

    def __init__(self, store: SqlStore) -> None:
        self._store, self.reached, self.opened = store, asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def put_text(self, text: str, owner: TaskScope) -> str:
        if text.startswith('{"parts":'):
            self.reached.set()
            await self.opened.wait()
        return await self._store.put_text(text, owner)


async def test_a_message_held_for_the_next_run_is_answered_if_the_task_is_cancelled_instead(
    tmp_path: Path, redactor: Redactor
) -> None:
    async with (
        start_dev_server("limit.historyCount.suggestContinueAsNew=40") as server,
        run_tool_approval_platform(server, tmp_path, redactor, ONE_LETTER_SCRIPT) as at,
    ):
        gated = GatedStates(at.parts.store)
        async with run_all_workers(server, replace(at.parts, store=gated)):  # pyright: ignore[reportArgumentType]: it has all that a store has
            await at.counter.submit()
            await at.wait_for_pending_requests()
            while not gated.reached.is_set():
                await at.task.signal(APPROVE_BUDGET, {"request_id": "nobody-1"})
                await asyncio.sleep(POLL_SECONDS)
            await at.task.signal(SEND_MESSAGE, {"text": "Give depths in metres.", "by": "Ben"})
            await at.task.cancel()
            gated.opened.set()
            with pytest.raises(WorkflowFailureError):
                await at.task.result()
            trail = await at.parts.store.list_audit_entries(at.task.id, SYSTEM_SCOPE)
    assert [one.signal for one in trail if isinstance(one, RejectedMessage) and one.signal == SEND_MESSAGE] == [
        SEND_MESSAGE
    ]


async def test_a_subagent_that_asks_is_no_workflow_until_its_task_has_the_answer(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    scripts = {
        "harbours": [[make_delegate_call("beacons")], [SUBMIT_FINDINGS_CALL]],
        "harbours.1": [[make_send_letter_call()], [SUBMIT_FINDINGS_CALL]],
    }
    async with run_tool_approval_platform(server, tmp_path, redactor, scripts) as at, run_all_workers(server, at.parts):
        await at.counter.submit(under=make_delegating_task_config())
        (request,) = await at.wait_for_pending_requests()
        child = await server.get_workflow_handle(f"{at.task.id}/harbours.1").describe()
        await at.task.signal(APPROVE_BUDGET, {"request_id": request.request_id})
        progress = await at.task.result()
    assert request.agent == "harbours.1"
    assert child.close_time is not None
    assert at.tool.sent == ["the keeper"]
    assert progress.phase is TaskPhase.DONE


async def test_a_task_that_is_cancelled_while_it_asks_ends_without_the_call(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with (
        run_tool_approval_platform(server, tmp_path, redactor, ONE_LETTER_SCRIPT) as at,
        run_all_workers(server, at.parts),
    ):
        await at.counter.submit()
        await at.wait_for_pending_requests()
        await at.task.cancel()

        async def over() -> bool:
            return (await at.task.describe()).close_time is not None

        await wait_until(over)
        row = await at.parts.store.get_task(at.task.id, SYSTEM_SCOPE)
    assert row.progress is not None
    assert row.progress.phase is TaskPhase.CANCELLED
    assert row.progress.budget.reserved == Amount()
    assert at.tool.sent == []


@pytest.mark.parametrize("mode", [BudgetMode.SOFT, BudgetMode.HARD])
async def test_where_nobody_is_asked_the_call_is_refused_at_once_and_the_task_says_so(
    server: Client, tmp_path: Path, redactor: Redactor, mode: BudgetMode
) -> None:
    terms = make_delegating_task_config()
    unasked = terms.replace(mode=mode, default=terms.default.replace(hard_budget=True, delegation=None))
    async with (
        run_tool_approval_platform(server, tmp_path, redactor, ONE_LETTER_SCRIPT) as at,
        run_all_workers(server, at.parts),
    ):
        await at.counter.submit(under=unasked)
        progress = await at.task.result()
    assert at.tool.sent == []
    assert at.find_tool_results()[1].is_error
    assert progress.approvals == ()
    assert (
        "The tool send_letter was not called: the call needs approval, and a task in mode soft or hard asks no one"
        in progress.notes
    )
    assert progress.phase is TaskPhase.DONE


async def test_an_edit_while_a_call_waits_leaves_it_waiting(server: Client, tmp_path: Path, redactor: Redactor) -> None:
    async with (
        run_tool_approval_platform(server, tmp_path, redactor, ONE_LETTER_SCRIPT) as at,
        run_all_workers(server, at.parts),
    ):
        await at.counter.submit()
        (request,) = await at.wait_for_pending_requests()
        await at.task.signal(EDIT_CONTEXT, {"action": "pin", "agent": "harbours", "message": "m1"})

        async def settled() -> bool:
            return any(edit.state == "done" for edit in (await at.progress()).context_edits)

        await wait_until(settled)
        still = await at.wait_for_pending_requests()
        await at.task.signal(APPROVE_BUDGET, {"request_id": request.request_id})
        progress = await at.task.result()
    assert still == (request,)
    assert at.tool.sent == ["the keeper"]
    assert progress.phase is TaskPhase.DONE


@pytest.mark.parametrize("then", ["partial", "wait"])
async def test_at_their_deadline_calls_are_refused_together_or_wait_on_as_was_decided_at_submit(
    server: Client, tmp_path: Path, redactor: Redactor, then: Literal["partial", "wait"]
) -> None:
    decided = UnattendedPolicy(answer_within=timedelta(seconds=1), at_deadline=then)
    terms = make_delegating_task_config().replace(unattended=decided)
    async with run_tool_approval_platform(server, tmp_path, redactor, TWO) as at, run_all_workers(server, at.parts):
        await at.counter.submit(under=terms)
        if then == "wait":

            async def noted() -> bool:
                return sum("is overdue" in note for note in (await at.progress()).notes) == 2

            await wait_until(noted)
            for request in await at.wait_for_pending_requests(2):
                await at.task.signal(APPROVE_BUDGET, {"request_id": request.request_id})
        progress = await at.task.result()
    waited = then == "wait"
    assert [one.decision for one in progress.approvals] == ["approved" if waited else "expired"] * 2
    assert at.tool.sent == (["Brest", "Cadiz"] if waited else [])
    assert [result.content == EXPIRED for result in at.find_tool_results()] == [not waited] * 2
    assert progress.phase is TaskPhase.DONE


async def test_a_conversation_that_is_taken_back_takes_its_request_with_it(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    scripts = {"harbours": [[TAKE_NOTE_CALL], [make_send_letter_call()], [SUBMIT_FINDINGS_CALL]]}
    async with run_tool_approval_platform(server, tmp_path, redactor, scripts) as at, run_all_workers(server, at.parts):
        await at.counter.submit()
        (request,) = await at.wait_for_pending_requests()
        await at.task.signal(EDIT_CONTEXT, {"action": "rewind", "agent": "harbours", "message": "m3"})

        async def asked_again() -> bool:
            return any(one.request_id == "harbours-2" for one in (await at.progress()).approvals)

        await wait_until(asked_again)
        await at.task.signal(APPROVE_BUDGET, {"request_id": request.request_id})
        await at.task.signal(APPROVE_BUDGET, {"request_id": "harbours-2"})
        progress = await at.task.result()
    assert [one.decision for one in progress.approvals] == ["expired", "approved"]
    assert [refusal.reason for refusal in progress.rejected_messages] == ["the request harbours-1 has already expired"]
    assert at.tool.sent == ["the keeper"]
    assert progress.phase is TaskPhase.DONE
