"""Loads documents, procedures and skills from files and folders, and assigns names that are unique and can be cited.

Also writes the descriptions of the installed Python distributions as Markdown: documents that exist on every machine.
"""

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from importlib.metadata import PackageMetadata, distributions
from itertools import filterfalse
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from waystation.documents.documents import SkippedItem, SourceDocument, validate_document_count
from waystation.documents.procedures import (
    MAX_SKILL_FILES,
    PROCEDURE_CHARACTERS,
    SKILL_CHARACTERS,
    SKILL_FILE,
    SUFFIX,
    ProcedureSource,
    SkillFile,
    validate_procedures,
)
from waystation.documents.readers.extraction import ExtractedText, UnreadableFileError
from waystation.documents.readers.reader import (
    FILE_TIMEOUT_S,
    SubprocessFileReader,
    compute_file_hash,
    find_recognition_options,
    read_file,
)
from waystation.kernel.errors import BadInput
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.value import Value

_MAX_NAME_CHARACTERS = 190
"""Maximum characters of a name. A name in a citation has at most 200, and a number may have to be added."""

_NAMELESS = "document"
_UNPRINTABLE = compile_bounded(r"[\s\x00-\x1f\x7f]+")
_ENDS_A_CITATION = str.maketrans("[]:", "()-")


class DocumentNamePair(NamedTuple):
    """The two possible names of a document."""

    short: str
    """Path within the given folder; for a file given by itself, its relative path, or else the file's name."""
    long: str
    """The same path including the given folder, or the whole path."""


def compute_unique_names(named: Sequence[DocumentNamePair]) -> tuple[str, ...]:
    """Return one name for each, in order: the short one; if short ones clash, with as many folders before it as
    distinguish them; numbered if no folder does.
    """
    short = [sanitize_document_name(names.short) for names in named]
    count = Counter(short)
    taken = {name for name in short if count[name] == 1}
    tails = Counter(tail for names, name in zip(named, short, strict=True) if count[name] > 1 for tail in _tails(names))
    chosen: list[str] = []
    for names, name in zip(named, short, strict=True):
        unique = name
        if count[name] > 1:
            apart = (tail for tail in _tails(names) if tails[tail] == 1 and tail not in taken)
            unique = next(apart, None) or _free(name, taken)
        taken.add(unique)
        chosen.append(unique)
    return tuple(chosen)


def _tails(names: DocumentNamePair) -> list[str]:
    """Return the ends of the long name that contain the short one, the shortest first."""
    folders = PurePosixPath(names.long).parts
    fewest = len(PurePosixPath(names.short).parts)
    return [sanitize_document_name("/".join(folders[-length:])) for length in range(fewest, len(folders) + 1)]


def assign_unique_names(documents: Sequence[SourceDocument]) -> tuple[SourceDocument, ...]:
    """Rename the documents so that names are unique and can be cited; suitable names stay unchanged."""
    pairs = [DocumentNamePair(one.name, one.name) for one in documents]
    named = zip(documents, pairs, compute_unique_names(pairs), strict=True)
    return tuple(
        one.replace(name=name, file_name=one.file_name or find_changed_file_name(pair, name))
        for one, pair, name in named
    )


def find_changed_file_name(names: DocumentNamePair, name: str) -> str:
    """Return the path of a file if the document made from it has another name; empty if the name is the end of it."""
    if name == names.short or f"/{names.long}".endswith(f"/{name}"):
        return ""
    return _UNPRINTABLE.sub(" ", os.fsencode(names.short).decode("utf-8", "replace"))


def sanitize_document_name(name: str) -> str:
    """Return the name without what would end a citation or a line; of a very long one only the end, with the
    file name.
    """
    # A file name may contain bytes that are not text; the store and the model only accept text.
    text = os.fsencode(name).decode("utf-8", "replace")
    whole = _UNPRINTABLE.sub(" ", text.translate(_ENDS_A_CITATION)).strip() or _NAMELESS
    return whole if len(whole) <= _MAX_NAME_CHARACTERS else f"…{whole[1 - _MAX_NAME_CHARACTERS :]}"


def _free(name: str, taken: set[str]) -> str:
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name} ({number})", number + 1
    return candidate


MAX_LISTED_REASONS = 3
"""Maximum files named in an error about a whole folder."""

