"""Where a spent agent gets more, by mode, with budgets in tokens and in dollars: the numbers are the same."""

from collections.abc import Callable
from pathlib import Path

import pytest
from temporalio.client import Client

from tests.crew import CALL_TOKENS, MOVES, SHARE, TIGHT_BUDGET, WORK_TOKENS, Call, Crew, Gate, in_dollars, terms, tight
from tests.running import Counter, at_work, until
from tests.workflows_live.history import events, kinds
from waystation.budgets.budget import Mode
from waystation.kernel import temporal_names as names
from waystation.kernel.amount import Amount, Limit, format_amount
from waystation.privacy.ports import Redactor
from waystation.tasks import approvals
from waystation.tasks.details import grant_fields, limit_fields
from waystation.tasks.task import TaskPhase, TaskProgress, TaskTerms
from workflows.task import TaskWorkflow

Unit = Callable[[TaskTerms], TaskTerms]


def in_tokens(given: TaskTerms) -> TaskTerms:
    return given


units = pytest.mark.parametrize("unit", [in_tokens, in_dollars])


def number(limit: Limit) -> int:
    """Of the one unit that it has."""
    return limit.tokens if limit.tokens is not None else limit.amount.micro_usd


def in_unit(unit: Unit, count: int) -> Amount:
    return Amount(tokens=count) if unit is in_tokens else Amount(micro_usd=count)


def reason(unit: Unit, mode: Mode) -> str:
    """Why a researcher ends after five calls: the smallest sixth does not fit in what is left of its share."""
    short = in_unit(unit, CALL_TOKENS - (SHARE - 5 * CALL_TOKENS))
    return f"its next call may cost {format_amount(short)} more than it has left, and the mode is {mode}"


async def limit_session(counter: Counter, unit: Unit, count: int) -> None:
    """Of a session that runs."""
    limit = Limit(tokens=count) if unit is in_tokens else Limit(micro_usd=count)
    await counter.session.signal(names.SET_SESSION_LIMIT, limit_fields(limit))


async def asked_of_the_session(counter: Counter) -> int:
    return kinds(await events(counter.task())).count("signal_external_workflow_execution_initiated") - 1
    # the last of them tells what was spent


def spent_all(progress: TaskProgress) -> int:
    """What the whole crew's work costs, whatever it is limited in."""
    return progress.budget.spent.tokens


