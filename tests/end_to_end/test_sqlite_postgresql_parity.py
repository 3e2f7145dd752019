"""One task over good and broken files of every kind, on SQLite and on PostgreSQL: the same report, which uses the good
files and names the broken ones."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.documents.test_documents_corrupt import GOOD, make_broken_files
from tests.support.document_files import make_pdf_file
from tests.support.postgres_server import PostgresServer
from tests.support.temporal_platform import start_dev_server
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.documents.document_loading import load_documents
from waystation.kernel.clock import utc_now
from waystation.runtime.sql_store import migrate
from waystation.tasks.task import TaskPhase, TaskRequest
from waystation.workers.wiring import run_configured_workers

FILES = {**GOOD, "a.pdf": make_pdf_file("Silt closed the harbour of Nordvik in 1871.")}

AT = re.compile(r"\d\d-\d\d \d\d:\d\d UTC")
"""When something happened, as a report tells it: the two tasks may run in different minutes."""


def write_files(folder: Path, unusable: Mapping[str, tuple[bytes, str]]) -> Path:
    folder.mkdir()
    for name, content in [*FILES.items(), *((name, content) for name, (content, _) in unusable.items())]:
        (folder / name).write_bytes(content)
    return folder


async def report_of(settings: Settings, documents: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    loaded = load_documents([documents])
    request = TaskRequest(
        question="Which harbour was closed by silt, and what do the texts say?",
        request_id="the-same",
        skipped_items=loaded.skipped_items,
    )
    async with start_dev_server() as server:
        monkeypatch.setenv("TEMPORAL_ADDRESS", server.service_client.config.target_host)
        async with run_configured_workers(settings), await Client.connect(settings) as client:
            task_id = (await client.submit(request, loaded.documents)).task_id
            async for view in client.watch(task_id):
                assert view.phase not in {TaskPhase.FAILED, TaskPhase.PAUSED}
            return await client.get_report(task_id)


async def test_sqlite_and_postgresql_give_the_same_report_with_every_broken_file_named(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    unusable = make_broken_files()
    documents = write_files(tmp_path / "files", unusable)
    on_sqlite = Settings(home=tmp_path / "sqlite", offline=True)
    on_postgresql = Settings(home=tmp_path / "postgresql", offline=True, store_url=postgres.new_database())
    await migrate(on_postgresql.database_url, utc_now)
    report = await report_of(on_sqlite, documents, monkeypatch)
    other = await report_of(on_postgresql, documents, monkeypatch)
    assert AT.sub("at", other) == AT.sub("at", report)

    sources, _, rest = report.partition("## Sources")[2].partition("## Not used")
    for used in ("a.pdf: page 1 (line", "b.docx: line", "c.pptx: slide ", "f.epub: chapter ", "g.eml: "):
        assert f"- {used}" in sources
    assert [name for name, (_, reason) in unusable.items() if f"- {name}: {reason}" not in rest] == []