_GENERATED = frozenset({"__pycache__", "node_modules"})
FORMATS = (
    "PDF, Word, PowerPoint, Excel, EPUB, e-mail (.eml), pictures (PNG, JPEG, TIFF), Markdown, text, HTML, CSV, JSON or "
    "source code"
)
"""Formats of files that can be read, in words."""


class UnchangedFile(Value):
    """A file that was read before; it would be a document with that name."""

    name: str
    source: str
    """Content hash of the file."""


class DocumentLoadResult(Value):
    """The documents, in the order of the given paths and by name within a folder, and what is in none of them: files
    and folders inside a given folder, and parts of files such as `paper.pdf, page 3`.
    """

    documents: tuple[SourceDocument, ...]
    skipped_items: tuple[SkippedItem, ...] = ()
    unread: tuple[UnchangedFile, ...] = ()
    """Files that have not changed since they were read before."""


class _Read(NamedTuple):
    named: DocumentNamePair
    source: str
    extracted: ExtractedText | None
    """None for a file that was read before."""


class _Given(NamedTuple):
    path: Path
    """A file or a folder."""
    files: Sequence[Path]
    """Files that were not listed for an earlier path."""
    already_listed: int
    """Number of files that were."""
    skipped_items: list[SkippedItem]


class FileReadingEvent(NamedTuple):
    """A file that is about to be read."""

    path: Path
    number: int
    """Its number among all files, from 1."""
    total: int
    """Number of all files."""


def _ignore(_: FileReadingEvent) -> None:
    """Do nothing."""


class _Reader:
    def __init__(
        self,
        child: SubprocessFileReader,
        known: Collection[str],
        count: int,
        on_start: Callable[[FileReadingEvent], None],
    ) -> None:
        self._child, self._known, self._count, self._on_start = child, known, count, on_start
        self._number = 0

    def read(self, path: Path, named: DocumentNamePair) -> _Read:
        """Read the file unless its content was read before.

        Raises:
            UnreadableFileError: it gives no text.
        """
        self._number += 1
        self._on_start(FileReadingEvent(path, self._number, self._count))
        source = compute_file_hash(path)
        return _Read(named, source, None if source in self._known else read_file(path, self._child))


def load_documents(
    paths: Sequence[Path],
    *,
    known: Collection[str] = frozenset(),
    seconds_a_file: float = FILE_TIMEOUT_S,
    without: Path | None = None,
    on_start: Callable[[FileReadingEvent], None] = _ignore,
    require_readable: bool = True,
) -> DocumentLoadResult:
    """Read files, and all files in folders except hidden and generated ones.

    A document's name is its path within the given folder. A file given by itself is named by its path if that leads
    down from the current folder, and otherwise by its file name. A file that is reached twice becomes one document.

    Args:
        paths: files and folders.
        known: content hashes of files that were read before, and are not read again.
        seconds_a_file: maximum time in seconds for parsing a file, without text recognition.
        without: a folder without links in its path, from which nothing is taken even if a given folder contains it.
        on_start: called before each file is read.
        require_readable: whether a folder must have at least one file that can be read.

    Raises:
        BadInput: a file given by itself is missing or unreadable, a folder has nothing readable and must have, or
            there are more files than a task may have documents, of which none is read.
    """
    seen: set[str] = set()
    given = [_listed(path, seen, without) for path in paths]
    count = sum(len(one.files) for one in given)
    validate_document_count(count, "files")
    left_out: list[SkippedItem] = []
    read: list[_Read] = []
    with SubprocessFileReader(seconds_a_file, find_recognition_options()) as child:
        reader = _Reader(child, known, count, on_start)
        for one in given:
            read += (
                _folder(one, left_out, reader, required=require_readable) if one.path.is_dir() else _single(one, reader)
            )
    documents: list[SourceDocument] = []
    unread: list[UnchangedFile] = []
    for name, item in zip(compute_unique_names([item.named for item in read]), read, strict=True):
        if item.extracted is None:
            unread.append(UnchangedFile(name=name, source=item.source))
            continue
        documents.append(
            SourceDocument(
                name=name,
                text=item.extracted.text,
                source=item.source,
                date=item.extracted.date,
                file_name=find_changed_file_name(item.named, name),
            )
        )
        left_out += [
            SkippedItem(name=f"{name}, {part.name}", reason=part.reason) for part in item.extracted.skipped_items
        ]
    return DocumentLoadResult(documents=tuple(documents), skipped_items=tuple(left_out), unread=tuple(unread))


