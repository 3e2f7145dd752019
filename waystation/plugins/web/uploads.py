"""Reads uploaded files for the API and the web pages, as `submit --docs` reads files."""

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, NamedTuple

import fastapi
from fastapi import Depends, File, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile

from waystation.client import Client
from waystation.client.file_previews import FilePreviews, SkippedFile, build_file_previews
from waystation.documents.document_loading import (
    FORMATS,
    DocumentLoadResult,
    DocumentNamePair,
    compute_unique_names,
    find_changed_file_name,
    format_left_out,
    load_documents,
    sanitize_document_name,
)
from waystation.documents.documents import SkippedItem, SourceDocument
from waystation.kernel.errors import BadInput
from waystation.plugins.web.access import CurrentPrincipal
from waystation.plugins.web.upload_cache import UploadCache, UploadKey, UploadReadResult
from waystation.security.untrusted import replace_control_characters

MAX_FILES = 200
"""Maximum files of one request."""
MAX_PREVIEW_CHARACTERS = 20_000_000
"""Maximum characters of all documents of one answer: a small file can contain much compressed text."""
MAX_UPLOAD_NAME_BYTES, MAX_DOCUMENT_NAME_CHARACTERS = 200, 100
"""Maximum bytes of an uploaded file's name, of which file systems accept 255; maximum characters of a
document's name.
"""
CHECKS_AT_ONCE = 2
"""Number of requests whose files are checked at once: a file may need a gigabyte."""

UploadedFiles = Annotated[
    list[fastapi.UploadFile],
    File(max_length=MAX_FILES, description="Files of the kinds that `waystation submit --docs` reads."),
]
Redacted = Annotated[bool, Query(description="Whether to replace private values, as is done before a model call.")]


class UploadedFile(NamedTuple):
    """An uploaded file, and what was read of it."""

    path: str
    """Path under which it was sent, without what would lead elsewhere."""
    read: UploadReadResult


class UploadReadingState:
    """What all requests to a server share: the cache of texts, and how many requests read files at once."""

    def __init__(self, cache: UploadCache | None = None) -> None:
        """`cache`: default: an empty one."""
        self.cache = cache or UploadCache()
        self.preview_turn, self.check_turns = asyncio.Lock(), asyncio.Semaphore(CHECKS_AT_ONCE)


