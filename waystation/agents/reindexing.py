"""Makes memory anew with another embedder, from the passages in the store, while the memory before stays in use."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from waystation.agents.archive import BATCH, embedded, written
from waystation.domain.errors import MemoryUnavailable
from waystation.domain.ownership import Installation
from waystation.domain.value import Value
from waystation.ports import Embedder, MemoryDraft, Outbox

Progress = Callable[[int, int], None]
"""Told how many passages are in the new memory, and of how many."""


class Reindexed(Value):
    """What the new memory has."""

    passages: int
    embedded: int
    """Of them by this run: the others were there from a run before, which did not come to its end."""
    refused: tuple[str, ...]
    """Ids of passages that it does not take."""


@dataclass
class Reindexing:
    """One run. What is in the draft already is not embedded again, so that a run goes on where the last one ended."""

    outbox: Outbox
    embedder: Embedder
    draft: MemoryDraft
    progress: Progress
    with_refused: bool = False
    """Try those again, too, that memory did not take."""
    _there: set[str] = field(default_factory=set[str])
    _refused: set[str] = field(default_factory=set[str])
    _embedded: int = 0

    async def run(self) -> Reindexed:
        """Fill the draft and publish it. Raises MemoryUnavailable; then the memory before is in use as it was."""
        self._there = set(await self.draft.ids())
        await self._fill()
        await self.draft.publish()
        # What workers wrote into the memory before, until the last moment. Now they can write there no more.
        await self._fill()
        taken = self._there.intersection(await self.outbox.refused())
        await self.outbox.stored(sorted(taken))
        return Reindexed(passages=len(self._there), embedded=self._embedded, refused=tuple(sorted(self._refused)))

    async def _fill(self) -> None:
        """Until the draft has what counts, and has nothing of what counts no more."""
        while missing := await self._missing():
            for ids in _batches(missing):
                await self._embed(ids)
                self.progress(len(self._there), len(self._there | missing) - len(self._refused))
        gone = self._there & await self.outbox.gone_passage_ids()
        for ids in _batches(gone):
            await self.draft.delete(ids)
        self._there -= gone

    async def _missing(self) -> frozenset[str]:
        return await self.outbox.passage_ids(refused=self.with_refused) - self._there - self._refused

    async def _embed(self, ids: list[str]) -> None:
        passages = await self.outbox.passages_with(ids, Installation())
        taken = await written(self.draft, await embedded(self.embedder, passages)) if passages else frozenset[str]()
        if passages and not taken and not self._there:  # the memory may be at fault, and no passage
            raise MemoryUnavailable(f"the new memory took none of {len(passages)} passages")
        self._there |= taken
        self._embedded += len(taken)
        self._refused |= {passage.id for passage in passages} - taken


def _batches(ids: Collection[str]) -> Iterator[list[str]]:
    ordered = sorted(ids)
    return (ordered[start : start + BATCH] for start in range(0, len(ordered), BATCH))
