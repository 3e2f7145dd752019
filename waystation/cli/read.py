"""`waystation read`: shows what agents will see of files, and what is left out."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from waystation.cli.console import OK, WORK_FAILED, print_json, print_message, print_text
from waystation.cli.options import JsonOption, parse_document_path
from waystation.cli.render import format_count
from waystation.client.file_previews import FilePreview, FilePreviews, load_file_previews, redact_file_previews
from waystation.config.settings import Settings

app = typer.Typer()


@app.command()
def read(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="PATH", parser=parse_document_path, help="Files and folders, as for `submit --docs`."),
    ],
    redacted: Annotated[
        bool, typer.Option("--redacted", help="Replace private values by placeholders, as models receive the text.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print files as agents will see them, with line numbers, and list what is skipped.

    This needs no server and stores nothing. Exits with 1 if one of the files cannot be used.
    """
    found = load_file_previews(files)
    if redacted:
        found = asyncio.run(redact_file_previews(found, Settings()))
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


def _render_document(document: FilePreview) -> str:
    lines, characters = len(document.lines), document.characters
    head = f"{document.name}: {format_count(lines, 'line')}, {format_count(characters, 'character')}"
    if document.date:
        head += f", dated {document.date}"
    if document.file_name:
        head += f"; file {document.file_name}"
    width = len(str(len(document.lines)))
    return "\n".join([head, *(f"{number:>{width}}| {line}" for number, line in enumerate(document.lines, 1))])
