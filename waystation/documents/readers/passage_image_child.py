"""Draws a page of a PDF or a picture and marks a passage on it, in a confined child
(`waystation.security.confined_process`).
"""

import ctypes
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice, pairwise
from math import sqrt
from typing import NamedTuple, Protocol, cast

from pypdfium2 import PdfDocument, PdfiumError, raw

from waystation.documents.documents import CELL_SEPARATOR
from waystation.documents.readers.extraction import MAX_FILE_BYTES, UnreadableFileError, is_picture
from waystation.documents.readers.glyph_order import iter_reading_order
from waystation.documents.readers.ocr import PageReadingResult, is_installed, read_picture
from waystation.documents.readers.page_layout import Corner, find_reading_order
from waystation.documents.readers.passage_image import MAX_PIXELS, PassageImageHeader, PassageImageRequest
from waystation.documents.readers.pdf import UNKNOWN, RenderedDocument, render_page_picture
from waystation.documents.readers.pictures import list_page_loaders
from waystation.documents.readers.recognition import PagePicture

_SCALE = 150 / 72
"""Pixels per point: 150 dots per inch."""
_MARGIN, _PAGE_HEIGHT = 1, 20
"""Share of the page that is shown above and below the passage."""
_NOTHING = frozenset({0, 2, 0xAD, 0xFFFE})
"""Codes of characters that the text of the page does not contain."""
_SHOWN_OTHERWISE = dict.fromkeys(map(ord, f"-{UNKNOWN}"))
"""Hyphens at the ends of lines are kept or not, and characters without a code are shown as unknown."""
_MIN_HEIGHT, _USUAL_HEIGHT = 2, 9
"""Points: rectangles of characters that are lower are made as high as those of usual text."""
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


class _DrawnPage(NamedTuple):
    """A page before its passage is marked."""

    rows: list[bytearray]
    width: int
    height: int
    boxes: Sequence[_Box]
    """Where the passage is."""


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
    except (PdfiumError, OSError, MemoryError, UnreadableFileError):
        header, pixels = PassageImageHeader(reason="its page cannot be drawn"), b""
    finally:
        os.close(file)
    return header.model_dump_json().encode() + b"\n" + pixels


def _draw(request: PassageImageRequest, file: int) -> tuple[PassageImageHeader, bytes]:
    with os.fdopen(file, "rb", closefd=False) as opened:
        opened.seek(0)
        content = opened.read(MAX_FILE_BYTES)
    drawn = _draw_picture(content, request) if is_picture(content) else _draw_page(content, request)
    if drawn is None:
        return PassageImageHeader(reason=f"has no page {request.page}"), b""
    _mark(drawn.rows, drawn.boxes)
    margin = _MARGIN * drawn.height // _PAGE_HEIGHT
    top = max(0, min((box.top for box in drawn.boxes), default=0) - margin)
    bottom = min(drawn.height, max((box.bottom for box in drawn.boxes), default=drawn.height) + margin)
    shown = drawn.rows[top:bottom]
    header = PassageImageHeader(width=drawn.width, height=len(shown), marked=bool(drawn.boxes))
    return header, b"".join(shown)


def _draw_page(content: bytes, request: PassageImageRequest) -> _DrawnPage | None:
    """Draw a page of a PDF; None if it has no such page."""
    document = cast("_Document", PdfDocument(content))
    document.init_forms()
    if request.page > len(document):
        return None
    page = document[request.page - 1]
    width, height = page.get_size()
    scale = min(_SCALE, sqrt(MAX_PIXELS / max(1.0, width * height)) * 0.99)
    bitmap = page.render(scale=scale, rev_byteorder=True, force_bitmap_format=raw.FPDFBitmap_BGR)
    if request.is_recognised:
        picture = render_page_picture(cast("RenderedDocument", document), request.page)
        boxes = _find_recognised_boxes(picture, request, bitmap.width / picture.width)
    else:
        rects = [_raise_flat(rect) for rect in _find_rectangles(page.get_textpage(), request)]
        boxes = _fill_gaps([_to_pixels(page, bitmap, rect) for rect in rects])
    return _DrawnPage(_list_rows(bitmap), bitmap.width, bitmap.height, boxes)


