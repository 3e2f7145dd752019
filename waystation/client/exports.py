"""Reports and drafts as files to send, for the command line, the API and the pages alike."""

from typing import Literal, NamedTuple

from waystation.client.client import Client
from waystation.client.lookups import get_report_version
from waystation.client.task_json import ExportJson, ReportJson, report_json
from waystation.plugins.exports.docx import report_docx
from waystation.plugins.exports.page import report_page
from waystation.plugins.exports.pdf import report_pdf
from waystation.reports.blocks import Imprint, stored_report
from waystation.reports.markdown import exported_report, numbered_markdown
from waystation.tasks.task import ReportVersion, TaskProgress

Format = Literal["md", "html", "pdf", "docx", "json"]


class FoundReport(NamedTuple):
    """A report or a draft, and what its imprint says."""

    report: ReportJson
    imprint: Imprint


class ReportFile(NamedTuple):
    """A file, and what could not be shown in it; empty: nothing."""

    content: bytes
    lacking: str = ""


async def load_report(client: Client, task_id: str, version: int | None = None) -> FoundReport:
    """The report that was delivered last, or this version of it. Raises BadInput where there is none; UnknownTask."""
    return await load_version(client, await client.reported(task_id), version)


async def load_version(client: Client, progress: TaskProgress, version: int | None) -> FoundReport:
    """The same of a task that was looked up already."""
    found = get_report_version(progress, version)
    return FoundReport(report_json(progress, found, await client.report_text(found)), build_imprint(progress, found))


async def load_draft(client: Client, task_id: str) -> FoundReport:
    """What the task would deliver if it ended now. Raises BadInput where there is nothing to show, or a report."""
    found = await client.draft(task_id)
    report = ReportJson(task_id=task_id, phase=found.phase, version=None, report=found.markdown)
    return FoundReport(report, Imprint(task_id=task_id, phase=found.phase))


def build_imprint(progress: TaskProgress, version: ReportVersion) -> Imprint:
    """What a file says of one version of a report: which it is, how its task ended, when it was stored."""
    return Imprint(
        task_id=progress.task_id,
        phase=version.phase,
        version=version.number,
        stored_at=version.stored_at,
        model=progress.model,
    )


def report_file(found: FoundReport, form: Format) -> ReportFile:
    """The report in this format. A long one takes seconds: not on a loop that answers others.

    Raises BadInput where a package that makes it is not installed.
    """
    stored = stored_report(found.report.report)
    whole = exported_report(stored, found.imprint)
    match form:
        case "md":
            return ReportFile(numbered_markdown(stored, whole).encode())
        case "html":
            return ReportFile(report_page(whole).encode())
        case "pdf":
            return ReportFile(*report_pdf(whole))
        case "docx":
            return ReportFile(report_docx(whole))
        case "json":
            facts = {"title": whole.title, "checked": whole.checked, "sources": whole.sources}
            about = {"stored_at": found.imprint.stored_at, "model": found.imprint.model}
            as_data = ExportJson.model_validate({**found.report.model_dump(), **about, **facts})
            return ReportFile(f"{as_data.model_dump_json(indent=2)}\n".encode())
