"""One person is erased on the real server, store and memory: found before, nowhere after, and refused while at work."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from temporalio.client import Client as TemporalClient

from tests.crew import Call, Crew, Gate
from tests.readers import ANYONE
from tests.running import TENANT, Counter, opened_parts, request, until, working
from tests.workflows_live.test_live_forget import in_files, remember
from waystation.client import Client
from waystation.client.persons import open_person_search
from waystation.client.removal import erase, require_at_rest
from waystation.config.settings import Settings
from waystation.documents.documents import SourceDocument
from waystation.erasure.removal import ERASED, Whereabouts, summed_places
from waystation.kernel.errors import BadInput
from waystation.kernel.refs import RunRef
from waystation.plugins.redaction.placeholders import fingerprint, placeholder
from waystation.privacy.policy import VaultEntry
from waystation.privacy.ports import Redactor
from waystation.runtime.stores import build_cipher, load_or_create_installation_key
from waystation.runtime.temporal.orders import STEPS
from waystation.tasks.task import task_id_of, tenant_hash
from waystation.testing import PlainRedactor
from workers.parts import ActivityDeps

NAME = "Ada Lovelace"
ASKED = request(question=f"What does {NAME} say of the bar?")
DOCUMENTS = (
    SourceDocument(name=f"Letter of {NAME}.md", text=f"The bar carries two fathoms, says {NAME}.\n"),
    SourceDocument(name="pilot.md", text="Keep the white beacon to starboard.\n"),
)
IN_CLEAR: Redactor = PlainRedactor({})
"""So that the name is in workflow histories, too."""


@asynccontextmanager
async def parts_with_vault(settings: Settings, crew: Crew) -> AsyncGenerator[ActivityDeps]:
    async with opened_parts(settings.home, IN_CLEAR, crew) as parts:
        yield replace(parts, vault=parts.store.vault(build_cipher(settings, "vault")))


async def known_by_placeholder(parts: ActivityDeps, settings: Settings) -> str:
    """The name's placeholder, with the name in the vault."""
    key, tenant = load_or_create_installation_key(settings), tenant_hash(TENANT)
    made = placeholder(key, tenant, "PERSON", NAME)
    original = VaultEntry(
        type="PERSON", placeholder=made, fingerprint=fingerprint(key, tenant, "PERSON", NAME), text=NAME
    )
    assert parts.vault is not None
    await parts.vault.keep(tenant, [original])
    return made


async def test_a_person_who_is_erased_is_nowhere_and_the_receipt_has_no_content(
    server: TemporalClient, tmp_path: Path, settings: Settings
) -> None:
    async with (
        parts_with_vault(settings, Crew()) as parts,
        working(server, parts),
        await Client.connect(settings) as client,
    ):
        counter = Counter(server, parts.store)
        task_id = (await counter.submit(ASKED, documents=DOCUMENTS)).task_id
        await counter.task().result()
        run = RunRef(**(await parts.store.task(task_id, ANYONE)).ref.model_dump(), step_id="harbours", role="research")
        made = await known_by_placeholder(parts, settings)
        await remember(parts, run, f"{made} sounded the bay.")
        settings.reports_folder.mkdir()
        file = settings.reports_folder / f"{task_id}.md"
        file.write_text(f"By {NAME}.\n", encoding="utf-8")

        async with open_person_search(settings, NAME, "PERSON") as search:
            found = await search.found()
            counts = summed_places(found.traces)
            assert {place: counts.get(place) for place in (Whereabouts.REMEMBERED, Whereabouts.VAULT)} == {
                Whereabouts.REMEMBERED: 2,
                Whereabouts.VAULT: 1,
            }
            assert {Whereabouts.REQUEST, Whereabouts.DOCUMENT, Whereabouts.HISTORY, Whereabouts.REPORT_FILE} <= set(
                counts
            )
            assert NAME not in found.model_dump_json()
            await until(lambda: at_rest(client, settings))
            steps: list[str] = []
            receipt = await erase(search, found, histories=True, tell=steps.append)

        assert (receipt.left, receipt.originals, receipt.files) == ({}, 1, 1)
        assert set(steps) <= set(STEPS.values())
        assert receipt.histories_deleted >= 1
        assert all(part not in receipt.model_dump_json() for part in (NAME, made))
        assert file.read_text(encoding="utf-8") == f"By {ERASED}.\n"
        assert in_files(tmp_path, NAME, made) == []
        recalled = [one.text for one in await parts.recollection.find(run, "who sounded the bay?")]
        assert f"{ERASED} sounded the bay." in recalled
        assert any(f"What does {ERASED} say of the bar?" in text for text in recalled)
        async with open_person_search(settings, NAME, "PERSON") as search:
            again = await search.found()
        assert {trace.place for trace in again.traces} <= {Whereabouts.HISTORY}


async def at_rest(client: Client, settings: Settings) -> bool:
    """Once the task's documents are in memory."""
    async with open_person_search(settings, NAME, "PERSON") as search:
        try:
            await require_at_rest(client, settings, await search.found())
        except BadInput:
            return False
    return True


async def test_a_task_that_has_the_person_and_runs_is_named(server: TemporalClient, settings: Settings) -> None:
    gate = Gate(Call("harbours", 2))
    async with (
        parts_with_vault(settings, Crew(before=gate)) as parts,
        working(server, parts),
        await Client.connect(settings) as client,
    ):
        counter = Counter(server, parts.store)
        await counter.submit(ASKED, documents=DOCUMENTS)
        await gate.reached.wait()
        async with open_person_search(settings, NAME, "PERSON") as search:
            found = await search.found()
        with pytest.raises(BadInput, match=rf"^{task_id_of(ASKED)} has this person and runs: `waystation cancel"):
            await require_at_rest(client, settings, found)
        gate.opened.set()
        await counter.task().result()
