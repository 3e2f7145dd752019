"""Nothing of a forgotten task is on the Temporal server: each execution of its subagents goes with its own."""

from pathlib import Path

from temporalio.client import Client as TemporalClient

from tests.support.delegating_model import (
    SUBMIT_FINDINGS_CALL,
    DelegatingTaskModel,
    make_delegate_call,
    make_delegating_task_config,
)
from tests.support.temporal_platform import SESSION, TaskSubmitter, open_activity_deps, run_all_workers, wait_until
from waystation.client import Client
from waystation.client.erasure import TaskSelection, forget_selected_tasks, select_task_ids
from waystation.config.settings import Settings
from waystation.testing.doubles import PlainRedactor


async def executions(server: TemporalClient, task_id: str) -> list[str]:
    """Workflow ids, one for each execution of a task that the server knows."""
    return sorted([found.id async for found in server.list_workflows() if task_id in found.id])


async def test_no_execution_of_a_forgotten_task_or_its_subagents_is_left(
    server: TemporalClient, tmp_path: Path, settings: Settings
) -> None:
    # Who delegates ends its execution, and works on in another one of the same id.
    deep = {
        "harbours": [[make_delegate_call("beacons", 60)], [SUBMIT_FINDINGS_CALL]],
        "harbours.1": [[make_delegate_call("bars", 50)], [SUBMIT_FINDINGS_CALL]],
    }
    async with (
        open_activity_deps(tmp_path, PlainRedactor({}), DelegatingTaskModel(scripts=deep)) as parts,
        run_all_workers(server, parts),
        await Client.connect(settings) as client,
    ):
        counter = TaskSubmitter(server, parts.store)
        await counter.submit(under=make_delegating_task_config())
        await counter.get_task_handle().result()
        task_id = counter.get_task_handle().id

        async def all_listed() -> bool:
            return await executions(server, task_id) == kept

        subagents = [f"{task_id}/harbours.1", f"{task_id}/harbours.1", f"{task_id}/harbours.1.1"]
        kept = [task_id, *subagents]
        await wait_until(all_listed)

        task_ids = await select_task_ids(client, settings, TaskSelection(session=SESSION))
        assert (await forget_selected_tasks(settings, task_ids, everything=True)).histories == len(kept)

        async def none_listed() -> bool:
            return await executions(server, task_id) == []

        await wait_until(none_listed)
