"""A text's citations, checked against a task's documents as its agents call them."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from waystation.agents.document_names import DocumentNames, document_names
from waystation.agents.redacted_documents import RedactedDocuments
from waystation.domain.citations import Citation, FailedCitation, citations_in, fault
from waystation.domain.document_changes import earlier_versions
from waystation.domain.documents import Document, named
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
    lines: Mapping[str, list[str]]
    """Of the cited documents that are there, by their names as cited."""
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
        """Raises RedactionFailed, StoreError."""
        citations = citations_in(markdown)
        documents = await self.documents.documents(ref.task_id, ref.reader)
        called = (await document_names(documents, self.redactor, ref.tenant)).of(self.vault, ref.session)
        cited = {citation.document for citation in citations}
        meant = await _meant(called, cited)
        lines = await self._newest_lines(meant, ref.reader) | await self._cited_pages(ref.reader, cited)
        faults = {citation: fault(citation, lines) for citation in citations}
        wrong = [citation for citation, reason in faults.items() if reason and citation.document in meant]
        outdated = await self._outdated(ref.reader, wrong, meant) if wrong else {}
        return CheckedCitations(called, lines, faults | outdated)

    async def _newest_lines(self, meant: Mapping[str, Document], task: OfTask) -> dict[str, list[str]]:
        return {
            name: await self.redacted.lines(document.blob, task)
            for name, document in meant.items()
            if not document.removed
        }

    async def _outdated(
        self, task: OfTask, wrong: Sequence[Citation], meant: Mapping[str, Document]
    ) -> dict[Citation, str | None]:
        """Those that held in a version before: whoever cited that invented nothing."""
        earlier = earlier_versions(await self.tasks.document_updates(task.task_id, task))
        found: dict[Citation, str | None] = {}
        for citation in wrong:
            document = meant[citation.document]
            for blob in earlier.get(document.name, ()):
                before = await self.redacted.lines(blob, task)
                if fault(citation, {citation.document: before}) is None:
                    found[citation] = GONE if document.removed else OUTDATED
        return found

    async def _cited_pages(self, task: OfTask, names: set[str]) -> dict[str, list[str]]:
        """Pages of the web by the address as cited, as the task's agents have fetched them."""
        wanted = {name for name in names if name.startswith(("http://", "https://"))}
        found: dict[str, list[str]] = {}
        for run_id in await self.transcripts.run_ids(task.task_id, task) if wanted else ():
            pages = kept_pages((await self.transcripts.load(run_id, task)).messages)
            for address in wanted & pages.keys():
                found[address] = page_lines(await self.redacted.lines(pages[address].blob, task))
        return found


async def _meant(called: DocumentNames, names: Set[str]) -> dict[str, Document]:
    """The documents that these names mean."""
    cited = {name: named(await called.original(name), evidence(called.documents)) for name in sorted(names)}
    return {name: document for name, document in cited.items() if document is not None}
