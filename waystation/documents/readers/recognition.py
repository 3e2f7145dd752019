"""Port for the recognition of text in pictures (OCR), and what readers say of recognised and other pages."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import floor
from typing import NamedTuple, Protocol

from waystation.documents.documents import RECOGNISED_FROM_PICTURE, SkippedItem
from waystation.documents.readers.extraction import UnreadableFileError, build_skipped_pages

RECOGNITION_HINT = "text recognition needs Waystation's extra `ocr`"
"""Reason why nothing was recognised if the extra is not installed."""
NO_TEXT_RECOGNISED = "no text was recognised"
MAX_PIXELS = 16_000_000
"""Maximum pixels of a picture for recognition; larger ones are reduced. An A4 page of 300 dpi has 8.7 million."""
LOW_CONFIDENCE = 0.8
"""Pages with a lower confidence are reported: many of their characters may be wrong."""


class PagePicture(NamedTuple):
    """Pixels of a picture, row by row, from black (0) to white (255)."""

    pixels: bytes
    width: int
    height: int


class RecognisedPage(NamedTuple):
    """Text of a picture in reading order; if there is none, the reason."""

    text: str = ""
    confidence: float = 0.0
    """Mean confidence of the recognition by characters, from 0 to 1."""
    reason: str = NO_TEXT_RECOGNISED

    def render_place(self, place: str) -> str:
        """Render the place of the page, which says that its text was recognised."""
        # Rounded down: no recognition is certain.
        return f"{place} ({RECOGNISED_FROM_PICTURE}, confidence {min(floor(100 * self.confidence), 99) / 100:.2f})"


PictureLoader = Callable[[], PagePicture]
"""Loads a picture when its turn comes, so that few are in memory at once. Raises UnreadableFileError."""


class PageRecogniser(Protocol):
    """Recognises text in pictures."""

    def require(self) -> None:
        """Check that text can be recognised, before a file is opened only for that.

        Raises:
            UnreadableFileError: it cannot.
        """
        ...

    def recognise(self, pictures: Iterable[PictureLoader]) -> Sequence[RecognisedPage]:
        """Return a result for each picture, in order."""
        ...


class SkippingRecogniser:
    """Implements `PageRecogniser`: recognises nothing, and notes whether there was something to recognise."""

    def __init__(self, reason: str = "") -> None:
        """`reason`: why nothing is recognised; empty if the extra is not installed."""
        self._reason = reason or RECOGNITION_HINT
        self.has_skipped = False
        """Whether a picture was skipped."""

    def require(self) -> None:
        """See `PageRecogniser`. Raises UnreadableFileError."""
        self.has_skipped = True
        raise UnreadableFileError(f"a picture ({self._reason})")

    def recognise(self, pictures: Iterable[PictureLoader]) -> Sequence[RecognisedPage]:
        """See `PageRecogniser`."""
        results = [RecognisedPage(reason=self._reason) for _ in pictures]
        self.has_skipped |= bool(results)
        return results


def list_unrecognised_pages(results: Mapping[int, RecognisedPage], why: str = "a picture") -> Iterator[SkippedItem]:
    """Yield pages whose text was not recognised, or with a low confidence.

    Args:
        results: results by the numbers of the pages.
        why: why their text had to be recognised.
    """
    reasons = dict.fromkeys(one.reason for one in results.values() if not one.text)
    for reason in reasons:
        pages = [number for number, one in results.items() if not one.text and one.reason == reason]
        yield from build_skipped_pages("page", pages, f"{why} ({reason})")
    doubtful = [number for number, one in results.items() if one.text and one.confidence < LOW_CONFIDENCE]
    yield from build_skipped_pages("page", doubtful, "barely legible; many recognised characters may be wrong")
