"""EPUB to text: one part a file of the reading order, called after its first heading."""

import re
from urllib.parse import unquote
from zipfile import ZipFile

from waystation.adapters.documents.containers import local, member, resolved, xml
from waystation.adapters.documents.decoding import page_text
from waystation.adapters.documents.extract import Extract, Part, Unreadable
from waystation.patterns import proven

_CONTAINER, _ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
_HEADING = proven(r"^#{1,6} (.+)$", re.MULTILINE)
_LINK, _LINK_TEXT = proven(r"\[([^\]]{0,1000}+)\]\([^)]{0,4000}+\)"), r"\1"


def book_extract(archive: ZipFile) -> Extract:
    """Every text of the reading order. Raises Unreadable: damaged, or protected against copying."""
    protected = _protected(archive)
    parts: list[Part] = []
    for number, name in enumerate(_reading_order(archive), 1):
        if name in protected:
            raise Unreadable("protected against copying (DRM); only the shop's own program can read it")
        text = page_text(member(archive, name))
        heading = _HEADING.search(text)
        place = f"chapter {_LINK.sub(_LINK_TEXT, heading[1])}" if heading else f"section {number}"
        parts.append(Part(place, text))
    return Extract(parts)


def _reading_order(archive: ZipFile) -> list[str]:
    package = next(
        (found.get("full-path", "") for found in xml(archive, _CONTAINER).iter() if local(found) == "rootfile"), ""
    )
    root = list(xml(archive, package).iter())
    files = {item.get("id", ""): item.get("href", "") for item in root if local(item) == "item"}
    spine = [files.get(item.get("idref", ""), "") for item in root if local(item) == "itemref"]
    return [resolved(package, unquote(href)) for href in spine if href]


def _protected(archive: ZipFile) -> set[str]:
    """Members that are encrypted; fonts often are, even in books that anybody may read."""
    if _ENCRYPTION not in archive.NameToInfo:
        return set()
    return {
        unquote(found.get("URI", "")) for found in xml(archive, _ENCRYPTION).iter() if local(found) == "CipherReference"
    }
