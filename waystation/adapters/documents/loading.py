"""Files and folders to documents: what is taken, what is left out and why, in a stable order."""

import os
from collections.abc import Collection, Iterator, Sequence
from itertools import filterfalse
from pathlib import Path
from typing import NamedTuple

from waystation.adapters.documents.child_reader import SECONDS_A_FILE, ChildReader
from waystation.adapters.documents.extract import Extracted, Unreadable
from waystation.adapters.documents.naming import Named, citable, unique_names
from waystation.adapters.documents.reading import fingerprint, read_file
from waystation.domain.documents import LeftOut
from waystation.domain.errors import BadInput
from waystation.domain.task import SourceDocument
from waystation.domain.value import Value

REASONS = 3
"""How many files an error about a whole folder names."""

_GENERATED = frozenset({"__pycache__", "node_modules"})
_USABLE = "PDF, Word, PowerPoint, Excel, EPUB, e-mail (.eml), Markdown, text, HTML, CSV, JSON or source code"


class UnreadFile(Value):
    """What would be a document of that name, and was read before."""

    name: str
    source: str
    """Content hash of the file."""


class Loaded(Value):
    """The documents, in the order of the given paths and by name within a folder, and what is in none of them: files
    and folders inside a given folder, and parts of files such as `paper.pdf, page 3`.
    """

    documents: tuple[SourceDocument, ...]
    left_out: tuple[LeftOut, ...] = ()
    unread: tuple[UnreadFile, ...] = ()
    """Files that are as they were when they were read before."""


class _Read(NamedTuple):
    named: Named
    source: str
    extracted: Extracted | None
    """None for one that was read before."""


class _Reader(NamedTuple):
    child: ChildReader
    known: Collection[str]

    def read(self, path: Path, named: Named) -> _Read:
        """Raises Unreadable."""
        source = fingerprint(path)
        return _Read(named, source, None if source in self.known else read_file(path, self.child))


def load_documents(
    paths: Sequence[Path], *, known: Collection[str] = frozenset(), seconds_a_file: float = SECONDS_A_FILE
) -> Loaded:
    """Read files, and folders with everything in them but hidden and generated files.

    A document's name is its path within the given folder, or the path itself of a file given by itself. A file that
    is reached twice is one document. `known`: content hashes of files that were read before, and are not read again.
    `seconds_a_file` is the most that a parser may take.

    Raises:
        BadInput: a file given by itself is missing or cannot be read, or a folder has nothing that can be read.
    """
    seen: set[str] = set()
    left_out: list[LeftOut] = []
    read: list[_Read] = []
    with ChildReader(seconds_a_file) as child:
        reader = _Reader(child, known)
        for path in paths:
            read += _folder(path, seen, left_out, reader) if path.is_dir() else _single(path, seen, reader)
    documents: list[SourceDocument] = []
    unread: list[UnreadFile] = []
    for name, item in zip(unique_names([item.named for item in read]), read, strict=True):
        if item.extracted is None:
            unread.append(UnreadFile(name=name, source=item.source))
            continue
        documents.append(SourceDocument(name=name, text=item.extracted.text, source=item.source))
        left_out += [LeftOut(name=f"{name}, {part.name}", reason=part.reason) for part in item.extracted.left_out]
    return Loaded(documents=tuple(documents), left_out=tuple(left_out), unread=tuple(unread))


def _single(path: Path, seen: set[str], reader: _Reader) -> list[_Read]:
    if _met(path, seen):
        return []
    try:
        return [reader.read(path, Named(short=str(path), long=str(path)))]
    except Unreadable as unreadable:
        raise BadInput(f"cannot use {path}: {unreadable}. Give a file or folder of {_USABLE}.") from unreadable


def _folder(folder: Path, seen: set[str], left_out: list[LeftOut], reader: _Reader) -> list[_Read]:
    without: list[LeftOut] = []
    read: list[_Read] = []
    known = 0
    for path in _files(folder, without):
        if _met(path, seen):
            known += 1
            continue
        short = path.relative_to(folder).as_posix()
        try:
            read.append(reader.read(path, Named(short=short, long=path.as_posix())))
        except Unreadable as unreadable:
            without.append(LeftOut(name=citable(short), reason=str(unreadable)))
    if not read and not known:
        raise BadInput(
            f"cannot use {folder}: no file in it can be read{_reasons(without)}. Give a file or folder of {_USABLE}."
        )
    left_out += without
    return read


def _reasons(left_out: Sequence[LeftOut]) -> str:
    told = [f"{item.name}: {item.reason}" for item in left_out[:REASONS]]
    if len(left_out) > REASONS:
        told.append(f"and {len(left_out) - REASONS} more")
    return f" ({'; '.join(told)})" if told else ""


def _files(folder: Path, left_out: list[LeftOut]) -> Iterator[Path]:
    root = os.path.realpath(folder)

    def leave_out(path: str, reason: str) -> None:
        left_out.append(LeftOut(name=citable(os.path.relpath(path, folder)), reason=reason))

    def unlisted(error: OSError) -> None:
        leave_out(str(error.filename), f"cannot be listed ({error.strerror})")

    for here, folders, files in os.walk(folder, onerror=unlisted):
        for name in sorted(filter(_unwanted, (*folders, *files))):
            leave_out(str(Path(here, name)), _unwanted(name))
        folders[:] = sorted(filterfalse(_unwanted, folders))
        links = [name for name in folders if Path(here, name).is_symlink()]
        for name in sorted([*filterfalse(_unwanted, files), *links]):
            path = Path(here, name)
            # What lies outside was not given: a link must not carry somebody's keys into a task.
            if not Path(os.path.realpath(path)).is_relative_to(root):
                leave_out(str(path), "a link that leads out of the folder; give its target by itself")
            elif name not in links:
                yield path


def _unwanted(name: str) -> str:
    """Why a file or folder of that name is not looked at; empty: it is."""
    if name.startswith("."):
        return "hidden"
    return "generated" if name in _GENERATED else ""


def _met(path: Path, seen: set[str]) -> bool:
    """Whether the same file was met before; it is from now on."""
    target = os.path.realpath(path)
    met = target in seen
    seen.add(target)
    return met
