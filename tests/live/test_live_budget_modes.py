"""Where a spent agent gets more, by mode, with budgets in tokens and in dollars: the numbers are the same."""

from collections.abc import Callable
from pathlib import Path

import pytest
from temporalio.client import Client

from tests.support.task_model import (
    CALL_TOKENS,
    SCRIPTED_CALLS,
    STEP_SHARE_TOKENS,
    TIGHT_BUDGET,
    WORK_TOKENS,
    CallGate,
    ModelCall,
    ScriptedTaskModel,
    make_task_config,
    make_tight_budget_config,
    to_dollar_config,
)
from tests.support.temporal_platform import TaskSubmitter, run_platform, wait_until
from tests.support.workflow_history import fetch_events, list_event_kinds
from waystation.budgets.budget import BudgetMode
from waystation.kernel import temporal_names as names
from waystation.kernel.amount import Amount, Limit, format_amount
from waystation.privacy.ports import Redactor
from waystation.tasks import approvals
from waystation.tasks.details import build_grant_fields, build_limit_fields
from waystation.tasks.task import TaskConfig, TaskPhase, TaskProgress
from waystation.workflows.task import TaskWorkflow

Unit = Callable[[TaskConfig], TaskConfig]


def in_tokens(given: TaskConfig) -> TaskConfig:
    return given


units = pytest.mark.parametrize("unit", [in_tokens, to_dollar_config])


def number(limit: Limit) -> int:
    """Of the one unit that it has."""
    return limit.tokens if limit.tokens is not None else limit.amount.micro_usd


def in_unit(unit: Unit, count: int) -> Amount:
    return Amount(tokens=count) if unit is in_tokens else Amount(micro_usd=count)


def reason(unit: Unit, mode: BudgetMode) -> str:
    """Why a researcher ends after five calls: the smallest sixth does not fit in what is left of its share."""
    short = in_unit(unit, CALL_TOKENS - (STEP_SHARE_TOKENS - 5 * CALL_TOKENS))
    return f"its next call may cost {format_amount(short)} more than it has left, and the mode is {mode}"


async def limit_session(counter: TaskSubmitter, unit: Unit, count: int) -> None:
    """Of a session that runs."""
    limit = Limit(tokens=count) if unit is in_tokens else Limit(micro_usd=count)
    await counter.session.signal(names.SET_SESSION_LIMIT, build_limit_fields(limit))


async def asked_of_the_session(counter: TaskSubmitter) -> int:
    return (
        list_event_kinds(await fetch_events(counter.get_task_handle())).count(
            "signal_external_workflow_execution_initiated"
        )
        - 1
    )
    # the last of them tells what was spent


def spent_all(progress: TaskProgress) -> int:
    """What the whole crew's work costs, whatever it is limited in."""
    return progress.budget.spent.tokens


@units
async def test_in_mode_hard_an_agent_gets_no_more_than_its_share_also_where_task_and_session_have_some(
    unit: Unit, server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    gate = CallGate(ModelCall("plan", 1))
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel(before=gate)) as counter:
        await counter.submit(under=unit(make_task_config(agent_budget=STEP_SHARE_TOKENS, mode=BudgetMode.HARD)))
        await gate.reached.wait()
        await limit_session(counter, unit, 200_000)
        gate.opened.set()
        progress = await counter.get_task_handle().result()
        asked = await asked_of_the_session(counter)
    assert progress.phase is TaskPhase.PARTIAL
    assert (progress.approvals, asked) == ((), 0)
    assert [number(step.limit) for step in progress.steps] == [STEP_SHARE_TOKENS] * 4
    assert [step.reason for step in progress.steps[:2]] == [reason(unit, BudgetMode.HARD)] * 2
    assert number(progress.budget.limit) == 50_000


@units
@pytest.mark.parametrize("mode", [BudgetMode.SOFT, BudgetMode.APPROVAL])
async def test_an_agent_goes_on_with_what_its_task_has_left(
    unit: Unit, mode: BudgetMode, server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=unit(make_task_config(agent_budget=STEP_SHARE_TOKENS, mode=mode)))
        progress = await counter.get_task_handle().result()
        asked = await asked_of_the_session(counter)
    assert progress.phase is TaskPhase.DONE
    assert (progress.approvals, asked, spent_all(progress)) == ((), 0, WORK_TOKENS)
    assert number(progress.steps[0].limit) > STEP_SHARE_TOKENS
    assert number(progress.budget.limit) == 50_000


