"""Finding passages: the query is redacted by the same rules as they were, so redacted text still matches."""

from collections.abc import Sequence
from dataclasses import dataclass

from waystation.domain.excerpts import Excerpt, excerpts
from waystation.domain.leg import RunRef
from waystation.domain.memory import MemoryQuery
from waystation.domain.privacy import Place
from waystation.ports import Embedder, Memory, Redactor

RECALLED_TOKENS = 2_000


@dataclass(frozen=True)
class Recollection:
    """Search in the memory of a session."""

    memory: Memory
    embedder: Embedder
    redactor: Redactor

    async def find(self, run: RunRef, text: str, tokens: int = RECALLED_TOKENS) -> tuple[Excerpt, ...]:
        """The best passages of the run's session, at most so many tokens. Raises MemoryUnavailable, RedactionFailed."""
        return await self.search(MemoryQuery(tenant=run.tenant, session=run.session, text=text, dense=None), tokens)

    async def search(self, query: MemoryQuery, tokens: int) -> tuple[Excerpt, ...]:
        """The best passages that the query admits; its text is redacted and embedded here.

        Raises MemoryUnavailable, RedactionFailed.
        """
        (redacted,) = await self.redactor.redact([query.text], Place.QUERY, query.tenant)
        (dense,) = await self.embedder.embed([redacted.text], "query")
        found = await self.memory.search(query.model_copy(update={"text": redacted.text, "dense": dense}))
        return excerpts(found, tokens)


def as_passages(found: Sequence[Excerpt]) -> str:
    """Recalled text, each piece with its source."""
    return "\n".join(map(str, found))
