import asyncio
from pathlib import Path

import pytest
from pydantic import JsonValue
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.service import RPCError, RPCStatusCode

from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import (
    TIGHT_BUDGET,
    WORK_TOKENS,
    CallGate,
    ModelCall,
    ScriptedTaskModel,
    make_task_config,
    make_tight_budget_config,
)
from tests.support.temporal_platform import (
    WAIT_TIMEOUT_SECONDS,
    TaskSubmitter,
    make_task_request,
    open_store,
    run_platform,
    start_dev_server,
    wait_for_both_requests,
    wait_until,
)
from tests.support.workflow_history import fetch_events, list_timer_summaries
from waystation.budgets.budget import BudgetAccount
from waystation.kernel import temporal_names as names
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.errors import BadInput
from waystation.privacy.ports import Redactor
from waystation.tasks import approvals
from waystation.tasks.task import ApprovalRequest, RejectedMessage, TaskPhase
from waystation.workflows.session import SessionWorkflow
from waystation.workflows.task import TaskWorkflow

LONG_IS = "limit.historyCount.suggestContinueAsNew=40"
"""Events after which the server suggests to continue as new."""


async def account(counter: TaskSubmitter) -> BudgetAccount:
    return await counter.session.query(SessionWorkflow.account)


async def run_id(session: WorkflowHandle[SessionWorkflow, None]) -> str:
    return (await session.describe()).run_id


async def continue_the_session(counter: TaskSubmitter) -> None:
    """Signals until the server finds the history long."""
    first = await run_id(counter.session)

    async def continued() -> bool:
        await counter.session.signal(names.SET_SESSION_LIMIT, {"tokens": 100_000})
        return await run_id(counter.session) != first

    await wait_until(continued)


async def is_forgotten(client: Client, workflow_id: str) -> bool:
    try:
        await client.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        return error.status is RPCStatusCode.NOT_FOUND
    return False


# ---------------------------------------------------------------------------------------------------------- long life


async def test_tasks_outlive_the_session_s_runs_and_settle_with_the_newest(tmp_path: Path, redactor: Redactor) -> None:
    gate = CallGate(ModelCall("harbours", 2), ModelCall("tides", 2))
    async with (
        start_dev_server(LONG_IS) as client,
        run_platform(client, tmp_path, redactor, ScriptedTaskModel(before=gate)) as counter,
    ):
        await counter.submit(under=make_task_config(budget=20_000))
        await gate.reached.wait()
        await continue_the_session(counter)
        before = await account(counter)
        described = await counter.get_task_handle().describe()
        again = await counter.submit(under=make_task_config(budget=20_000))
        gate.opened.set()
        progress = await counter.get_task_handle().result()
        after = await account(counter)
    assert before == BudgetAccount(
        limit=Limit(tokens=100_000), reserved={counter.get_task_handle().id: Amount(tokens=20_000)}
    )
    assert described.status is WorkflowExecutionStatus.RUNNING
    assert again.state == "running"
    assert progress.phase is TaskPhase.DONE
    assert after == BudgetAccount(limit=Limit(tokens=100_000), spent=Amount(tokens=WORK_TOKENS))


async def test_a_task_draws_on_its_session_before_a_person_is_asked_also_while_the_session_continues_as_new(
    tmp_path: Path, redactor: Redactor
) -> None:
    requests = ["first", "second", "third", "fourth"]
    async with (
        start_dev_server(LONG_IS) as client,
        run_platform(client, tmp_path, redactor, ScriptedTaskModel()) as counter,
    ):
        await counter.set_session_limit(Limit(tokens=200_000))
        first = await run_id(counter.session)
        for request_id in requests:
            await counter.submit(make_task_request(request_id), under=make_tight_budget_config())
        progresses = [await counter.get_task_handle(request_id).result() for request_id in requests]
        assert await run_id(counter.session) != first
        settled = await account(counter)
    assert [progress.phase for progress in progresses] == [TaskPhase.DONE] * 4
    assert [progress.approvals for progress in progresses] == [()] * 4
    assert all((progress.budget.limit.tokens or 0) > TIGHT_BUDGET for progress in progresses)
    assert settled == BudgetAccount(limit=Limit(tokens=200_000), spent=Amount(tokens=4 * WORK_TOKENS))


async def test_the_timeline_says_what_a_session_waits_for(server: Client, tmp_path: Path, redactor: Redactor) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit()
        await counter.get_task_handle().result()
        said = await fetch_events(counter.session)
    assert set(list_timer_summaries(said)) == {'"check open tasks"'}


async def test_a_grant_of_a_person_raises_the_session_too(server: Client, tmp_path: Path, redactor: Redactor) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.set_session_limit(Limit(tokens=TIGHT_BUDGET))
        await counter.submit(under=make_tight_budget_config())
        task = counter.get_task_handle()
        await wait_for_both_requests(task)
        await task.signal(approvals.APPROVE_BUDGET, {"request_id": "harbours-1", "tokens": 1_500})
        await task.signal(approvals.APPROVE_BUDGET, {"request_id": "tides-1", "tokens": 1_500})
        granted = sum(asked.granted.tokens for asked in (await task.result()).approvals)
        assert granted >= 1_500
        assert await account(counter) == BudgetAccount(
            limit=Limit(tokens=TIGHT_BUDGET + granted), spent=Amount(tokens=WORK_TOKENS)
        )


