"""Citations `[document:first-last]`: found in Markdown, and checked by code against the documents."""

from bisect import bisect_left
from collections.abc import Mapping

from waystation.domain.redaction import PLACEHOLDER
from waystation.domain.value import Value
from waystation.patterns import proven

CITATION = proven(r"\[(?P<document>[^\[\]\n]+):(?P<first>\d+)-(?P<last>\d+)\]")
QUOTATION = proven(r'["“]([^"“”]{8,2000})["”]\s*$')
MOST_REPLACED = 400
"""Characters that one placeholder may stand for."""


class Citation(Value):
    """One citation, with the quotation that stands directly before it, if there is one."""

    document: str
    first_line: int
    last_line: int
    quotation: str | None = None

    def __str__(self) -> str:
        return f"[{self.document}:{self.first_line}-{self.last_line}]"


class FailedCitation(Value):
    """A citation that does not hold, and why."""

    citation: Citation
    reason: str


def citations_in(markdown: str) -> tuple[Citation, ...]:
    """Every citation, in order, each combination of place and quotation once."""
    found: list[Citation] = []
    for match in CITATION.finditer(markdown):
        before = markdown[max(0, match.start() - 2_100) : match.start()]
        quoted = QUOTATION.search(before.rsplit("\n", 1)[-1])
        citation = Citation(
            document=match["document"],
            first_line=int(match["first"]),
            last_line=int(match["last"]),
            quotation=quoted[1] if quoted else None,
        )
        found.append(citation)
    return tuple(dict.fromkeys(found))


def fault(citation: Citation, documents: Mapping[str, list[str]]) -> str | None:
    """Why the citation does not hold; None: it does.

    The document exists, has these lines, and a quotation stands in them word for word (white space aside; what
    redaction replaced is taken as it is).
    """
    lines = documents.get(citation.document)
    if lines is None:
        return "there is no such document"
    if not 1 <= citation.first_line <= citation.last_line <= len(lines):
        return f"the document has {len(lines)} lines"
    if citation.quotation is None:
        return None
    text = " ".join(" ".join(lines[citation.first_line - 1 : citation.last_line]).split())
    return None if _occurs(citation.quotation, text) else "the quoted words do not stand there"


def _occurs(quotation: str, text: str) -> bool:
    # Part by part, with all places where each can end: one regular expression with a gap for every placeholder would
    # try every combination of gaps.
    first, *rest = PLACEHOLDER.split(" ".join(quotation.split()))
    ends = [start + len(first) for start in _starts(first, text)]
    for part in rest:
        ends = [start + len(part) for start in _starts(part, text) if _within_reach(start, ends)]
    return bool(ends)


def _starts(part: str, text: str) -> list[int]:
    starts: list[int] = []
    at = text.find(part)
    while at >= 0:
        starts.append(at)
        at = text.find(part, at + 1)
    return starts


def _within_reach(start: int, ends: list[int]) -> bool:
    nearest = bisect_left(ends, start - MOST_REPLACED)
    return nearest < len(ends) and ends[nearest] < start
