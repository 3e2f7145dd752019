"""What a server says that its answer is: how it can be read, or that it is no text."""

from waystation.domain.errors import WebRefused

_SUFFIXES = {
    "text/html": ".html",
    "application/xhtml+xml": ".xhtml",
    "application/json": ".json",
    "application/xml": ".xml",
    "application/pdf": ".pdf",
    "message/rfc822": ".eml",
}
_TEXT = ("+json", "+xml")
_WITHOUT_TEXT = frozenset({"audio", "font", "image", "model", "multipart", "video"})


def suffix_of(content_type: str, host: str) -> str:
    """The suffix of a file of this kind; empty where the bytes have to tell, as those of office files do.

    Raises:
        WebRefused: of a kind that has no text.
    """
    if content_type.partition("/")[0] in _WITHOUT_TEXT:
        raise WebRefused(f"{host} sent {content_type}, which has no text", "Use a page about it.")
    if known := _SUFFIXES.get(content_type):
        return known
    return ".txt" if content_type.startswith("text/") or content_type.endswith(_TEXT) else ""
