"""Reads compound files (a file system in a file, used by Office before zip archives), and Excel 97 workbooks in them.

From workbooks it reads what the spreadsheet library does not report: errors, text marks, hidden rows.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from waystation.documents.readers.cell_formats import ERRORS, SheetInfo, TextFormat, make_text_format
from waystation.documents.readers.extraction import UnreadableFileError

_END_OF_CHAIN = 0xFFFFFFFA
"""Sector numbers from here on are not sectors."""
_ENTRY = 128
_MAX_ENTRIES = 100_000
_HEADER = 512
_DIFAT = 76
_STREAM = 2


class _Entry(NamedTuple):
    name: str
    kind: int
    left: int
    right: int
    child: int
    start: int
    size: int


class CompoundFile:
    """A compound file. Raises ValueError if the content is not a readable one."""

    def __init__(self, content: bytes) -> None:
        try:
            self._read(content)
        except (struct.error, IndexError) as error:
            raise ValueError("broken") from error

    def _read(self, content: bytes) -> None:
        self._content = content
        shift, mini_shift = struct.unpack_from("<HH", content, 30)
        first_entry, _, self._cutoff, first_mini, _, difat, more = struct.unpack_from("<7I", content, 48)
        self._size, self._mini_size = 1 << shift, 1 << mini_shift
        if not 7 <= shift <= 16 or not 3 <= mini_shift <= shift:
            raise ValueError("broken")
        sectors = [*struct.unpack_from("<109I", content, _DIFAT)]
        for _ in range(min(more, len(content) // self._size)):
            listed = struct.unpack(f"<{self._size // 4}I", self._sector(difat))
            sectors, difat = [*sectors, *listed[:-1]], listed[-1]
        self._next: list[int] = []
        for sector in sectors:
            if sector < _END_OF_CHAIN:
                self._next += struct.unpack(f"<{self._size // 4}I", self._sector(sector))
        listed = self._chain(first_entry)
        self._entries = [_entry(listed, at) for at in range(min(len(listed) // _ENTRY, _MAX_ENTRIES))]
        mini = self._chain(first_mini)
        self._next_mini = struct.unpack(f"<{len(mini) // 4}I", mini)
        self._mini = self._chain(self._entries[0].start)
        self._root = {entry.name: entry for entry in self._siblings(self._entries[0].child)}

    @property
    def stream_names(self) -> list[str]:
        """Names at the root, not in a folder, where embedded files are."""
        return [*self._root]

    def read_stream(self, name: str) -> bytes:
        """Return the bytes of a stream at the root; empty if there is none that can be read."""
        entry = self._root.get(name)
        if entry is None or entry.kind != _STREAM:
            return b""
        if entry.size >= self._cutoff:
            return self._chain(entry.start)[: entry.size]
        found, sector, seen = b"", entry.start, set[int]()
        while sector < len(self._next_mini) and sector not in seen:
            seen.add(sector)
            found += self._mini[sector * self._mini_size : (sector + 1) * self._mini_size]
            sector = self._next_mini[sector]
        return found[: entry.size]

    def _sector(self, number: int) -> bytes:
        begin = (number + 1) * self._size
        return self._content[begin : begin + self._size].ljust(self._size, b"\0")

    def _chain(self, sector: int) -> bytes:
        found: list[bytes] = []
        seen: set[int] = set()
        while sector < len(self._next) and sector not in seen:
            seen.add(sector)
            found.append(self._sector(sector))
            sector = self._next[sector]
        return b"".join(found)

    def _siblings(self, at: int) -> Iterator[_Entry]:
        waiting, seen = [at], set[int]()
        while waiting:
            at = waiting.pop()
            if at < len(self._entries) and at not in seen:
                seen.add(at)
                waiting += [self._entries[at].right, self._entries[at].left]
                yield self._entries[at]


def _entry(listed: bytes, at: int) -> _Entry:
    name, length, kind, left, right, child = struct.unpack_from("<64sHBxIII", listed, at * _ENTRY)
    start, size = struct.unpack_from("<II", listed, at * _ENTRY + 116)
    return _Entry(name[: max(0, length - 2)].decode("utf-16-le", "replace"), kind, left, right, child, start, size)


_BOOKS = ("Workbook", "Book")


def get_workbook_stream(file: CompoundFile) -> bytes:
    """Return the workbook in it; empty if there is none."""
    return next((found for name in _BOOKS if (found := file.read_stream(name))), b"")


_OLD_FILES = (
    ("EncryptedPackage", "protected by a password; save the file without one"),
    ("WordDocument", "an old Word file; save it as .docx"),
    ("PowerPoint Document", "an old PowerPoint file; save it as .pptx"),
    ("__properties_version1.0", "an Outlook message; save it as .eml"),
)
"""Streams at the root that show what a compound file is, with advice."""


def require_excel_file(content: bytes) -> None:
    """Check that a compound file is an Excel file. Embedded files do not count.

    Raises:
        UnreadableFileError: it is not; the message says what to do.
    """
    try:
        names = CompoundFile(content).stream_names
    except ValueError:
        names = [name for name, _ in _OLD_FILES if name.encode("utf-16-le") in content]
    if not any(name in _BOOKS for name in names):
        for name, reason in _OLD_FILES:
            if name in names:
                raise UnreadableFileError(reason)


_FILEPASS, _BOUNDSHEET, _BOF, _EOF, _FONT, _XF = 0x2F, 0x85, 0x809, 0x0A, 0x31, 0xE0
_ROW, _COLINFO, _BOOLERR, _FORMULA, _NOTE, _TXO, _MULRK = 0x208, 0x7D, 0x205, 0x06, 0x1C, 0x1B6, 0xBD
_OBJ = 0x5D
_COMMON, _PICTURE, _PICTURE_FLAGS, _PICTURE_SOURCE, _NOT_EMBEDDED = 0x15, 8, 0x08, 0x09, 0x10 | 0x80
"""Parts of a drawn object: its kind, its flags, and the source of its picture, which only objects of programs have. The
flags are those of controls and of pictures of cells.
"""
_CELLS = frozenset({_BOOLERR, _FORMULA, 0xFD, 0x203, 0x27E, 0x204, 0xD6})
_CHART = 0x20
_HIDDEN_ROW, _STRUCK = 0x20, 0x08


def _records(stream: bytes, begin: int = 0) -> Iterator[tuple[int, bytes]]:
    while begin + 4 <= len(stream):
        kind, size = struct.unpack_from("<HH", stream, begin)
        yield kind, stream[begin + 4 : begin + 4 + size]
        begin += 4 + size


def has_password(stream: bytes) -> bool:
    """Whether the workbook is encrypted, which is stated at its beginning."""
    for number, (kind, _) in enumerate(_records(stream)):
        if kind in {_FILEPASS, _EOF} or number > 20:
            return kind == _FILEPASS
    return False


def read_xls_sheet_infos(stream: bytes) -> list[SheetInfo]:
    """Return the properties of each sheet of a workbook, in order."""
    fonts: list[TextFormat] = []
    looks: list[TextFormat] = []
    begins: list[int] = []
    for kind, record in _records(stream):
        if kind == _EOF:
            break
        if kind == _BOUNDSHEET and len(record) >= 4:
            begins.append(struct.unpack_from("<I", record)[0])
        elif kind == _FONT and len(record) >= 10:
            flags, height = struct.unpack_from("<H4xH", record, 2)
            fonts.append(make_text_format(struck=bool(flags & _STRUCK), height=height))
        elif kind == _XF and len(record) >= 2:
            font = struct.unpack_from("<H", record)[0]
            # There is no font number 4: numbers skip it.
            font -= font > 3
            looks.append(fonts[font] if font < len(fonts) else TextFormat())
    return [_old_look(stream, begin, looks) for begin in begins]


def _old_look(stream: bytes, begin: int, looks: list[TextFormat]) -> SheetInfo:
    found = SheetInfo()
    depth = texts = 0
    for kind, record in _records(stream, begin):
        if kind == _BOF:
            depth += 1
            found.charts += depth > 1 and record[2:3] == bytes([_CHART])
        depth -= kind == _EOF
        if depth <= 0:
            break
        if depth > 1:
            continue
        try:
            _old_record(found, kind, record, looks)
        except struct.error:
            continue
        texts += kind == _TXO
        found.comments += kind == _NOTE
        found.objects += kind == _OBJ and _is_embedded(record)
    found.text_boxes = max(0, texts - found.comments)
    return found


def _is_embedded(drawn: bytes) -> bool:
    """Whether a drawn object belongs to another program, such as a Word file."""
    at = 0
    is_picture = has_source = False
    flags = 0
    while at + 4 <= len(drawn):
        kind, size = struct.unpack_from("<HH", drawn, at)
        said = drawn[at + 4 : at + 4 + size]
        is_picture |= kind == _COMMON and said[:2] == bytes([_PICTURE, 0])
        has_source |= kind == _PICTURE_SOURCE and size > 0
        if kind == _PICTURE_FLAGS and len(said) >= 2:
            flags = struct.unpack_from("<H", said)[0]
        at += 4 + size
    return is_picture and has_source and not flags & _NOT_EMBEDDED


def _old_record(found: SheetInfo, kind: int, record: bytes, looks: list[TextFormat]) -> None:
    if kind == _ROW:
        row, flags = struct.unpack_from("<H10xH", record)
        if flags & _HIDDEN_ROW:
            found.hidden_rows.add(row)
    elif kind == _COLINFO:
        first, last, flags = struct.unpack_from("<HH4xH", record)
        if flags & 1:
            found.hidden_columns.update(range(first, last + 1))
    elif kind in _CELLS:
        row, column, look = struct.unpack_from("<3H", record)
        found.set_format((row, column), looks[look] if look < len(looks) else TextFormat())
        if kind == _BOOLERR and record[7:8] == b"\1":
            found.shown[row, column] = ERRORS.get(record[6], ERRORS[0])
        elif kind == _FORMULA and record[12:14] == b"\xff\xff" and record[6:7] == b"\2":
            found.shown[row, column] = ERRORS.get(record[8], ERRORS[0])
    elif kind == _MULRK:
        row, column = struct.unpack_from("<HH", record)
        for at in range((len(record) - 6) // 6):
            look = struct.unpack_from("<H", record, 4 + 6 * at)[0]
            found.set_format((row, column + at), looks[look] if look < len(looks) else TextFormat())
