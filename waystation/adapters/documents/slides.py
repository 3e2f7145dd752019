"""PPTX to text: one part a slide, with its title as a heading, its lists, tables and notes."""

from collections.abc import Iterator
from xml.etree.ElementTree import Element
from zipfile import ZipFile

from waystation.adapters.documents.containers import local, resolved, xml
from waystation.adapters.documents.extract import Extract, Part
from waystation.domain.documents import LeftOut

_PRESENTATION = "ppt/presentation.xml"
_FURNITURE = frozenset({"sldNum", "dt", "ftr", "hdr", "sldImg"})
"""Placeholders that stand on every slide alike."""


def slides_extract(archive: ZipFile) -> Extract:
    """The slides in the order in which they are shown; hidden ones are left out and named. Raises Unreadable."""
    targets = _links(archive, _PRESENTATION)
    parts: list[Part] = []
    hidden: list[LeftOut] = []
    for number, entry in enumerate(_all(xml(archive, _PRESENTATION), "sldId"), 1):
        _, name = targets[_link_id(entry)]
        slide = xml(archive, name)
        if slide.get("show") in {"0", "false"}:
            hidden.append(LeftOut(name=f"slide {number}", reason="hidden; show it to have it read"))
        else:
            parts.append(Part(f"slide {number}", "\n\n".join([*_blocks(slide), *_notes(archive, name)])))
    return Extract(parts, hidden)


def _notes(archive: ZipFile, slide: str) -> Iterator[str]:
    for kind, name in _links(archive, slide).values():
        if kind.endswith("/notesSlide") and (said := "\n\n".join(_blocks(xml(archive, name)))):
            yield f"Notes:\n{said}"


def _links(archive: ZipFile, name: str) -> dict[str, tuple[str, str]]:
    """Kind and target of each link of a member, by its id."""
    folder, _, file = name.rpartition("/")
    listed = f"{folder}/_rels/{file}.rels"
    if listed not in archive.NameToInfo:
        return {}
    return {
        link.get("Id", ""): (link.get("Type", ""), resolved(name, link.get("Target", "")))
        for link in xml(archive, listed)
        if link.get("TargetMode") != "External"
    }


def _link_id(entry: Element) -> str:
    return next((value for key, value in entry.items() if key.endswith("relationships}id")), "")


def _blocks(element: Element) -> Iterator[str]:
    """The texts of shapes and tables below an element, in the order of the file."""
    for child in element:
        match local(child):
            case "Fallback":
                # The same again, for programs that do not know the kind of shape before it.
                continue
            case "sp":
                yield from filter(None, [_shape(child)])
            case "tbl":
                yield "\n".join(" | ".join(_cell(cell) for cell in _all(row, "tc")) for row in _all(child, "tr"))
            case _:
                yield from _blocks(child)


def _shape(shape: Element) -> str:
    kind = next((holder.get("type", "body") for holder in _all(shape, "ph")), "")
    paragraphs = [text for paragraph in _all(shape, "p") if (text := _text(paragraph))]
    if kind in _FURNITURE or not paragraphs:
        return ""
    if kind in {"title", "ctrTitle"}:
        return f"# {' '.join(' '.join(paragraphs).split())}"
    return "\n".join(f"- {text}" for text in paragraphs) if len(paragraphs) > 1 else paragraphs[0]


def _cell(cell: Element) -> str:
    return " ".join(" ".join(_text(paragraph) for paragraph in _all(cell, "p")).split())


def _text(paragraph: Element) -> str:
    pieces = [
        "\n" if local(piece) == "br" else piece.text or "" for piece in paragraph.iter() if local(piece) in {"t", "br"}
    ]
    return "".join(pieces).strip()


def _all(element: Element, name: str) -> Iterator[Element]:
    return (found for found in element.iter() if local(found) == name)
