"""Checks the cited sentences of a text against the lines that they cite, and marks those that these do not support."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from waystation.documents.citations import (
    MAX_SEARCHED_CHARACTERS,
    UNDECIDED_SENTENCE_MARK,
    Citation,
    CitedDocument,
    LocatedClaim,
    iter_cited_claims,
    render_unsupported_sentence_mark,
)
from waystation.documents.figures import normalize_text
from waystation.documents.support_verdicts import SupportCheck, SupportVerdict, render_missing
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.value import Value

MAX_NAMED_PLACES = 3
"""Maximum number of cited places that the reason of a verdict names."""
_QUOTATION = compile_bounded(r"\"[^\"]{1,2000}+\"|“[^”]{1,2000}+”|«[^»]{1,2000}+»|„[^“”]{1,2000}+[“”]")


class CitedSentence(Value):
    """A sentence of a report that has citations, and whether the cited lines support it."""

    text: str
    """Without its citations."""
    citations: tuple[str, ...]
    """The cited places, as `[document:first-last]`."""
    verdict: SupportVerdict
    missing: str = ""
    """If it is not supported: what the cited lines lack."""


class SentenceCheck(NamedTuple):
    """The check of one sentence."""

    located: LocatedClaim
    result: SupportCheck | None
    """None if none of its citations passed its own check, so that nothing can be compared."""
    missing: str = ""
    """If it is not supported: what the cited lines lack. Empty if none of its citations passed."""

    @property
    def verdict(self) -> SupportVerdict:
        """Whether the cited lines support it. Lines that do not exist support nothing."""
        return SupportVerdict.NOT_SUPPORTED if self.result is None else self.result.verdict

    @property
    def is_probably_supported(self) -> bool:
        """Whether the cited lines are more likely to support it than not."""
        return self.result is not None and self.result.is_probably_supported

    @property
    def has_absent_details(self) -> bool:
        """Whether it states a figure, date or name that the cited lines do not contain."""
        return self.result is not None and self.result.has_absent_details

    def has_details_in(self, sentence: str) -> bool:
        """Whether a redacted form of the sentence still has the words that `missing` quotes from it."""
        details = self.result.missing if self.result is not None else ()
        shown, written = normalize_text(sentence).casefold(), sentence.casefold()
        return all((text := one.text.casefold()) in shown or text in written for one in details)


def check_cited_sentences(
    markdown: str,
    faults: Mapping[Citation, str | None],
    documents: Mapping[str, CitedDocument],
    *,
    question: str = "",
) -> tuple[SentenceCheck, ...]:
    """Check every sentence with citations, in order.

    Args:
        markdown: The text.
        faults: Why citations fail their own check; None for those that pass.
        documents: The cited documents, by their names as cited.
        question: The question that the text answers.
    """
    # It loads numpy, which workflows and most commands do without.
    from waystation.documents.claim_support import check_support  # noqa: PLC0415

    checks: list[SentenceCheck] = []
    for located in iter_cited_claims(markdown):
        passed = [one for one in located.claim.citations if not faults.get(one) and _has_lines(one, documents)]
        if not passed:
            checks.append(SentenceCheck(located, None))
            continue
        passages = [_build_passage(one, documents[one.document]) for one in passed]
        if _is_quotation(located.claim.text, passed, documents):
            result = SupportCheck(verdict=SupportVerdict.SUPPORTED, score=1.0)
        else:
            result = check_support(located.claim.text, passages, question=question)
        missing = _describe_missing(result, passed, documents)
        checks.append(SentenceCheck(located, result, missing))
    return tuple(checks)


def _has_lines(citation: Citation, documents: Mapping[str, CitedDocument]) -> bool:
    document = documents.get(citation.document)
    return document is not None and 1 <= citation.first_line <= citation.last_line <= len(document)


def _is_quotation(sentence: str, cited: Sequence[Citation], documents: Mapping[str, CitedDocument]) -> bool:
    """Whether the sentence consists of words that stand in the cited lines, with nothing but the document's name."""
    quotations = [*_QUOTATION.finditer(sentence)]
    words = _QUOTATION.sub(" ", sentence)
    for one in cited:
        name = one.document.rpartition("/")[2]
        for label in (one.document, name, name.rpartition(".")[0]):
            words = words.replace(label, " ") if label else words
    return (
        bool(quotations)
        and not any(sign.isalnum() for sign in words)
        and all(
            any(
                documents[one.document].find_quotation_fault(quoted[0][1:-1], one.first_line, one.last_line) is None
                for one in cited
            )
            for quoted in quotations
        )
    )


