"""Reads uploaded files for the API and the web pages, one request at a time."""

import asyncio
from collections.abc import Sequence
from typing import Annotated

import fastapi
from fastapi import Depends, File, Query, Request
from starlette.datastructures import UploadFile

from waystation.client import Client
from waystation.client.file_previews import FilePreviews, SkippedFile, build_file_previews
from waystation.documents.document_loading import DocumentLoadResult, sanitize_document_name
from waystation.kernel.errors import BadInput
from waystation.plugins.web.request_bodies import load_uploads, sanitize_upload_path

MAX_FILES = 200
"""Maximum files of one request."""
MAX_PREVIEW_CHARACTERS = 20_000_000
"""Maximum characters of all documents of one answer: a small file can contain much compressed text."""

UploadedFiles = Annotated[
    list[fastapi.UploadFile],
    File(max_length=MAX_FILES, description="Files of the kinds that `waystation submit --docs` reads."),
]
Redacted = Annotated[bool, Query(description="Whether to replace private values, as is done before a model call.")]


class UploadReader:
    """Reads the uploads of one request at a time: a file may need a gigabyte, and redaction loads models."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def load(self, client: Client, files: Sequence[UploadFile], *, redacted: bool) -> FilePreviews:
        """Return what agents would see of these files together, with the names that a task would give them.

        Raises:
            BadInput: there are too many files, or they have too much text for one answer.
        """
        if not 0 < len(files) <= MAX_FILES:
            raise BadInput(f"{len(files):,} files: send 1 to {MAX_FILES} in one request")
        async with self._turn:
            found = await _read(files)
            characters = sum(one.characters for one in found.documents)
            if characters > MAX_PREVIEW_CHARACTERS:
                raise BadInput(
                    f"these files have {characters:,} characters, and one answer has at most "
                    f"{MAX_PREVIEW_CHARACTERS:,}: send fewer files in one request, or use `waystation read`"
                )
            return await client.redact_file_previews(found) if redacted else found


async def _read(files: Sequence[UploadFile]) -> FilePreviews:
    """Read the files; one of which nothing can be used is named as refused, with the reason."""
    names = [sanitize_document_name(sanitize_upload_path(file.filename or "")) for file in files]
    try:
        loaded = await load_uploads(files)
    except BadInput as error:
        if len(files) == 1:
            return build_file_previews(
                DocumentLoadResult(documents=()), [SkippedFile(path=names[0], reason=str(error))]
            )
        return build_file_previews(DocumentLoadResult(documents=()), [await _find_refusal(file) for file in files])
    refused = [SkippedFile(path=one.name, reason=one.reason) for one in loaded.skipped_items if one.name in names]
    parts = tuple(one for one in loaded.skipped_items if one.name not in names)
    return build_file_previews(loaded.replace(skipped_items=parts), refused)


async def _find_refusal(file: UploadFile) -> SkippedFile:
    """Return why nothing of a file can be used."""
    await file.seek(0)
    return (await _read([file])).refused[0]


def get_upload_reader(request: Request) -> UploadReader:
    """Return the server's reader."""
    reader = request.app.state.previews
    if not isinstance(reader, UploadReader):
        raise TypeError("the application reads no files")
    return reader


Uploads = Annotated[UploadReader, Depends(get_upload_reader)]
