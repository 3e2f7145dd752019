"""Converts PDF to text, page by page. Runs in the child only.

Pages of scanned text, and pages whose fonts do not say what their characters are, are rendered for text recognition.
"""

import ctypes
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto
from math import sqrt
from typing import NamedTuple, Protocol, cast

from pypdfium2 import PdfDocument, PdfiumError, raw

from waystation.documents.documents import SkippedItem
from waystation.documents.readers.extraction import (
    DocumentPart,
    ExtractionResult,
    UnreadableFileError,
    build_skipped_pages,
)
from waystation.documents.readers.glyph_order import has_right_to_left_letters, iter_reading_order
from waystation.documents.readers.hyphens import LINE_END_HYPHEN, resolve_hyphens
from waystation.documents.readers.pdf_notes import (
    PageAnnotationSummary,
    list_attachments,
    load_form,
    read_page_annotations,
)
from waystation.documents.readers.recognition import (
    MAX_PIXELS,
    NO_TEXT_RECOGNISED,
    PagePicture,
    PageRecogniser,
    PictureLoader,
    RecognisedPage,
    list_unrecognised_pages,
)
from waystation.kernel.patterns import compile_bounded

_MAX_PAGES = 5_000
UNKNOWN = "\ufffd"
"""Replaces a character whose font does not say what it is."""
_SOFT_HYPHEN = "\xad"
"""Where a word may be divided."""
_HYPHEN_CODE = 2
"""The library's code for a hyphen at a line's end; the lines are joined there."""
_NO_CODE = 0
"""Its code for a character that the font maps to nothing. In the text of the page, both are U+FFFE."""
_UNSEEN = compile_bounded(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_WITHIN_WORD = compile_bounded(r"(?<=[^\W\d_])[\x01-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f](?=[^\W\d_])")
"""A control character between two letters stands for a letter, or several, that its font has no name for."""
_PRIVATE = compile_bounded(r"[\ue000-\uf8ff]")
_BULLET = compile_bounded(r"(?m)^[\uf020-\uf0ff](?=\s)")
"""Of a symbol font."""
_PUNCTUATION = frozenset("‘’‚“”„–—…•·")
"""Such a code is hardly ever the number of a glyph."""
_RUN = compile_bounded(rf"{UNKNOWN}(?:[ \t]?{UNKNOWN})++")
_NO_SIGNS = frozenset({"Cc", "Cn", "Co", "Cs"})
_MIN_LATIN_LETTERS = 20
"""Minimum Latin letters of a font without a map for judging whether they are meant."""
_FREQUENT = dict(
    zip(
        "etaoinsrhlducmpfgbvwykzjxq",
        (12, 8, 8, 8, 7, 7, 7, 6, 4, 4, 4, 4, 3, 3, 2, 2, 2, 1, 1, 2, 2, 1, 1, 0, 0, 0),
        strict=True,
    )
)
"""Frequency of letters in European languages, per hundred."""
_MIN_MEAN_FREQUENCY, _SURELY_USUAL = 4.5, 4.9
"""Mean frequency: text in such a language has 6 on average, glyph numbers have 4."""
_MAX_WORD_CHARACTERS = 40
"""If spaces are numbered glyphs too, there are none between words."""
_MAX_LOOKED_UP_CHARACTERS = 500
"""Maximum characters of a page whose font is looked up, which is slow: those of one font are adjacent."""
_MIN_LETTER_SHARE = 0.6
"""Minimum share of letters and digits for codes to be taken for letters; glyph numbers have fewer."""
_NO_LETTERS = "the PDF's fonts do not say which letters they draw"
_SCANNED = "no text, perhaps a scan"
_MIN_UNKNOWN_SHARE = 0.2
"""Minimum share of unknown characters from which a page is recognised as a picture instead."""
_MIN_PICTURE_SHARE = 0.5
"""Minimum share of a page that one picture covers for the page to be taken for a scan, if it has little text."""
_MAX_STAMPED_CHARACTERS = 200
"""Maximum characters that programs add to a scanned page, such as its number."""
_DOTS_AN_INCH, _POINTS_AN_INCH = 300, 72
"""Resolution at which a page is rendered for text recognition."""


class _TextPage(Protocol):
    raw: object

    def get_text_range(self) -> str: ...
    def count_chars(self) -> int: ...


class _Bitmap(Protocol):
    buffer: ctypes.Array[ctypes.c_ubyte]
    width: int
    height: int
    stride: int

    def close(self) -> None: ...


class _PageObject(Protocol):
    def get_bounds(self) -> tuple[float, float, float, float]: ...


class _RenderedPage(Protocol):
    def get_size(self) -> tuple[float, float]: ...
    def render(self, *, scale: float, grayscale: bool) -> _Bitmap: ...
    def close(self) -> None: ...


class RenderedDocument(Protocol):
    """An open document whose pages can be rendered."""

    def __getitem__(self, index: int) -> _RenderedPage: ...


class _OpenPage(_RenderedPage, Protocol):
    def get_textpage(self) -> _TextPage: ...
    def get_objects(self, *, filter: Sequence[int] | None = None, max_depth: int) -> Iterator["_PageObject"]: ...


class _Document(Protocol):
    """The used part of the library, which has no types."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> _OpenPage: ...


class _Functions(Protocol):
    """The library's functions for one character of a page, by its number."""

    def FPDFText_HasUnicodeMapError(self, page: object, index: int) -> int: ...
    def FPDFText_GetUnicode(self, page: object, index: int) -> int: ...
    def FPDFText_GetTextObject(self, page: object, index: int) -> object: ...
    def FPDFTextObj_GetFont(self, found: object) -> object: ...


_PDFIUM = cast("_Functions", raw)


class _Page(NamedTuple):
    """What was read of a page."""

    text: str
    unknown: int
    """Characters that are shown as `UNKNOWN`, or not at all if there is no other text."""
    doubtful: int
    """Characters of a font without a map that are shown as if their codes were letters."""
    is_blank: bool
    is_scan: bool
    """Whether a picture covers most of it and there is little text."""
    notes: PageAnnotationSummary

    @property
    def has_usable_text(self) -> bool:
        """Whether it has text other than on a scan, and most of its characters are known."""
        signs = sum(map(len, self.text.split()))
        return bool(self.text) and not self.is_scan and self.unknown < _MIN_UNKNOWN_SHARE * signs


def extract_pdf(content: bytes, recogniser: PageRecogniser) -> ExtractionResult:
    """Extract one part for each page with text, which is recognised if the page has none that is usable.

    Raises:
        UnreadableFileError: the file is damaged, has a password, is too long, or has no text.
    """
    document = _opened(content)
    form = load_form(document)
    if len(document) > _MAX_PAGES:
        raise UnreadableFileError(f"has {len(document):,} pages; the maximum is {_MAX_PAGES:,}. Split the file")
    pages: dict[int, _Page] = {}
    lost = _Lost()
    for number in range(1, len(document) + 1):
        try:
            pages[number] = _page(document, number, form)
        except PdfiumError:
            lost.damaged.append(number)
    texts = resolve_hyphens([page.text for page in pages.values()])
    pages = {number: page._replace(text=text) for (number, page), text in zip(pages.items(), texts, strict=True)}
    recognised = _recognised(document, pages, recogniser)
    parts: list[DocumentPart] = []
    for number, page in pages.items():
        result = recognised.get(number, RecognisedPage())
        if page.is_scan and len(result.text) <= len(page.text):
            # The picture has no text besides what is printed on it.
            result = result._replace(text="")
        if said := "\n\n".join(filter(None, [result.text or page.text, page.notes.text])):
            place = f"page {number}"
            parts.append(DocumentPart(result.render_place(place) if result.text else place, said))
        lost.add(number, page, result)
    if not parts:
        raise UnreadableFileError(lost.reason())
    return ExtractionResult(parts, [*lost.list_skipped_items(), *list_attachments(document)])


def _recognised(
    document: _Document, pages: Mapping[int, _Page], recogniser: PageRecogniser
) -> Mapping[int, RecognisedPage]:
    """Return the result for each page that has content but no usable text, by number."""
    numbers = [number for number, page in pages.items() if not page.is_blank and not page.has_usable_text]
    results = recogniser.recognise(_picture_loader(document, number) for number in numbers)
    return dict(zip(numbers, results, strict=True))


def _picture_loader(document: _Document, number: int) -> PictureLoader:
    return lambda: render_page_picture(document, number)


def render_page_picture(document: RenderedDocument, number: int) -> PagePicture:
    """Render a page, counted from 1, for text recognition. Raises UnreadableFileError."""
    page = document[number - 1]
    try:
        width, height = page.get_size()
        scale = min(_DOTS_AN_INCH / _POINTS_AN_INCH, sqrt(MAX_PIXELS / max(width * height, 1)))
        bitmap = page.render(scale=scale, grayscale=True)
    except PdfiumError as error:
        raise UnreadableFileError("rendering failed") from error
    finally:
        page.close()
    content = bytes(bitmap.buffer)
    rows = (content[start : start + bitmap.width] for start in range(0, len(content), bitmap.stride))
    picture = PagePicture(b"".join(rows), bitmap.width, bitmap.height)
    bitmap.close()
    return picture


class _Lost:
    """The pages that were not read completely."""

    def __init__(self) -> None:
        self.silent: dict[int, RecognisedPage] = {}
        self.blank: list[int] = []
        self.unmapped: dict[int, RecognisedPage] = {}
        self._covered: dict[int, RecognisedPage] = {}
        self.damaged: list[int] = []
        self._unknown: dict[int, int] = {}
        """Characters by page."""
        self._doubtful: dict[int, int] = {}
        self._notes: dict[int, PageAnnotationSummary] = {}

    def add(self, number: int, page: _Page, recognised: RecognisedPage) -> None:
        """Record what was not read of a page."""
        self._notes[number] = page.notes
        if page.is_blank and not page.text:
            # A page with broken content looks blank too, so blank pages are reported as well.
            if not page.notes.text:
                self.blank.append(number)
            return
        if page.is_scan and page.text and not recognised.text and recognised.reason != NO_TEXT_RECOGNISED:
            self._covered[number] = recognised
        if recognised.text or not page.text:
            (self.unmapped if page.unknown else self.silent)[number] = recognised
            return
        if page.unknown:
            self._unknown[number] = page.unknown
        if page.doubtful:
            self._doubtful[number] = page.doubtful

    def reason(self) -> str:
        """Return why there is no text at all."""
        for pages, why in (
            (self.unmapped, f"no page can be read, because {_NO_LETTERS}"),
            (self.silent, "no page has text; the PDF may be a scan"),
        ):
            if pages:
                return f"{why} ({next(iter(pages.values())).reason})"
        return "damaged: no page can be read" if self.damaged else "empty"

    def list_skipped_items(self) -> list[SkippedItem]:
        """Return the pages, and characters of pages, that were not read."""
        unknown, doubtful = sum(self._unknown.values()), sum(self._doubtful.values())
        return [
            *list_unrecognised_pages(self.silent, _SCANNED),
            *list_unrecognised_pages(self._covered, "text in a picture"),
            *build_skipped_pages("page", self.blank, "empty"),
            *list_unrecognised_pages(self.unmapped, f"cannot be read, because {_NO_LETTERS}"),
            *build_skipped_pages(
                "page",
                [*self._unknown],
                f"{_signs(unknown)} shown as {UNKNOWN}, because {_NO_LETTERS} (often ligatures such as fi)",
            ),
            *build_skipped_pages(
                "page", [*self._doubtful], f"{_signs(doubtful)} that may be wrong, because {_NO_LETTERS}"
            ),
            *build_skipped_pages("page", self.damaged, "damaged"),
            *self._not_read(),
        ]

    def _not_read(self) -> Iterator[SkippedItem]:
        """Yield what is on pages and was not read."""
        notes = self._notes
        shown = "a comment strikes out words, but agents see them as normal text"
        kinds = (
            ("comments", [at for at in notes if notes[at].comments], "not read"),
            ("struck-out text", [at for at in notes if notes[at].struck], shown),
            ("stamps", [at for at in notes if notes[at].stamps], "not read"),
            ("attachments", [at for at in notes if notes[at].files], "not read"),
            ("hidden text", [at for at in notes if notes[at].hidden], "invisible to readers of the pages"),
        )
        for kind, pages, reason in kinds:
            for item in build_skipped_pages("page", pages, reason):
                yield SkippedItem(name=f"{kind} of {item.name}", reason=reason)


def _signs(count: int) -> str:
    return "one character" if count == 1 else f"{count:,} characters"


def _opened(content: bytes) -> _Document:
    try:
        return cast("_Document", PdfDocument(content))
    except PdfiumError as error:
        code: object = getattr(error, "err_code", None)
        if code in {raw.FPDF_ERR_PASSWORD, raw.FPDF_ERR_SECURITY}:
            raise UnreadableFileError("protected by a password; save the file without one") from error
        raise UnreadableFileError("damaged: not a readable PDF") from error


def _page(document: _Document, number: int, form: object) -> _Page:
    page = document[number - 1]
    notes = read_page_annotations(page, form)
    said = page.get_textpage()
    text, doubtful = said.get_text_range(), 0
    errors = map(_PDFIUM.FPDFText_HasUnicodeMapError, [said.raw] * (count := said.count_chars()), range(count))
    unmapped = [one == 1 for one in errors]
    if LINE_END_HYPHEN in text:
        codes = _codes(said.raw, count)
        unmapped = [is_unmapped or code == _NO_CODE for is_unmapped, code in zip(unmapped, codes, strict=True)]
    if any(unmapped) or has_right_to_left_letters(text):
        text, doubtful = _careful_text(said.raw, text, unmapped)
    text = _WITHIN_WORD.sub(UNKNOWN, text.replace(_SOFT_HYPHEN, ""))
    text = _UNSEEN.sub(" ", _PRIVATE.sub(UNKNOWN, _BULLET.sub("•", text)))
    unknown = text.count(UNKNOWN)
    if not text.replace(UNKNOWN, "").strip():
        text = ""
    is_blank = next(page.get_objects(max_depth=1), None) is None
    text = _RUN.sub(UNKNOWN, text).strip()
    is_scan = len(text) <= _MAX_STAMPED_CHARACTERS and _covers_page(page)
    page.close()
    return _Page(text, unknown, doubtful, is_blank, is_scan, notes)


def _covers_page(page: _OpenPage) -> bool:
    """Whether one picture covers most of the page."""
    width, height = page.get_size()
    try:
        bounds = [one.get_bounds() for one in page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE], max_depth=2)]
    except PdfiumError:
        return False
    areas = (abs((right - left) * (top - bottom)) for left, bottom, right, top in bounds)
    return any(area >= _MIN_PICTURE_SHARE * width * height for area in areas)


