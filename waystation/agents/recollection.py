"""Finding passages: the query is redacted by the same rules as they were, so redacted text still matches."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from waystation.agents.document_names import document_names
from waystation.domain.document_changes import earlier_versions
from waystation.domain.excerpts import Excerpt, excerpts
from waystation.domain.leg import RunRef
from waystation.domain.memory import MemoryQuery, MemoryScope
from waystation.domain.ownership import OfSession
from waystation.domain.privacy import Place
from waystation.domain.redaction import meant
from waystation.domain.relevance import CALIBRATED, is_relevant
from waystation.domain.task import TaskRef
from waystation.ports import DocumentStore, Embedder, MemorySearch, Redactor, TaskStore

RECALLED_TOKENS = 2_000


@dataclass(frozen=True)
class Recollection:
    """Search in the memory of a session, or of all sessions of a tenant."""

    memory: MemorySearch
    embedder: Embedder
    redactor: Redactor
    documents: DocumentStore | None = None
    """Of tasks. None: whoever asks has none before it."""
    tasks: TaskStore | None = None
    """Where names of other sessions are found. Without it, their passages are labelled by hashes."""

    async def find(
        self, run: RunRef | TaskRef, text: str, tokens: int = RECALLED_TOKENS, scope: MemoryScope = "session"
    ) -> tuple[Excerpt, ...]:
        """The best passages of its session or tenant, at most so many tokens; none of documents that its task has
        itself, and those of other sessions say so.

        Raises MemoryUnavailable, RedactionFailed, StoreError.
        """
        return await self._labelled(run, await self.search(await self._within(run, scope, text), tokens))

    async def unasked(self, run: RunRef, text: str, tokens: int, scope: MemoryScope = "session") -> tuple[Excerpt, ...]:
        """The same for an agent that did not ask: what is not relevant is left out, where that can be told.

        Raises as `find` does.
        """
        query = await self._embedded(await self._within(run, scope, text))
        found = await self.memory.search(query)
        if query.dense is not None and self.embedder.name in CALIBRATED:
            vectors = await self.embedder.embed([meant(one.passage.text) for one in found])
            judged = zip(found, vectors, strict=True)
            found = tuple(one for one, vector in judged if is_relevant(self.embedder.name, query, one.passage, vector))
        return await self._labelled(run, excerpts(found, tokens))

    async def _within(self, run: RunRef | TaskRef, scope: MemoryScope, text: str) -> MemoryQuery:
        """Never beyond the tenant."""
        own = await self.documents.documents(run.task_id, run.reader) if self.documents else ()
        # What a document said before it changed is no earlier work: it stood under the same name.
        earlier = earlier_versions(await self.tasks.document_updates(run.task_id, run.reader)) if self.tasks else {}
        without = tuple(sorted({document.blob for document in own}.union(*earlier.values())))
        called = (await document_names(own, self.redactor, run.tenant, place=Place.QUERY)).shown_in(text)
        session = None if scope == "team" else run.session
        return MemoryQuery(tenant=run.tenant, session=session, without=without, text=called, dense=None)

    async def search(self, query: MemoryQuery, tokens: int) -> tuple[Excerpt, ...]:
        """The best passages that the query admits; its text is redacted and embedded here.

        Raises MemoryUnavailable, RedactionFailed.
        """
        return excerpts(await self.memory.search(await self._embedded(query)), tokens)

    async def _labelled(self, run: RunRef | TaskRef, found: Sequence[Excerpt]) -> tuple[Excerpt, ...]:
        others = sorted({one.session_hash for one in found} - {run.session})
        names = dict(zip(others, await self._names(others, run.tenant), strict=True))
        return tuple(replace(one, session=names.get(one.session_hash, "")) for one in found)

    async def _names(self, sessions: Sequence[str], tenant: str) -> list[str]:
        """As a model may see them: people call sessions after people."""
        if self.tasks is None or not sessions:
            return [*sessions]
        rows = [await self.tasks.tasks(OfSession(tenant=tenant, session=one), limit=1) for one in sessions]
        names = [row[0].request.session if row else session for row, session in zip(rows, sessions, strict=True)]
        return [one.text.replace('"', "'") for one in await self.redactor.redact(names, Place.CONTRACT, tenant)]

    async def _embedded(self, query: MemoryQuery) -> MemoryQuery:
        (redacted,) = await self.redactor.redact([query.text], Place.QUERY, query.tenant)
        (dense,) = await self.embedder.embed([meant(redacted.text)], "query")
        return query.model_copy(update={"text": redacted.text, "dense": dense})


def as_passages(found: Sequence[Excerpt]) -> str:
    """Recalled text, each piece with its source."""
    return "\n".join(map(str, found))
