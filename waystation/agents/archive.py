"""Brings passages from the store's outbox into memory, and out of it. What cannot be done now is done later."""

from dataclasses import dataclass

from waystation.domain.errors import MemoryUnavailable
from waystation.domain.memory import EmbeddedPassage
from waystation.domain.value import Value
from waystation.ports import Embedder, Memory, Outbox

BATCH = 64


class Drained(Value):
    """What became of the outbox."""

    stored: int
    waiting: int
    """Passages that are still there because the embedder or Qdrant did not answer."""


@dataclass(frozen=True)
class Archive:
    """The way from outbox to memory."""

    outbox: Outbox
    embedder: Embedder
    memory: Memory

    async def drain(self, run_id: str | None = None) -> Drained:
        """Write everything that waits, of one agent run or of all, oldest first; and take out what was taken back.

        The points' ids are fixed, so that a crash between writing and marking writes the same points again.
        """
        stored = 0
        await self._forget()
        while passages := await self.outbox.waiting(BATCH, run_id):
            try:
                vectors = await self.embedder.embed([passage.text for passage in passages])
                embedded = zip(passages, vectors, strict=True)
                await self.memory.upsert([EmbeddedPassage(passage=text, dense=dense) for text, dense in embedded])
            except MemoryUnavailable:
                return Drained(stored=stored, waiting=await self.outbox.count_waiting())
            await self.outbox.stored([passage.id for passage in passages])
            stored += len(passages)
        return Drained(stored=stored, waiting=0)

    async def _forget(self) -> None:
        """Take out what was taken back. Where memory does not answer, the next time does it."""
        while gone := await self.outbox.taken_back(BATCH):
            try:
                await self.memory.delete(gone)
            except MemoryUnavailable:
                return
            await self.outbox.forgotten(gone)
