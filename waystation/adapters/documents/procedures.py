"""Procedures as they are handed in: Markdown files that a person names, or a folder of them."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from waystation.adapters.documents.naming import Named, unique_names
from waystation.domain.errors import BadInput
from waystation.domain.procedures import MOST_CHARACTERS, SUFFIX, GivenProcedure, checked

MOST_BYTES = 8 * MOST_CHARACTERS
"""Of a file: more than any procedure has in UTF-8 with its front matter."""


def load_procedures(paths: Sequence[Path]) -> tuple[GivenProcedure, ...]:
    """The files, and all Markdown files in the folders; hidden ones and links that lead out of a folder are left out.

    Raises BadInput naming the file and the cause: what cannot be followed as it is must not be missed silently.
    """
    found = {os.path.realpath(path): (path, named) for given in paths for path, named in _files(given)}
    names = unique_names([named for _, named in found.values()])
    texts = [_text(path) for path, _ in found.values()]
    try:
        return checked(tuple(GivenProcedure(name=name, text=text) for name, text in zip(names, texts, strict=True)))
    except ValueError as error:
        raise BadInput(f"--procedures: {error}") from None


def _files(given: Path) -> Iterator[tuple[Path, Named]]:
    if not given.is_dir():
        yield given, Named(short=given.name, long=str(given))
        return
    root, count = os.path.realpath(given), 0
    for here, folders, files in os.walk(given):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for path in (Path(here, name) for name in sorted(files) if not name.startswith(".")):
            if path.suffix.lower() == SUFFIX and Path(os.path.realpath(path)).is_relative_to(root):
                count += 1
                yield path, Named(short=path.relative_to(given).as_posix(), long=path.as_posix())
    if not count:
        raise BadInput(f"--procedures {given}: there is no Markdown file ({SUFFIX}) in it")


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            raise BadInput(f"--procedures {path} is no file. Give a Markdown file or a folder of them.")
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise BadInput(f"--procedures {path} has more than {MOST_BYTES:,} bytes: give a shorter procedure.")
        return content.decode("utf-8-sig")
    except OSError as error:
        cause = (error.strerror or "it cannot be opened").lower()
        raise BadInput(f"--procedures {path} cannot be read: {cause}. Give a file that you may read.") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"--procedures {path} is no UTF-8 text. Save it as plain text in UTF-8.") from error
