"""DOCX to text: by way of HTML, which keeps headings, lists, tables and notes."""

import zlib
from io import BytesIO
from typing import Protocol, cast
from xml.parsers.expat import ExpatError
from zipfile import BadZipFile

import mammoth

from waystation.adapters.documents.extract import Extract, Part, Unreadable
from waystation.adapters.documents.html import html_to_text

_STYLES = "p[style-name='Title'] => h1:fresh\np[style-name='Subtitle'] => p:fresh"


class _Result(Protocol):
    """What is used of the library, which comes without types."""

    value: str


def word_extract(content: bytes) -> Extract:
    """The whole text without places: a Word file has no pages before it is printed. Raises Unreadable."""
    try:
        result = cast(
            "_Result",
            mammoth.convert_to_html(  # pyright: ignore[reportUnknownMemberType] untyped library
                BytesIO(content), convert_image=_no_picture, style_map=_STYLES
            ),
        )
    except (BadZipFile, zlib.error, ExpatError, KeyError, OSError) as error:
        raise Unreadable("damaged: no Word file that can be read") from error
    return Extract([Part("", html_to_text(result.value))])


def _no_picture(_: object) -> list[object]:
    return []
