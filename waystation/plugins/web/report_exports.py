"""Reports and drafts as the API and the web pages return them: as data, as text, or as a file."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Request
from starlette.datastructures import UploadFile
from starlette.responses import Response

from waystation.client import Client
from waystation.client.exports import (
    FILE_SUFFIXES,
    ReportWithImprint,
    list_report_sources,
    load_draft,
    load_report,
    render_report_file,
)
from waystation.client.passage_pictures import load_cited_passage, render_cited_passage
from waystation.kernel.errors import BadInput
from waystation.reports.blocks import NumberedSource
from waystation.reports.markdown import render_report_html
from waystation.tasks.view import ReportView

AT_ONCE = 2
"""Number of files that are rendered at once: each takes seconds of CPU time."""
PDF = "application/pdf"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
PNG = "image/png"
BIBTEX, RIS = "application/x-bibtex", "application/x-research-info-systems"
FILES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The report as JSON, or as a file in the requested format.",
        "content": {kind: {} for kind in ("text/markdown", "text/html", PDF, DOCX, BIBTEX, RIS)},
    }
}
"""Responses in the API's description."""
FileForm = Literal["pdf", "docx", "bibtex", "ris"]
_MEDIA_TYPES: Mapping[FileForm, str] = {"pdf": PDF, "docx": DOCX, "bibtex": BIBTEX, "ris": RIS}

ReportForm = Annotated[Literal["json", "markdown", "html"] | FileForm, Query()]


class ReportExporter:
    """Builds drafts one at a time, since each loads models for redaction, and files a few at a time."""

    def __init__(self) -> None:
        self._files, self._drafts = asyncio.Semaphore(AT_ONCE), asyncio.Lock()

    async def build_draft(self, client: Client, task_id: str) -> ReportWithImprint:
        """Build what the task would deliver if it ended now.

        Raises BadInput if there is nothing to show, or a report.
        """
        async with self._drafts:
            return await load_draft(client, task_id)

    async def build_response(
        self, found: ReportWithImprint, form: Literal["json", "markdown", "html"] | FileForm
    ) -> Response | ReportView:
        """Return the report in that format. Raises BadInput if a package that renders it is not installed."""
        match form:
            case "json":
                return found.report
            case "markdown":
                return Response(found.report.markdown, media_type="text/markdown")
            case "html":
                return Response(
                    await asyncio.to_thread(render_report_html, found.report.markdown), media_type="text/html"
                )
            case "pdf" | "docx" | "bibtex" | "ris":
                async with self._files:
                    file = await asyncio.to_thread(render_report_file, found, form)
                draft = "-draft" if found.report.version is None else ""
                named = f'attachment; filename="{found.report.task_id}{draft}.{FILE_SUFFIXES.get(form, form)}"'
                return Response(file.content, media_type=_MEDIA_TYPES[form], headers={"content-disposition": named})


_DRAWING = asyncio.Semaphore(AT_ONCE)


async def load_numbered_source(client: Client, task_id: str, number: int) -> NumberedSource:
    """Return a source of the newest report. Raises BadInput if there is none with this number."""
    found = await load_report(client, task_id)
    sources = await asyncio.to_thread(list_report_sources, found)
    source = next((one for one in sources if one.number == number), None)
    if source is None:
        raise BadInput(f"the report has no source {number}")
    return source


async def draw_uploaded_passage(client: Client, task_id: str, number: int, files: Sequence[UploadFile]) -> Response:
    """Draw the passage of a source of the newest report on its page, of which the file was sent.

    Raises:
        BadInput: The report has no such source, it is not on a page of a PDF or a picture, or this is another file.
    """
    if len(files) != 1:
        raise BadInput("choose exactly one file: the document with the cited passage, as it was submitted")
    source = await load_numbered_source(client, task_id, number)
    passage = await load_cited_passage(client, task_id, source)
    async with _DRAWING:
        with NamedTemporaryFile() as file:
            file.write(await files[0].read())
            file.flush()
            picture = await asyncio.to_thread(render_cited_passage, passage, Path(file.name))
    return Response(picture.png, media_type=PNG)


def get_report_exporter(request: Request) -> ReportExporter:
    """Return the server's exporter."""
    maker = request.app.state.reports
    if not isinstance(maker, ReportExporter):
        raise TypeError("the application exports no reports")
    return maker


Exporter = Annotated[ReportExporter, Depends(get_report_exporter)]
