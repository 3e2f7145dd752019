"""One person is erased on the real server, store and memory: found before, nowhere after, and refused while at work."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from temporalio.client import Client as TemporalClient

from tests.live.test_live_forget import find_canaries_in_files, store_in_memory
from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import CallGate, ModelCall, ScriptedTaskModel
from tests.support.temporal_platform import (
    TENANT,
    TaskSubmitter,
    make_task_request,
    open_activity_deps,
    run_all_workers,
    wait_until,
)
from waystation.client import Client
from waystation.client.erasure import require_tasks_finished, run_erasure
from waystation.client.person_search import open_person_search
from waystation.config.settings import Settings
from waystation.documents.documents import SourceDocument
from waystation.erasure.erasure import ERASED_MARKER, sum_matches_by_location
from waystation.kernel.erasure_locations import ErasureLocation
from waystation.kernel.errors import BadInput
from waystation.kernel.refs import RunRef
from waystation.privacy.policy import VaultEntry
from waystation.privacy.ports import Redactor
from waystation.runtime.store_setup import build_cipher, load_or_create_installation_key
from waystation.runtime.temporal.erasure_client import ERASURE_STEPS
from waystation.security.placeholders import build_placeholder, compute_fingerprint
from waystation.tasks.task import make_task_id, tenant_hash
from waystation.testing.doubles import PlainRedactor
from waystation.workers.activity_deps import ActivityDeps

NAME = "Ada Lovelace"
ASKED = make_task_request(question=f"What does {NAME} say of the bar?")
DOCUMENTS = (
    SourceDocument(name=f"Letter of {NAME}.md", text=f"The bar carries two fathoms, says {NAME}.\n"),
    SourceDocument(name="pilot.md", text="Keep the white beacon to starboard.\n"),
)
IN_CLEAR: Redactor = PlainRedactor({})
"""So that the name is in workflow histories, too."""


@asynccontextmanager
async def open_deps_with_vault(settings: Settings, crew: ScriptedTaskModel) -> AsyncGenerator[ActivityDeps]:
    async with open_activity_deps(settings.home, IN_CLEAR, crew) as parts:
        yield replace(parts, vault=parts.store.build_vault(build_cipher(settings, "vault")))


async def store_name_in_vault(parts: ActivityDeps, settings: Settings) -> str:
    """The name's placeholder, with the name in the vault."""
    key, tenant = load_or_create_installation_key(settings), tenant_hash(TENANT)
    made = build_placeholder(key, tenant, "PERSON", NAME)
    original = VaultEntry(
        type="PERSON", placeholder=made, fingerprint=compute_fingerprint(key, tenant, "PERSON", NAME), text=NAME
    )
    assert parts.vault is not None
    await parts.vault.store_originals(tenant, [original])
    return made


async def test_a_person_who_is_erased_is_nowhere_and_the_receipt_has_no_content(
    server: TemporalClient, tmp_path: Path, settings: Settings
) -> None:
    async with (
        open_deps_with_vault(settings, ScriptedTaskModel()) as parts,
        run_all_workers(server, parts),
        await Client.connect(settings) as client,
    ):
        counter = TaskSubmitter(server, parts.store)
        task_id = (await counter.submit(ASKED, documents=DOCUMENTS)).task_id
        await counter.get_task_handle().result()
        run = RunRef(
            **(await parts.store.get_task(task_id, SYSTEM_SCOPE)).ref.model_dump(), step_id="harbours", role="research"
        )
        made = await store_name_in_vault(parts, settings)
        await store_in_memory(parts, run, f"{made} sounded the bay.")
        settings.reports_folder.mkdir()
        file = settings.reports_folder / f"{task_id}.md"
        file.write_text(f"By {NAME}.\n", encoding="utf-8")

        async with open_person_search(settings, NAME, "PERSON") as search:
            found = await search.find_locations()
            counts = sum_matches_by_location(found.traces)
            assert {place: counts.get(place) for place in (ErasureLocation.REMEMBERED, ErasureLocation.VAULT)} == {
                ErasureLocation.REMEMBERED: 2,
                ErasureLocation.VAULT: 1,
            }
            assert {
                ErasureLocation.REQUEST,
                ErasureLocation.DOCUMENT,
                ErasureLocation.HISTORY,
                ErasureLocation.REPORT_FILE,
            } <= set(counts)
            assert NAME not in found.model_dump_json()
            await wait_until(lambda: are_documents_indexed(client, settings))
            steps: list[str] = []
            receipt = await run_erasure(search, found, histories=True, tell=steps.append)

        assert (receipt.left, receipt.originals, receipt.files) == ({}, 1, 1)
        assert set(steps) <= set(ERASURE_STEPS.values())
        assert receipt.histories_deleted >= 1
        assert all(part not in receipt.model_dump_json() for part in (NAME, made))
        assert file.read_text(encoding="utf-8") == f"By {ERASED_MARKER}.\n"
        assert find_canaries_in_files(tmp_path, NAME, made) == []
        recalled = [one.text for one in await parts.memory_recall.find(run, "who sounded the bay?")]
        assert f"{ERASED_MARKER} sounded the bay." in recalled
        assert any(f"What does {ERASED_MARKER} say of the bar?" in text for text in recalled)
        async with open_person_search(settings, NAME, "PERSON") as search:
            again = await search.find_locations()
        assert {trace.place for trace in again.traces} <= {ErasureLocation.HISTORY}


async def are_documents_indexed(client: Client, settings: Settings) -> bool:
    """Once the task's documents are in memory."""
    async with open_person_search(settings, NAME, "PERSON") as search:
        try:
            await require_tasks_finished(client, settings, await search.find_locations())
        except BadInput:
            return False
    return True


async def test_a_task_that_has_the_person_and_runs_is_named(server: TemporalClient, settings: Settings) -> None:
    gate = CallGate(ModelCall("harbours", 2))
    async with (
        open_deps_with_vault(settings, ScriptedTaskModel(before=gate)) as parts,
        run_all_workers(server, parts),
        await Client.connect(settings) as client,
    ):
        counter = TaskSubmitter(server, parts.store)
        await counter.submit(ASKED, documents=DOCUMENTS)
        await gate.reached.wait()
        async with open_person_search(settings, NAME, "PERSON") as search:
            found = await search.find_locations()
        with pytest.raises(
            BadInput,
            match=rf"^{make_task_id(ASKED)} mentions this person and is running: stop it with `waystation cancel",
        ):
            await require_tasks_finished(client, settings, found)
        gate.opened.set()
        await counter.get_task_handle().result()
