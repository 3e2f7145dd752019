"""The Temporal actions of a task, counted in the histories of a server."""

from collections import Counter
from pathlib import Path

from temporalio.client import Client as TemporalClient

from tests.support.delegating_model import (
    SUBMIT_FINDINGS_CALL,
    DelegatingTaskModel,
    make_delegate_call,
    make_delegating_task_config,
)
from tests.support.temporal_platform import SESSION, TaskSubmitter, open_activity_deps, run_all_workers, wait_until
from tests.support.twenty_turn_task import AGENT_TURNS, PLAN, run_twenty_turn_task
from tests.support.workflow_history import list_event_kinds
from waystation.client import Client
from waystation.client.erasure import TaskSelection, forget_selected_tasks, select_task_ids
from waystation.config.settings import Settings
from waystation.testing.doubles import PlainRedactor

MAX_ACTIONS = 60
"""Maximum actions of a task with five agents that take 20 turns each."""


async def test_a_task_of_five_agents_with_twenty_turns_each_has_at_most_sixty_actions(
    server: TemporalClient, tmp_path: Path
) -> None:
    """The worst pace: each leg takes longer than a minute, so that each leg updates the search attributes."""
    ended = await run_twenty_turn_task(server, tmp_path, slow=True)
    assert {step.id: ended.turns[step.id] for step in PLAN.steps} == {step.id: AGENT_TURNS for step in PLAN.steps}
    assert len(PLAN.steps) == 5
    assert ended.kinds["RevisePlan"] == ended.kinds["ReviewReport"] == 1
    assert ended.counted.total == ended.kinds.total()
    assert ended.counted.complete
    assert ended.counted.total <= MAX_ACTIONS


async def _count_kinds(server: TemporalClient, task_id: str) -> Counter[str]:
    """Count the events of every execution of the task and its children; each execution is a history of its own."""
    kinds = Counter[str]()
    async for execution in server.list_workflows():
        if task_id in execution.id:
            handle = server.get_workflow_handle(execution.id, run_id=execution.run_id)
            events = list((await handle.fetch_history()).events)
            kinds.update(list_event_kinds(events))
            kinds["activities"] += sum(
                event.activity_task_started_event_attributes.attempt
                for event in events
                if event.HasField("activity_task_started_event_attributes")
            )
    return kinds


async def test_actions_of_a_task_are_those_of_all_executions_of_its_workflows(
    server: TemporalClient, tmp_path: Path, settings: Settings
) -> None:
    # An agent that delegates ends its execution, and works on in another one of the same id.
    scripts = {
        "harbours": [[make_delegate_call("beacons", 60)], [SUBMIT_FINDINGS_CALL]],
        "harbours.1": [[make_delegate_call("bars", 50)], [SUBMIT_FINDINGS_CALL]],
    }
    async with (
        open_activity_deps(tmp_path, PlainRedactor({}), DelegatingTaskModel(scripts=scripts)) as parts,
        run_all_workers(server, parts),
        await Client.connect(settings) as client,
    ):
        submitter = TaskSubmitter(server, parts.store)
        await submitter.submit(under=make_delegating_task_config())
        await submitter.get_task_handle().result()
        task_id = submitter.get_task_handle().id

        async def is_over() -> bool:
            return all([one.close_time async for one in server.list_workflows() if task_id in one.id])

        await wait_until(is_over)
        counted = await client.count_temporal_actions(task_id)
        kinds = await _count_kinds(server, task_id)
        assert counted is not None
        assert counted.complete
        children = kinds["child_workflow_execution_started"]
        assert children >= 3
        assert counted.workflows == 1 + 2 * children
        assert counted.activities == kinds["activities"] > 0
        assert counted.timers == kinds["timer_started"]
        assert counted.search_attribute_updates == kinds["upsert_workflow_search_attributes"] > 0
        assert counted.signals >= kinds["signal_external_workflow_execution_initiated"] > 0
        assert counted.total == counted.workflows + counted.activities + counted.updates + counted.signals + (
            counted.timers + counted.search_attribute_updates
        )

        task_ids = await select_task_ids(client, settings, TaskSelection(session=SESSION))
        await forget_selected_tasks(settings, task_ids, everything=True)

        async def is_unknown() -> bool:
            return [one.id async for one in server.list_workflows() if task_id in one.id] == []

        await wait_until(is_unknown)
        assert await client.count_temporal_actions(task_id) is None