@units
async def test_in_mode_hard_an_agent_gets_no_more_than_its_share_also_where_task_and_session_have_some(
    unit: Unit, server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    gate = Gate(Call("plan", 1))
    async with at_work(server, tmp_path, redactor, Crew(before=gate)) as counter:
        await counter.submit(under=unit(terms(agent_budget=SHARE, mode=Mode.HARD)))
        await gate.reached.wait()
        await limit_session(counter, unit, 200_000)
        gate.opened.set()
        progress = await counter.task().result()
        asked = await asked_of_the_session(counter)
    assert progress.phase is TaskPhase.PARTIAL
    assert (progress.approvals, asked) == ((), 0)
    assert [number(step.limit) for step in progress.steps] == [SHARE] * 4
    assert [step.reason for step in progress.steps[:2]] == [reason(unit, Mode.HARD)] * 2
    assert number(progress.budget.limit) == 50_000


@units
@pytest.mark.parametrize("mode", [Mode.SOFT, Mode.APPROVAL])
async def test_an_agent_goes_on_with_what_its_task_has_left(
    unit: Unit, mode: Mode, server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with at_work(server, tmp_path, redactor, Crew()) as counter:
        await counter.submit(under=unit(terms(agent_budget=SHARE, mode=mode)))
        progress = await counter.task().result()
        asked = await asked_of_the_session(counter)
    assert progress.phase is TaskPhase.DONE
    assert (progress.approvals, asked, spent_all(progress)) == ((), 0, WORK_TOKENS)
    assert number(progress.steps[0].limit) > SHARE
    assert number(progress.budget.limit) == 50_000


@units
@pytest.mark.parametrize("mode", [Mode.SOFT, Mode.APPROVAL])
async def test_an_agent_goes_on_with_what_its_session_has_left(
    unit: Unit, mode: Mode, server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    gate = Gate(Call("plan", 1))
    async with at_work(server, tmp_path, redactor, Crew(before=gate)) as counter:
        await counter.submit(under=unit(tight(mode)))
        await gate.reached.wait()
        await limit_session(counter, unit, 200_000)
        gate.opened.set()
        progress = await counter.task().result()
    assert progress.phase is TaskPhase.DONE
    assert (progress.approvals, spent_all(progress)) == ((), WORK_TOKENS)
    assert number(progress.budget.limit) > TIGHT_BUDGET


@units
async def test_in_mode_soft_an_agent_delivers_what_it_has_when_everything_is_spent_and_nobody_is_asked(
    unit: Unit, server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with at_work(server, tmp_path, redactor, Crew()) as counter:
        await counter.submit(under=unit(tight(Mode.SOFT)))
        progress = await counter.task().result()
        asked = await asked_of_the_session(counter)
    assert progress.phase is TaskPhase.PARTIAL
    assert progress.approvals == ()
    assert asked > 0
    reasons = {step.reason for step in progress.steps if step.state == "partial"}
    assert reasons == {reason(unit, Mode.SOFT)}


async def test_in_mode_soft_the_writer_still_has_its_reserve_when_research_has_spent_the_rest_and_a_report_is_stored(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    reserve = Amount(tokens=CALL_TOKENS * (len(MOVES["submit_report"]) + 1))
    budget = WORK_TOKENS - 4 * CALL_TOKENS
    given = terms(budget=budget, agent_budget=SHARE, mode=Mode.SOFT).replace(
        floor=Amount(tokens=CALL_TOKENS), minimum_reserves={"writing": reserve}
    )
    async with at_work(server, tmp_path, redactor, Crew()) as counter:
        await counter.submit(under=given)
        progress = await counter.task().result()
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
    async with at_work(server, tmp_path, redactor, Crew()) as counter:
        await counter.submit(under=unit(terms(budget=CALL_TOKENS + 4 * share + spare, agent_budget=share)))
        task = counter.task()

        async def both_ask() -> bool:
            progress = await task.query(TaskWorkflow.progress)
            return sum(approval.decision == "pending" for approval in progress.approvals) == 2

        await until(both_ask)
        progress = await task.query(TaskWorkflow.progress)
        drawn = [number(approval.limit) - share for approval in progress.approvals]
        enough = in_unit(unit, 5_000)
        for approval in progress.approvals:
            await task.signal(approvals.APPROVE_BUDGET, {"request_id": approval.request_id, **grant_fields(enough)})
        progress = await task.result()
    assert sum(drawn) == spare
    asked = [approval.asked for approval in progress.approvals]
    assert all(one == in_unit(unit, one.tokens or one.micro_usd) for one in asked)
    assert not any(one.subtract_clamped(in_unit(unit, share)).nothing for one in asked)
    assert [approval.granted for approval in progress.approvals] == [enough] * 2
    assert progress.phase is TaskPhase.DONE
    assert spent_all(progress) == WORK_TOKENS


async def test_an_answer_in_another_unit_than_was_asked_for_is_refused_where_people_see_it(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with at_work(server, tmp_path, redactor, Crew()) as counter:
        await counter.submit(under=in_dollars(tight()))
        task = counter.task()

        async def refused() -> bool:
            await task.signal(approvals.APPROVE_BUDGET, {"request_id": "harbours-1", "tokens": 5_000})
            refusals = (await task.query(TaskWorkflow.progress)).refusals
            return bool(refusals) and refusals[-1].reason.startswith("dollars are asked for: say how many")

        await until(refused)
        await task.cancel()