def _build_passage(citation: Citation, document: CitedDocument) -> str:
    """Return the cited lines below what labels them: the document's name, the heading, the first row of the table.

    A sentence may say which document, section or column it is about without citing the lines that name it. There are
    as many of the lines as a quotation is looked for in.
    """
    lines = document.list_lines(citation.first_line, citation.last_line)
    text = "\n".join(lines)[:MAX_SEARCHED_CHARACTERS]
    above = document.list_lines_above(citation.first_line)
    if citation.document.lower().endswith(".csv"):
        # Otherwise the cells `3,4` would be one figure. The row itself stays for sentences that quote it.
        text, above = f"{text}\n{_separate_cells(text)}", list(map(_separate_cells, above))
    return "\n".join([citation.document, *above, text])


def _separate_cells(text: str) -> str:
    """Separate the cells of rows by bars, except for separators within quotation marks."""
    return '"'.join(
        part if place % 2 else part.replace(",", " | ").replace(";", " | ")
        for place, part in enumerate(text.split('"'))
    )


def _describe_missing(result: SupportCheck, cited: Sequence[Citation], documents: Mapping[str, CitedDocument]) -> str:
    if result.verdict is not SupportVerdict.NOT_SUPPORTED:
        return ""
    places = _describe_places(cited)
    lines = (documents[one.document].list_lines(one.first_line, one.last_line) for one in cited)
    if any(sum(map(len, some)) + len(some) > MAX_SEARCHED_CHARACTERS for some in lines):
        places = f"the first {MAX_SEARCHED_CHARACTERS:,} characters of {places}"
    return render_missing(result, places) or f"too few of the sentence's words are in {places}"


def _describe_places(cited: Sequence[Citation]) -> str:
    """Describe the cited places, as `lines 40-44 of a.md`."""
    places = dict.fromkeys((one.document, one.first_line, one.last_line) for one in cited)
    named = [
        f"line {first} of {document}" if first == last else f"lines {first}-{last} of {document}"
        for document, first, last in places
    ]
    more = len(named) - MAX_NAMED_PLACES
    return " and ".join([", ".join(named[:MAX_NAMED_PLACES]), *([f"{more} more"] if more > 0 else [])])


class MarkedText(NamedTuple):
    """A text with the marks of its sentences."""

    markdown: str
    remarks: tuple[str, ...]
    """What the lines of the sentences lack that are marked as not supported, in the order of their numbers from 1."""


def mark_sentences(markdown: str, checks: Sequence[SentenceCheck]) -> MarkedText:
    """Mark the sentences that are not supported or undecided, and remove other marks behind their citations.

    A sentence whose citations all fail has the marks of those.
    """
    pieces, end, remarks = list[str](), 0, list[str]()
    for check in checks:
        mark = ""
        if check.verdict is SupportVerdict.CANNOT_TELL:
            mark = UNDECIDED_SENTENCE_MARK
        elif check.missing:
            remarks.append(check.missing)
            mark = render_unsupported_sentence_mark(len(remarks))
        pieces += markdown[end : check.located.mark_start], mark
        end = check.located.mark_end
    return MarkedText("".join([*pieces, markdown[end:]]), tuple(remarks))
