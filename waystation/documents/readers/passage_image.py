"""The parent's side of showing a passage on its page of a PDF or a picture: which words on which page, and the image.

The page is drawn in a confined child, which returns plain pixels: no format that it writes is parsed here.
"""

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from pydantic import Field, ValidationError

from waystation.documents.documents import find_line_place, get_plain_place, is_recognised_place, parse_place_marker
from waystation.documents.readers.extraction import UnreadableFileError
from waystation.documents.readers.reader import open_file
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.value import Value
from waystation.security.confined_process import ChildProcessFailedError, ConfinedProcess

PASSAGE_IMAGE_MODULE = "waystation.documents.readers.passage_image_child"
MAX_PIXELS = 4_000_000
"""Maximum pixels of a drawn page: an A4 page at 150 dots per inch has 2.2 million."""
MAX_PASSAGE_CHARACTERS = 20_000
PAGE_TIMEOUT_S = 20.0
_RECOGNITION_TIMEOUT_S = 180.0
"""Additional seconds for a page whose text has to be recognised to be found on it: the machine may be busy."""
_MEMORY_BYTES = 3_000_000_000
"""Maximum address space of the child, which may load the models of text recognition."""
_PAGE = compile_bounded(r"\Apage (\d{1,6})\Z")
_CHANNELS = 3


class PassageImageRequest(Value):
    """Words of one page of an open PDF or picture."""

    page: int = Field(ge=1)
    words: str
    """Text of the passage, as far as it is on that page."""
    before: str
    """Text of the page above it, which tells equal passages apart."""
    is_recognised: bool = False
    """Whether the text was recognised, so that the page has none by which the words can be found."""


class PassageImageHeader(Value):
    """Describes the pixels that follow it; or says why there are none."""

    width: int = Field(default=0, ge=0)
    height: int = Field(default=0, ge=0)
    marked: bool = False
    """Whether the words were found on the page, and are marked; else the picture shows the whole page."""
    reason: str = ""


class PassageImage(NamedTuple):
    """A picture of a passage, as PNG."""

    png: bytes
    page: int
    marked: bool


def build_passage_request(lines: Sequence[str], first_line: int, last_line: int) -> PassageImageRequest | None:
    """Build the request for lines of a document, counted from 1; None if they are not on a page of a PDF or a picture.

    Of a passage on several pages, it is for the first of them.
    """
    begin = next((number for number in range(first_line, last_line + 1) if _has_text(lines, number)), first_line)
    where = find_line_place(lines, begin) or ""
    place = _PAGE.match(get_plain_place(where))
    if place is None or not 1 <= begin <= len(lines):
        return None
    start = next((number for number in range(begin, 0, -1) if parse_place_marker(lines[number - 1])), 0)
    ends = (
        number for number in range(begin, last_line + 1) if number > len(lines) or parse_place_marker(lines[number - 1])
    )
    end = next(ends, last_line + 1)
    return PassageImageRequest(
        page=int(place[1]),
        words="\n".join(lines[begin - 1 : end - 1])[:MAX_PASSAGE_CHARACTERS],
        before="\n".join(lines[start : begin - 1]),
        is_recognised=is_recognised_place(where),
    )


def _has_text(lines: Sequence[str], number: int) -> bool:
    return number <= len(lines) and bool(lines[number - 1].strip()) and not parse_place_marker(lines[number - 1])


def encode_png(width: int, height: int, pixels: bytes) -> bytes:
    """Encode pixels of three bytes each (red, green, blue), row by row, as PNG."""
    row = width * _CHANNELS
    rows = b"".join(b"\0" + pixels[place : place + row] for place in range(0, row * height, row))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    )


class PassageImageRenderer:
    """Draws passages one after another in one child, which is started for the first and again after each crash.

    A context manager: the child ends with it.
    """

    def __init__(self, seconds_a_page: float = PAGE_TIMEOUT_S) -> None:
        self._seconds = seconds_a_page
        self._child: ConfinedProcess | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._end()

    def render(self, path: Path, request: PassageImageRequest) -> PassageImage:
        """Draw the part of the page with the passage, which is marked; without it, the whole page.

        Raises:
            UnreadableFileError: the file is missing, neither a PDF nor a picture, or has no such page, or the page
                cannot be drawn in time.
        """
        seconds = self._seconds + (_RECOGNITION_TIMEOUT_S if request.is_recognised else 0)
        with open_file(path) as file:
            try:
                answer = self._running().send_request(request.model_dump_json().encode(), seconds, [file])
                head, _, pixels = answer.partition(b"\n")
                header = PassageImageHeader.model_validate_json(head)
            except (ChildProcessFailedError, ValidationError):
                self._end()
                if request.is_recognised:
                    # The page can be shown even if its text cannot be recognised again.
                    return self.render(path, request.replace(is_recognised=False))
                raise UnreadableFileError("its page cannot be drawn") from None
        if header.reason:
            raise UnreadableFileError(header.reason)
        size = header.width * header.height
        if not 0 < size <= MAX_PIXELS or len(pixels) != size * _CHANNELS:
            raise UnreadableFileError("its page cannot be drawn")
        return PassageImage(encode_png(header.width, header.height, pixels), request.page, header.marked)

    def _running(self) -> ConfinedProcess:
        if self._child is None or not self._child.is_alive:
            self._end()
            self._child = ConfinedProcess(PASSAGE_IMAGE_MODULE, _MEMORY_BYTES)
        return self._child

    def _end(self) -> None:
        if self._child is not None:
            child, self._child = self._child, None
            child.kill()
