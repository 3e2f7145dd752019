"""Files and folders to documents: what is taken, what is skipped and why, in a stable order."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from waystation.adapters.documents.naming import Named, citable, unique_names
from waystation.adapters.documents.reading import Unreadable, read_text
from waystation.domain.errors import BadInput
from waystation.domain.task import SourceDocument
from waystation.domain.value import Value

_GENERATED = frozenset({"__pycache__", "node_modules"})
_USABLE = "Markdown, text, HTML, CSV, JSON or source code"


class Skipped(Value):
    """A file or folder inside a given folder that gave no document."""

    name: str
    reason: str


class Loaded(Value):
    """The documents, in the order of the given paths and by name within a folder, and what was skipped in folders."""

    documents: tuple[SourceDocument, ...]
    skipped: tuple[Skipped, ...] = ()


def load_documents(paths: Sequence[Path]) -> Loaded:
    """Read files, and folders with everything in them but hidden and generated files.

    A document's name is its path within the given folder, or the path itself of a file given by itself. A file that
    is reached twice is one document.

    Raises:
        BadInput: a file given by itself is missing or cannot be read, or a folder has nothing that can be read.
    """
    seen: set[str] = set()
    named: list[Named] = []
    texts: list[str] = []
    skipped: list[Skipped] = []
    for path in paths:
        read = _folder(path, seen, skipped) if path.is_dir() else _single(path, seen)
        for name, text in read:
            named.append(name)
            texts.append(text)
    documents = (SourceDocument(name=name, text=text) for name, text in zip(unique_names(named), texts, strict=True))
    return Loaded(documents=tuple(documents), skipped=tuple(skipped))


def _single(path: Path, seen: set[str]) -> list[tuple[Named, str]]:
    if _met(path, seen):
        return []
    try:
        return [(Named(short=str(path), long=str(path)), read_text(path))]
    except Unreadable as unreadable:
        raise BadInput(f"cannot use {path}: {unreadable}. Give a file or folder of {_USABLE}.") from unreadable


def _folder(folder: Path, seen: set[str], skipped: list[Skipped]) -> list[tuple[Named, str]]:
    left_out: list[Skipped] = []
    read: list[tuple[Named, str]] = []
    known = 0
    for path in _files(folder, left_out):
        if _met(path, seen):
            known += 1
            continue
        short = path.relative_to(folder).as_posix()
        try:
            read.append((Named(short=short, long=path.as_posix()), read_text(path)))
        except Unreadable as unreadable:
            left_out.append(Skipped(name=citable(short), reason=str(unreadable)))
    if not read and not known:
        first = f" ({left_out[0].name}: {left_out[0].reason})" if left_out else ""
        raise BadInput(f"cannot use {folder}: no file in it can be read{first}. Give a file or folder of {_USABLE}.")
    skipped += left_out
    return read


def _files(folder: Path, left_out: list[Skipped]) -> Iterator[Path]:
    root = os.path.realpath(folder)

    def leave_out(path: str, reason: str) -> None:
        left_out.append(Skipped(name=citable(os.path.relpath(path, folder)), reason=reason))

    def unlisted(error: OSError) -> None:
        leave_out(str(error.filename), f"cannot be listed ({error.strerror})")

    for here, folders, files in os.walk(folder, onerror=unlisted):
        folders[:] = sorted(filter(_wanted, folders))
        links = [name for name in folders if Path(here, name).is_symlink()]
        for name in sorted([*filter(_wanted, files), *links]):
            path = Path(here, name)
            # What lies outside was not given: a link must not carry somebody's keys into a task.
            if not Path(os.path.realpath(path)).is_relative_to(root):
                leave_out(str(path), "a link that leads out of the folder; give its target by itself")
            elif name not in links:
                yield path


def _wanted(name: str) -> bool:
    return not name.startswith(".") and name not in _GENERATED


def _met(path: Path, seen: set[str]) -> bool:
    """Whether the same file was met before; it is from now on."""
    target = os.path.realpath(path)
    met = target in seen
    seen.add(target)
    return met
