"""Cuts a long text into stretches that a recogniser takes a bounded time for."""

from collections.abc import Iterator

from waystation.patterns import proven

CHUNK_CHARACTERS = 2_000
_OVERLAP = 200
_SENTENCE_END = proven(r"(?<=[.!?])\s")
_SPACE = proven(r"\s")


def chunk_spans(text: str) -> Iterator[tuple[int, int]]:
    """(start, end) of each chunk, covering the text in order.

    A chunk ends at the last line end that it can hold. Without one it ends at a sentence, a space or anywhere, and the
    next begins up to 200 characters earlier, so that what the cut parts is whole in one of them.
    """
    start = 0
    while start < len(text):
        limit = start + CHUNK_CHARACTERS
        if limit >= len(text):
            yield start, len(text)
            return
        end = text.rfind("\n", start + 1, limit) + 1
        if end:
            yield start, end
            start = end
            continue
        end = _soft_end(text, start, limit)
        yield start, end
        start = _soft_start(text, end)


def _soft_end(text: str, start: int, limit: int) -> int:
    half = start + CHUNK_CHARACTERS // 2
    for boundary in (_SENTENCE_END, _SPACE):
        ends = [match.end() for match in boundary.finditer(text, half, limit)]
        if ends:
            return ends[-1]
    return limit


def _soft_start(text: str, end: int) -> int:
    space = _SPACE.search(text, end - _OVERLAP, end)
    return space.end() if space and space.end() < end else end - _OVERLAP
