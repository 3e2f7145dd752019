"""Nothing of a forgotten task is on the Temporal server: each execution of its subagents goes with its own."""

from pathlib import Path

from temporalio.client import Client as TemporalClient

from tests.delegating import HAND_IN, DelegatingCrew, delegate, delegating
from tests.running import SESSION, Counter, opened_parts, until, working
from waystation.client import Client
from waystation.client.removal import Selection, forget, select_task_ids
from waystation.config.settings import Settings
from waystation.testing import PlainRedactor


async def executions(server: TemporalClient, task_id: str) -> list[str]:
    """Workflow ids, one for each execution of a task that the server knows."""
    return sorted([found.id async for found in server.list_workflows() if task_id in found.id])


async def test_no_execution_of_a_forgotten_task_or_its_subagents_is_left(
    server: TemporalClient, tmp_path: Path, settings: Settings
) -> None:
    # Who delegates ends its execution, and works on in another one of the same id.
    deep = {
        "harbours": [[delegate("beacons", 60)], [HAND_IN]],
        "harbours.1": [[delegate("bars", 50)], [HAND_IN]],
    }
    async with (
        opened_parts(tmp_path, PlainRedactor({}), DelegatingCrew(scripts=deep)) as parts,
        working(server, parts),
        await Client.connect(settings) as client,
    ):
        counter = Counter(server, parts.store)
        await counter.submit(under=delegating())
        await counter.task().result()
        task_id = counter.task().id

        async def all_listed() -> bool:
            return await executions(server, task_id) == kept

        subagents = [f"{task_id}/harbours.1", f"{task_id}/harbours.1", f"{task_id}/harbours.1.1"]
        kept = [task_id, *subagents]
        await until(all_listed)

        task_ids = await select_task_ids(client, settings, Selection(session=SESSION))
        assert (await forget(settings, task_ids, everything=True)).histories == len(kept)

        async def none_listed() -> bool:
            return await executions(server, task_id) == []

        await until(none_listed)
