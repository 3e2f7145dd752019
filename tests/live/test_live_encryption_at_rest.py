"""A whole run with encryption on: no file beside memory has a word of question, documents, work or report."""

from pathlib import Path

import pytest
from temporalio.client import Client as TemporalClient

from tests.support.scopes import SYSTEM_SCOPE
from tests.support.store_values import NOON, make_summary
from tests.support.task_model import QUOTED_SENTENCE, ScriptedTaskModel
from tests.support.temporal_platform import (
    TENANT,
    TaskSubmitter,
    make_task_request,
    open_activity_deps,
    run_all_workers,
)
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.documents.documents import SourceDocument
from waystation.kernel.errors import WrongKey
from waystation.kernel.refs import RunRef
from waystation.memory.passages import Passage
from waystation.runtime.store_setup import build_cipher
from waystation.store.encryption import EncryptionConfig
from waystation.testing.doubles import PlainRedactor

KEY, OTHER_KEY = "0123456789abcdef" * 4, "f" * 64
QUESTION, INSTRUCTION, DOCUMENT, COMPRESSED = "canary-one", "canary-two", "canary-three", "canary-four"
CANARIES = (QUESTION, INSTRUCTION, DOCUMENT, COMPRESSED, QUOTED_SENTENCE)
ASKED = make_task_request(question=f"How is {QUESTION} crossed?", instructions=f"Heed {INSTRUCTION}.")
DOCUMENTS = (SourceDocument(name="pilot.md", text=f"Keep {DOCUMENT} to starboard.\nThe bar carries two fathoms.\n"),)


def settings(home: Path, key: str = KEY, *, encrypt: bool | None = None) -> Settings:
    return Settings.model_validate({"home": home, "tenant": TENANT, "key": key, "encrypt_at_rest": encrypt})


def in_files(folder: Path) -> list[str]:
    """The canaries that lie in any file; but for memory, which is not encrypted and has placeholders instead."""
    memory = folder / "memory"
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_relative_to(memory)]
    content = b"".join(path.read_bytes() for path in files)
    return [words for words in CANARIES if words.encode() in content]


async def run_task(server: TemporalClient, home: Path, at_rest: EncryptionConfig) -> str:
    """A task to its end, and a summary with its passage; what lay in the files while all of it was open is told."""
    async with (
        open_activity_deps(home, PlainRedactor({}), ScriptedTaskModel(), at_rest=at_rest) as parts,
        run_all_workers(server, parts),
    ):
        counter = TaskSubmitter(server, parts.store)
        task_id = (await counter.submit(ASKED, documents=DOCUMENTS)).task_id
        await counter.get_task_handle().result()
        run = RunRef(
            **(await parts.store.get_task(task_id, SYSTEM_SCOPE)).ref.model_dump(), step_id="harbours", role="research"
        )
        kept = Passage(
            id="0b9f4c3e-8d55-5d0c-9d0b-1f2d6c0a7e11",
            tenant=run.tenant,
            session=run.session,
            task_id=run.task_id,
            step_id=run.step_id,
            run_id=run.run_id,
            first_message="m1",
            last_message="m2",
            text=COMPRESSED,
            content_hash="hash",
            created=NOON,
        )
        fence = await parts.store.acquire_fence(run.run_id)
        version = (await parts.store.load_transcript(run.run_id, SYSTEM_SCOPE)).version
        await parts.store.commit_compaction(fence, version, make_summary(), [kept], None)
        return task_id


@pytest.mark.parametrize("sealed", [True, False], ids=["encrypted", "plain"])
async def test_files_have_no_word_of_an_encrypted_run(server: TemporalClient, tmp_path: Path, sealed: bool) -> None:
    at_rest = EncryptionConfig(build_cipher(settings(tmp_path), "rest"), encrypts=sealed)
    await run_task(server, tmp_path, at_rest)
    assert in_files(tmp_path) == ([] if sealed else list(CANARIES))


async def test_the_client_reads_an_encrypted_run_with_its_key_only(
    server: TemporalClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.service_client.config.target_host)
    task_id = await run_task(
        server, tmp_path, EncryptionConfig(build_cipher(settings(tmp_path), "rest"), encrypts=True)
    )
    async with await Client.connect(settings(tmp_path)) as client:
        assert QUOTED_SENTENCE in await client.get_report(task_id)
    async with await Client.connect(settings(tmp_path, OTHER_KEY, encrypt=False)) as stranger:
        with pytest.raises(WrongKey, match="it was encrypted with another key"):
            await stranger.get_report(task_id)