def _careful_text(page: object, text: str, unmapped: Sequence[bool]) -> tuple[str, int]:
    """Return the text character by character, with unknown ones as `UNKNOWN`, and how many are doubtful."""
    # The text has lost some without a map, and only the slower way shows which.
    codes = [*map(ord, text)] if len(text) == len(unmapped) else _codes(page, len(unmapped))
    signs = [_show(code) for code in codes]
    doubtful = _hide_unmapped(page, signs, codes, unmapped) if any(unmapped) else 0
    return "".join(signs[index] for index in iter_reading_order(page, signs)), doubtful


def _show(code: int) -> str:
    if code == _NO_CODE:
        return ""
    return LINE_END_HYPHEN if code == _HYPHEN_CODE else chr(code) if code < 0x110000 else UNKNOWN


def _codes(page: object, count: int) -> list[int]:
    return [_PDFIUM.FPDFText_GetUnicode(page, index) for index in range(count)]


def _hide_unmapped(page: object, signs: list[str], codes: Sequence[int], unmapped: Sequence[bool]) -> int:
    """Replace characters without a map by `UNKNOWN`, unless their font has no map at all and its codes are letters.

    The library then reports the code of each. Codes of fonts that number their glyphs can be anything.
    """
    without = {index: _font(page, index) for index, is_unmapped in enumerate(unmapped) if is_unmapped}
    said: dict[int, str] = {}
    for index, font in without.items():
        gap = "" if without.get(index - 1) == font else " "
        sign = chr(codes[index]) if codes[index] < 0x110000 else UNKNOWN
        said[font] = f"{said.get(font, '')}{gap}{sign}"
    trust = {font: trusted for font, its in said.items() if (trusted := _trust(its)) is not _Trust.NONE}
    if trust:
        mapped = [index for index, sign in enumerate(signs) if sign.strip() and not unmapped[index]]
        for index in mapped[:: 1 + len(mapped) // _MAX_LOOKED_UP_CHARACTERS]:
            trust.pop(_font(page, index), None)
    doubtful = 0
    for index, font in without.items():
        if font not in trust and signs[index] not in _PUNCTUATION:
            signs[index] = UNKNOWN
        else:
            doubtful += trust.get(font) is not _Trust.FULL
    return doubtful


def _font(page: object, index: int) -> int:
    """Return an id of the font within the page; 0 if it is unknown."""
    found = _PDFIUM.FPDFText_GetTextObject(page, index)
    font = cast("ctypes.c_void_p", _PDFIUM.FPDFTextObj_GetFont(found)) if found else ctypes.c_void_p()
    return ctypes.cast(font, ctypes.c_void_p).value or 0


class _Trust(Enum):
    """Whether the codes of a font without a map are letters, or numbers of its glyphs."""

    NONE = auto()
    DOUBT = auto()
    FULL = auto()


def _trust(said: str) -> _Trust:
    """Return how far codes can be trusted that give this text if taken for letters."""
    black = "".join(said.split())
    if UNKNOWN in said or any(unicodedata.category(sign) in _NO_SIGNS for sign in said):
        return _Trust.NONE
    if sum(map(str.isalnum, black)) < _MIN_LETTER_SHARE * len(black):
        return _Trust.NONE
    latin = [sign.lower() for sign in black if unicodedata.name(sign, "").startswith("LATIN")]
    if len(latin) < max(_MIN_LATIN_LETTERS, len(black) / 3):
        return _Trust.DOUBT
    usual = sum(_FREQUENT.get(sign, 0) for sign in latin) / len(latin)
    if usual < _MIN_MEAN_FREQUENCY or max(map(len, said.split())) > _MAX_WORD_CHARACTERS:
        return _Trust.NONE
    return _Trust.FULL if usual > _SURELY_USUAL else _Trust.DOUBT
