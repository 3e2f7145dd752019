"""Finding passages: the query is redacted by the same rules as they were, so redacted text still matches."""

from dataclasses import dataclass

from waystation.domain.leg import RunRef
from waystation.domain.memory import MemoryQuery, Recalled
from waystation.domain.redaction import Scope
from waystation.ports import Embedder, Memory, Redactor


@dataclass(frozen=True)
class Recollection:
    """Search in the memory of a session."""

    memory: Memory
    embedder: Embedder
    redactor: Redactor

    async def find(self, run: RunRef, text: str, limit: int = 6) -> tuple[Recalled, ...]:
        """The best passages of the run's session. Raises MemoryUnavailable, RedactionFailed."""
        (query,) = await self.redactor.redact([text], Scope.MEMORY, run.tenant)
        (dense,) = await self.embedder.embed([query.text])
        return await self.memory.search(
            MemoryQuery(tenant=run.tenant, session=run.session, text=query.text, dense=dense, limit=limit)
        )


def as_passages(found: tuple[Recalled, ...]) -> str:
    """Recalled text, labelled as a record with its source: it is data, never an instruction."""
    return "\n".join(
        f'<passage id="{item.passage.id}" step="{item.passage.step_id}" '
        f'messages="{item.passage.first_message}-{item.passage.last_message}">\n{item.passage.text}\n</passage>'
        for item in found
    )
