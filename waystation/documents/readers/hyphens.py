"""Decides which hyphens at the ends of lines belong to their words (`non-GAAP`), and which only divide a word."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from waystation.kernel.patterns import compile_bounded

LINE_END_HYPHEN = "\ufffe"
"""Stands for a hyphen at a line's end, of which a PDF does not say why it is there."""
_WORD = compile_bounded(r"[^\W\d_]{1,60}+(?:-[^\W\d_]{1,60}+){0,9}+")
_LEFT = compile_bounded(r"[^\W_]{1,60}\Z")
_RIGHT = compile_bounded(r"\A[^\W_]{1,60}+")


def resolve_hyphens(pages: Sequence[str]) -> list[str]:
    """Replace each `LINE_END_HYPHEN` by a hyphen, or by nothing if it divides a word.

    It divides a word if the document has the whole word elsewhere. If the document shows neither form, it depends on
    whether the document divides words at all: typeset articles do, and filings, contracts and office documents hardly
    ever do.

    Args:
        pages: The texts of the pages of one document.
    """
    if not any(LINE_END_HYPHEN in page for page in pages):
        return [*pages]
    known = {word.group().lower() for page in pages for text in _iter_whole(page) for word in _WORD.finditer(text)}
    known.update(part for word in [*known] for part in word.split("-"))
    verdicts = [_is_part_of_word(before, after, known) for page in pages for before, after in _iter_halves(page)]
    usual = verdicts.count(True) >= verdicts.count(False)
    kept = iter("-" if (usual if verdict is None else verdict) else "" for verdict in verdicts)
    return [_join(page.split(LINE_END_HYPHEN), kept) for page in pages]


def _iter_whole(page: str) -> Iterator[str]:
    """Yield the words that no such hyphen divides."""
    parts = page.split(LINE_END_HYPHEN)
    for number, part in enumerate(parts):
        words = part.split()
        first = 1 if number and not part[:1].isspace() else 0
        last = len(words) - 1 if number < len(parts) - 1 and not part[-1:].isspace() else len(words)
        yield " ".join(words[first:last])


def _join(parts: Sequence[str], kept: Iterator[str]) -> str:
    return "".join([parts[0], *(f"{next(kept)}{part}" for part in parts[1:])])


def _iter_halves(page: str) -> Iterator[tuple[str, str]]:
    parts = page.split(LINE_END_HYPHEN)
    # What is before and after each hyphen; a word is never longer than this.
    yield from ((before[-100:], after[:100]) for before, after in pairwise(parts))


def _is_part_of_word(before: str, after: str, known: set[str]) -> bool | None:
    """Return whether the hyphen between these belongs to the word; None if the document does not show it."""
    left, right = _LEFT.search(before), _RIGHT.match(after)
    if left is None or right is None:
        return True
    first, second = left.group(), right.group()
    # 2022-23, COVID-19, non-GAAP, twenty-six-week: such words are divided at the hyphens that they have.
    if not (first.isalpha() and second.isalpha()) or not second[0].islower() or before[: left.start()].endswith("-"):
        # A word in capitals can be divided, too: SHARE-HOLDERS.
        return not (first.isupper() and second.isupper() and f"{first}{second}".lower() in known)
    first, second = first.lower(), second.lower()
    if f"{first}{second}" in known:
        return False
    if f"{first}-{second}" in known or {first, second} <= known:
        return True
    return None
