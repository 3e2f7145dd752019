"""PDF to text, page by page. Pictures of text are not read, but named."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, cast

from pypdfium2 import PdfDocument, PdfiumError
from pypdfium2.raw import FPDF_ERR_PASSWORD, FPDF_ERR_SECURITY

from waystation.adapters.documents.extract import Extract, Part, Unreadable
from waystation.domain.documents import LeftOut

MOST_PAGES = 5_000
NAMED_RANGES = 20
"""Of pages without text."""
_HYPHENS = {0xFFFE: None, 0xAD: None}
"""Where a word was parted at a line's end (the library has joined it), and where it may be."""


class _TextPage(Protocol):
    def get_text_range(self) -> str: ...


class _Page(Protocol):
    def get_textpage(self) -> _TextPage: ...
    def get_objects(self, *, max_depth: int) -> Iterator[object]: ...
    def close(self) -> None: ...


class _Document(Protocol):
    """What is used of the library, which comes without types."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> _Page: ...


def pdf_extract(content: bytes) -> Extract:
    """One part for each page with text. Raises Unreadable: damaged, with a password, too long, without any text."""
    document = _opened(content)
    if len(document) > MOST_PAGES:
        raise Unreadable(f"has {len(document):,} pages, and {MOST_PAGES:,} is the most; split it")
    parts: list[Part] = []
    silent: list[int] = []
    blank: list[int] = []
    damaged: list[int] = []
    for number in range(1, len(document) + 1):
        try:
            text, is_blank = _page(document, number)
        except PdfiumError:
            damaged.append(number)
            continue
        if text:
            parts.append(Part(f"page {number}", text))
        else:
            # A page whose content is broken looks blank, too: so those are named as well.
            (blank if is_blank else silent).append(number)
    if silent and not parts:
        raise Unreadable("no page has text: scanned? Run text recognition (OCR) on it first")
    if damaged and not parts:
        raise Unreadable("damaged: no page can be read")
    if not parts:
        raise Unreadable("empty")
    left_out = (*_left_out(silent, "no text: scanned?"), *_left_out(blank, "empty"), *_left_out(damaged, "damaged"))
    return Extract(parts, left_out)


def _opened(content: bytes) -> _Document:
    try:
        return cast("_Document", PdfDocument(content))
    except PdfiumError as error:
        code: object = getattr(error, "err_code", None)
        if code in {FPDF_ERR_PASSWORD, FPDF_ERR_SECURITY}:
            raise Unreadable("protected by a password; save it without one") from error
        raise Unreadable("damaged: no PDF that can be read") from error


def _page(document: _Document, number: int) -> tuple[str, bool]:
    """The text, and whether the page is simply empty."""
    page = document[number - 1]
    text = page.get_textpage().get_text_range().translate(_HYPHENS).strip()
    is_blank = next(page.get_objects(max_depth=1), None) is None
    page.close()
    return text, is_blank


def _left_out(pages: Sequence[int], reason: str) -> Iterator[LeftOut]:
    if pages:
        ranges = [f"{first}" if first == last else f"{first}–{last}" for first, last in _ranges(pages)]
        more = [f"and {len(ranges) - NAMED_RANGES} more ranges"] if len(ranges) > NAMED_RANGES else []
        numbers = ", ".join([*ranges[:NAMED_RANGES], *more])
        yield LeftOut(name=f"page {numbers}" if len(pages) == 1 else f"pages {numbers}", reason=reason)


def _ranges(pages: Iterable[int]) -> list[tuple[int, int]]:
    """Runs of neighbouring numbers: first and last of each."""
    runs: list[tuple[int, int]] = []
    for page in pages:
        if runs and runs[-1][1] == page - 1:
            runs[-1] = (runs[-1][0], page)
        else:
            runs.append((page, page))
    return runs
