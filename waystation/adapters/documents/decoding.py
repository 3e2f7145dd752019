"""Bytes to text: in the encoding that they are in, and pages as their readers see them."""

from charset_normalizer import from_bytes

from waystation.adapters.documents.extract import Unreadable
from waystation.adapters.documents.html import html_to_text


def decoded(content: bytes, encoding: str | None = None) -> str:
    """The text of bytes: in the encoding that they are said to be in, else UTF-8, else what they look like.

    Raises:
        Unreadable: no encoding fits.
    """
    for known in filter(None, (encoding, "utf-8-sig")):
        try:
            return content.decode(known)
        except (UnicodeDecodeError, LookupError):
            continue
    guess = from_bytes(content).best()
    if guess is None:
        raise Unreadable("in no text encoding that can be recognised; save it as UTF-8")
    return str(guess)


def page_text(content: bytes, encoding: str | None = None) -> str:
    """The text of an HTML page. Raises Unreadable."""
    return html_to_text(decoded(content, encoding))
