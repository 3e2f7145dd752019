"""What is shown of agents within their legs: what they spent, by the store, and what they do, by heartbeats."""

from pathlib import Path

from temporalio.envconfig import ClientConfigProfile

from tests.crew import CALL_TOKENS, Call, Crew, Gate
from tests.readers import ANYONE
from tests.running import Counter, at_work, dev_server, opened_store, request, until
from tests.workflows_live.history import events
from waystation.client.approvals import build_stored_task_view, with_spending
from waystation.kernel.clock import utc_now
from waystation.privacy.ports import Redactor
from waystation.runtime.temporal.connect import Target
from waystation.runtime.temporal.tasks import TaskRun, TemporalTaskClient
from waystation.tasks.task import TaskPhase, TaskProgress, task_id_of


async def look(counter: Counter) -> TaskRun:
    address = counter.client.service_client.config.target_host
    tasks = TemporalTaskClient(counter.client, Target(profile=ClientConfigProfile(address=address), ui_url=None))
    found = await tasks.look(task_id_of(request()))
    assert found is not None
    return found


async def shown(counter: Counter) -> TaskProgress:
    """As `show`, `list` and `watch` have it."""
    progress = (await look(counter)).progress
    assert progress is not None
    return await with_spending(counter.store, progress)


async def charged(counter: Counter) -> int:
    bill = (await counter.store.payments(task_id_of(request()), ANYONE)).bill
    return bill.total.usage.fresh


async def test_spending_within_a_leg_is_shown_and_does_not_fall_when_the_platform_goes_down_and_up(
    tmp_path: Path, redactor: Redactor
) -> None:
    gate = Gate(Call("harbours", 4), Call("tides", 4))
    async with dev_server() as client:
        async with at_work(client, tmp_path, redactor, Crew(before=gate)) as counter:
            await counter.submit()

            async def both_are_held() -> bool:
                return await charged(counter) == 7 * CALL_TOKENS  # the plan, and three turns of each

            await until(both_are_held)
            by_workflow = (await look(counter)).progress
            assert by_workflow is not None
            assert by_workflow.budget.spent.tokens == CALL_TOKENS
            now = await shown(counter)
            row = await counter.store.task(now.task_id, ANYONE)
            while_away = (await build_stored_task_view(counter.store, row, "no server")).progress
            assert now.budget.spent.tokens == while_away.budget.spent.tokens == await charged(counter)
            assert [step.spent.tokens for step in now.steps[:2]] == [3 * CALL_TOKENS] * 2
            held = by_workflow.budget.spent + by_workflow.budget.reserved
            assert now.budget.spent + now.budget.reserved == held
            gate.opened.set()
        async with opened_store(tmp_path) as store:
            down = (await build_stored_task_view(store, row, "no server")).progress.budget.spent.tokens
        assert down >= now.budget.spent.tokens
        async with at_work(client, tmp_path, redactor, Crew()) as counter:
            up = await shown(counter)
            assert up.budget.spent.tokens >= down
            await counter.task().result()
            assert (await shown(counter)).budget.spent.tokens == await charged(counter)


async def test_what_each_agent_does_is_told_by_heartbeats_without_an_event_in_history(
    tmp_path: Path, redactor: Redactor
) -> None:
    gate = Gate(Call("harbours", 2), Call("tides", 2))
    async with dev_server() as client, at_work(client, tmp_path, redactor, Crew(before=gate)) as counter:
        await counter.submit()

        async def all_wait() -> bool:
            return await charged(counter) == 3 * CALL_TOKENS

        await until(all_wait)
        before = len(await events(counter.task()))

        async def is_told() -> bool:
            said = [(one.agent, one.what, one.turn) for one in (await look(counter)).doing]
            return said == [("harbours", "model", 2), ("tides", "model", 2)]

        await until(is_told)
        doing = (await look(counter)).doing[0]
        assert doing.since <= utc_now()
        assert doing.seen is not None
        assert doing.text(doing.since).startswith("harbours: turn 2, waiting for the model since 0 s")
        assert len(await events(counter.task())) == before
        gate.opened.set()
        await counter.task().result()
        assert (await look(counter)).doing == ()
        assert (await shown(counter)).phase is TaskPhase.DONE
