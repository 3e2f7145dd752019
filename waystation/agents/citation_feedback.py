"""Checks the citations of what an agent submits, and tells the agent at once which of them do not hold and why."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NamedTuple

from waystation.agents.citation_checker import CitationChecker, CitationCheckResult
from waystation.agents.deliverables import Analysis, Deliverable, Finding, Quotation, ReportDraft, ResearchFindings
from waystation.context.history import get_effective_transcript
from waystation.context.transcript import Message, ToolResult, Transcript
from waystation.documents.citation_spelling import (
    CitableDocuments,
    find_place_lines,
    normalise_citation_string,
    normalise_citations,
)
from waystation.documents.citations import NO_LINE, NO_SUCH_DOCUMENT, Citation, FailedCitation
from waystation.documents.cited_sentences import SentenceCheck
from waystation.documents.redacted_documents import DocumentNames
from waystation.documents.web_pages import StoredWebPage
from waystation.kernel.refs import TaskRef
from waystation.kernel.text import format_count
from waystation.privacy.policy import truncate_redacted

MAX_LISTED_FAULTS = 20
"""Maximum number of citations and sentences that a result lists."""
MAX_USED_SHARE = 0.8
"""Used share of the run's limit from which a submission with faults is accepted at once."""
TURNS_TO_MEND = 3
"""Number of turns of average cost that have to be left for mending."""
MAX_REJECTED_SUBMISSIONS = 3
"""Maximum number of failed calls of the tool, for whatever reason, after which faults do not lead to another."""
NOT_FINAL = (
    "This submission is kept, but not final yet: correct the faults and submit again. The next submission is accepted "
    "as is."
)
"""In the result of a submission that was rejected for its citations. Such a result is recognised by it."""
_HOW_TO_SUPPORT = "Correct them, cite other lines, or write the numbers from which a value is calculated:"
_MAX_SENTENCE_CHARACTERS = 160
"""Maximum characters of a sentence that a result repeats."""
_UNRESOLVED = "write the lines of one document as [document:first-last]"
_MAX_NAMES_SUGGESTED_FOR = 5


class CitationReview(NamedTuple):
    """A deliverable whose citations have one spelling, and what is wrong with some of them."""

    deliverable: Deliverable
    checked: int
    """Number of citations that were checked."""
    faults: tuple[str, ...] = ()
    """One line for each citation that does not hold."""
    sentences: int = 0
    """Number of sentences with citations that were compared with their lines."""
    unsupported: tuple[str, ...] = ()
    """One line for each sentence that its lines do not support."""

    @property
    def has_faults(self) -> bool:
        """Whether there is anything to mend."""
        return bool(self.faults or self.unsupported)

    @property
    def text(self) -> str:
        """The result of the check in words; empty if nothing was cited."""
        citations = format_count(self.checked, "citation")
        lines = [f"{citations} checked: all hold."] if self.checked and not self.faults else []
        room = MAX_LISTED_FAULTS
        for head, faults in (
            (f"Citations that do not hold ({len(self.faults)} of {self.checked:,}):", self.faults),
            (
                f"Sentences that say more than the cited lines ({len(self.unsupported)} of {self.sentences:,}). "
                f"{_HOW_TO_SUPPORT}",
                self.unsupported,
            ),
        ):
            if faults:
                lines += [head, *(f"- {fault}" for fault in faults[:room])]
                lines += [f"- and {len(faults) - room} more"] if len(faults) > room else []
                room = max(0, room - len(faults))
        return "\n".join(lines)


def render_quotation(quote: str, citation: str) -> str:
    """Render a quotation directly before its citation, as the check of citations reads it."""
    return f"“{' '.join(quote.split())}” {citation}"


def render_cited_texts(deliverable: Deliverable) -> Iterator[str]:
    """Yield every part of a deliverable that has citations, as Markdown."""
    match deliverable:
        case ResearchFindings():
            yield from map(_render_finding, deliverable.findings)
            yield from deliverable.open_questions
        case Analysis():
            yield from map(_render_finding, deliverable.conclusions)
            yield from deliverable.contradictions
            yield from deliverable.gaps
        case ReportDraft():
            yield deliverable.summary
            yield from (section.markdown for section in deliverable.sections)


def render_cited_sentences(deliverable: Deliverable) -> Iterator[str]:
    """Yield what a deliverable states, as Markdown: each claim is followed by all citations that it rests on."""
    match deliverable:
        case ResearchFindings(findings=findings) | Analysis(conclusions=findings):
            for finding in findings:
                yield " ".join([finding.claim, *finding.all_citations])
                yield finding.detail
            if isinstance(deliverable, Analysis):
                yield from deliverable.contradictions
        case ReportDraft():
            yield from render_cited_texts(deliverable)