@units
@pytest.mark.parametrize("mode", [BudgetMode.SOFT, BudgetMode.APPROVAL])
async def test_an_agent_goes_on_with_what_its_session_has_left(
    unit: Unit, mode: BudgetMode, server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    gate = CallGate(ModelCall("plan", 1))
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel(before=gate)) as counter:
        await counter.submit(under=unit(make_tight_budget_config(mode)))
        await gate.reached.wait()
        await limit_session(counter, unit, 200_000)
        gate.opened.set()
        progress = await counter.get_task_handle().result()
    assert progress.phase is TaskPhase.DONE
    assert (progress.approvals, spent_all(progress)) == ((), WORK_TOKENS)
    assert number(progress.budget.limit) > TIGHT_BUDGET


@units
async def test_in_mode_soft_an_agent_delivers_what_it_has_when_everything_is_spent_and_nobody_is_asked(
    unit: Unit, server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=unit(make_tight_budget_config(BudgetMode.SOFT)))
        progress = await counter.get_task_handle().result()
        asked = await asked_of_the_session(counter)
    assert progress.phase is TaskPhase.PARTIAL
    assert progress.approvals == ()
    assert asked > 0
    reasons = {step.reason for step in progress.steps if step.state == "partial"}
    assert reasons == {reason(unit, BudgetMode.SOFT)}


async def test_in_mode_soft_the_writer_still_has_its_reserve_when_research_has_spent_the_rest_and_a_report_is_stored(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    reserve = Amount(tokens=CALL_TOKENS * (len(SCRIPTED_CALLS["submit_report"]) + 1))
    budget = WORK_TOKENS - 4 * CALL_TOKENS
    given = make_task_config(budget=budget, agent_budget=STEP_SHARE_TOKENS, mode=BudgetMode.SOFT).replace(
        minimum_reserve=Amount(tokens=CALL_TOKENS), minimum_reserves={"writing": reserve}
    )
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=given)
        progress = await counter.get_task_handle().result()
    steps = {step.id: step for step in progress.steps}
    writer = progress.steps[-1]
    assert (progress.phase, progress.approvals) == (TaskPhase.PARTIAL, ())
    assert "partial" in {step.state for step in steps.values()}
    assert writer.state == "done"
    assert number(writer.limit) >= reserve.tokens
    assert progress.report is not None
    assert progress.budget.spent.tokens <= budget


@units
async def test_in_mode_approval_an_agent_draws_first_and_then_asks_in_the_unit_that_it_lacks(
    unit: Unit, server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    share, spare = 2_000, 1_000
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=unit(make_task_config(budget=CALL_TOKENS + 4 * share + spare, agent_budget=share)))
        task = counter.get_task_handle()

        async def both_ask() -> bool:
            progress = await task.query(TaskWorkflow.progress)
            return sum(approval.decision == "pending" for approval in progress.approvals) == 2

        await wait_until(both_ask)
        progress = await task.query(TaskWorkflow.progress)
        drawn = [number(approval.limit) - share for approval in progress.approvals]
        enough = in_unit(unit, 5_000)
        for approval in progress.approvals:
            await task.signal(
                approvals.APPROVE_BUDGET, {"request_id": approval.request_id, **build_grant_fields(enough)}
            )
        progress = await task.result()
    assert sum(drawn) == spare
    asked = [approval.requested for approval in progress.approvals]
    assert all(one == in_unit(unit, one.tokens or one.micro_usd) for one in asked)
    assert not any(one.subtract_clamped(in_unit(unit, share)).is_zero for one in asked)
    assert [approval.granted for approval in progress.approvals] == [enough] * 2
    assert progress.phase is TaskPhase.DONE
    assert spent_all(progress) == WORK_TOKENS


async def test_an_answer_in_another_unit_than_was_asked_for_is_refused_where_people_see_it(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=to_dollar_config(make_tight_budget_config()))
        task = counter.get_task_handle()

        async def refused() -> bool:
            await task.signal(approvals.APPROVE_BUDGET, {"request_id": "harbours-1", "tokens": 5_000})
            refusals = (await task.query(TaskWorkflow.progress)).rejected_messages
            return bool(refusals) and refusals[-1].reason.startswith("dollars are requested: say how many")

        await wait_until(refused)
        await task.cancel()
