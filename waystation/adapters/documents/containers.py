"""Zip archives that documents come in: opened only if they unpack to a bounded size, and their members read safely."""

import zlib
from io import BytesIO
from posixpath import dirname, join, normpath
from xml.etree.ElementTree import Element, ParseError
from zipfile import BadZipFile, ZipFile

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring

from waystation.adapters.documents.extract import Unreadable

MOST_MEMBERS = 10_000
MOST_UNPACKED = 500_000_000
"""Bytes of all members together."""
ENCRYPTED = 0x1
"""The bit of a member's flags."""


def opened(content: bytes) -> ZipFile:
    """The archive. Raises Unreadable: damaged, with a password, or of too many or too large members."""
    try:
        archive = ZipFile(BytesIO(content))
    except (BadZipFile, ValueError, NotImplementedError) as error:
        raise Unreadable("damaged: no whole zip archive") from error
    members = archive.infolist()
    if len(members) > MOST_MEMBERS:
        raise Unreadable(f"an archive of {len(members):,} members, and {MOST_MEMBERS:,} is the most")
    unpacked = sum(member.file_size for member in members)
    if unpacked > MOST_UNPACKED:
        limit = MOST_UNPACKED // 1_000_000
        raise Unreadable(f"unpacks to {unpacked / 1e6:,.0f} MB, and {limit} MB is the most")
    if any(member.flag_bits & ENCRYPTED for member in members):
        raise Unreadable("protected by a password; save it without one")
    return archive


def member(archive: ZipFile, name: str) -> bytes:
    """The bytes of a member. Raises Unreadable: missing or damaged."""
    try:
        return archive.read(name)
    except (KeyError, BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise Unreadable("damaged: a part of it is missing or broken") from error


def xml(archive: ZipFile, name: str) -> Element:
    """The root of an XML member, without any entities of its own. Raises Unreadable."""
    try:
        return fromstring(member(archive, name))
    except (ParseError, DefusedXmlException, ValueError) as error:
        raise Unreadable("damaged: a part of it is no XML that can be read") from error


def local(element: Element) -> str:
    """The element's name without its namespace: the strict and the usual kind of office files differ only there."""
    return element.tag.rpartition("}")[2]


def resolved(base: str, target: str) -> str:
    """The member that a link of another member leads to."""
    return target.lstrip("/") if target.startswith("/") else normpath(join(dirname(base), target))
