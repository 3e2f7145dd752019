"""Converts PPTX to text: one part for each slide, with its title as a heading, its lists, tables, diagrams and notes.

What is not read is reported: charts, embedded objects, comments, footers, hidden shapes, and pictures on a slide
without text.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element
from zipfile import ZipFile

from waystation.documents.documents import SkippedItem
from waystation.documents.readers.extraction import (
    DocumentPart,
    ExtractionResult,
    UnreadableFileError,
    build_skipped_pages,
)
from waystation.documents.readers.number_formats import format_number
from waystation.documents.readers.office_archive import (
    find_elements_by_name,
    get_local_name,
    get_relationship_id,
    parse_whole_number,
    read_relationships,
    read_xml_member,
)
from waystation.documents.readers.text_runs import TextRun, render_text_runs
from waystation.documents.readers.word import render_formula
from waystation.kernel.patterns import compile_bounded

_PRESENTATION = "ppt/presentation.xml"
_FURNITURE = frozenset({"sldNum", "dt", "ftr", "hdr", "sldImg"})
"""Placeholders that are the same on every slide."""
_FOOTERS = frozenset({"ftr", "hdr"})
_ON = frozenset({"1", "true"})
_NOT_READ = "not read"


def extract_pptx(archive: ZipFile, main: str = _PRESENTATION) -> ExtractionResult:
    """Extract the slides in presentation order; hidden and unreadable ones are listed.

    Raises:
        UnreadableFileError: the presentation is damaged, or has no text.
    """
    targets = read_relationships(archive, main)
    parts: list[DocumentPart] = []
    left_out: list[SkippedItem] = []
    not_read = _NotRead()
    for number, entry in enumerate(find_elements_by_name(read_xml_member(archive, main), "sldId"), 1):
        _, name = targets.get(get_relationship_id(entry), ("", ""))
        try:
            slide = read_xml_member(archive, name)
        except UnreadableFileError as unreadable:
            left_out.append(SkippedItem(name=f"slide {number}", reason=str(unreadable)))
            continue
        if slide.get("show") in {"0", "false"}:
            left_out.append(SkippedItem(name=f"slide {number}", reason="hidden; unhide the slide to include it"))
            continue
        texts = [*_Slide(archive, name, number, not_read).blocks(slide)]
        try:
            notes = [*_notes(archive, name, number)]
            not_read.comments(archive, name, number)
        except UnreadableFileError as unreadable:
            notes = []
            left_out.append(SkippedItem(name=f"notes of slide {number}", reason=str(unreadable)))
        if not texts and any(get_local_name(one) in {"pic", "blip"} for one in slide.iter()):
            not_read.found["no text, only pictures", number] += 1
        parts.append(DocumentPart(f"slide {number}", "\n\n".join([*texts, *notes])))
    if left_out and not parts and all(item.reason.startswith("damaged") for item in left_out):
        raise UnreadableFileError(left_out[0].reason)
    return ExtractionResult(parts, [*left_out, *not_read.list_skipped_items()])


class _NotRead:
    """What is on the slides and is not read."""

    def __init__(self) -> None:
        self.found: Counter[tuple[str, int]] = Counter()
        """Count by kind and slide."""

    def comments(self, archive: ZipFile, slide: str, number: int) -> None:
        """Count the comments on a slide."""
        for kind, name in read_relationships(archive, slide).values():
            if kind.rpartition("/")[2] == "comments":
                texts = (
                    one.text or ""
                    for one in read_xml_member(archive, name).iter()
                    if get_local_name(one) in {"t", "text"}
                )
                self.found["comments", number] += sum(len(text.split()) for text in texts)

    def list_skipped_items(self) -> Iterator[SkippedItem]:
        """Yield it by kind, with the numbers of the slides."""
        for kind, reason in _KINDS.items():
            numbers = [number for (what, number), count in self.found.items() if what == kind and count]
            for item in build_skipped_pages("slide", numbers, reason):
                yield item if kind == reason else SkippedItem(name=f"{kind} of {item.name}", reason=reason)


_KINDS = {
    "charts": _NOT_READ,
    "diagrams": "damaged, or of an unsupported kind",
    "embedded objects": _NOT_READ,
    "comments": _NOT_READ,
    "footers": _NOT_READ,
    "hidden text": "invisible to readers of the slides",
    "no text, only pictures": "no text, only pictures",
}
"""Kinds that are reported, with the reason."""
_FRAMES = {"chart": "charts", "ole": "embedded objects", "oleObj": "embedded objects"}


def _notes(archive: ZipFile, slide: str, number: int) -> Iterator[str]:
    for kind, name in read_relationships(archive, slide).values():
        if kind.endswith("/notesSlide"):
            said = "\n\n".join(_Slide(archive, name, number, _NotRead()).blocks(read_xml_member(archive, name)))
            if said:
                yield f"Notes:\n{said}"


class _Slide:
    """One member with shapes."""

    def __init__(self, archive: ZipFile, name: str, number: int, not_read: _NotRead) -> None:
        self._archive, self._name, self._number, self._not_read = archive, name, number, not_read

    def blocks(self, element: Element) -> Iterator[str]:
        """Yield the texts of shapes, tables and diagrams below an element, in the order of the file."""
        for child in _shown(element):
            if _is_hidden(child):
                words = sum(len((one.text or "").split()) for one in find_elements_by_name(child, "t"))
                self._not_read.found["hidden text", self._number] += words
                continue
            match get_local_name(child):
                case "sp":
                    yield from filter(None, [self._shape(child)])
                case "tbl":
                    yield _table(child)
                case "graphicData":
                    yield from self._graphic(child)
                case _:
                    yield from self.blocks(child)

    def _graphic(self, data: Element) -> Iterator[str]:
        if (kind := _FRAMES.get(data.get("uri", "").rpartition("/")[2])) is not None:
            self._not_read.found[kind, self._number] += 1
        elif (diagram := next(find_elements_by_name(data, "relIds"), None)) is not None:
            yield from self._diagram(diagram)
        else:
            yield from self.blocks(data)

    def _diagram(self, found: Element) -> Iterator[str]:
        """Yield the texts of SmartArt."""
        key = next((value for name, value in found.items() if name.endswith("}dm")), "")
        try:
            _, name = read_relationships(self._archive, self._name).get(key, ("", ""))
            points = [*find_elements_by_name(read_xml_member(self._archive, name), "pt")]
        except UnreadableFileError:
            self._not_read.found["diagrams", self._number] += 1
            return
        texts = [_lines(point) for point in points if point.get("type", "node") in {"node", "asst"}]
        if said := "\n".join(f"- {' '.join(' '.join(lines).split())}" for lines in texts if lines):
            yield said

    def _shape(self, shape: Element) -> str:
        kind = next((holder.get("type", "body") for holder in find_elements_by_name(shape, "ph")), "")
        lines = _lines(shape)
        if kind in _FURNITURE or not lines:
            self._not_read.found["footers", self._number] += len(lines) if kind in _FOOTERS else 0
            return ""
        if kind in {"title", "ctrTitle"}:
            return f"# {' '.join(' '.join(lines).split())}"
        return "\n".join(lines)


def _is_hidden(element: Element) -> bool:
    """Whether a shape is hidden in the list of shapes."""
    named = next((one for child in element if get_local_name(child).startswith("nv") for one in child), None)
    return named is not None and get_local_name(named) == "cNvPr" and named.get("hidden") in _ON


def _shown(element: Element) -> Iterator[Element]:
    """Yield the children; of alternatives for older and newer programs, the newest with text."""
    for child in element:
        if get_local_name(child) != "AlternateContent":
            yield child
            continue
        ways = [one for one in child if get_local_name(one) in {"Choice", "Fallback"}]
        texts = [one for one in ways if next(find_elements_by_name(one, "t"), None) is not None]
        yield from (texts or ways or [child])[0]


class _Numbered(NamedTuple):
    """The numbering of a list, and its current number."""

    style: str
    at: int


_STYLE = compile_bounded(r"\A(arabic|alphaLc|alphaUc|romanLc|romanUc)(?:Db)?(Period|ParenR|ParenBoth|Plain|Minus)\Z")
_FORMATS = {
    "arabic": "decimal",
    "alphaLc": "lowerLetter",
    "alphaUc": "upperLetter",
    "romanLc": "lowerRoman",
    "romanUc": "upperRoman",
}
_AROUND = {"Period": "{}.", "ParenR": "{})", "ParenBoth": "({})", "Plain": "{}", "Minus": "{} -"}


def _lines(shape: Element) -> list[str]:
    """Return its paragraphs: as a list if there are several, with the numbers that are shown."""
    levels = {get_local_name(one)[:4]: one for style in find_elements_by_name(shape, "lstStyle") for one in style}
    counts: dict[int, _Numbered] = {}
    found: list[tuple[str, str]] = []
    for paragraph in find_elements_by_name(shape, "p"):
        if not (text := _text(paragraph)):
            continue
        properties = next((one for one in paragraph if get_local_name(one) == "pPr"), None)
        level = parse_whole_number(properties.get("lvl") if properties is not None else None, 0)
        number = _list_number(properties, levels.get(f"lvl{level + 1}"), counts.get(level))
        counts = {at: one for at, one in counts.items() if at < level} | ({level: number} if number else {})
        found.append((_label(number) if number else "", text))
    signs = len(found) > 1
    return [f"{label} {text}" if label else f"- {text}" if signs else text for label, text in found]


def _list_number(own: Element | None, inherited: Element | None, last: _Numbered | None) -> _Numbered | None:
    """Return the number of a paragraph by its own properties, or else by those of its level."""
    for properties in (own, inherited):
        for one in properties if properties is not None else ():
            if get_local_name(one) in {"buNone", "buChar", "buBlip"}:
                return None
            if get_local_name(one) == "buAutoNum":
                style = one.get("type", "")
                goes_on = last is not None and last.style == style
                return _Numbered(style, last.at + 1 if last and goes_on else parse_whole_number(one.get("startAt"), 1))
    return None


def _label(number: _Numbered) -> str:
    style = _STYLE.match(number.style)
    kind, around = (style[1], style[2]) if style else ("arabic", "Period")
    return _AROUND[around].format(format_number(number.at, _FORMATS[kind]))


def _table(table: Element) -> str:
    """Render a table; a cell over several rows or columns is repeated in each."""
    above: Sequence[str] = ()
    rows: list[str] = []
    for row in (child for child in table if get_local_name(child) == "tr"):
        cells: list[str] = []
        for cell in (child for child in row if get_local_name(child) == "tc"):
            if cell.get("vMerge") in _ON and len(cells) < len(above):
                cells.append(above[len(cells)])
            elif cell.get("hMerge") in _ON and cells:
                cells.append(cells[-1])
            else:
                cells.append(" ".join(" ".join(_text(one) for one in find_elements_by_name(cell, "p")).split()))
        rows.append(" | ".join(cells))
        above = cells
    return "\n".join(rows)


def _text(paragraph: Element) -> str:
    return render_text_runs(_runs(paragraph)).strip()


def _runs(element: Element) -> Iterator[TextRun]:
    for child in _shown(element):
        match get_local_name(child):
            case "r" | "fld":
                text = "".join(one.text or "" for one in child if get_local_name(one) == "t")
                yield _run(text, next((one for one in child if get_local_name(one) == "rPr"), child))
            case "br":
                yield TextRun("\n")
            case "oMathPara":
                for number, formula in enumerate(find_elements_by_name(child, "oMath")):
                    yield TextRun(f"{chr(10) if number else ''}{render_formula(formula)}")
            case "oMath":
                yield TextRun(render_formula(child))
            case "t":
                yield TextRun(child.text or "")
            case _:
                yield from _runs(child)


def _run(text: str, look: Element) -> TextRun:
    baseline = look.get("baseline", "").removesuffix("%")
    lifted = int(baseline) if baseline.removeprefix("-").isdecimal() and len(baseline) < 10 else 0
    height = "raised" if lifted > 0 else "lowered" if lifted < 0 else ""
    return TextRun(text, height, look.get("strike") in {"sngStrike", "dblStrike"})
