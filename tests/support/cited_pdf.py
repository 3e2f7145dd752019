"""A finished task whose report cites pages of a PDF and a note."""

from contextlib import aclosing
from pathlib import Path

from tests.support.document_files import make_pdf_file
from tests.support.finished_tasks import as_stored, make_task_row
from waystation.config.settings import Settings
from waystation.documents.document_loading import load_documents
from waystation.kernel.clock import utc_now
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.task import TaskPhase, TaskRequest

REPORT = """\
# The harbour

It silted up [paper.pdf:2-3]. Someone wrote [paper.pdf:6-6]. Ships left [notes.md:1-1]. None came [paper.pdf:99-99].

## Sources

- paper.pdf: page 1 (lines 2–3), page 2 (line 6)
- notes.md: line 1

## Failed citations

1 of 4 citations failed the check:

- [paper.pdf:99-99]: the document has 6 lines

## About this report

- Task `task-1`
"""


def write_cited_files(folder: Path) -> Path:
    """Write the cited files and return the PDF. Its second page has an address."""
    (folder / "notes.md").write_text("Ships left.", encoding="utf-8")
    path = folder / "paper.pdf"
    path.write_bytes(make_pdf_file("The harbour silted up.\nSlowly.", "Write to alice@example.com."))
    return path


async def store_task_citing(settings: Settings, folder: Path, report: str = REPORT) -> str:
    """Store the task with the files of this folder and a report that cites them, and return its id."""
    settings.home.mkdir(exist_ok=True)
    async with aclosing(await SqlStore.open(settings.database_url, utc_now)) as store:
        asked = TaskRequest(question="Which?", session="default", request_id="r1")
        row = make_task_row(asked, settings, await store.get_store_id())
        await store.register_task(row, load_documents([folder]).documents)
        stored = await store.put_text(report, row.ref.scope)
        await store.save_task_progress(row.ref.task_id, as_stored(row, TaskPhase.DONE).replace(report=stored))
    return row.ref.task_id
