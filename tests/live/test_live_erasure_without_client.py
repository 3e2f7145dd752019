"""An order whose command is gone is carried out all the same: it leaves nothing outside the store either."""

from pathlib import Path

import pytest
from temporalio.client import Client as TemporalClient

from tests.live.test_live_erase import (
    ASKED,
    DOCUMENTS,
    NAME,
    are_documents_indexed,
    open_deps_with_vault,
    store_name_in_vault,
)
from tests.support.task_model import ScriptedTaskModel
from tests.support.temporal_platform import TENANT, TaskSubmitter, open_activity_deps, run_all_workers, wait_until
from waystation.client import Client
from waystation.client.erasure import create_erasure_order, load_last_receipt
from waystation.client.person_search import open_person_search
from waystation.config.settings import Settings
from waystation.erasure.erasure import ERASED_MARKER, ErasureReceipt, ForgetOrder
from waystation.kernel.erasure_locations import ErasureLocation
from waystation.kernel.temporal_names import ERASE_WORKFLOW, FORGET_WORKFLOW, WORKFLOWS_QUEUE, make_indexing_workflow_id
from waystation.tasks.task import tenant_hash
from waystation.testing.doubles import PlainRedactor


def report_of(settings: Settings, task_id: str, text: str) -> Path:
    """A report in the workers' home folder, as a command that followed the task left it."""
    settings.reports_folder.mkdir()
    file = settings.reports_folder / f"{task_id}.md"
    file.write_text(text, encoding="utf-8")
    return file


async def histories_of(server: TemporalClient, task_id: str) -> list[str]:
    return [
        found.id async for found in server.list_workflows() if found.id in {task_id, make_indexing_workflow_id(task_id)}
    ]


@pytest.mark.parametrize("everything", [True, False])
async def test_forgetting_without_its_command_takes_histories_and_reports_where_every_word_is_meant(
    server: TemporalClient, tmp_path: Path, settings: Settings, everything: bool
) -> None:
    async with (
        open_activity_deps(tmp_path, PlainRedactor({}), ScriptedTaskModel()) as parts,
        run_all_workers(server, parts, settings=settings),
    ):
        counter = TaskSubmitter(server, parts.store)
        task_id = (await counter.submit()).task_id
        await counter.get_task_handle().result()
        file = report_of(settings, task_id, "What was found.")
        order = ForgetOrder(
            store_id=await parts.store.get_store_id(),
            tenant=tenant_hash(TENANT),
            task_ids=(task_id,),
            everything=everything,
        )
        handle = await server.start_workflow(
            FORGET_WORKFLOW, order, id=order.workflow_id, task_queue=WORKFLOWS_QUEUE, result_type=ErasureReceipt
        )
        done = await handle.result()
        assert file.exists() is not everything
        assert (done.files, done.histories >= 1) == (int(everything), everything)

        async def none_listed() -> bool:
            return await histories_of(server, task_id) == []

        if everything:
            await wait_until(none_listed)
        else:
            assert task_id in await histories_of(server, task_id)


async def test_erasing_without_its_command_rewrites_reports_deletes_histories_and_keeps_a_receipt(
    server: TemporalClient, settings: Settings
) -> None:
    async with (
        open_deps_with_vault(settings, ScriptedTaskModel()) as parts,
        run_all_workers(server, parts, settings=settings),
        await Client.connect(settings) as client,
    ):
        counter = TaskSubmitter(server, parts.store)
        task_id = (await counter.submit(ASKED, documents=DOCUMENTS)).task_id
        await counter.get_task_handle().result()
        await store_name_in_vault(parts, settings)
        file = report_of(settings, task_id, f"By {NAME}.\n")
        await wait_until(lambda: are_documents_indexed(client, settings))
        async with open_person_search(settings, NAME, "PERSON") as search:
            assert await load_last_receipt(search) is None
            order = await create_erasure_order(search, await search.find_locations(), histories=True)
        assert task_id in {one.workflow_id for one in order.histories_to_delete}
        await server.start_workflow(ERASE_WORKFLOW, order, id=order.workflow_id, task_queue=WORKFLOWS_QUEUE)

        # Whoever gives the order again learns what the first one did, although the vault knows the value no more.
        async with open_person_search(settings, NAME, "PERSON") as search:
            receipt = await load_last_receipt(search)
        assert receipt is not None
        assert (receipt.files, receipt.histories_deleted) == (1, len(order.histories_to_delete))
        assert {ErasureLocation.REQUEST, ErasureLocation.DOCUMENT} <= set(receipt.found)
        assert len(receipt.known_as) == len(order.placeholders)
        assert file.read_text(encoding="utf-8") == f"By {ERASED_MARKER}.\n"

        async def none_listed() -> bool:
            return await histories_of(server, task_id) == []

        await wait_until(none_listed)
