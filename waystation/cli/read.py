"""`waystation read`: shows what agents will see of files, and what is left out."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from waystation.cli.console import OK, WORK_FAILED, print_json, print_message, print_text
from waystation.cli.options import JsonOption
from waystation.cli.render import format_count
from waystation.config.settings import Settings
from waystation.documents.document_loading import load_documents
from waystation.documents.documents import SkippedItem, SourceDocument
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

app = typer.Typer()


class DocumentPreview(Value):
    """One document as agents see it."""

    name: str
    """Name by which agents know it."""
    lines: tuple[str, ...]
    """Lines, which agents read and cite by number, from 1."""
    characters: int


class SkippedFile(Value):
    """A file or folder of which nothing can be used."""

    path: str
    reason: str


class FilePreviews(Value):
    """Documents made from the given files and folders."""

    documents: tuple[DocumentPreview, ...]
    left_out: tuple[SkippedItem, ...]
    """Files in a folder, and parts of files."""
    refused: tuple[SkippedFile, ...]
    redacted: bool
    notes: tuple[str, ...] = ()
    """Remarks on the redaction."""


@app.command()
def read(
    files: Annotated[list[Path], typer.Argument(metavar="PATH", help="Files and folders, as for `submit --docs`.")],
    redacted: Annotated[
        bool, typer.Option("--redacted", help="Replace private values, as in text for a model.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print files as agents will see them, with line numbers, and what is skipped.

    This needs no server and stores nothing. Exits with 1 if one of the files cannot be used.
    """
    found = _read(files)
    if redacted:
        found = asyncio.run(_redact(found, Settings()))
    if as_json:
        print_json(found)
    else:
        print_text(render_files(found))
        for note in found.notes:
            print_message(note)
    raise typer.Exit(WORK_FAILED if found.refused else OK)


def render_files(found: FilePreviews) -> str:
    """Render for people: each document under its name, then everything that was left out."""
    parts = [_render_document(one) for one in found.documents]
    if found.left_out:
        parts.append("\n".join(["skipped:", *(f"  {one.name}: {one.reason}" for one in found.left_out)]))
    if found.refused:
        parts.append("\n".join(["cannot be used:", *(f"  {one.path}: {one.reason}" for one in found.refused)]))
    return "\n\n".join(parts)


def _render_document(document: DocumentPreview) -> str:
    lines, characters = len(document.lines), document.characters
    head = f"{document.name}: {format_count(lines, 'line')}, {format_count(characters, 'character')}"
    width = len(str(len(document.lines)))
    return "\n".join([head, *(f"{number:>{width}}| {line}" for number, line in enumerate(document.lines, 1))])


def _read(paths: Sequence[Path]) -> FilePreviews:
    """Read all files together, so that names are those of a task; if some are unusable, without those."""
    refused: list[SkippedFile] = []
    try:
        loaded = load_documents(paths)
    except BadInput:
        usable = [path for path in paths if _is_usable(path, refused)]
        loaded = load_documents(usable)
    return FilePreviews(
        documents=tuple(map(_document, loaded.documents)),
        left_out=loaded.skipped_items,
        refused=tuple(refused),
        redacted=False,
    )


def _is_usable(path: Path, refused: list[SkippedFile]) -> bool:
    try:
        load_documents([path])
    except BadInput as error:
        refused.append(SkippedFile(path=str(path), reason=str(error).removeprefix(f"cannot use {path}: ")))
        return False
    return True


def _document(document: SourceDocument) -> DocumentPreview:
    return _of_lines(document.name, normalize_line_endings(document.text).split("\n"))


def _of_lines(name: str, lines: Iterable[str]) -> DocumentPreview:
    shown = escape_tags("\n".join(lines))
    return DocumentPreview(name=name, lines=tuple(shown.split("\n")), characters=len(shown))


async def _redact(found: FilePreviews, settings: Settings) -> FilePreviews:
    from waystation.documents.name_redaction import redact_names, redact_text  # noqa: PLC0415
    from waystation.runtime.redaction_setup import create_redactor  # noqa: PLC0415  it takes seconds to load

    tenant, documents, notes = tenant_hash(settings.tenant), list[DocumentPreview](), dict[str, None]()
    with closing(create_redactor(settings, await find_placeholder_key(settings))) as redactor:
        names = await redact_names([one.name for one in found.documents], redactor, tenant, TextDestination.TOOL_RESULT)
        for name, document in zip(names, found.documents, strict=True):
            original = "\n".join(document.lines)
            redacted = await redact_text(original, redactor, tenant, TextDestination.TOOL_RESULT)
            notes |= dict.fromkeys(build_redaction_notes(redacted, of=name))
            documents.append(_of_lines(name, build_redacted_text(original, redacted).lines))
        whole = [one.name for one in found.left_out]
        parts = await redact_names(whole, redactor, tenant, TextDestination.TOOL_RESULT)
    left_out = [one.replace(name=name) for one, name in zip(found.left_out, parts, strict=True)]
    return found.replace(documents=tuple(documents), left_out=tuple(left_out), redacted=True, notes=tuple(notes))
