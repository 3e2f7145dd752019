"""Draws a page of a PDF and marks a passage on it, in a confined child (`waystation.security.confined_process`)."""

import ctypes
import os
from collections.abc import Iterable, Iterator, Sequence
from math import sqrt
from typing import NamedTuple, Protocol, cast

from pypdfium2 import PdfDocument, PdfiumError, raw

from waystation.documents.readers.extraction import MAX_FILE_BYTES
from waystation.documents.readers.passage_image import MAX_PIXELS, PassageImageHeader, PassageImageRequest

_SCALE = 150 / 72
"""Pixels per point: 150 dots per inch."""
_MARGIN = 36
"""Points of the page that are shown above and below the passage."""
_NOTHING = frozenset({0, 2, 0xAD, 0xFFFE})
"""Codes of characters that the text of the page does not contain."""
_MIN_LINE_SIGNS = 6
"""Minimum characters of a line that is looked for by itself."""
_YELLOW = bytes(value * 9 // 20 for value in range(256))
"""Blue of a marked pixel, by its blue: white becomes yellow, and black stays black."""
_CHANNELS = 3
_MAX_GAP = 8
"""Maximum characters of white space within a run."""


class _TextPage(Protocol):
    raw: object

    def count_chars(self) -> int: ...
    def count_rects(self, index: int, count: int) -> int: ...
    def get_rect(self, index: int) -> tuple[float, float, float, float]: ...


class _Bitmap(Protocol):
    width: int
    height: int
    stride: int
    buffer: ctypes.Array[ctypes.c_ubyte]


class _OpenPage(Protocol):
    raw: object

    def get_size(self) -> tuple[float, float]: ...
    def get_textpage(self) -> _TextPage: ...
    def render(self, *, scale: float, rev_byteorder: bool, force_bitmap_format: int) -> _Bitmap: ...


class _Document(Protocol):
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> _OpenPage: ...
    def init_forms(self) -> None: ...


class _Functions(Protocol):
    def FPDFText_GetUnicode(self, page: object, index: int) -> int: ...
    def FPDF_PageToDevice(  # noqa: PLR0913, PLR0917  the library's own
        self, page: object, left: int, top: int, width: int, height: int, turn: int, x: float, y: float,
        to_x: object, to_y: object,
    ) -> int: ...  # fmt: skip


_PDFIUM = cast("_Functions", raw)


class _Box(NamedTuple):
    """A rectangle of pixels, the ends not included."""

    left: int
    top: int
    right: int
    bottom: int


class _PageText(NamedTuple):
    """The characters of a page without white space, and the number of each within the page."""

    signs: str
    indices: Sequence[int]


def prepare() -> None:
    """Do nothing: everything that is needed was imported."""


def answer(request: bytes, files: Sequence[int]) -> bytes:
    """Return a `PassageImageHeader` as JSON on one line, followed by the pixels."""
    (file,) = files
    try:
        header, pixels = _draw(PassageImageRequest.model_validate_json(request), file)
    except (PdfiumError, OSError, MemoryError):
        header, pixels = PassageImageHeader(reason="its page cannot be drawn"), b""
    finally:
        os.close(file)
    return header.model_dump_json().encode() + b"\n" + pixels


def _draw(request: PassageImageRequest, file: int) -> tuple[PassageImageHeader, bytes]:
    with os.fdopen(file, "rb", closefd=False) as opened:
        opened.seek(0)
        document = cast("_Document", PdfDocument(opened.read(MAX_FILE_BYTES)))
    document.init_forms()
    if request.page > len(document):
        return PassageImageHeader(reason=f"has no page {request.page}"), b""
    page = document[request.page - 1]
    width, height = page.get_size()
    scale = min(_SCALE, sqrt(MAX_PIXELS / max(1.0, width * height)) * 0.99)
    bitmap = page.render(scale=scale, rev_byteorder=True, force_bitmap_format=raw.FPDFBitmap_BGR)
    rows = _list_rows(bitmap)
    boxes = [_to_pixels(page, bitmap, rect) for rect in _find_rectangles(page.get_textpage(), request)]
    for box in boxes:
        _mark(rows, box)
    margin = int(_MARGIN * scale)
    top = max(0, min((box.top for box in boxes), default=0) - margin)
    bottom = min(bitmap.height, max((box.bottom for box in boxes), default=bitmap.height) + margin)
    shown = rows[top:bottom]
    header = PassageImageHeader(width=bitmap.width, height=len(shown), marked=bool(boxes))
    return header, b"".join(shown)


def _list_rows(bitmap: _Bitmap) -> list[bytearray]:
    content, used = bytes(bitmap.buffer), bitmap.width * _CHANNELS
    return [bytearray(content[at : at + used]) for at in range(0, bitmap.stride * bitmap.height, bitmap.stride)]


def _mark(rows: Sequence[bytearray], box: _Box) -> None:
    for row in rows[box.top : box.bottom]:
        blue = slice(box.left * _CHANNELS + 2, box.right * _CHANNELS, _CHANNELS)
        row[blue] = row[blue].translate(_YELLOW)


def _to_pixels(page: _OpenPage, bitmap: _Bitmap, rect: tuple[float, float, float, float]) -> _Box:
    """Return where a rectangle of the page is in the bitmap, however the page is turned."""
    x, y = ctypes.c_int(), ctypes.c_int()
    corners: list[tuple[int, int]] = []
    for corner in (rect[:2], rect[2:]):
        _PDFIUM.FPDF_PageToDevice(page.raw, 0, 0, bitmap.width, bitmap.height, 0, *corner, x, y)
        corners.append((min(max(x.value, 0), bitmap.width), min(max(y.value, 0), bitmap.height)))
    (left, top), (right, bottom) = map(min, *corners), map(max, *corners)
    return _Box(left, top, right, bottom)


def _find_rectangles(page: _TextPage, request: PassageImageRequest) -> list[tuple[float, float, float, float]]:
    """Return the rectangles around the words on the page; none if they are not found."""
    text = _load_text(page)
    words, near = _fold(request.words), len(_fold(request.before))
    found = _find_nearest(words, text.signs, near)
    ranges = [] if found is None else [range(found, found + len(words))]
    if not ranges:
        # The reader has shown some character otherwise than the page has it: the other lines are found.
        for line in filter(lambda one: len(one) >= _MIN_LINE_SIGNS, map(_fold, request.words.split("\n"))):
            if (found := _find_nearest(line, text.signs, near)) is not None:
                ranges.append(range(found, found + len(line)))
                near = found + len(line)
    return [
        page.get_rect(number)
        for first, count in _group(text.indices[place] for part in ranges for place in part)
        for number in range(page.count_rects(first, count))
    ]


def _load_text(page: _TextPage) -> _PageText:
    codes = (_PDFIUM.FPDFText_GetUnicode(page.raw, index) for index in range(page.count_chars()))
    kept = [
        (chr(code), index)
        for index, code in enumerate(codes)
        if code not in _NOTHING and code < 0x110000 and not chr(code).isspace()
    ]
    return _PageText("".join(sign for sign, _ in kept), [index for _, index in kept])


def _fold(text: str) -> str:
    return "".join(text.split())


def _find_nearest(words: str, signs: str, near: int) -> int | None:
    """Return the occurrence that begins nearest to this place."""
    places: list[int] = []
    place = signs.find(words) if words else -1
    while place >= 0:
        places.append(place)
        place = signs.find(words, place + 1)
    return min(places, key=lambda one: abs(one - near), default=None)


def _group(indices: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the first index and the length of each run, across the white space within it."""
    listed = list(indices)
    if not listed:
        return
    first = last = listed[0]
    for index in listed[1:]:
        if index < last or index > last + _MAX_GAP:
            yield first, last - first + 1
            first = index
        last = index
    yield first, last - first + 1
