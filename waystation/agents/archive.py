"""Brings passages from the store's outbox into memory, and out of it. What cannot be done now is done later."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from waystation.domain.errors import MemoryUnavailable, PassagesRefused
from waystation.domain.memory import EmbeddedPassage, Passage
from waystation.domain.redaction import meant
from waystation.domain.value import Value
from waystation.ports import Embedder, Memory, Outbox, PassagePoints

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

        The points' ids are fixed, so that a crash between writing and marking writes the same points again. A passage
        that memory does not take, while it takes others of its batch, is put aside.
        """
        stored = 0
        with suppress(MemoryUnavailable):  # the next time does it
            await self.forget()
        while passages := await self.outbox.waiting(BATCH, run_id):
            try:
                taken = await written(self.memory, await embedded(self.embedder, passages))
            except MemoryUnavailable:
                taken = frozenset[str]()
            if not taken:  # where it refuses every one, memory may be at fault, and no passage
                return Drained(stored=stored, waiting=await self.outbox.count_waiting())
            await self.outbox.stored([passage.id for passage in passages if passage.id in taken])
            await self.outbox.put_aside([passage.id for passage in passages if passage.id not in taken])
            stored += len(taken)
        return Drained(stored=stored, waiting=0)

    async def forget(self) -> int:
        """Take out of memory what counts no more; how many points. Raises MemoryUnavailable."""
        count = 0
        while gone := await self.outbox.taken_back(BATCH):
            await self.memory.delete(gone)
            await self.outbox.forgotten(gone)
            count += len(gone)
        return count

    async def forget_for_good(self) -> int:
        """The same, and have no file keep it. An attempt before this may have got no further than the points.

        Raises MemoryUnavailable.
        """
        count = await self.forget()
        await self.memory.purge()
        return count

    async def rewrite(self) -> None:
        """Write everything that waits over what memory has of it, and have no file keep that.

        Raises MemoryUnavailable while anything waits.
        """
        if waiting := (await self.drain()).waiting:
            raise MemoryUnavailable(f"{waiting} passages wait until memory takes them")
        await self.memory.delete(await self.outbox.refused())  # which it may have as they were before
        await self.forget_for_good()


async def embedded(embedder: Embedder, passages: Sequence[Passage]) -> list[EmbeddedPassage]:
    """The passages with their vectors. Raises MemoryUnavailable."""
    vectors = await embedder.embed([meant(passage.text) for passage in passages])
    return [EmbeddedPassage(passage=one, dense=dense) for one, dense in zip(passages, vectors, strict=True)]


async def written(memory: PassagePoints, passages: Sequence[EmbeddedPassage]) -> frozenset[str]:
    """Write these, halved until what is refused stands alone; the ids of the others. Raises MemoryUnavailable."""
    try:
        await memory.upsert(passages)
    except PassagesRefused:
        if len(passages) == 1:
            return frozenset()
        half = len(passages) // 2
        return await written(memory, passages[:half]) | await written(memory, passages[half:])
    return frozenset([one.passage.id for one in passages])
