"""Reads pictures as documents: PNG, JPEG, and TIFF with one or several pages. Runs in the child only."""

from collections.abc import Iterator
from io import BytesIO
from math import sqrt
from typing import TYPE_CHECKING

from waystation.documents.readers.extraction import (
    DocumentPart,
    ExtractionResult,
    UnreadableFileError,
)
from waystation.documents.readers.recognition import (
    MAX_PIXELS,
    PagePicture,
    PageRecogniser,
    PictureLoader,
    list_unrecognised_pages,
)

if TYPE_CHECKING:
    from PIL.Image import Image

_MAX_DECODED_PIXELS = 100_000_000
"""Maximum pixels of a picture that is decoded at all."""
_FORMATS = ("PNG", "JPEG", "TIFF")
_DAMAGED = "damaged: not a readable picture"
_BREAKS = (OSError, ValueError, SyntaxError, EOFError, ArithmeticError, LookupError, TypeError)
"""What the library raises for damaged files."""


def extract_picture(content: bytes, recogniser: PageRecogniser) -> ExtractionResult:
    """Extract the recognised text of a picture, one part for each page.

    Raises:
        UnreadableFileError: no text was recognised.
    """
    recogniser.require()
    results = dict(enumerate(recogniser.recognise(list_page_loaders(content)), 1))
    parts = [
        DocumentPart(result.render_place(f"page {number}"), result.text)
        for number, result in results.items()
        if result.text
    ]
    if not parts:
        raise UnreadableFileError(f"a picture ({results[1].reason})")
    return ExtractionResult(parts, [*list_unrecognised_pages(results)])


def list_page_loaders(content: bytes) -> Iterator[PictureLoader]:
    """Yield a loader for each page. Raises UnreadableFileError."""
    # Part of the extra: other files are read without it.
    from PIL import Image  # noqa: PLC0415

    # Sizes are checked here before anything is decoded.
    Image.MAX_IMAGE_PIXELS = None
    try:
        picture = Image.open(BytesIO(content), formats=_FORMATS)
        count = getattr(picture, "n_frames", 1) if picture.format == "TIFF" else 1
    except _BREAKS as error:
        raise UnreadableFileError(_DAMAGED) from error
    for page in range(count):
        yield lambda page=page: _load(picture, page)


def _load(picture: "Image", page: int) -> PagePicture:
    """Decode a page. Raises UnreadableFileError."""
    try:
        picture.seek(page)
        width, height = picture.size
        if width * height > _MAX_DECODED_PIXELS:
            most = _MAX_DECODED_PIXELS // 1_000_000
            raise UnreadableFileError(f"{width * height / 1e6:,.0f} million pixels; the maximum is {most} million")
        grey = _to_grey(picture)
    except _BREAKS as error:
        raise UnreadableFileError(_DAMAGED) from error
    return PagePicture(grey.tobytes(), *grey.size)


def _to_grey(picture: "Image") -> "Image":
    """Return the picture as it is shown: turned as its camera noted, on white, and not too large."""
    from PIL import Image, ImageOps  # noqa: PLC0415

    upright = ImageOps.exif_transpose(picture)
    if upright.mode.startswith("I"):
        # Two bytes for each pixel, of which a conversion would take the lower one.
        upright = upright.point(lambda value: value / 256).convert("L")
    if upright.has_transparency_data:
        colours = upright.convert("RGBA")
        upright = Image.alpha_composite(Image.new("RGBA", colours.size, "white"), colours)
    grey = upright.convert("L")
    width, height = grey.size
    if width * height > MAX_PIXELS:
        scale = sqrt(MAX_PIXELS / (width * height))
        grey = grey.resize(
            (max(1, int(width * scale)), max(1, int(height * scale))), Image.Resampling.BICUBIC, reducing_gap=2
        )
    return grey
