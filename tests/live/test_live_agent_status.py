"""What is shown of agents within their legs: what they spent, by the store, and what they do, by heartbeats."""

from pathlib import Path

from temporalio.envconfig import ClientConfigProfile

from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import CALL_TOKENS, CallGate, ModelCall, ScriptedTaskModel
from tests.support.temporal_platform import (
    TaskSubmitter,
    make_task_request,
    open_store,
    run_platform,
    start_dev_server,
    wait_until,
)
from tests.support.workflow_history import fetch_events
from waystation.client.approvals import load_stored_task, with_spending
from waystation.kernel.clock import utc_now
from waystation.privacy.ports import Redactor
from waystation.runtime.temporal.connect import TemporalTarget
from waystation.runtime.temporal.task_client import TaskRun, TemporalTaskClient
from waystation.tasks.task import TaskPhase, TaskProgress, make_task_id


async def look(counter: TaskSubmitter) -> TaskRun:
    address = counter.client.service_client.config.target_host
    tasks = TemporalTaskClient(
        counter.client, TemporalTarget(profile=ClientConfigProfile(address=address), ui_url=None)
    )
    found = await tasks.find_task_run(make_task_id(make_task_request()))
    assert found is not None
    return found


async def shown(counter: TaskSubmitter) -> TaskProgress:
    """As `show`, `list` and `watch` have it."""
    progress = (await look(counter)).progress
    assert progress is not None
    return await with_spending(counter.store, progress)


async def charged(counter: TaskSubmitter) -> int:
    bill = (await counter.store.list_task_charges(make_task_id(make_task_request()), SYSTEM_SCOPE)).cost_breakdown
    return bill.total.usage.fresh


async def test_spending_within_a_leg_is_shown_and_does_not_fall_when_the_platform_goes_down_and_up(
    tmp_path: Path, redactor: Redactor
) -> None:
    gate = CallGate(ModelCall("harbours", 4), ModelCall("tides", 4))
    async with start_dev_server() as client:
        async with run_platform(client, tmp_path, redactor, ScriptedTaskModel(before=gate)) as counter:
            await counter.submit()

            async def both_are_held() -> bool:
                return await charged(counter) == 7 * CALL_TOKENS  # the plan, and three turns of each

            await wait_until(both_are_held)
            by_workflow = (await look(counter)).progress
            assert by_workflow is not None
            assert by_workflow.budget.spent.tokens == CALL_TOKENS
            now = await shown(counter)
            row = await counter.store.get_task(now.task_id, SYSTEM_SCOPE)
            while_away = (await load_stored_task(counter.store, row, "no server"))[0]
            assert now.budget.spent.tokens == while_away.budget.spent.tokens == await charged(counter)
            assert [step.spent.tokens for step in now.steps[:2]] == [3 * CALL_TOKENS] * 2
            held = by_workflow.budget.spent + by_workflow.budget.reserved
            assert now.budget.spent + now.budget.reserved == held
            gate.opened.set()
        async with open_store(tmp_path) as store:
            down = (await load_stored_task(store, row, "no server"))[0].budget.spent.tokens
        assert down >= now.budget.spent.tokens
        async with run_platform(client, tmp_path, redactor, ScriptedTaskModel()) as counter:
            up = await shown(counter)
            assert up.budget.spent.tokens >= down
            await counter.get_task_handle().result()
            assert (await shown(counter)).budget.spent.tokens == await charged(counter)


async def test_what_each_agent_does_has_details_in_heartbeats_without_an_event_in_history(
    tmp_path: Path, redactor: Redactor
) -> None:
    gate = CallGate(ModelCall("harbours", 2), ModelCall("tides", 2))
    async with (
        start_dev_server() as client,
        run_platform(client, tmp_path, redactor, ScriptedTaskModel(before=gate)) as counter,
    ):
        await counter.submit()

        async def all_wait() -> bool:
            return await charged(counter) == 3 * CALL_TOKENS

        await wait_until(all_wait)
        before = len(await fetch_events(counter.get_task_handle()))

        async def is_told() -> bool:
            said = [(one.agent, one.what, one.turn) for one in (await look(counter)).agent_statuses]
            return said == [("harbours", "model", 2), ("tides", "model", 2)]

        await wait_until(is_told)
        doing = (await look(counter)).agent_statuses[0]
        assert doing.since <= utc_now()
        assert doing.seen is not None
        assert doing.text(doing.since).startswith("harbours: turn 2, waiting for the model for 0 s")
        assert len(await fetch_events(counter.get_task_handle())) == before
        gate.opened.set()
        await counter.get_task_handle().result()
        assert (await look(counter)).agent_statuses == ()
        assert (await shown(counter)).phase is TaskPhase.DONE
