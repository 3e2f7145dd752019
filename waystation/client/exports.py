"""Reports and drafts as files to send, for the command line, the API and the web pages."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, NamedTuple

from waystation.client.client import Client
from waystation.plugins.exports.bibliography import render_bibtex, render_ris
from waystation.plugins.exports.docx import render_docx
from waystation.plugins.exports.page import NO_DETAILS, SourceDetails, render_html_page
from waystation.plugins.exports.pdf import render_pdf
from waystation.reports.blocks import NumberedSource, ReportMetadata, parse_stored_report
from waystation.reports.markdown import build_report_export, render_numbered_markdown
from waystation.tasks.view import ReportView

ReportFormat = Literal["md", "html", "pdf", "docx", "json", "bibtex", "ris"]

FILE_SUFFIXES: Mapping[ReportFormat, str] = {"bibtex": "bib"}
"""Extensions of files that are not named like their format."""


class ExportedReportView(ReportView):
    """A report with its citations as data."""

    title: str
    stored_at: datetime | None
    checked: str
    """Result of the citation check, as a sentence."""
    sources: tuple[NumberedSource, ...]
    """Sources in the order in which the report first cites them."""


class ReportWithImprint(NamedTuple):
    """A report or a draft with the metadata of its imprint."""

    report: ReportView
    imprint: ReportMetadata


class ReportFile(NamedTuple):
    """A file, with a remark on what could not be shown in it; empty if there is nothing to remark."""

    content: bytes
    warning: str = ""


async def load_report(client: Client, task_id: str, version: int | None = None) -> ReportWithImprint:
    """Load the newest report, or this version of it. Raises BadInput if there is none; UnknownTask."""
    report = await client.load_report(task_id, version)
    return ReportWithImprint(report, build_imprint(report))


async def load_draft(client: Client, task_id: str) -> ReportWithImprint:
    """Build what the task would deliver if it ended now. Raises BadInput if there is nothing to show, or a report."""
    report = await client.build_draft(task_id)
    return ReportWithImprint(report, ReportMetadata(task_id=task_id, phase=report.phase))


def build_imprint(report: ReportView) -> ReportMetadata:
    """Build the metadata of a stored report: its number, how its task ended with it, when it was stored."""
    version = next(one for one in report.versions if one.number == report.version)
    return ReportMetadata(
        task_id=report.task_id,
        phase=version.phase,
        version=version.number,
        stored_at=version.stored_at,
        model=report.model,
    )


def list_report_sources(found: ReportWithImprint) -> tuple[NumberedSource, ...]:
    """Return the numbered sources of a report."""
    return build_report_export(parse_stored_report(found.report.markdown), found.imprint).sources


def render_report_file(found: ReportWithImprint, form: ReportFormat, extras: SourceDetails = NO_DETAILS) -> ReportFile:
    """Render the report in this format. A long one takes seconds: do not call it on an event loop that serves others.

    Args:
        found: The report.
        form: The format.
        extras: For HTML: what is shown below the sources.

    Raises:
        BadInput: A package that renders it is not installed.
    """
    stored = parse_stored_report(found.report.markdown)
    whole = build_report_export(stored, found.imprint)
    match form:
        case "md":
            return ReportFile(render_numbered_markdown(stored, whole).encode())
        case "html":
            return ReportFile(render_html_page(whole, extras).encode())
        case "pdf":
            return ReportFile(*render_pdf(whole))
        case "docx":
            return ReportFile(render_docx(whole))
        case "bibtex":
            return ReportFile(render_bibtex(whole).encode())
        case "ris":
            return ReportFile(render_ris(whole).encode())
        case "json":
            as_data = ExportedReportView(
                task_id=found.report.task_id,
                phase=found.report.phase,
                version=found.report.version,
                versions=found.report.versions,
                markdown=found.report.markdown,
                sentences=found.report.sentences,
                title=whole.title,
                stored_at=found.imprint.stored_at,
                model=found.report.model,
                checked=whole.checked,
                sources=whole.sources,
            )
            return ReportFile(f"{as_data.model_dump_json(indent=2)}\n".encode())
