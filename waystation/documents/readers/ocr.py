"""Recognises text in pictures with RapidOCR's bundled models, which need no network. Runs in the child only.

The packages belong to the extra `ocr`, and are loaded for the first picture: most files have none.
"""

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from importlib.util import find_spec
from itertools import islice
from typing import NamedTuple, Protocol, cast

from waystation.documents.readers.extraction import RecognitionOptions, UnreadableFileError
from waystation.documents.readers.page_layout import Corner, build_page_text
from waystation.documents.readers.recognition import LOW_CONFIDENCE, PagePicture, PictureLoader, RecognisedPage

_DETECTION_PIXELS = 1_600
"""Maximum width or height in which lines are looked for; their letters are read in full size."""
_MAX_SIDE = 20_000
_PICTURES_A_THREAD = 4
"""Pictures that are loaded at once for each thread: more leave threads idle less often, and take more memory."""
_PACKAGES = ("cv2", "numpy", "onnxruntime", "rapidocr")


class _Result(Protocol):
    """The used part of the library's result; all are None if no text was found."""

    boxes: Sequence[Sequence[Corner]] | None
    txts: Sequence[str] | None
    scores: Sequence[float] | None


class _Engine(Protocol):
    def __call__(self, picture: object) -> _Result: ...


def is_installed() -> bool:
    """Whether the packages of the extra are installed."""
    return all(find_spec(package) is not None for package in _PACKAGES)


class OcrRecogniser:
    """Implements `PageRecogniser`. Models are loaded once in a process; threads share them, one picture each."""

    def __init__(self, options: RecognitionOptions) -> None:
        self._options = options
        self._until = time.monotonic() + options.seconds
        self._count = 0

    def require(self) -> None:
        """See `PageRecogniser`."""

    def recognise(self, pictures: Iterable[PictureLoader]) -> Sequence[RecognisedPage]:
        """See `PageRecogniser`.

        Pictures are loaded on this thread, since PDFium is not made for several, and a few at a time, which others
        recognise.
        """
        results: list[RecognisedPage] = []
        loaders = iter(pictures)
        with ThreadPoolExecutor(self._options.threads, thread_name_prefix="ocr") as threads:
            while batch := [self._load(load) for load in islice(loaders, _PICTURES_A_THREAD * self._options.threads)]:
                results += threads.map(_recognise, batch)
        return results

    def _load(self, load: PictureLoader) -> PagePicture | RecognisedPage:
        """Load a picture if the limits allow it; otherwise return the reason."""
        most, seconds = self._options.max_pictures, self._options.seconds
        if self._count >= most:
            return RecognisedPage(reason=f"the limit of {most:,} pictures with text recognition per file was reached")
        if time.monotonic() > self._until:
            return RecognisedPage(reason=f"text recognition took longer than {seconds:g} s for this file")
        self._count += 1
        try:
            return load()
        except UnreadableFileError as unreadable:
            return RecognisedPage(reason=str(unreadable))


def _recognise(picture: PagePicture | RecognisedPage) -> RecognisedPage:
    if isinstance(picture, RecognisedPage):
        return picture
    try:
        reading = read_picture(picture)
    except MemoryError:
        return RecognisedPage(reason="text recognition needs too much memory")
    text = build_page_text(reading.pieces)
    # Of writing that the models do not know, only the punctuation is recognised.
    return RecognisedPage(text, reading.confidence) if any(map(str.isalnum, text)) else RecognisedPage()


class PageReadingResult(NamedTuple):
    """Recognised pieces of text, and the confidence of each."""

    pieces: Sequence[tuple[str, Sequence[Corner]]]
    """Each with the corners of its box in the turned picture: top left, top right, bottom right, bottom left."""
    scores: Sequence[float]
    quarters: int = 0
    """Counter-clockwise quarter turns of the picture before it was read."""

    @property
    def confidence(self) -> float:
        """Mean confidence by characters, from 0 to 1."""
        characters = sum(len(text) for text, _ in self.pieces)
        return self._certain_characters / characters if characters else 0.0

    @property
    def is_sideways(self) -> bool:
        """Whether most characters are in pieces that are higher than wide."""
        high = sum(len(text) for text, corners in self.pieces if _is_high(corners))
        return 2 * high > sum(len(text) for text, _ in self.pieces)

    @property
    def _certain_characters(self) -> float:
        return sum(len(text) * score for (text, _), score in zip(self.pieces, self.scores, strict=True))

    def get_rank(self) -> tuple[bool, float]:
        """Return the larger value for the direction in which the page can be read."""
        return not self.is_sideways, self._certain_characters


def read_picture(picture: PagePicture) -> PageReadingResult:
    """Read a picture in the direction in which it has text. Raises MemoryError."""
    import numpy as np  # noqa: PLC0415

    grey = np.frombuffer(picture.pixels, dtype=np.uint8).reshape(picture.height, picture.width, 1)

    def read(quarters: int) -> PageReadingResult:
        found = _engine()(np.ascontiguousarray(np.repeat(np.rot90(grey, quarters), 3, axis=2)))
        if found.boxes is None or not found.txts or not found.scores:
            return PageReadingResult([], [])
        boxes = [[(float(x), float(y)) for x, y in box] for box in found.boxes]
        scores = [float(score) for score in found.scores]
        return PageReadingResult([*zip(found.txts, boxes, strict=True)], scores, quarters)

    best = read(0)
    if best.is_sideways or best.confidence < LOW_CONFIDENCE:
        # The page may have been scanned in another direction.
        best = max(best, *map(read, (1, 3) if best.is_sideways else (2,)), key=PageReadingResult.get_rank)
    return best


def _is_high(corners: Sequence[Corner]) -> bool:
    xs, ys = [x for x, _ in corners], [y for _, y in corners]
    return max(ys) - min(ys) > max(xs) - min(xs)


@lru_cache(maxsize=1)
def _engine() -> _Engine:
    """Load the models; each picture is recognised on the thread that asks."""
    import cv2  # noqa: PLC0415
    from rapidocr import RapidOCR  # noqa: PLC0415

    cv2.setNumThreads(1)
    return cast(
        "_Engine",
        RapidOCR(
            params={
                "Global.log_level": "critical",
                # It turns short words upside down; whole pages seldom are.
                "Global.use_cls": False,
                "Global.max_side_len": _MAX_SIDE,
                "Det.limit_type": "max",
                "Det.limit_side_len": _DETECTION_PIXELS,
                # Larger batches are padded to their longest line, and take more time and a third more memory.
                "Rec.rec_batch_num": 1,
                "EngineConfig.onnxruntime.intra_op_num_threads": 1,
                "EngineConfig.onnxruntime.inter_op_num_threads": 1,
            }
        ),
    )