def find_source_files(paths: Sequence[Path], hashes: Collection[str]) -> dict[str, Path]:
    """Return the files with these content hashes, by hash, among the given files and those in the given folders.

    Files are taken from a folder as `load_documents` takes them.

    Raises:
        BadInput: there are more files than a task may have documents.
    """
    seen: set[str] = set()
    files = [file for path in paths for file in _listed(path, seen, None).files]
    validate_document_count(len(files), "files")
    found = {compute_file_hash(file): file for file in reversed(files)}
    return {one: path for one, path in found.items() if one and one in hashes}


def _listed(path: Path, seen: set[str], closed: Path | None) -> _Given:
    """List what there is to read, before reading anything."""
    left_out: list[SkippedItem] = []
    found = [*_files(path, left_out, closed)] if path.is_dir() else [path]
    files = [file for file in found if not _met(file, seen)]
    return _Given(path, files, len(found) - len(files), left_out)


def _single(given: _Given, reader: _Reader) -> list[_Read]:
    try:
        return [reader.read(path, _name_single_file(path)) for path in given.files]
    except UnreadableFileError as unreadable:
        raise BadInput(f"cannot use {given.path}: {unreadable}. Give a file or folder of {FORMATS}.") from unreadable


def _name_single_file(path: Path) -> DocumentNamePair:
    """Name a file given by itself. Folders of a person's machine are not named in a report: only those that are typed
    as a path below the current one.
    """
    if path.is_absolute() or ".." in path.parts:
        return DocumentNamePair(short=path.name, long=Path(os.path.abspath(path)).as_posix())
    return DocumentNamePair(short=path.as_posix(), long=path.as_posix())


def _folder(given: _Given, left_out: list[SkippedItem], reader: _Reader, *, required: bool) -> list[_Read]:
    folder, without = given.path, given.skipped_items
    read: list[_Read] = []
    for path in given.files:
        short = path.relative_to(folder).as_posix()
        try:
            read.append(reader.read(path, DocumentNamePair(short=short, long=path.as_posix())))
        except UnreadableFileError as unreadable:
            without.append(SkippedItem(name=sanitize_document_name(short), reason=str(unreadable)))
    if required and not read and not given.already_listed:
        raise BadInput(
            f"cannot use {folder}: none of its files can be used{format_left_out(without)}. Give a file or folder of "
            f"{FORMATS}."
        )
    left_out += without
    return read


def format_left_out(left_out: Sequence[SkippedItem]) -> str:
    """Format the first reasons in parentheses, after a space; empty if there are none."""
    told = [f"{item.name}: {item.reason}" for item in left_out[:MAX_LISTED_REASONS]]
    if len(left_out) > MAX_LISTED_REASONS:
        told.append(f"and {len(left_out) - MAX_LISTED_REASONS} more")
    return f" ({'; '.join(told)})" if told else ""


def _files(folder: Path, left_out: list[SkippedItem], closed: Path | None) -> Iterator[Path]:
    def leave_out(path: str, reason: str) -> None:
        left_out.append(SkippedItem(name=sanitize_document_name(os.path.relpath(path, folder)), reason=reason))

    def unlisted(error: OSError) -> None:
        leave_out(str(error.filename), f"cannot be listed ({error.strerror})")

    for here, folders, files in os.walk(folder, onerror=unlisted):
        unwanted = {name: _unwanted(name) or _closed(Path(here, name), closed) for name in (*folders, *files)}
        for name in sorted(filter(unwanted.get, unwanted)):
            leave_out(str(Path(here, name)), unwanted[name])
        folders[:] = sorted(filterfalse(unwanted.get, folders))
        links = [name for name in folders if Path(here, name).is_symlink()]
        for name in sorted([*filterfalse(unwanted.get, files), *links]):
            path = Path(here, name)
            if reason := _misled(path, folder):
                leave_out(str(path), reason)
            elif name not in links:
                yield path


