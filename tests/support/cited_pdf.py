"""Finished tasks whose reports cite pages of a PDF and a note; or a workbook and an e-mail."""

from contextlib import aclosing
from email.message import EmailMessage
from pathlib import Path

from tests.support.document_files import make_pdf_file, make_workbook_file, make_worksheet_xml
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


OFFICE_REPORT = """\
# The harbour

Dredging cost 1,250 [costs.xlsx:4-4]. A pump costs 900 [offer.eml:9-9]. They offered it [offer.eml:5-5].

## Sources

- costs.xlsx: sheet Costs (line 4)
- offer.eml: attachment prices.csv (line 9), line 5
"""


def write_office_files(folder: Path) -> None:
    """Write a workbook, and an e-mail from a person with an attachment."""
    sheet = make_worksheet_xml("Work Year Cost", "Digging 1811 410", "Dredging 1840 1250", "Lamps 1850 12", begin="A")
    (folder / "costs.xlsx").write_bytes(make_workbook_file({"Costs": ("worksheet", sheet)}))
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "alice@example.com", "keeper@example.org", "Our offer"
    mail.set_content("Please find our offer attached.")
    mail.add_attachment(b"item,price\npump,900\n", maintype="text", subtype="csv", filename="prices.csv")
    (folder / "offer.eml").write_bytes(bytes(mail))


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