async def test_a_grant_that_is_slow_to_be_recorded_reaches_the_session_before_its_task_settles(
    server: Client, tmp_path: Path, redactor: Redactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        recorded, audit = asyncio.Event(), counter.store.add_audit_entry

        async def slowly(task_id: str, entry: ApprovalRequest | RejectedMessage) -> None:
            if isinstance(entry, ApprovalRequest) and entry.decision == "approved":
                await asyncio.wait_for(recorded.wait(), WAIT_TIMEOUT_SECONDS)
            await audit(task_id, entry)

        monkeypatch.setattr(counter.store, "add_audit_entry", slowly)
        await counter.set_session_limit(Limit(tokens=TIGHT_BUDGET))
        await counter.submit(under=make_tight_budget_config())
        task = counter.get_task_handle()

        async def reporting() -> bool:
            progress = await task.query(TaskWorkflow.progress)
            for asked in progress.approvals:
                if asked.decision == "pending":
                    await task.signal(approvals.APPROVE_BUDGET, {"request_id": asked.request_id, "tokens": 1_500})
            return progress.phase.over or progress.report is not None

        await wait_until(reporting)
        recorded.set()
        granted = sum(asked.granted.tokens for asked in (await task.result()).approvals)
        assert await account(counter) == BudgetAccount(
            limit=Limit(tokens=TIGHT_BUDGET + granted), spent=Amount(tokens=WORK_TOKENS)
        )


async def test_a_terminated_task_gives_its_reservation_back(tmp_path: Path, redactor: Redactor) -> None:
    gate = CallGate(ModelCall("harbours", 2), ModelCall("tides", 2))
    async with (
        start_dev_server(LONG_IS) as client,
        run_platform(client, tmp_path, redactor, ScriptedTaskModel(before=gate)) as counter,
    ):
        await counter.submit()
        await gate.reached.wait()
        await counter.get_task_handle().terminate()
        gate.opened.set()
        assert (await account(counter)).reserved == {counter.get_task_handle().id: Amount(tokens=50_000)}
        await continue_the_session(counter)

        async def settled() -> bool:
            return (await account(counter)).total_reserved.is_zero

        await wait_until(settled)
        spent = (await account(counter)).spent
        totals = [
            await counter.store.get_run_usage(f"{counter.get_task_handle().id}/{step}")
            for step in ("plan", "harbours", "tides")
        ]
        again = await counter.submit()
        assert spent == sum((total.spent for total in totals), Amount())
        assert spent.tokens > 0
        assert again.state == "finished"
        assert await account(counter) == BudgetAccount(limit=Limit(tokens=100_000), spent=spent)


async def test_a_task_whose_session_is_gone_goes_on_to_its_end(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    gate = CallGate(ModelCall("harbours", 2))
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel(before=gate)) as counter:
        await counter.submit()
        await gate.reached.wait()
        await counter.session.terminate()
        found = await counter.submit()  # a new life of the session, which does not know the task
        reserved = (await account(counter)).reserved
        await counter.session.terminate()
        gate.opened.set()
        assert (await counter.get_task_handle().result()).phase is TaskPhase.DONE
        again = await counter.submit()  # another one, which learns from the store how the task ended
        settled = await account(counter)
    assert (found.state, again.state) == ("running", "finished")
    assert reserved == {counter.get_task_handle().id: Amount(tokens=50_000)}
    assert settled == BudgetAccount(limit=Limit(), spent=Amount(tokens=WORK_TOKENS))


async def test_a_session_that_was_terminated_keeps_its_limit_and_what_it_has_spent(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    limit = Limit(tokens=60_000)
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.set_session_limit(limit)
        await counter.submit()
        await counter.get_task_handle().result()
        await counter.session.terminate()
        with pytest.raises(BadInput, match="51,900 of 60,000 tokens left"):
            await counter.submit(make_task_request("second"), under=make_task_config(budget=60_000))
        assert await account(counter) == BudgetAccount(limit=limit, spent=Amount(tokens=WORK_TOKENS))


async def test_a_grant_reaches_a_session_that_was_terminated_meanwhile(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.set_session_limit(Limit(tokens=TIGHT_BUDGET))
        await counter.submit(under=make_tight_budget_config())
        task = counter.get_task_handle()
        await wait_for_both_requests(task)
        await counter.session.terminate()
        for asked in ("harbours-1", "tides-1"):
            await task.signal(approvals.APPROVE_BUDGET, {"request_id": asked, "tokens": 1_500})
        granted = sum(asked.granted.tokens for asked in (await task.result()).approvals)
        assert granted >= 1_500
        assert await account(counter) == BudgetAccount(
            limit=Limit(tokens=TIGHT_BUDGET + granted), spent=Amount(tokens=WORK_TOKENS)
        )


# ------------------------------------------------------------------------------------------------------- the same task


async def test_the_same_request_is_one_task_while_it_runs_and_after_it_ended(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    gate = CallGate(ModelCall("harbours", 1))
    crew = ScriptedTaskModel(before=gate)
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        first = await counter.submit()
        await gate.reached.wait()
        second = await counter.submit()
        gate.opened.set()
        await counter.get_task_handle().result()
        run = (await counter.get_task_handle().describe()).run_id
        third = await counter.submit()
        settled = await account(counter)
        described = await counter.get_task_handle().describe()
    assert (first.state, second.state, third.state) == ("started", "running", "finished")
    assert first.task_id == second.task_id == third.task_id
    assert described.run_id == run
    assert described.status is WorkflowExecutionStatus.COMPLETED
    assert settled == BudgetAccount(limit=Limit(), spent=Amount(tokens=WORK_TOKENS))
    assert len(crew.calls) == len(set(crew.calls))


async def test_the_same_request_finds_its_task_after_temporal_has_forgotten_it(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    crew = ScriptedTaskModel()
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit()
        await counter.get_task_handle().result()
        calls = len(crew.calls)
    async with start_dev_server() as other, run_platform(other, tmp_path, redactor, crew) as counter:
        assert (await counter.submit()).state == "finished"
        assert await is_forgotten(other, counter.get_task_handle().id)
        assert await account(counter) == BudgetAccount(limit=Limit(), spent=Amount(tokens=WORK_TOKENS))
    assert len(crew.calls) == calls


# ------------------------------------------------------------------------------------------------------------ refused


async def test_a_task_that_does_not_fit_the_session_is_refused_with_both_numbers(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.set_session_limit(Limit(tokens=30_000))
        with pytest.raises(BadInput) as refused:
            await counter.submit(under=make_task_config(budget=50_000))
        assert str(refused.value) == (
            "the session refused the task: the session has 30,000 of 30,000 tokens left, but the task asks for 50,000 "
            "tokens: submit with --budget 30000 or less, or raise the session's limit with `waystation session set "
            "SESSION --budget AMOUNT`"
        )
        kept = await counter.store.get_task(counter.get_task_handle().id, SYSTEM_SCOPE)
        assert kept.was_refused
        assert kept.ended_at is not None
        assert kept.progress is not None
        assert kept.progress.notes[0].startswith(
            "the session refused the task: the session has 30,000 of 30,000 tokens left"
        )
        (known,) = await counter.store.list_sessions(kept.ref.scope.get_recall_scope("session"), 0, 10)
        assert (known.tasks, known.refused, known.limit) == (0, 1, Limit(tokens=30_000))
        assert await is_forgotten(server, counter.get_task_handle().id)
        assert await account(counter) == BudgetAccount(limit=Limit(tokens=30_000))
        await counter.set_session_limit(Limit(tokens=50_000))
        assert (await counter.submit(under=make_task_config(budget=50_000))).state == "started"
        assert not (await counter.store.get_task(counter.get_task_handle().id, SYSTEM_SCOPE)).was_refused
        assert (await counter.get_task_handle().result()).notes == ()


async def test_a_refusal_is_stored_before_the_client_hears_of_it(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.set_session_limit(Limit(tokens=30_000))
        with pytest.raises(BadInput):
            await counter.submit(under=make_task_config(budget=50_000))
        history = [event async for event in counter.session.fetch_history_events()]
    kept = next(
        event.event_id
        for event in history
        if event.activity_task_scheduled_event_attributes.activity_type.name == "RefuseTask"
    )
    answered = next(
        event.event_id for event in history if event.HasField("workflow_execution_update_completed_event_attributes")
    )
    assert kept < answered


async def test_a_task_of_another_store_is_refused_with_the_names_of_both(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    (tmp_path / "other").mkdir()
    async with (
        run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter,
        open_store(tmp_path / "other") as other,
    ):
        stranger = TaskSubmitter(server, other)
        with pytest.raises(BadInput) as refused:
            await stranger.submit()
        assert await other.get_store_id() in str(refused.value)
        assert await counter.store.get_store_id() in str(refused.value)


@pytest.mark.parametrize("sent", [(), ("yes",), ({"tokens": "all"}, 2)], ids=["nothing", "a word", "two inputs"])
async def test_messages_that_do_not_fit_leave_the_session_as_it_is(
    sent: tuple[JsonValue, ...], server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.set_session_limit(Limit(tokens=60_000))
        for signal in (names.SET_SESSION_LIMIT, names.ASK_BUDGET, names.TASK_GRANTED, names.TASK_FINISHED):
            await counter.session.signal(signal, args=sent)
        with pytest.raises(WorkflowUpdateFailedError):
            await counter.session.execute_update(names.SUBMIT_TASK)  # pyright: ignore[reportUnknownMemberType]: an overload has a bare ParamSpec

        async def all_are_handled() -> bool:
            return await account(counter) == BudgetAccount(limit=Limit(tokens=60_000))

        await wait_until(all_are_handled)
        await counter.submit()
        await counter.get_task_handle().signal(names.BUDGET_ANSWER, args=sent)
        assert (await counter.get_task_handle().result()).phase is TaskPhase.DONE
