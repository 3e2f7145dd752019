"""Reports and drafts as files to send, for the command line, the API and the web pages."""

from typing import Literal, NamedTuple

from waystation.client.client import Client
from waystation.client.store_queries import get_report_version
from waystation.client.task_json import ExportJson, ReportJson, build_report_json
from waystation.plugins.exports.docx import render_docx
from waystation.plugins.exports.page import render_html_page
from waystation.plugins.exports.pdf import render_pdf
from waystation.reports.blocks import ReportMetadata, parse_stored_report
from waystation.reports.markdown import build_report_export, render_numbered_markdown
from waystation.tasks.task import ReportVersion, TaskProgress

ReportFormat = Literal["md", "html", "pdf", "docx", "json"]


class ReportWithImprint(NamedTuple):
    """A report or a draft with the metadata of its imprint."""

    report: ReportJson
    imprint: ReportMetadata


class ReportFile(NamedTuple):
    """A file, with a remark on what could not be shown in it; empty if there is nothing to remark."""

    content: bytes
    lacking: str = ""


async def load_report(client: Client, task_id: str, version: int | None = None) -> ReportWithImprint:
    """Load the newest report, or this version of it. Raises BadInput if there is none; UnknownTask."""
    return await load_report_version(client, await client.get_last_known_progress(task_id), version)


async def load_report_version(client: Client, progress: TaskProgress, version: int | None) -> ReportWithImprint:
    """Load a report of a task whose progress was loaded already."""
    found = get_report_version(progress, version)
    return ReportWithImprint(
        build_report_json(progress, found, await client.get_report_text(found)), build_imprint(progress, found)
    )


async def load_draft(client: Client, task_id: str) -> ReportWithImprint:
    """Build what the task would deliver if it ended now. Raises BadInput if there is nothing to show, or a report."""
    found = await client.build_draft(task_id)
    report = ReportJson(task_id=task_id, phase=found.phase, version=None, report=found.markdown)
    return ReportWithImprint(report, ReportMetadata(task_id=task_id, phase=found.phase))


def build_imprint(progress: TaskProgress, version: ReportVersion) -> ReportMetadata:
    """Build the metadata of one report version: its number, how its task ended, when it was stored."""
    return ReportMetadata(
        task_id=progress.task_id,
        phase=version.phase,
        version=version.number,
        stored_at=version.stored_at,
        model=progress.model,
    )


def render_report_file(found: ReportWithImprint, form: ReportFormat) -> ReportFile:
    """Render the report in this format. A long one takes seconds: do not call it on an event loop that serves others.

    Raises:
        BadInput: A package that renders it is not installed.
    """
    stored = parse_stored_report(found.report.report)
    whole = build_report_export(stored, found.imprint)
    match form:
        case "md":
            return ReportFile(render_numbered_markdown(stored, whole).encode())
        case "html":
            return ReportFile(render_html_page(whole).encode())
        case "pdf":
            return ReportFile(*render_pdf(whole))
        case "docx":
            return ReportFile(render_docx(whole))
        case "json":
            facts = {"title": whole.title, "checked": whole.checked, "sources": whole.sources}
            about = {"stored_at": found.imprint.stored_at, "model": found.imprint.model}
            as_data = ExportJson.model_validate({**found.report.model_dump(), **about, **facts})
            return ReportFile(f"{as_data.model_dump_json(indent=2)}\n".encode())