def is_hidden_below(root: Path, target: Path) -> bool:
    """Whether the target, or a folder between it and the root, is hidden; both without links.

    Folders that begin with two dots are from Kubernetes, which mounts volumes as links into them.
    """
    return any(part.startswith(".") and not part.startswith("..") for part in target.relative_to(root).parts)


def _misled(path: Path, folder: Path) -> str:
    """Return why a path is not taken from this folder; empty if it is.

    What lies outside it or is hidden was not given: a link must not carry someone's keys into a task.
    """
    target, root = (Path(os.path.realpath(one)) for one in (path, folder))
    if not target.is_relative_to(root):
        return _LEADS_OUT
    return _LEADS_TO_HIDDEN if is_hidden_below(root, target) else ""


def _closed(path: Path, closed: Path | None) -> str:
    """Return why a path is not taken, whatever its name; empty if it is."""
    inside = closed is not None and Path(os.path.realpath(path)).is_relative_to(closed)
    return "in Waystation's home folder" if inside else ""


def _unwanted(name: str) -> str:
    """Return why a file or folder with this name is skipped; empty if it is not."""
    if name.startswith("."):
        return "hidden"
    return "generated" if name in _GENERATED else ""


def _met(path: Path, seen: set[str]) -> bool:
    """Return whether the same file was seen before, and remember it."""
    target = os.path.realpath(path)
    met = target in seen
    seen.add(target)
    return met


_BETWEEN_WORDS = compile_bounded(r"[-_.]+")


