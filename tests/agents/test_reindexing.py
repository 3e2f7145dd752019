"""Memory made anew with another embedder: in the engine of this process, and on a server."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.agents.office import TENANT, Office
from tests.agents.test_archive import commit_passages
from tests.qdrant_server import QdrantStub, running_qdrant
from waystation.config.settings import Settings
from waystation.context.transcript import RewindRecord
from waystation.kernel.errors import MemoryUnavailable, OtherEmbedder
from waystation.memory.archive import EMBEDDED_AT_ONCE, OutboxDrainer, Reindexer, ReindexResult
from waystation.memory.embedders.local import LexicalSimilarityMixin
from waystation.memory.memory import MemoryQuery
from waystation.memory.ports import Embedder, Memory, Use
from waystation.tasks.continuation import Rewind
from workers.memory import memory_is_there, open_memory, open_memory_draft

COUNT = 2 * EMBEDDED_AT_ONCE + 6


@dataclass
class Compass(LexicalSimilarityMixin):
    """Every text lies in one direction, so that all are found by it."""

    name: str
    dimension: int | None
    left: int = 1_000_000
    """Texts that it embeds before it fails."""
    embedded: list[str] = field(default_factory=list[str])

    async def embed(self, texts: Sequence[str], use: Use = "passage") -> tuple[tuple[float, ...], ...]:
        if len(self.embedded) + len(texts) > self.left:
            raise MemoryUnavailable("told to fail")
        self.embedded += texts
        return ((1.0, *[0.0] * ((self.dimension or 1) - 1)),) * len(texts)


OLD, NEW = Compass("old", 4), Compass("new", 6)


@dataclass
class House:
    """Where memory is, with settings that say so."""

    settings: Settings
    qdrant: QdrantStub | None

    @asynccontextmanager
    async def memory(self, embedder: Embedder) -> AsyncGenerator[Memory]:
        async with open_memory(self.settings, embedder) as memory:
            yield memory

    async def reindex(
        self, office: Office, embedder: Embedder, *, with_refused: bool = False, anew: bool = False
    ) -> ReindexResult:
        async with open_memory_draft(self.settings, embedder, anew=anew) as draft:
            return await Reindexer(
                office.store, embedder, draft, office.redactor, lambda there, of: None, with_refused
            ).run()

    async def found(self, embedder: Embedder) -> int:
        """How many passages a search by vector alone gives."""
        (dense,) = await embedder.embed([""], "query")
        async with self.memory(embedder) as memory:
            wanted = MemoryQuery(tenant=TENANT, session=None, text="", dense=dense, limit=1_000)
            return len(await memory.search(wanted))


@pytest.fixture(params=["embedded", "server"])
async def house(request: pytest.FixtureRequest, tmp_path: Path, office: Office) -> AsyncGenerator[House]:
    """With passages that the old embedder has brought in."""
    with running_qdrant() as qdrant:
        url = qdrant.url if request.param == "server" else None
        house = House(Settings(home=tmp_path, qdrant_url=url, qdrant_grpc_port=0), qdrant if url is not None else None)
        assert not await memory_is_there(house.settings)
        await commit_passages(office, COUNT)
        async with house.memory(OLD) as memory:
            await OutboxDrainer(office.store, OLD, memory, office.redactor).drain()
        assert await memory_is_there(house.settings)
        yield house


def of_another_indexing(house: House) -> None:
    """What is written down of the memory names another way in which passages were indexed."""
    if house.qdrant is None:
        path = house.settings.memory_folder / "embedder.json"
        record = json.loads(path.read_text())
        assert record["indexing"] == 1
        path.write_text(json.dumps({**record, "indexing": 0}))
    else:
        house.qdrant.is_indexed_otherwise = True


async def test_another_embedder_is_refused_at_the_start_with_the_command_that_helps(house: House) -> None:
    with pytest.raises(OtherEmbedder, match=r"made with the embedder old .4 dimensions.* `waystation memory reindex`"):
        async with house.memory(NEW):
            pass


async def test_after_reindexing_the_new_embedder_finds_everything_and_the_old_one_is_refused(
    house: House, office: Office
) -> None:
    assert await house.reindex(office, NEW) == ReindexResult(passages=COUNT, embedded=COUNT, refused=())
    assert await house.found(NEW) == COUNT
    with pytest.raises(OtherEmbedder):
        await house.found(OLD)


async def test_a_run_goes_on_where_the_last_one_ended_and_until_then_the_old_memory_is_in_use(
    house: House, office: Office
) -> None:
    with pytest.raises(MemoryUnavailable, match="told to fail"):
        await house.reindex(office, Compass("new", 6, left=EMBEDDED_AT_ONCE))
    assert await house.found(OLD) == COUNT
    again = Compass("new", 6)
    assert (await house.reindex(office, again)).embedded == len(again.embedded) == COUNT - EMBEDDED_AT_ONCE
    assert await house.found(NEW) == COUNT


async def test_there_and_back_again_and_once_more(house: House, office: Office) -> None:
    for embedder in (NEW, OLD, NEW):
        assert (await house.reindex(office, embedder)).embedded == COUNT
        assert await house.found(embedder) == COUNT
    assert (await house.reindex(office, NEW)).embedded == 0


async def test_it_is_made_anew_by_the_same_embedder_again_and_again(house: House, office: Office) -> None:
    for _ in range(3):
        assert (await house.reindex(office, OLD, anew=True)).embedded == COUNT
        assert await house.found(OLD) == COUNT
    assert (await house.reindex(office, OLD)).embedded == 0


async def test_what_the_same_embedder_makes_anew_goes_on_where_it_ended(house: House, office: Office) -> None:
    with pytest.raises(MemoryUnavailable, match="told to fail"):
        await house.reindex(office, Compass("old", 4, left=EMBEDDED_AT_ONCE), anew=True)
    assert await house.found(OLD) == COUNT
    assert (await house.reindex(office, OLD, anew=True)).embedded == COUNT - EMBEDDED_AT_ONCE
    assert await house.found(OLD) == COUNT


async def test_a_draft_that_is_the_memory_already_can_be_published_again(house: House, office: Office) -> None:
    async with open_memory_draft(house.settings, OLD, anew=True) as draft:
        await Reindexer(office.store, OLD, draft, office.redactor, lambda there, of: None).run()
        await draft.publish()
        assert len(await draft.ids()) == COUNT
    assert await house.found(OLD) == COUNT


async def test_what_was_half_made_anew_goes_when_memory_is_filled_where_it_stands(house: House, office: Office) -> None:
    with pytest.raises(MemoryUnavailable, match="told to fail"):
        await house.reindex(office, Compass("old", 4, left=EMBEDDED_AT_ONCE), anew=True)
    assert (await house.reindex(office, OLD)).embedded == 0
    assert (await house.reindex(office, OLD, anew=True)).embedded == COUNT


async def test_a_memory_that_is_indexed_otherwise_is_in_use_as_it_is_and_made_anew_when_that_is_asked_for(
    house: House, office: Office
) -> None:
    of_another_indexing(house)
    assert await house.found(OLD) == COUNT
    assert (await house.reindex(office, OLD)).embedded == COUNT
    assert await house.found(OLD) == COUNT
    assert (await house.reindex(office, OLD)).embedded == 0


async def test_passages_that_were_taken_back_are_left_out_and_taken_out(house: House, office: Office) -> None:
    with pytest.raises(MemoryUnavailable):
        await house.reindex(office, Compass("new", 6, left=EMBEDDED_AT_ONCE))
    ids = await office.store.passage_ids()
    site = await office.site("research-1")
    record = RewindRecord(id="back", message_id="m1")
    await office.store.commit_rewind(site.fence, 1, Rewind(record=record, gone=frozenset({"m2"}), calls=frozenset()))
    assert await office.store.passage_ids() == frozenset()
    assert await office.store.list_deleted_passage_ids() == ids
    assert (await house.reindex(office, NEW)).passages == 0
    assert await house.found(NEW) == 0


async def test_what_was_put_aside_is_left_out_unless_it_is_asked_for(house: House, office: Office) -> None:
    await commit_passages(office, 2, "research-2")
    refused = [one.id for one in await office.store.waiting(10)]
    await office.store.put_aside(refused)
    assert (await house.reindex(office, NEW)).passages == COUNT
    assert await office.store.refused() == tuple(refused)
    done = await house.reindex(office, NEW, with_refused=True)
    assert (done.passages, done.embedded) == (COUNT + 2, 2)
    assert await office.store.refused() == ()


async def test_a_memory_that_was_lost_is_written_anew_by_the_same_command(house: House, office: Office) -> None:
    if house.qdrant is not None:
        house.qdrant.lose_collection("waystation")
    else:
        house.settings.memory_folder.rename(house.settings.memory_folder.with_name("lost"))
    assert (await house.reindex(office, OLD)).embedded == COUNT
    assert await house.found(OLD) == COUNT
