"""Checks the citations of a text against a task's documents, as its agents know them."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from waystation.agents.ports import TranscriptReader
from waystation.documents.citations import (
    Citation,
    CitedDocument,
    FailedCitation,
    check_citations,
    correct_quotations,
    parse_citations,
)
from waystation.documents.cited_sentences import SentenceCheck, check_cited_sentences
from waystation.documents.documents import Document, DocumentNameIndex, get_earlier_versions
from waystation.documents.ports import DocumentReader, DocumentUpdateReader
from waystation.documents.redacted_documents import DocumentNames, RedactedDocumentStore, build_document_names
from waystation.documents.web_pages import StoredWebPage, extract_stored_web_pages, split_page_lines
from waystation.kernel.refs import TaskRef
from waystation.kernel.scopes import TaskScope
from waystation.privacy.ports import Redactor, Vault

OUTDATED_CITATION_REASON = "the document changed while the task ran; the citation was correct in the earlier version"
REMOVED_DOCUMENT_REASON = "the document was removed while the task ran; the citation was correct until then"


@dataclass(frozen=True)
class CitationCheckResult:
    """Every citation of a text, and what is wrong with it."""

    markdown: str
    """The text with quotations as the documents have them, and failed citations marked."""
    document_names: DocumentNames
    task_documents: Mapping[str, Document]
    """Documents of the task, by their names as cited."""
    documents: Mapping[str, CitedDocument]
    """The cited documents that exist, by their names as cited."""
    faults: Mapping[Citation, str | None]

    def check_sentences(self, question: str = "", text: str | None = None) -> tuple[SentenceCheck, ...]:
        """Check every sentence with citations against the lines that it cites. Slow work: call it in a thread.

        Args:
            question: The question that the text answers.
            text: A text that cites the same documents; by default the one that was checked.
        """
        text = self.markdown if text is None else text
        return check_cited_sentences(text, self.faults, self.documents, question=question)

    @property
    def valid_citations(self) -> list[Citation]:
        """Citations that passed, in the order of the text."""
        return [citation for citation, reason in self.faults.items() if not reason]

    @property
    def failed_citations(self) -> tuple[FailedCitation, ...]:
        """Citations that failed, and why."""
        return tuple(
            FailedCitation(citation=citation, reason=reason) for citation, reason in self.faults.items() if reason
        )


class CitationSource(DocumentReader, DocumentUpdateReader, TranscriptReader, Protocol):
    """What citations may name: documents, their earlier versions, and fetched pages."""


@dataclass(frozen=True)
class CitationChecker:
    """Checks a text's citations against a task's documents as its agents know them."""

    store: CitationSource
    redactor: Redactor
    redacted_documents: RedactedDocumentStore
    """Documents and pages as agents have seen them, for comparing quotations and showing sources."""
    vault: Vault | None = None
    """Resolves names of documents in citations, of which agents have seen placeholders."""

    async def load_names(self, ref: TaskRef) -> DocumentNames:
        """Load the names of the task's documents. Raises as `check` does."""
        documents = await self.store.list_documents(ref.task_id, ref.scope)
        return (await build_document_names(documents, self.redactor, ref.tenant)).with_vault(self.vault, ref.session)

    async def check(
        self,
        ref: TaskRef,
        markdown: str,
        names: DocumentNames | None = None,
        pages: Mapping[str, StoredWebPage] | None = None,
    ) -> CitationCheckResult:
        """Check all citations. Slow work is done in a thread: there may be thousands of citations in megabytes of text.

        Args:
            ref: The task.
            markdown: The text.
            names: Names of the task's documents, if they are known: it takes long to redact thousands of them.
            pages: What `list_web_pages` returned, if it was called before: it reads the transcripts of all agents.

        Raises:
            RedactionFailed: a text could not be redacted.
            StoreError: the store could not be read.
        """
        citations = await asyncio.to_thread(parse_citations, markdown)
        called = names if names is not None else await self.load_names(ref)
        cited = {citation.document for citation in citations}
        meant = await _find_cited_documents(called, cited)
        there = {name: document.blob for name, document in meant.items() if not document.removed}
        newest = await self._documents(there, ref.scope) | await self._cited_pages(ref.scope, cited, pages)
        found = await asyncio.to_thread(check_citations, citations, newest)
        wrong = [citation for citation, reason in found.items() if reason and citation.document in meant]
        outdated = await self._find_outdated_citations(ref.scope, wrong, meant) if wrong else {}
        made = await asyncio.to_thread(correct_quotations, markdown, found | outdated, newest)
        return CitationCheckResult(made.markdown, called, meant, newest, made.faults)

    async def _documents(self, blobs: Mapping[str, str], task: TaskScope) -> dict[str, CitedDocument]:
        """Load the documents by the same names. Several names may mean one document."""
        of_blob = {
            blob: CitedDocument(await self.redacted_documents.get_comparison_lines(blob, task))
            for blob in _unique(blobs.values())
        }
        return {name: of_blob[blob] for name, blob in blobs.items()}

    async def _find_outdated_citations(
        self, task: TaskScope, wrong: Sequence[Citation], meant: Mapping[str, Document]
    ) -> dict[Citation, str | None]:
        """Return failed citations that were valid in an earlier version: their author invented nothing."""
        earlier = get_earlier_versions(await self.store.list_document_updates(task.task_id, task))
        of_document: dict[str, list[Citation]] = {}
        for citation in wrong:
            of_document.setdefault(meant[citation.document].name, []).append(citation)
        found: dict[Citation, str | None] = {}
        for name, citations in of_document.items():
            names = {citation.document for citation in citations}
            for blob in earlier.get(name, ()):
                before = await self._documents(dict.fromkeys(names, blob), task)
                then = await asyncio.to_thread(check_citations, citations, before)
                held = (citation for citation, reason in then.items() if reason is None)
                found |= {
                    one: REMOVED_DOCUMENT_REASON if meant[one.document].removed else OUTDATED_CITATION_REASON
                    for one in held
                }
        return found

    async def list_web_pages(self, task: TaskScope) -> dict[str, StoredWebPage]:
        """Return the web pages that the task's agents have fetched, by address."""
        pages: dict[str, StoredWebPage] = {}
        for run_id in await self.store.list_run_ids(task.task_id, task):
            pages |= extract_stored_web_pages((await self.store.load_transcript(run_id, task)).messages)
        return pages

    async def _cited_pages(
        self, task: TaskScope, names: set[str], pages: Mapping[str, StoredWebPage] | None
    ) -> dict[str, CitedDocument]:
        """Load web pages by the address as cited, as the task's agents have fetched them."""
        wanted = {name for name in names if name.startswith(("http://", "https://"))}
        fetched = pages if pages is not None else await self.list_web_pages(task) if wanted else {}
        blobs = {address: page.blob for address, page in fetched.items() if address in wanted}
        lines = {
            blob: await self.redacted_documents.get_comparison_lines(blob, task) for blob in _unique(blobs.values())
        }
        of_blob = {blob: CitedDocument(await asyncio.to_thread(split_page_lines, text)) for blob, text in lines.items()}
        return {address: of_blob[blob] for address, blob in blobs.items()}


def _unique(blobs: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(blobs))


async def _find_cited_documents(called: DocumentNames, names: Set[str]) -> dict[str, Document]:
    """Return the documents that these names mean."""
    documents = called.documents
    by_name = DocumentNameIndex(documents)
    found = {name: by_name.find_position(await called.resolve_original_name(name)) for name in sorted(names)}
    return {name: documents[index] for name, index in found.items() if index is not None}
