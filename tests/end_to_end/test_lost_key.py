"""A key that is lost takes the originals behind placeholders with it, and nothing else."""

import asyncio
from pathlib import Path

import pytest

from tests.support.temporal_platform import start_dev_server
from waystation.cli.main import run
from waystation.client import Client
from waystation.client.store_queries import restore_task_text
from waystation.config.settings import Settings
from waystation.documents.documents import SourceDocument
from waystation.kernel.errors import BadInput
from waystation.tasks.task import TaskPhase, TaskRequest
from waystation.workers.wiring import run_configured_workers

MAIL = "ada.lovelace@example.com"
PASSWORD = "sk-ant-api03-abcdefghij1234567890"
LETTER = SourceDocument(
    name="letter.md",
    text=f"The harbour of Nordvik was closed by silt in 1871, wrote {MAIL}.\n\nThe key of the harbour is {PASSWORD}.\n",
)


async def report_of(settings: Settings, request_id: str) -> tuple[str, str]:
    """A task's id, and its report."""
    async with run_configured_workers(settings), await Client.connect(settings) as client:
        question = "Who wrote about the harbour that was closed by silt, and what is its key?"
        task_id = (await client.submit(TaskRequest(question=question, request_id=request_id), [LETTER])).task_id
        async for view in client.watch(task_id):
            assert view.phase not in {TaskPhase.FAILED, TaskPhase.PAUSED}
        return task_id, await client.get_report(task_id)


async def test_work_goes_on_under_another_key_and_only_the_old_originals_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    settings = Settings()
    async with start_dev_server() as server:
        monkeypatch.setenv("TEMPORAL_ADDRESS", server.service_client.config.target_host)
        first, report = await report_of(settings, "first")
        assert (MAIL in report, "<EMAIL_" in report, PASSWORD in report) == (False, True, False)
        restored = await restore_task_text(settings, first, report)
        assert MAIL in restored.text
        assert PASSWORD not in restored.text

        settings.key_file.unlink()
        with pytest.raises(BadInput, match="If it is lost, `waystation store adopt-key`"):
            async with run_configured_workers(settings):
                pass
        assert await asyncio.to_thread(run, ["store", "adopt-key", "--yes"]) == 0
        second, later = await report_of(settings, "second")

        assert MAIL in (await restore_task_text(settings, second, later)).text
        async with await Client.connect(settings) as client:
            assert await client.get_report(first) == report
        with pytest.raises(BadInput, match="is not the key that this data was encrypted with"):
            await restore_task_text(settings, first, report)