def write_package_documents(folder: Path) -> tuple[Path, ...]:
    """Write headers and long description of every installed distribution to `<name>.md`, sorted by name.

    Of a distribution that is installed twice, the one that Python would import is used. Creates the folder if needed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    texts: dict[str, str] = {}
    for distribution in distributions():
        headers = distribution.metadata
        # A half-removed installation has metadata without a name.
        if "Name" in headers:
            name = _BETWEEN_WORDS.sub("-", headers["Name"]).lower()
            texts.setdefault(name, _markdown(headers))
    written: list[Path] = []
    for name, text in sorted(texts.items()):
        path = folder / f"{name}.md"
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return tuple(written)


def _markdown(headers: PackageMetadata) -> str:
    fields = dict.fromkeys(key for key in headers if key != "Description")
    lines = [f"- {key}: {' '.join(value.split())}" for key in fields for value in headers.get_all(key, [])]
    description = "".join(headers.get_all("Description", []))
    return "\n".join([f"# {headers['Name']} {headers['Version']}", "", *lines, "", description.strip()]).strip() + "\n"


_BYTES_A_CHARACTER = 8
"""Maximum file size per character: more than any procedure has in UTF-8 including front matter."""
_LEADS_OUT = "a link that points outside the folder; give its target separately"
_LEADS_TO_HIDDEN = "a link to a hidden file or folder; give its target separately"


def load_procedures(paths: Sequence[Path]) -> tuple[ProcedureSource, ...]:
    """Load the given files and all Markdown files in the folders, except hidden ones and links to those or elsewhere.

    Raises:
        BadInput: a procedure cannot be followed, which must not go unnoticed; the message names the file and the cause.
    """
    found = {os.path.realpath(path): (path, named) for given in paths for path, named in _procedure_files(given)}
    names = compute_unique_names([named for _, named in found.values()])
    texts = [_text(path) for path, _ in found.values()]
    try:
        return validate_procedures(
            tuple(ProcedureSource(name=name, text=text) for name, text in zip(names, texts, strict=True))
        )
    except ValueError as error:
        raise BadInput(f"--procedures: {error}") from None


def _procedure_files(given: Path) -> Iterator[tuple[Path, DocumentNamePair]]:
    if not given.is_dir():
        yield given, DocumentNamePair(short=given.name, long=str(given))
        return
    count = 0
    for here, folders, files in os.walk(given):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for path in (Path(here, name) for name in sorted(files) if not name.startswith(".")):
            if path.suffix.lower() == SUFFIX and not _misled(path, given):
                count += 1
                yield path, DocumentNamePair(short=path.relative_to(given).as_posix(), long=path.as_posix())
    if not count:
        raise BadInput(f"--procedures {given}: it contains no Markdown file ({SUFFIX})")


class SkillLoadResult(NamedTuple):
    """Skills, and what in their folders no agent can read."""

    skills: tuple[ProcedureSource, ...]
    skipped_items: tuple[SkippedItem, ...]


def load_skills(paths: Sequence[Path]) -> SkillLoadResult:
    """Load the skills in these folders: each has a `SKILL.md`, or is a folder of such folders.

    Files that are not text, or too long, are left out and listed.

    Raises:
        BadInput: a skill cannot be followed; the message names the folder and the cause.
    """
    left_out: list[SkippedItem] = []
    folders = {os.path.realpath(one): one for given in paths for one in _skill_folders(given, left_out)}
    names = compute_unique_names(
        [DocumentNamePair(short=one.name or one.resolve().name, long=str(one)) for one in folders.values()]
    )
    found = [_skill(folder, name, left_out) for name, folder in zip(names, folders.values(), strict=True)]
    try:
        return SkillLoadResult(validate_procedures(tuple(found)), tuple(left_out))
    except ValueError as error:
        raise BadInput(f"--skills: {error}") from None


def _skill_folders(given: Path, left_out: list[SkippedItem]) -> Iterator[Path]:
    """Yield the folder itself if it is a skill, or else the skills in it, by name."""
    folder = given.parent if given.name == SKILL_FILE else given
    if (folder / SKILL_FILE).is_file():
        yield folder
        return
    below = [one.parent for one in sorted(folder.glob(f"*/{SKILL_FILE}")) if not _unwanted(one.parent.name)]
    if not below:
        raise BadInput(
            f"--skills {given}: neither the folder nor a folder in it has a {SKILL_FILE}. Give the folder of a skill."
        )
    for one in below:
        if reason := _misled(one, folder):
            left_out.append(SkippedItem(name=sanitize_document_name(one.name), reason=reason))
        else:
            yield one


def _skill(folder: Path, name: str, left_out: list[SkippedItem]) -> ProcedureSource:
    own, without, files = folder / SKILL_FILE, list[SkippedItem](), list[SkillFile]()
    paths = list(_files(folder, without, None))
    if own not in paths:
        raise BadInput(f"--skills {own} is {_misled(own, folder)}")
    if len(paths) > MAX_SKILL_FILES:
        raise BadInput(f"--skills {folder} has {len(paths):,} files; a skill can have at most {MAX_SKILL_FILES}.")
    for path in paths:
        short = sanitize_document_name(path.relative_to(folder).as_posix())
        try:
            if path != own:
                files.append(SkillFile(name=short, text=_short(_content(path, SKILL_CHARACTERS))))
        except UnreadableFileError as unreadable:
            without.append(SkippedItem(name=short, reason=f"it {unreadable}"))
    left_out += [SkippedItem(name=f"{name}/{one.name}", reason=one.reason) for one in without]
    return ProcedureSource(name=name, text=_text(own, "--skills", SKILL_CHARACTERS), skill=True, files=tuple(files))


def _short(text: str) -> str:
    if len(text) > SKILL_CHARACTERS:
        raise UnreadableFileError(f"has {len(text):,} characters; the maximum is {SKILL_CHARACTERS:,}")
    return text


def _text(path: Path, option: str = "--procedures", maximum: int = PROCEDURE_CHARACTERS) -> str:
    try:
        return _content(path, maximum)
    except UnreadableFileError as unreadable:
        raise BadInput(
            f"{option} {path} {unreadable}. Give a UTF-8 text file that you have permission to read, of at most "
            f"{maximum:,} characters."
        ) from unreadable


def _content(path: Path, maximum: int) -> str:
    """Read a text file of at most about this many characters.

    Raises:
        UnreadableFileError: it cannot be read; the message follows its name.
    """
    try:
        if not path.is_file():
            raise UnreadableFileError("is not a file")
        with path.open("rb") as file:
            content = file.read(_BYTES_A_CHARACTER * maximum + 1)
        if len(content) > _BYTES_A_CHARACTER * maximum:
            raise UnreadableFileError(f"has more than {_BYTES_A_CHARACTER * maximum:,} bytes")
        if b"\0" in content:
            raise UnreadableFileError("is not text")
        return content.decode("utf-8-sig")
    except OSError as error:
        raise UnreadableFileError(f"cannot be read ({(error.strerror or 'unknown error').lower()})") from error
    except UnicodeDecodeError as error:
        raise UnreadableFileError("is not UTF-8 text") from error