def _render_finding(finding: Finding) -> str:
    quoted = [render_quotation(one.quote, one.citation) for one in finding.quotations]
    return "\n\n".join(filter(None, [" ".join([finding.claim, *finding.citations]), finding.detail, *quoted]))


class _Spelling:
    """Rewrites the citations of a deliverable."""

    def __init__(self, citable: CitableDocuments) -> None:
        self._citable = citable
        self.unresolved: dict[str, None] = {}
        self.unread: set[str] = set()

    def normalise(self, deliverable: Deliverable) -> Deliverable:
        """Return the deliverable with its citations rewritten."""
        match deliverable:
            case ResearchFindings():
                return deliverable.replace(
                    findings=tuple(map(self._finding, deliverable.findings)),
                    open_questions=tuple(map(self._text, deliverable.open_questions)),
                )
            case Analysis():
                return deliverable.replace(
                    conclusions=tuple(map(self._finding, deliverable.conclusions)),
                    contradictions=tuple(map(self._text, deliverable.contradictions)),
                    gaps=tuple(map(self._text, deliverable.gaps)),
                )
            case ReportDraft():
                sections = (one.replace(markdown=self._text(one.markdown)) for one in deliverable.sections)
                return deliverable.replace(summary=self._text(deliverable.summary), sections=tuple(sections))

    def _finding(self, finding: Finding) -> Finding:
        cited = [one for written in finding.citations for one in self._citation(written)]
        quotations: list[Quotation] = []
        for quoted in finding.quotations:
            first, *more = self._citation(quoted.citation) or (quoted.citation,)
            quotations.append(quoted.replace(citation=first))
            cited += more
        return finding.replace(
            claim=self._text(finding.claim),
            detail=self._text(finding.detail),
            quotations=tuple(quotations),
            citations=tuple(dict.fromkeys(cited)),
        )

    def _text(self, markdown: str) -> str:
        found = normalise_citations(markdown, self._citable)
        self.unresolved |= dict.fromkeys(found.unresolved)
        self.unread |= found.unread
        return found.text

    def _citation(self, written: str) -> tuple[str, ...]:
        found = normalise_citation_string(written, self._citable)
        if not found.is_resolved:
            self.unresolved[written] = None
        self.unread |= found.unread
        return found.citations


@dataclass(frozen=True)
class SubmissionChecker:
    """Rewrites and checks the citations of deliverables."""

    citation_checker: CitationChecker

    async def normalise(
        self, deliverable: Deliverable, ref: TaskRef, names: DocumentNames | None = None
    ) -> Deliverable:
        """Return the deliverable with its citations spelled `[document:first-last]`, as it is stored.

        Args:
            deliverable: What an agent submitted.
            ref: Its task.
            names: Names of the task's documents, if they are known.

        Raises:
            RedactionFailed: a text could not be redacted.
            StoreError: the store could not be read.
        """
        names = names if names is not None else await self.citation_checker.load_names(ref)
        citable = await self._load_citable(deliverable, ref, names, await self._list_web_pages(deliverable, ref))
        return (await asyncio.to_thread(_normalise, deliverable, citable)).deliverable

    async def review(
        self,
        deliverable: Deliverable,
        part: Deliverable,
        ref: TaskRef,
        names: DocumentNames | None = None,
        question: str = "",
    ) -> CitationReview:
        """Rewrite the citations of a deliverable, and check those of a part of it and its cited sentences.

        Args and errors are those of `normalise`. A sentence may have names of the `question` that its lines lack.
        """
        names = names if names is not None else await self.citation_checker.load_names(ref)
        pages = await self._list_web_pages(deliverable, ref)
        citable = await self._load_citable(deliverable, ref, names, pages)
        stored = await asyncio.to_thread(_normalise, deliverable, citable)
        checked = stored if part is deliverable else await asyncio.to_thread(_normalise, part, citable)
        text = "\n\n".join(render_cited_texts(checked.deliverable))
        result = await self.citation_checker.check(ref, text, names, pages)
        faults = await asyncio.to_thread(_describe_faults, result, checked.unresolved)
        sentences = await asyncio.to_thread(_check_sentences, result, checked.deliverable, question)
        return CitationReview(
            deliverable=stored.deliverable,
            checked=len(result.faults) + len(checked.unresolved),
            faults=faults,
            sentences=len(sentences),
            unsupported=tuple(f"{_quote(one.located.claim.text)}: {one.missing}" for one in sentences if one.missing),
        )

    async def _list_web_pages(self, deliverable: Deliverable, ref: TaskRef) -> dict[str, StoredWebPage]:
        """Return the fetched web pages if the deliverable may cite one; transcripts are not read otherwise."""
        if any("://" in text for text in render_cited_texts(deliverable)):
            return await self.citation_checker.list_web_pages(ref.scope)
        return {}

    async def _load_citable(
        self, deliverable: Deliverable, ref: TaskRef, names: DocumentNames, pages: Iterable[str]
    ) -> CitableDocuments:
        """Load what the deliverable may cite, with the places of documents of which it cites pages."""
        check = self.citation_checker
        shown = {one.name: one for one in reversed(names.shown_documents)}
        lines = {**dict.fromkeys(pages, NO_LINE), **{name: one.lines for name, one in shown.items()}}
        citable = CitableDocuments(lines)
        unread = (await asyncio.to_thread(_normalise, deliverable, citable)).unread & shown.keys()
        places = {
            name: find_place_lines(await check.redacted_documents.get_comparison_lines(shown[name].blob, ref.scope))
            for name in sorted(unread)
            if not shown[name].removed
        }
        return CitableDocuments(lines, places) if places else citable


