"""Opens zip archives of documents only if they unpack to a bounded size, and reads their members safely."""

import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from io import BytesIO
from posixpath import dirname, join, normpath
from typing import Literal, NamedTuple
from xml.etree.ElementTree import Element, ParseError
from zipfile import BadZipFile, ZipFile

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring

from waystation.documents.readers.extraction import UnreadableFileError

MAX_MEMBERS = 10_000
MAX_UNPACKED_BYTES = 500_000_000
"""Maximum bytes of all members together."""
_ENCRYPTED = 0x1
"""Bit in a member's flags."""


def open_archive(content: bytes) -> ZipFile:
    """Open the archive.

    Raises:
        UnreadableFileError: it is damaged or has a password, or has too many or too large members.
    """
    try:
        archive = ZipFile(BytesIO(content))
    except (BadZipFile, ValueError, NotImplementedError) as error:
        raise UnreadableFileError("damaged: not a complete zip archive") from error
    members = archive.infolist()
    if len(members) > MAX_MEMBERS:
        raise UnreadableFileError(f"an archive of {len(members):,} members; the maximum is {MAX_MEMBERS:,}")
    unpacked = sum(member.file_size for member in members)
    if unpacked > MAX_UNPACKED_BYTES:
        limit = MAX_UNPACKED_BYTES // 1_000_000
        raise UnreadableFileError(f"unpacks to {unpacked / 1e6:,.0f} MB; the maximum is {limit} MB")
    if any(member.flag_bits & _ENCRYPTED for member in members):
        raise UnreadableFileError("protected by a password; save the file without one")
    for found in members:
        # Some programs write backslashes, or absolute names. Stored members are looked up by their original names.
        name = found.filename.replace("\\", "/").removeprefix("./").lstrip("/")
        if name not in archive.NameToInfo:
            found.filename = name
            archive.NameToInfo[name] = found
    return archive


def repack_archive(archive: ZipFile, more: Mapping[str, bytes] = {}) -> bytes:
    """Write the archive again with normalised member names, and some more members; unreadable ones are dropped."""
    file = BytesIO()
    with ZipFile(file, "w") as written:
        for name, content in more.items():
            written.writestr(name, content)
        for name in dict.fromkeys(name for name in archive.namelist() if name not in more):
            with suppress(UnreadableFileError):
                written.writestr(name, read_member(archive, name))
    return file.getvalue()


def read_member(archive: ZipFile, name: str) -> bytes:
    """Return the bytes of a member.

    Raises:
        UnreadableFileError: it is missing or damaged.
    """
    try:
        return archive.read(name)
    except (KeyError, BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise UnreadableFileError("damaged: part of the file is missing or broken") from error


def read_xml_member(archive: ZipFile, name: str) -> Element:
    """Parse an XML member, without any entities of its own.

    Raises:
        UnreadableFileError: it is missing or damaged.
    """
    try:
        return fromstring(read_member(archive, name))
    except (ParseError, DefusedXmlException, ValueError) as error:
        raise UnreadableFileError("damaged: part of the file is not readable XML") from error


OFF = frozenset({"0", "false", "off", "none"})
"""Values of switches that are off."""


def parse_whole_number(value: str | None, otherwise: int) -> int:
    """Return a number of at most nine digits, or `otherwise`."""
    return int(value) if value and value.isdecimal() and len(value) < 10 else otherwise


def get_local_name(element: Element) -> str:
    """Return the element's name without its namespace, which differs between strict and transitional office files."""
    return element.tag.rpartition("}")[2]


def resolve_relationship_target(base: str, target: str) -> str:
    """Return the member that a link of another member leads to."""
    return target.lstrip("/") if target.startswith("/") else normpath(join(dirname(base), target))


def read_relationships(archive: ZipFile, name: str) -> dict[str, tuple[str, str]]:
    """Return type and target of each link of a member (or of the archive, for an empty name), by id.

    Raises:
        UnreadableFileError: the list of links is damaged.
    """
    folder, _, file = name.rpartition("/")
    listed = join(folder, "_rels", f"{file}.rels")
    if listed not in archive.NameToInfo:
        return {}
    return {
        link.get("Id", ""): (
            link.get("Type", ""),
            resolve_relationship_target(name, link.get("Target", "").replace("\\", "/")),
        )
        for link in read_xml_member(archive, listed)
        if link.get("TargetMode") != "External"
    }


_OFFICE_LINK = "/officeDocument"
_OfficeKind = Literal["document", "presentation", "workbook"]
_KINDS: dict[str, _OfficeKind] = {"word": "document", "ppt": "presentation", "xl": "workbook"}
"""By folder, if the file does not say it."""
_MAIN_NAMES: dict[str, _OfficeKind] = {
    "document.xml": "document",
    "presentation.xml": "presentation",
    "workbook.xml": "workbook",
}


class OfficeFile(NamedTuple):
    """Kind of an archive from Office or a similar program."""

    kind: _OfficeKind
    main: str
    """The main member."""


def detect_office_file(archive: ZipFile) -> OfficeFile | None:
    """Detect it by the main member that the archive declares, whatever its folders; or else by its folders."""
    try:
        targets = [name for kind, name in read_relationships(archive, "").values() if kind.endswith(_OFFICE_LINK)]
    except UnreadableFileError:
        targets = []
    usual = {f"{folder}/{kind}.xml": kind for folder, kind in _KINDS.items()}
    loose = [name for name in archive.namelist() if name.rpartition("/")[2] in _MAIN_NAMES]
    for main in (*targets, *usual, *loose):
        if main in archive.NameToInfo and (kind := _kind(archive, main)):
            return OfficeFile(kind, main)
    folders = {name.partition("/")[0] for name in archive.namelist()}
    return next(
        (OfficeFile(kind, f"{folder}/{kind}.xml") for folder, kind in _KINDS.items() if folder in folders), None
    )


def _kind(archive: ZipFile, main: str) -> _OfficeKind | None:
    folder, _, file = main.rpartition("/")
    if folder in _KINDS:
        return _KINDS[folder]
    if file.endswith(".bin"):
        return "workbook"
    try:
        found = get_local_name(read_xml_member(archive, main))
    except UnreadableFileError:
        return _MAIN_NAMES.get(file)
    return next((kind for kind in _KINDS.values() if kind == found), None)


def get_relationship_id(entry: Element) -> str:
    """Return the link id of an element in a list."""
    return next((value for key, value in entry.items() if key.endswith("relationships}id")), "")


def find_elements_by_name(element: Element, name: str) -> Iterator[Element]:
    """Return every descendant by its name without the namespace."""
    return (found for found in element.iter() if get_local_name(found) == name)
