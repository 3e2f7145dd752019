"""Renders a report as DOCX for editing and comments: formatting is by styles, headings make a table of contents, and a
citation links to the list of sources, with a footnote at its source's first citation if the pages have room.

The package is made by python-docx; the text is written as XML in one pass, since a report can have megabytes. The fonts
for each script are left to the program that opens the file.
"""

import unicodedata
from collections.abc import Iterable, Iterator
from datetime import UTC
from importlib.util import find_spec
from io import BytesIO
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from waystation.kernel.errors import BadInput
from waystation.kernel.text import format_extra_hint
from waystation.kernel.value import iter_strings
from waystation.reports.blocks import (
    RIGHT_TO_LEFT_CLASSES,
    CodeBlock,
    ExportedReport,
    HeadingBlock,
    Inline,
    ListBlock,
    NumberedSource,
    ParagraphBlock,
    QuoteBlock,
    ReportBlock,
    RuleBlock,
    SentenceMark,
    SentenceRemark,
    TableBlock,
    is_right_to_left,
    render_citation_number,
    render_mark_number,
)

_STYLES = Path(__file__).with_name("styles.xml")
_MAIN = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_RELATED = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml"
_NO_XML = dict.fromkeys([*range(9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF, *range(0xD800, 0xE000)])
_LEFT_TO_RIGHT = "\u200e"
_BREAKS = {"\n": "<w:br/>", "\t": "<w:tab/>"}
_MAX_HEADING_LEVEL = 4
_MAX_LIST_LEVEL, _INDENT = 9, 360
"""Maximum list level, and indentation per level; here and below in twentieths of a point."""
_BULLETS, _NUMBERS = 1, 2
"""Numbering ids; lists that restart their numbering have the following ids."""
_MAX_COLUMNS, _WIDTH = 63, 8846
"""Maximum columns of a table in Word, and the width of the text on a page."""
_NARROW, _WIDE = 8, 60
"""Minimum and maximum characters of a column's width."""
_MAX_PROPERTY_CHARACTERS = _MAX_TOOLTIP_CHARACTERS = 255
_MANY = 24
"""From this number on, sources are listed in two columns."""
_ROOM = 300
"""Characters of text per source from which footnotes leave room for the text on the pages."""
_SECTION = (
    '<w:sectPr><w:footerReference w:type="default" r:id="footer"/><w:type w:val="continuous"/>'
    '<w:pgSz w:w="11906" w:h="16838"/>'
    '<w:pgMar w:top="1474" w:right="1530" w:bottom="1474" w:left="1530" w:header="708" w:footer="708" w:gutter="0"/>'
    '<w:cols w:num="{}" w:space="400"/></w:sectPr>'
)
_SETTINGS = (
    '<w:footnotePr><w:footnote w:id="-1"/><w:footnote w:id="0"/></w:footnotePr><w:compat><w:compatSetting '
    'w:name="compatibilityMode" w:uri="http://schemas.microsoft.com/office/word" w:val="15"/></w:compat>'
)
_NOTED = '<w:r><w:rPr><w:rStyle w:val="FootnoteReference"/></w:rPr><w:footnoteRef/></w:r>'
_SEPARATORS = (
    '<w:footnote w:type="separator" w:id="-1"><w:p><w:r><w:separator/></w:r></w:p></w:footnote>'
    '<w:footnote w:type="continuationSeparator" w:id="0"><w:p><w:r><w:continuationSeparator/></w:r></w:p></w:footnote>'
)


def render_docx(report: ExportedReport) -> bytes:
    """Render the file. Raises BadInput if python-docx is not installed."""
    if find_spec("docx") is None:
        raise BadInput(f"a report as DOCX needs the package python-docx: {format_extra_hint('reports')}")
    from docx.opc.constants import RELATIONSHIP_TYPE as KIND  # noqa: PLC0415 - of an extra
    from docx.opc.packuri import PackURI  # noqa: PLC0415
    from docx.opc.part import Part  # noqa: PLC0415
    from docx.package import Package  # noqa: PLC0415

    writer = _Writer(report.sources)
    body = _root("document", f"<w:body>{writer.render(report)}{_SECTION.format(1)}</w:body>")
    package = Package()
    main = Part(PackURI("/word/document.xml"), f"{_WORD}.document.main+xml", body, package)
    package.relate_to(main, KIND.OFFICE_DOCUMENT)
    for name, kind, content in (
        ("styles", KIND.STYLES, _STYLES.read_bytes()),
        ("settings", KIND.SETTINGS, _root("settings", _SETTINGS)),
        ("numbering", KIND.NUMBERING, _root("numbering", _numbering(writer.firsts))),
        ("footnotes", KIND.FOOTNOTES, _root("footnotes", _SEPARATORS + "".join(writer.footnotes))),
        ("footer", KIND.FOOTER, _root("ftr", _footer(report))),
    ):
        part = Part(PackURI(f"/word/{name}.xml"), f"{_WORD}.{name}+xml", content, package)
        main.load_rel(kind, part, name)
    for address, key in writer.addresses.items():
        main.load_rel(KIND.HYPERLINK, address, key, is_external=True)
    about = package.core_properties
    about.title, about.subject = _clean(report.title)[:_MAX_PROPERTY_CHARACTERS], report.imprint.task_id
    about.author = about.last_modified_by = "Waystation"
    if (at := report.imprint.stored_at) is not None:
        # python-docx takes whole seconds of UTC, without a time zone.
        about.created = about.modified = at.astimezone(UTC).replace(tzinfo=None, microsecond=0)
    made = BytesIO()
    package.save(made)
    return made.getvalue()


def _root(name: str, inside: str) -> bytes:
    head = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
    return f'{head}<w:{name} xmlns:w="{_MAIN}" xmlns:r="{_RELATED}">{inside}</w:{name}>'.encode()


def _numbering(firsts: Iterable[tuple[int, int]]) -> str:
    """Define bullets, numbers, and a list for each restart: its level and first number."""
    bullets = _levels("bullet", ["–" if level % 2 else "•" for level in range(_MAX_LIST_LEVEL)])
    numbers = _levels("decimal", [f"%{level}." for level in range(1, _MAX_LIST_LEVEL + 1)])
    lists = [(_BULLETS, ""), (_NUMBERS, "")] + [
        (_NUMBERS, f'<w:lvlOverride w:ilvl="{level}"><w:startOverride w:val="{first}"/></w:lvlOverride>')
        for level, first in firsts
    ]
    kinds = "".join(
        f'<w:abstractNum w:abstractNumId="{key}"><w:multiLevelType w:val="multilevel"/>{levels}</w:abstractNum>'
        for key, levels in ((_BULLETS, bullets), (_NUMBERS, numbers))
    )
    return kinds + "".join(
        f'<w:num w:numId="{key}"><w:abstractNumId w:val="{kind}"/>{begins}</w:num>'
        for key, (kind, begins) in enumerate(lists, 1)
    )


def _levels(form: str, marks: Iterable[str]) -> str:
    return "".join(
        f'<w:lvl w:ilvl="{level}"><w:start w:val="1"/><w:numFmt w:val="{form}"/><w:lvlText w:val="{mark}"/>'
        f'<w:lvlJc w:val="left"/>'
        f'<w:pPr><w:ind w:left="{_INDENT * (level + 1)}" w:hanging="{_INDENT}"/></w:pPr></w:lvl>'
        for level, mark in enumerate(marks)
    )


def _footer(report: ExportedReport) -> str:
    page, pages = (
        f'<w:fldSimple w:instr="{name}"><w:r><w:t>1</w:t></w:r></w:fldSimple>' for name in ("PAGE", "NUMPAGES")
    )
    return (
        f'<w:p><w:pPr><w:pStyle w:val="Footer"/></w:pPr>{_runs(report.imprint.task_id)}'
        f"<w:r><w:tab/></w:r>{page}{_runs(' / ')}{pages}</w:p>"
    )


class _Where(NamedTuple):
    """The position of a block."""

    style: str = ""
    """Style of its paragraphs; empty: body text."""
    depth: int = 0
    """Number of enclosing lists."""


class _Writer:
    """Writes the text, and collects the contents of the other parts of the file."""

    def __init__(self, sources: Iterable[NumberedSource]) -> None:
        self._sources = {source.number: source for source in sources}
        self._cited: set[int] = set()
        self._notes = True
        self.footnotes: list[str] = []
        """In the order of the text, which is that of the sources' numbers; none if they would fill the pages."""
        self.addresses: dict[str, str] = {}
        """Targets of links, with their keys."""
        self.firsts: list[tuple[int, int]] = []
        """Level and first number of each numbered list."""

    def render(self, report: ExportedReport) -> str:
        text = sum(len(said) for _, said in iter_strings([block.model_dump(mode="json") for block in report.blocks]))
        self._notes = len(report.sources) <= _MANY or text >= _ROOM * len(report.sources)
        parts = [
            self._words("Title", report.title),
            self._words("Imprint", str(report.imprint)),
            self._blocks(report.blocks, _Where()),
        ]
        if report.sources or report.checked:
            parts += [self._words("Heading1", "Sources"), self._words("", report.checked) if report.checked else ""]
            parts += map(self._remark, report.remarks)
            listed = [self._source(source) for source in report.sources]
            parts += [_ends(1), *listed, _ends(2)] if len(listed) > _MANY else listed
        return "".join([*parts, self._blocks(report.account, _Where("Account"))])

    def _words(self, style: str, text: str) -> str:
        return self._paragraph(style, [Inline(text=text)])

    def _source(self, source: NumberedSource) -> str:
        number = _marked(f"source_{source.number}", source.number, self._link(f"cite_{source.number}", source))
        return f'<w:p><w:pPr><w:pStyle w:val="Source"/></w:pPr>{number}<w:r><w:tab/></w:r>{_place(source)}</w:p>'

    def _remark(self, remark: SentenceRemark) -> str:
        number = _runs(render_mark_number(remark.number), '<w:rStyle w:val="Fault"/>')
        number = _marked(f"remark_{remark.number}", 2 * len(self._sources) + remark.number, number)
        return f'<w:p><w:pPr><w:pStyle w:val="Source"/></w:pPr>{number}<w:r><w:tab/></w:r>{_runs(remark.text)}</w:p>'

    def _blocks(self, blocks: Iterable[ReportBlock], where: _Where) -> str:
        return "".join(self._block(block, where) for block in blocks)

    def _block(self, block: ReportBlock, where: _Where) -> str:
        match block:
            case ParagraphBlock(inlines=inlines):
                style = where.style or ("ListContinue" if where.depth else "")
                return self._paragraph(style, inlines, indent=_indent(where))
            case HeadingBlock(level=level, inlines=inlines):
                level = max(1, level - 1) + (where.style == "Account")
                return self._paragraph(f"Heading{min(level, _MAX_HEADING_LEVEL)}", inlines)
            case CodeBlock(text=text):
                return self._paragraph("Code", [Inline(text=text)], indent=_indent(where))
            case RuleBlock():
                return self._paragraph("Rule", [])
            case QuoteBlock(blocks=blocks):
                return self._blocks(blocks, where._replace(style="Quote"))
            case ListBlock():
                return self._list(block, where)
            case TableBlock(rows=rows):
                return self._table(rows)

    def _list(self, block: ListBlock, where: _Where) -> str:
        level = min(where.depth, _MAX_LIST_LEVEL - 1)
        number, style = _BULLETS, where.style or "ListBullet"
        if block.first is not None:
            self.firsts.append((level, block.first))
            number, style = _NUMBERS + len(self.firsts), where.style or "ListNumber"
        counted = f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{number}"/></w:numPr>'
        inside = where._replace(depth=level + 1)
        parts: list[str] = []
        for item in block.items:
            leading = item[0].inlines if item and isinstance(item[0], ParagraphBlock) else None
            parts.append(self._paragraph(style, leading or (), numbered=counted))
            parts.append(self._blocks(item if leading is None else item[1:], inside))
        return "".join(parts)

    def _table(self, rows: Iterable[tuple[tuple[Inline, ...], ...]]) -> str:
        lines = list(rows)
        columns = max(map(len, lines), default=0)
        if not 0 < columns <= _MAX_COLUMNS:
            bar = Inline(text=" | ")
            return "".join(self._paragraph("", [part for cell in line for part in (*cell, bar)]) for line in lines)
        widths = _widths(lines, columns)
        grid = "".join(f'<w:gridCol w:w="{width}"/>' for width in widths)
        filled = ([*line, *[()] * (columns - len(line))] for line in lines)
        made = "".join(self._row(row, widths, head=not place) for place, row in enumerate(filled))
        look = '<w:tblLook w:val="0620" w:firstRow="1" w:lastRow="0" w:firstColumn="0" w:lastColumn="0"/>'
        about = f'<w:tblPr><w:tblStyle w:val="ReportTable"/><w:tblW w:w="{_WIDTH}" w:type="dxa"/>{look}</w:tblPr>'
        return f"<w:tbl>{about}<w:tblGrid>{grid}</w:tblGrid>{made}</w:tbl><w:p/>"

    def _row(self, cells: Iterable[tuple[Inline, ...]], widths: Iterable[int], *, head: bool) -> str:
        made = "".join(
            f'<w:tc><w:tcPr><w:tcW w:w="{width}" w:type="dxa"/></w:tcPr>{self._paragraph("", cell)}</w:tc>'
            for cell, width in zip(cells, widths, strict=True)
        )
        return f"<w:tr><w:trPr><w:cantSplit/>{'<w:tblHeader/>' if head else ''}</w:trPr>{made}</w:tr>"

    def _paragraph(self, style: str, inlines: Iterable[Inline], *, numbered: str = "", indent: str = "") -> str:
        parts = tuple(inlines)
        backwards = is_right_to_left(parts)
        said = f'<w:pStyle w:val="{style}"/>' if style else ""
        said = f"{said}{numbered}{'<w:bidi/>' if backwards else ''}{indent}"
        around = _runs(_LEFT_TO_RIGHT) if backwards or any(_has_right_to_left(part.text) for part in parts) else ""
        text = "".join(self._inline(part, backwards, around) for part in parts)
        return f"<w:p>{f'<w:pPr>{said}</w:pPr>' if said else ''}{text}</w:p>"

    def _inline(self, inline: Inline, backwards: bool, around: str) -> str:
        """Write inline text. `around`: marks that keep the number of a citation in its brackets within right-to-left
        text.
        """
        if inline.source:
            return f"{around}{self._citation(self._sources[inline.source])}{around}"
        if inline.mark is not None and inline.mark.number:
            return f"{around}{_mark(inline.mark)}{around}"
        if inline.address:
            key = self.addresses.setdefault(_clean(inline.address), f"link{len(self.addresses)}")
            words = _runs(inline.text, '<w:rStyle w:val="Hyperlink"/>', backwards)
            return f'<w:hyperlink r:id="{key}" w:history="1">{words}</w:hyperlink>'
        looks = (
            (inline.code, '<w:rStyle w:val="CodeWords"/>'),
            (inline.strong, "<w:b/><w:bCs/>"),
            (inline.emphasis, "<w:i/><w:iCs/>"),
        )
        return _runs(inline.text, "".join(look for wanted, look in looks if wanted), backwards)

    def _citation(self, source: NumberedSource) -> str:
        """Write a link to the list of sources; the first citation of a source has the footnote, while both are numbered
        alike.
        """
        leads, first = f"source_{source.number}", source.number not in self._cited
        self._cited.add(source.number)
        if not first:
            return self._link(leads, source)
        mark = ""
        if self._notes and source.number == len(self.footnotes) + 1:
            words = f"{_NOTED}{_runs(' ')}{_place(source)}"
            paragraph = f'<w:p><w:pPr><w:pStyle w:val="FootnoteText"/></w:pPr>{words}</w:p>'
            self.footnotes.append(f'<w:footnote w:id="{source.number}">{paragraph}</w:footnote>')
            mark = f'<w:footnoteReference w:id="{source.number}"/>'
        return _marked(f"cite_{source.number}", len(self._sources) + source.number, _link(leads, source, mark))

    def _link(self, leads: str, source: NumberedSource) -> str:
        """Write a link with the footnote's number, which stays right if someone inserts another footnote before it."""
        return _link(leads, source, follows=source.number <= len(self.footnotes))


def _ends(columns: int) -> str:
    """Return the paragraph that ends a section with this number of columns."""
    small = '<w:spacing w:after="0" w:line="20" w:lineRule="exact"/>'
    return f"<w:p><w:pPr>{small}{_SECTION.format(columns)}</w:pPr></w:p>"


def _indent(where: _Where) -> str:
    """Return the indentation of a list item's continuation, which is aligned with its text."""
    return f'<w:ind w:left="{_INDENT * min(where.depth, _MAX_LIST_LEVEL)}"/>' if where.depth else ""


def _widths(rows: Iterable[tuple[tuple[Inline, ...], ...]], columns: int) -> list[int]:
    """Return widths by the longest cell of each column, while a narrow one keeps room for a word."""
    longest = [_NARROW] * columns
    for row in rows:
        for place, cell in enumerate(row):
            length = sum(len(part.text) for part in cell)
            longest[place] = min(max(longest[place], length), _WIDE)
    return [_WIDTH * length // sum(longest) for length in longest]


def _marked(name: str, key: int, inside: str) -> str:
    return f'<w:bookmarkStart w:id="{key}" w:name="{name}"/>{inside}<w:bookmarkEnd w:id="{key}"/>'


def _link(leads: str, source: NumberedSource, mark: str = "", *, follows: bool = False) -> str:
    """Write `[12]`, or `[12?]` if the citation failed the check. `mark`: replaces the number."""
    style = "Fault" if source.fault else "Citation"
    look = f'<w:rPr><w:rStyle w:val="{style}"/><w:u w:val="none"/><w:vertAlign w:val="baseline"/></w:rPr>'
    begin, _, end = render_citation_number(source).partition(str(source.number))
    number = f"<w:r>{look}{mark or f'<w:t>{source.number}</w:t>'}</w:r>"
    if follows:
        number = f'<w:fldSimple w:instr=" NOTEREF cite_{source.number} \\h ">{number}</w:fldSimple>'
    before, after = (f"<w:r>{look}<w:t>{sign}</w:t></w:r>" for sign in (begin, end))
    return f'<w:hyperlink w:anchor="{leads}" w:history="1">{before}{number}{after}</w:hyperlink>'


def _mark(mark: SentenceMark) -> str:
    """Write the superscript mark of an unsupported sentence, which links to what its lines lack."""
    run = _runs(render_mark_number(mark.number), '<w:rStyle w:val="Fault"/><w:vertAlign w:val="superscript"/>')
    reason = quoteattr(_clean(mark.reason)[:_MAX_TOOLTIP_CHARACTERS])
    return f'<w:hyperlink w:anchor="remark_{mark.number}" w:tooltip={reason} w:history="1">{run}</w:hyperlink>'


def _place(source: NumberedSource) -> str:
    fault = f". Failed check: {source.fault}." if source.fault else ""
    return _runs(f"{source.name}, {source.where}") + _runs(fault, '<w:rStyle w:val="Fault"/>')


def _runs(text: str, looks: str = "", backwards: bool = False) -> str:
    """Write the text in runs of one direction."""
    return "".join(
        f"<w:r><w:rPr>{looks}{'<w:rtl/>' if back else ''}</w:rPr>{_written(part)}</w:r>"
        for back, part in _stretches(_clean(text), backwards)
    )


def _written(text: str) -> str:
    shown = escape(text)
    for sign, element in _BREAKS.items():
        shown = shown.replace(sign, f'</w:t>{element}<w:t xml:space="preserve">')
    return f'<w:t xml:space="preserve">{shown}</w:t>'


def _stretches(text: str, backwards: bool) -> Iterator[tuple[bool, str]]:
    """Split the text by direction.

    Characters without a direction belong to the words around them if those agree, else to the paragraph's direction.
    """
    if not text:
        return
    if not backwards and not _has_right_to_left(text):
        yield False, text
        return
    parts = [(kind, "".join(signs)) for kind, signs in groupby(text, _direction)]
    kinds = [backwards, *(kind for kind, _ in parts), backwards]
    resolved = (
        (backwards if before != after else bool(before)) if kind is None else kind
        for before, kind, after in zip(kinds, kinds[1:], kinds[2:], strict=False)
    )
    joined = zip(resolved, (part for _, part in parts), strict=True)
    for kind, group in groupby(joined, key=itemgetter(0)):
        yield kind, "".join(part for _, part in group)


def _has_right_to_left(text: str) -> bool:
    return not text.isascii() and not RIGHT_TO_LEFT_CLASSES.isdisjoint(map(unicodedata.bidirectional, set(text)))


def _direction(sign: str) -> bool | None:
    """Return whether a character is written from right to left; None: as its neighbours."""
    direction = unicodedata.bidirectional(sign)
    return True if direction in RIGHT_TO_LEFT_CLASSES else False if direction == "L" else None


def _clean(text: str) -> str:
    """Remove characters that XML does not allow."""
    return text.translate(_NO_XML)