class _NormalisedDeliverable(NamedTuple):
    deliverable: Deliverable
    unresolved: tuple[str, ...]
    unread: frozenset[str]


def _normalise(deliverable: Deliverable, citable: CitableDocuments) -> _NormalisedDeliverable:
    spelling = _Spelling(citable)
    spelled = spelling.normalise(deliverable)
    return _NormalisedDeliverable(spelled, tuple(spelling.unresolved), frozenset(spelling.unread))


def _describe_faults(result: CitationCheckResult, unresolved: Sequence[str]) -> tuple[str, ...]:
    """Describe each citation that does not hold, with the lines or the name that are meant, if they can be found."""
    names = [one.name for one in result.document_names.shown_documents if not one.removed]
    described: list[str] = []
    for failed in result.failed_citations:
        known = failed.reason != NO_SUCH_DOCUMENT
        hints = [_find_quotation(failed, result)]
        if not known and len(described) < _MAX_NAMES_SUGGESTED_FOR:
            hints.append(_suggest_names(failed.citation.document, names))
        described.append("; ".join(filter(None, [f"{failed.citation}: {failed.reason}", *hints])))
    for written in unresolved:
        hint = _suggest_names(written.strip("[]").rpartition(":")[0] or written, names)
        described.append("; ".join(filter(None, [f"{' '.join(written.split())[:300]}: {_UNRESOLVED}", hint])))
    return tuple(described)


def _check_sentences(result: CitationCheckResult, deliverable: Deliverable, question: str) -> tuple[SentenceCheck, ...]:
    """Check the sentences of which citations hold."""
    text = result.markdown
    if not isinstance(deliverable, ReportDraft):
        text = "\n\n".join(filter(None, render_cited_sentences(deliverable)))
    return tuple(one for one in result.check_sentences(question, text) if one.result is not None)


def _quote(sentence: str) -> str:
    return f"“{truncate_redacted(sentence, _MAX_SENTENCE_CHARACTERS)}”"


def _find_quotation(failed: FailedCitation, result: CitationCheckResult) -> str:
    """Return where the quoted text stands instead: in the cited document, or in another that the text cites."""
    citation = failed.citation
    if citation.quotation is None:
        return ""
    named = result.documents.get(citation.document)
    others = [(name, document) for name, document in result.documents.items() if name != citation.document]
    for name, document in [*([(citation.document, named)] if named is not None else []), *others]:
        near = citation.first_line if document is named else 1
        if lines := document.find_quotation_lines(citation.quotation, near):
            return f"these words are in {Citation(document=name, first_line=lines[0], last_line=lines[1])}"
    return ""


def _suggest_names(written: str, names: Sequence[str]) -> str:
    by_folded = {name.casefold(): name for name in names}
    close = get_close_matches(written.casefold()[:200], by_folded, n=2)
    return f"similar names: {', '.join(by_folded[one] for one in close)}" if close else ""


def is_kept_submission(result: ToolResult) -> bool:
    """Whether what the call submitted counts: it was accepted, or is kept until it is mended."""
    return not result.is_error or NOT_FINAL in result.content


def may_be_mended(tool: str, transcript: Transcript, used_share: float) -> bool:
    """Whether a submission with faults is rejected, so that the agent can mend it.

    It is rejected once in a conversation, and only if there is budget left for mending.

    Args:
        tool: Name of the submitting tool.
        transcript: The agent's conversation so far.
        used_share: Used share of the run's limit.
    """
    messages = get_effective_transcript(transcript).messages
    failed = [result for result in _iter_results(messages, tool) if result.is_error]
    if len(failed) >= MAX_REJECTED_SUBMISSIONS or any(NOT_FINAL in result.content for result in failed):
        return False
    turn_share = used_share / max(1, transcript.turn_count)
    return used_share < MAX_USED_SHARE and used_share + TURNS_TO_MEND * turn_share < 1


def _iter_results(messages: Sequence[Message], tool: str) -> Iterator[ToolResult]:
    calls = {call.id for message in messages for call in message.tool_uses if call.name == tool}
    return (result for message in messages for result in message.tool_results if result.tool_use_id in calls)
