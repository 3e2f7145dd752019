"""Reads from the records of .xlsb what the spreadsheet library does not report: errors, text marks, hidden rows.

They are the records of Excel 97 in another encoding: a number for the kind and one for the size, of variable length.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from waystation.documents.readers.cell_formats import ERRORS, MAX_COLUMNS, SheetInfo, TextFormat, make_text_format
from waystation.documents.readers.text_runs import TextRun, render_text_runs

_ROW_HEADER, _CELL_ERROR, _CELL_STRING, _FORMULA_ERROR, _COLUMN_INFO, _MERGED = 0, 3, 7, 11, 60, 176
_RICH_CELL = 62
_LAST_CELL = 11
_STRING = 19
_FONT, _FORMAT, _FORMATS_BEGIN, _FORMATS_END = 43, 47, 617, 618
_SHEET = 156
_COMMENT, _OBJECT = 635, 639
_HIDDEN_ROW, _STRUCK, _RICH = 0x10, 0x08, 0x01
_NO_TEXT = 0xFFFFFFFF


def _records(content: bytes) -> Iterator[tuple[int, bytes]]:
    return ((kind, content[begin:end]) for kind, _, begin, end in _places(content))


def _places(content: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield for each record its kind, its start, and the start and end of its contents."""
    end = 0
    while end < len(content):
        start = end
        kind, at = _varied(content, start, 2)
        size, begin = _varied(content, at, 4)
        end = begin + size
        yield kind, start, begin, end


def _varied(content: bytes, at: int, maximum: int) -> tuple[int, int]:
    """Read a variable-length number, whose bytes but the last have the highest bit set; return it and what follows."""
    number = 0
    for place in range(maximum):
        if at >= len(content):
            break
        byte = content[at]
        at += 1
        number |= (byte & 0x7F) << 7 * place
        if not byte & 0x80:
            break
    return number, at


def _text(record: bytes, at: int) -> tuple[bytes, int]:
    """Read a UTF-16 text; return it and the position after it. Raises struct.error."""
    length = struct.unpack_from("<I", record, at)[0]
    at += 4
    if length == _NO_TEXT:
        return b"", at
    return record[at : at + 2 * length], at + 2 * length


def _decoded(text: bytes) -> str:
    return text.decode("utf-16-le", "replace")


def read_binary_sheet_ids(content: bytes) -> dict[str, str]:
    """Return the sheets that a workbook lists: by name, the id of the link to each."""
    found: dict[str, str] = {}
    for kind, record in _records(content):
        if kind == _SHEET:
            try:
                link, at = _text(record, 8)
                found[_decoded(_text(record, at)[0])] = _decoded(link)
            except struct.error:
                continue
    return found


def remove_binary_sheets(content: bytes, names: Set[str]) -> bytes:
    """Return the workbook without these sheets in its list."""
    records = ((kind, content[start:end]) for kind, start, _, end in _places(content))
    return b"".join(
        record for kind, record in records if kind != _SHEET or names.isdisjoint(read_binary_sheet_ids(record))
    )


class BinaryStyleTable(NamedTuple):
    """The text formats of a workbook by their numbers."""

    fonts: Sequence[TextFormat] = ()
    cells: Sequence[TextFormat] = ()


def read_binary_styles(content: bytes) -> BinaryStyleTable:
    """Read the formats from the member with styles."""
    fonts: list[TextFormat] = []
    looks: list[TextFormat] = []
    of_cells = False
    for kind, record in _records(content):
        of_cells = kind == _FORMATS_BEGIN or (of_cells and kind != _FORMATS_END)
        if kind == _FONT and len(record) >= 8:
            flags, height = struct.unpack_from("<H2xH", record, 2)
            fonts.append(make_text_format(struck=bool(flags & _STRUCK), height=height))
        elif kind == _FORMAT and of_cells and len(record) >= 6:
            font = struct.unpack_from("<H", record, 4)[0]
            looks.append(fonts[font] if font < len(fonts) else TextFormat())
    return BinaryStyleTable(fonts, looks)


def read_binary_strings(content: bytes, fonts: Sequence[TextFormat]) -> dict[int, str]:
    """Return the texts that are partly marked, by their numbers."""
    if all(font == TextFormat() for font in fonts):
        return {}
    texts = (record for kind, record in _records(content) if kind == _STRING)
    return {number: text for number, record in enumerate(texts) if (text := _marked(record, fonts))}


def _marked(record: bytes, fonts: Sequence[TextFormat]) -> str:
    """Return a text of several formats with its marks; empty if it has none."""
    try:
        if not record or not record[0] & _RICH:
            return ""
        text, at = _text(record, 1)
        count = struct.unpack_from("<I", record, at)[0]
        room = (len(record) - at - 4) // 4
        changes = [struct.unpack_from("<HH", record, at + 4 + 4 * place) for place in range(min(count, room))]
    except struct.error:
        return ""
    begins = [
        (0, TextFormat()),
        *((begin, fonts[font] if font < len(fonts) else TextFormat()) for begin, font in changes),
    ]
    ends = [*(begin for begin, _ in begins[1:]), len(text) // 2]
    runs = [
        TextRun(_decoded(text[2 * begin : 2 * end]), *look) for (begin, look), end in zip(begins, ends, strict=True)
    ]
    if all(run.height == "" and not run.struck for run in runs):
        return ""
    return " ".join(render_text_runs(runs).split())


def count_binary_comments(content: bytes) -> int:
    """Return the number of comments."""
    return sum(kind == _COMMENT for kind, _ in _records(content))


def read_binary_sheet_info(
    content: bytes, styles: Mapping[int, TextFormat], strings: Mapping[int, str] = {}, fonts: Sequence[TextFormat] = ()
) -> SheetInfo:
    """Read what the library does not report about a sheet.

    Args:
        content: content of the sheet.
        styles: non-default formats of cells, by the number of their style.
        strings: shared texts that are partly marked, by their numbers.
        fonts: formats of texts within the sheet itself.
    """
    found = SheetInfo()
    row = 0
    for kind, record in _records(content):
        try:
            if kind == _ROW_HEADER:
                row, flags = struct.unpack_from("<I7xB", record)
                if flags & _HIDDEN_ROW:
                    found.hidden_rows.add(row)
            elif kind <= _LAST_CELL or kind == _RICH_CELL:
                column, look = struct.unpack_from("<II", record)
                found.set_format((row, column), styles.get(look & 0xFFFFFF, TextFormat()))
                if text := _shown(kind, record, strings, fonts):
                    found.shown[row, column] = text
            elif kind == _COLUMN_INFO:
                first, last, flags = struct.unpack_from("<II8xH", record)
                if flags & 1 and last < MAX_COLUMNS:
                    found.hidden_columns.update(range(first, last + 1))
            elif kind == _MERGED:
                first, last, left, right = struct.unpack_from("<4I", record)
                found.merged.append(((first, left), (last, right)))
            found.objects += kind == _OBJECT
        except (struct.error, IndexError):
            continue
    return found


def _shown(kind: int, record: bytes, strings: Mapping[int, str], fonts: Sequence[TextFormat]) -> str:
    """Return what a cell shows instead of the library's value; empty if it is the same.

    Raises IndexError, struct.error.
    """
    if kind in {_CELL_ERROR, _FORMULA_ERROR}:
        return ERRORS.get(record[8], ERRORS[0])
    if kind == _CELL_STRING and strings:
        return strings.get(struct.unpack_from("<I", record, 8)[0], "")
    return _marked(record[8:], fonts) if kind == _RICH_CELL else ""
