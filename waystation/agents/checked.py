"""A text's citations, checked against a task's documents as its agents call them."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from waystation.agents.document_names import DocumentNames, document_names
from waystation.agents.redacted_documents import RedactedDocuments
from waystation.domain.citations import Citation, CitedDocument, FailedCitation, citations_in, faults
from waystation.domain.document_changes import earlier_versions
from waystation.domain.documents import Document, DocumentFinder
from waystation.domain.ownership import OfTask
from waystation.domain.procedures import evidence
from waystation.domain.task import TaskRef
from waystation.domain.web import page_lines
from waystation.domain.web_pages import kept_pages
from waystation.ports import DocumentStore, Redactor, TaskStore, TranscriptStore, Vault

OUTDATED = "the document changed while the task ran; it held in the version before"
GONE = "the document was removed while the task ran; it held before"


@dataclass(frozen=True)
class CheckedCitations:
    """Every citation of a text, and what is wrong with it."""

    called: DocumentNames
    documents: Mapping[str, CitedDocument]
    """The cited documents that are there, by their names as cited."""
    faults: Mapping[Citation, str | None]

    @property
    def holding(self) -> list[Citation]:
        """Those that hold, in the order of the text."""
        return [citation for citation, reason in self.faults.items() if not reason]

    @property
    def failed(self) -> tuple[FailedCitation, ...]:
        """Those that do not, and why."""
        return tuple(
            FailedCitation(citation=citation, reason=reason) for citation, reason in self.faults.items() if reason
        )


@dataclass(frozen=True)
class CitationCheck:
    """Checks citations."""

    documents: DocumentStore
    tasks: TaskStore
    transcripts: TranscriptStore
    redactor: Redactor
    redacted: RedactedDocuments
    """What agents have seen of documents and pages: quotations are compared with that, and sources are shown of it."""
    vault: Vault | None = None
    """Where names of documents in citations are found again, of which agents have seen placeholders."""

    async def check(self, ref: TaskRef, markdown: str) -> CheckedCitations:
        """What takes long is done in a thread: there may be thousands of citations of megabytes.

        Raises RedactionFailed, StoreError.
        """
        citations = await asyncio.to_thread(citations_in, markdown)
        documents = await self.documents.documents(ref.task_id, ref.reader)
        called = (await document_names(documents, self.redactor, ref.tenant)).of(self.vault, ref.session)
        cited = {citation.document for citation in citations}
        meant = await _meant(called, cited)
        there = {name: document.blob for name, document in meant.items() if not document.removed}
        newest = await self._documents(there, ref.reader) | await self._cited_pages(ref.reader, cited)
        found = await asyncio.to_thread(faults, citations, newest)
        wrong = [citation for citation, reason in found.items() if reason and citation.document in meant]
        outdated = await self._outdated(ref.reader, wrong, meant) if wrong else {}
        return CheckedCitations(called, newest, found | outdated)

    async def _documents(self, blobs: Mapping[str, str], task: OfTask) -> dict[str, CitedDocument]:
        """By the same names. A document may be cited by many."""
        of_blob = {blob: CitedDocument(await self.redacted.lines(blob, task)) for blob in _each(blobs.values())}
        return {name: of_blob[blob] for name, blob in blobs.items()}

    async def _outdated(
        self, task: OfTask, wrong: Sequence[Citation], meant: Mapping[str, Document]
    ) -> dict[Citation, str | None]:
        """Those that held in a version before: whoever cited that invented nothing."""
        earlier = earlier_versions(await self.tasks.document_updates(task.task_id, task))
        of_document: dict[str, list[Citation]] = {}
        for citation in wrong:
            of_document.setdefault(meant[citation.document].name, []).append(citation)
        found: dict[Citation, str | None] = {}
        for name, citations in of_document.items():
            names = {citation.document for citation in citations}
            for blob in earlier.get(name, ()):
                before = await self._documents(dict.fromkeys(names, blob), task)
                then = await asyncio.to_thread(faults, citations, before)
                held = (citation for citation, reason in then.items() if reason is None)
                found |= {one: GONE if meant[one.document].removed else OUTDATED for one in held}
        return found

    async def _cited_pages(self, task: OfTask, names: set[str]) -> dict[str, CitedDocument]:
        """Pages of the web by the address as cited, as the task's agents have fetched them."""
        wanted = {name for name in names if name.startswith(("http://", "https://"))}
        blobs: dict[str, str] = {}
        for run_id in await self.transcripts.run_ids(task.task_id, task) if wanted else ():
            pages = kept_pages((await self.transcripts.load(run_id, task)).messages)
            blobs |= {address: pages[address].blob for address in wanted & pages.keys()}
        lines = {blob: await self.redacted.lines(blob, task) for blob in _each(blobs.values())}
        of_blob = {blob: CitedDocument(await asyncio.to_thread(page_lines, text)) for blob, text in lines.items()}
        return {address: of_blob[blob] for address, blob in blobs.items()}


def _each(blobs: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(blobs))


async def _meant(called: DocumentNames, names: Set[str]) -> dict[str, Document]:
    """The documents that these names mean."""
    documents = evidence(called.documents)
    finder = DocumentFinder(documents)
    found = {name: finder.index(await called.original(name)) for name in sorted(names)}
    return {name: documents[index] for name, index in found.items() if index is not None}
