"""Files as agents will see them: numbered lines, and everything that is left out; redacted on request.

Nothing is stored.
"""

from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

from waystation.config.settings import Settings
from waystation.documents.document_loading import DocumentLoadResult, load_documents
from waystation.documents.documents import SkippedItem, SourceDocument
from waystation.documents.text_repository import make_document
from waystation.kernel.errors import BadInput
from waystation.kernel.value import Value
from waystation.privacy.policy import (
    TextDestination,
    build_redacted_text,
    build_redaction_notes,
    normalize_line_endings,
)
from waystation.runtime.store_setup import find_placeholder_key
from waystation.security.untrusted import escape_tags
from waystation.tasks.task import tenant_hash


class FilePreview(Value):
    """One document as agents see it."""

    name: str
    """Name by which agents know it."""
    lines: tuple[str, ...]
    """Lines, which agents read and cite by number, from 1."""
    characters: int
    date: str = ""
    """Day that the document states for itself, which agents see too; empty if it states none."""
    file_name: str = ""
    """Path of the file, if the name differs because a citation cannot have it; otherwise empty."""


class SkippedFile(Value):
    """A file or folder of which nothing can be used."""

    path: str
    reason: str


class FilePreviews(Value):
    """Documents made from the given files and folders."""

    documents: tuple[FilePreview, ...]
    left_out: tuple[SkippedItem, ...]
    """Files in a folder, and parts of files."""
    refused: tuple[SkippedFile, ...]
    redacted: bool
    notes: tuple[str, ...] = ()
    """Remarks on the redaction."""


def load_file_previews(paths: Sequence[Path]) -> FilePreviews:
    """Read all files together, so that names are those of a task; if some are unusable, without those."""
    refused: list[SkippedFile] = []
    try:
        loaded = load_documents(paths)
    except BadInput:
        usable = [path for path in paths if _is_usable(path, refused)]
        loaded = load_documents(usable)
    return build_file_previews(loaded, refused)


def build_file_previews(loaded: DocumentLoadResult, refused: Sequence[SkippedFile] = ()) -> FilePreviews:
    """Build the previews of files that were read."""
    return FilePreviews(
        documents=tuple(map(_document, loaded.documents)),
        left_out=loaded.skipped_items,
        refused=tuple(refused),
        redacted=False,
    )


async def redact_file_previews(found: FilePreviews, settings: Settings) -> FilePreviews:
    """Replace private values in texts and names, as the policy of the settings does before a model call.

    It loads the redactor, which takes seconds and hundreds of megabytes.

    Raises:
        BadInput: the settings have no usable key, or select a redactor that is not installed.
        RedactionFailed: a text could not be redacted.
    """
    from waystation.documents.name_redaction import redact_document_text, redact_names  # noqa: PLC0415
    from waystation.runtime.redaction_setup import create_redactor  # noqa: PLC0415  it takes seconds to load

    tenant, documents, notes = tenant_hash(settings.tenant), list[FilePreview](), dict[str, None]()
    with closing(create_redactor(settings, await find_placeholder_key(settings))) as redactor:
        names = await redact_names([one.name for one in found.documents], redactor, tenant, TextDestination.TOOL_RESULT)
        for name, document in zip(names, found.documents, strict=True):
            original = "\n".join(document.lines)
            redacted = await redact_document_text(original, redactor, tenant, TextDestination.TOOL_RESULT)
            notes |= dict.fromkeys(build_redaction_notes(redacted, of=name))
            shown = _of_lines(name, build_redacted_text(original, redacted).lines)
            documents.append(shown.replace(date=document.date))
        whole = [one.name for one in found.left_out]
        parts = await redact_names(whole, redactor, tenant, TextDestination.TOOL_RESULT)
    left_out = [one.replace(name=name) for one, name in zip(found.left_out, parts, strict=True)]
    return found.replace(documents=tuple(documents), left_out=tuple(left_out), redacted=True, notes=tuple(notes))


def _is_usable(path: Path, refused: list[SkippedFile]) -> bool:
    try:
        load_documents([path])
    except BadInput as error:
        refused.append(SkippedFile(path=str(path), reason=str(error).removeprefix(f"cannot use {path}: ")))
        return False
    return True


def _document(document: SourceDocument) -> FilePreview:
    lines = normalize_line_endings(document.text).split("\n")
    made = make_document(document)
    return _of_lines(document.name, lines).replace(date=made.date, file_name=made.file_name)


def _of_lines(name: str, lines: Iterable[str]) -> FilePreview:
    shown = escape_tags("\n".join(lines))
    return FilePreview(name=name, lines=tuple(shown.split("\n")), characters=len(shown))