class UploadReader:
    """Reads the files that a tenant uploads. Files that it uploaded shortly before are not read again."""

    def __init__(self, shared: UploadReadingState, tenant: str) -> None:
        self._shared, self._tenant = shared, tenant

    async def check(self, files: Sequence[UploadFile]) -> list[UploadedFile]:
        """Read the files to say whether they can be used, a few requests at once."""
        async with self._shared.check_turns:
            return await self._read(files)

    async def load(self, files: Sequence[UploadFile]) -> DocumentLoadResult:
        """Load the texts of uploaded files as `submit --docs` does, and what of them cannot be used.

        A file of a folder has the name that it has within that folder. Raises BadInput if nothing can be used.
        """
        if not files:
            return DocumentLoadResult(documents=())
        read = await self._read(files)
        usable = [(one.path, one.read.document) for one in read if one.read.document is not None]
        if not usable:
            left_out = [_name_skipped_item(one.path, item) for one in read for item in one.read.skipped_items]
            raise BadInput(f"none of these files can be used{format_left_out(left_out)}. Give a file of {FORMATS}.")
        pairs = [DocumentNamePair(_within_folder(path), path) for path, _ in usable]
        names = iter(zip(pairs, compute_unique_names(pairs), strict=True))
        documents, skipped_items = list[SourceDocument](), list[SkippedItem]()
        for path, (document, skipped) in read:
            if document is None:
                skipped_items += [_name_skipped_item(path, item) for item in skipped]
                continue
            pair, name = next(names)
            documents.append(document.replace(name=name, file_name=find_changed_file_name(pair, name)))
            skipped_items += [item.replace(name=f"{name}, {item.name}") for item in skipped]
        return DocumentLoadResult(documents=tuple(documents), skipped_items=tuple(skipped_items))

    async def load_previews(self, client: Client, files: Sequence[UploadFile], *, redacted: bool) -> FilePreviews:
        """Return what agents would see of these files together, with the names that a task would give them.

        One request at a time: redaction loads models.

        Raises:
            BadInput: there are too many files, or they have too much text for one answer.
        """
        if not 0 < len(files) <= MAX_FILES:
            raise BadInput(f"{len(files):,} files: send 1 to {MAX_FILES} in one request")
        async with self._shared.preview_turn:
            found = await self._build_previews(files)
            characters = sum(one.characters for one in found.documents)
            if characters > MAX_PREVIEW_CHARACTERS:
                raise BadInput(
                    f"these files have {characters:,} characters, and one answer has at most "
                    f"{MAX_PREVIEW_CHARACTERS:,}: send fewer files in one request, or use `waystation read`"
                )
            return await client.redact_file_previews(found) if redacted else found

    async def _build_previews(self, files: Sequence[UploadFile]) -> FilePreviews:
        """Read the files; one of which nothing can be used is named as refused, with the reason."""
        names = [sanitize_document_name(sanitize_upload_path(file.filename or "")) for file in files]
        try:
            loaded = await self.load(files)
        except BadInput as error:
            if len(files) == 1:
                return build_file_previews(
                    DocumentLoadResult(documents=()), [SkippedFile(path=names[0], reason=str(error))]
                )
            refusals = [await self._find_refusal(file) for file in files]
            return build_file_previews(DocumentLoadResult(documents=()), refusals)
        refused = [SkippedFile(path=one.name, reason=one.reason) for one in loaded.skipped_items if one.name in names]
        parts = tuple(one for one in loaded.skipped_items if one.name not in names)
        return build_file_previews(loaded.replace(skipped_items=parts), refused)

    async def _find_refusal(self, file: UploadFile) -> SkippedFile:
        """Return why nothing of a file can be used."""
        return (await self._build_previews([file])).refused[0]

    async def _read(self, files: Sequence[UploadFile]) -> list[UploadedFile]:
        """Read each file, in the order in which they were sent, unless it was read shortly before."""
        cache, keys = self._shared.cache, list[UploadKey]()
        paths = [sanitize_upload_path(file.filename or "") for file in files]
        known: dict[UploadKey, UploadReadResult] = {}
        with TemporaryDirectory() as folder:
            for path, file in zip(paths, files, strict=True):
                await file.seek(0)
                content, name = await file.read(), _shorten(path.rpartition("/")[2])
                key = UploadKey(self._tenant, name, hashlib.sha256(content).hexdigest())
                if found := cache.get(key):
                    known[key] = found
                elif key not in keys:
                    # Each file has a folder of its own, whose name is the file's number.
                    own = Path(folder) / str(len(keys))
                    own.mkdir()
                    (own / name).write_bytes(content)
                keys.append(key)
            loaded = await run_in_threadpool(load_documents, [Path(folder)], require_readable=False)
        for number, read in _list_by_number(loaded).items():
            known[keys[number]] = read
            cache.put(keys[number], read)
        return [UploadedFile(path, known.get(key, _NO_TEXT)) for path, key in zip(paths, keys, strict=True)]


_NO_TEXT = UploadReadResult(None, ())


def _list_by_number(loaded: DocumentLoadResult) -> dict[int, UploadReadResult]:
    """Return what was read of each file by its number, which is the name of its folder."""
    documents = {_parse_number(one.name): one for one in loaded.documents}
    skipped: dict[int, list[SkippedItem]] = {number: [] for number in documents}
    for item in loaded.skipped_items:
        number = _parse_number(item.name)
        of_document = f"{documents[number].name}, " if number in documents else ""
        skipped.setdefault(number, []).append(item.replace(name=item.name.removeprefix(of_document)))
    return {number: UploadReadResult(documents.get(number), tuple(items)) for number, items in skipped.items()}


def _parse_number(name: str) -> int:
    return int(name.partition("/")[0])


def _name_skipped_item(path: str, item: SkippedItem) -> SkippedItem:
    return item.replace(name=sanitize_document_name(path))


def _within_folder(path: str) -> str:
    return path.partition("/")[2] or path


def _shorten(name: str) -> str:
    """Return the end of a long name, which has the extension: of a longer path the number would be cut off."""
    return name if len(name) <= MAX_DOCUMENT_NAME_CHARACTERS else f"long{name[-MAX_DOCUMENT_NAME_CHARACTERS:]}"


def sanitize_upload_path(given: str) -> str:
    """Return a browser's name for a file, with its folders, without characters that lead elsewhere or hide it."""
    *folders, last = replace_control_characters(given).replace("\\", "/").split("/")
    kept = [part for folder in folders if (part := _path_part(folder))]
    return "/".join((*kept, _path_part(last) or "document.txt"))


def _path_part(given: str) -> str:
    kept = "".join(sign for sign in given if sign not in "\n\t\0")
    return kept.encode(errors="replace")[-MAX_UPLOAD_NAME_BYTES:].decode(errors="ignore").lstrip(".")


def get_upload_reader(request: Request, principal: CurrentPrincipal) -> UploadReader:
    """Return the reader of the tenant's uploads."""
    shared = request.app.state.uploads
    if not isinstance(shared, UploadReadingState):
        raise TypeError("the application reads no files")
    return UploadReader(shared, principal.tenant)


Uploads = Annotated[UploadReader, Depends(get_upload_reader)]