def _draw_picture(content: bytes, request: PassageImageRequest) -> _DrawnPage | None:
    """Draw a page of a picture; None if it has no such page."""
    # Part of the extra `ocr`, like all that reads pictures.
    from PIL import Image  # noqa: PLC0415

    load = next(islice(list_page_loaders(content), request.page - 1, None), None)
    if load is None:
        return None
    picture = load()
    scale = min(1.0, sqrt(MAX_PIXELS / (picture.width * picture.height)))
    size = max(1, int(picture.width * scale)), max(1, int(picture.height * scale))
    grey = Image.frombytes("L", (picture.width, picture.height), picture.pixels)
    pixels = grey.resize(size, Image.Resampling.BICUBIC).convert("RGB").tobytes()
    used = size[0] * _CHANNELS
    rows = [bytearray(pixels[at : at + used]) for at in range(0, len(pixels), used)]
    return _DrawnPage(rows, *size, _find_recognised_boxes(picture, request, scale))


@lru_cache(maxsize=8)
def _read_page(picture: PagePicture) -> PageReadingResult:
    """Recognise a page once for all of its passages: it takes seconds, and a report cites a page several times."""
    return read_picture(picture)


def _find_recognised_boxes(picture: PagePicture, request: PassageImageRequest, scale: float) -> list[_Box]:
    """Return where the pieces of recognised text with the words are; none without the extra `ocr`, or for other text.

    `scale`: pixels of the drawn page for each pixel of the picture.
    """
    if not request.is_recognised or not is_installed():
        return []
    reading = _read_page(picture)
    signs, numbers = "", list[int]()
    for number in find_reading_order(reading.pieces):
        text = _fold_cells(reading.pieces[number][0])
        signs += text
        numbers += [number] * len(text)
    words = _fold_cells(request.words)
    found = _find_nearest(words, signs, len(_fold_cells(request.before)))
    touched = dict.fromkeys(numbers[found : found + len(words)]) if found is not None else dict[int, None]()
    boxes: list[_Box] = []
    for number in touched:
        corners = [_turn_back(corner, picture, reading.quarters) for corner in reading.pieces[number][1]]
        xs, ys = [int(x * scale) for x, _ in corners], [int(y * scale) for _, y in corners]
        boxes.append(_Box(max(0, min(xs)), max(0, min(ys)), max(0, *xs), max(0, *ys)))
    return boxes


def _turn_back(corner: Corner, picture: PagePicture, quarters: int) -> Corner:
    """Return where a place in the picture was before its counter-clockwise quarter turns."""
    x, y = corner
    turned = (x, y), (picture.width - y, x), (picture.width - x, picture.height - y), (y, picture.height - x)
    return turned[quarters % 4]


def _fold_cells(text: str) -> str:
    """Remove white space, and the separators of cells, which are in no recognised piece."""
    return _fold(text.replace(CELL_SEPARATOR.strip(), ""))


def _fill_gaps(boxes: Sequence[_Box]) -> list[_Box]:
    """Add the spaces between neighbouring words of a line."""
    filled = [*boxes]
    for one, other in pairwise(boxes):
        top, bottom = max(one.top, other.top), min(one.bottom, other.bottom)
        left, right = min(one.right, other.right), max(one.left, other.left)
        if 2 * (bottom - top) > min(one.bottom - one.top, other.bottom - other.top) and right - left < bottom - top:
            filled.append(_Box(left, top, right, bottom))
    return filled


def _list_rows(bitmap: _Bitmap) -> list[bytearray]:
    content, used = bytes(bitmap.buffer), bitmap.width * _CHANNELS
    return [bytearray(content[at : at + used]) for at in range(0, bitmap.stride * bitmap.height, bitmap.stride)]


def _mark(rows: Sequence[bytearray], boxes: Sequence[_Box]) -> None:
    """Colour the pixels in the boxes, each once even where boxes overlap."""
    for number, row in enumerate(rows):
        done = 0
        for left, right in sorted((box.left, box.right) for box in boxes if box.top <= number < box.bottom):
            blue = slice(max(left, done) * _CHANNELS + 2, right * _CHANNELS, _CHANNELS)
            row[blue] = row[blue].translate(_YELLOW)
            done = max(done, right)


def _raise_flat(rect: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    """Return a rectangle that can be seen: the library does not know the height of some fonts."""
    left, bottom, right, top = rect
    return (left, bottom, right, top if abs(top - bottom) >= _MIN_HEIGHT else bottom + _USUAL_HEIGHT)


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
    codes = [_PDFIUM.FPDFText_GetUnicode(page.raw, index) for index in range(page.count_chars())]
    signs = ["" if code in _NOTHING or code >= 0x110000 else chr(code) for code in codes]
    kept = [index for index in iter_reading_order(page.raw, signs) if _fold(signs[index])]
    return _PageText("".join(signs[index] for index in kept), kept)


def _fold(text: str) -> str:
    """Remove white space, and what the reader may show otherwise than the page has it."""
    return "".join(text.translate(_SHOWN_OTHERWISE).split())


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
