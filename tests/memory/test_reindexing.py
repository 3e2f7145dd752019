"""Memory rebuilt with another embedder: in the engine of this process, and on a server."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.memory.test_outbox_drainer import commit_passages
from tests.support.agent_environment import TENANT, AgentEnvironment
from tests.support.qdrant_server import QdrantStub, run_qdrant_server
from waystation.agents.transcript_rewind import TranscriptRewind
from waystation.config.settings import Settings
from waystation.context.transcript import RewindRecord
from waystation.kernel.errors import MemoryUnavailable, OtherEmbedder
from waystation.memory.embedders.local import LexicalSimilarityMixin
from waystation.memory.indexing import EMBEDDING_BATCH, OutboxDrainer, Reindexer, ReindexResult
from waystation.memory.passages import MemoryQuery
from waystation.memory.ports import Embedder, EmbeddingUse, Memory
from waystation.workers.memory import has_memory, open_memory, open_memory_draft

COUNT = 2 * EMBEDDING_BATCH + 6


@dataclass
class Compass(LexicalSimilarityMixin):
    """Every text lies in one direction, so that all are found by it."""

    name: str
    dimension: int | None
    left: int = 1_000_000
    """Texts that it embeds before it fails."""
    embedded: list[str] = field(default_factory=list[str])

    async def embed(self, texts: Sequence[str], use: EmbeddingUse = "passage") -> tuple[tuple[float, ...], ...]:
        if len(self.embedded) + len(texts) > self.left:
            raise MemoryUnavailable("told to fail")
        self.embedded += texts
        return ((1.0, *[0.0] * ((self.dimension or 1) - 1)),) * len(texts)


OLD, NEW = Compass("old", 4), Compass("new", 6)


@dataclass
class ReindexingEnvironment:
    """Where memory is, with settings that say so."""

    settings: Settings
    qdrant: QdrantStub | None

    @asynccontextmanager
    async def memory(self, embedder: Embedder) -> AsyncGenerator[Memory]:
        async with open_memory(self.settings, embedder) as memory:
            yield memory

    async def reindex(
        self, env: AgentEnvironment, embedder: Embedder, *, with_refused: bool = False, rebuild: bool = False
    ) -> ReindexResult:
        async with open_memory_draft(self.settings, embedder, rebuild=rebuild) as draft:
            return await Reindexer(env.store, embedder, draft, env.redactor, lambda there, of: None, with_refused).run()

    async def found(self, embedder: Embedder) -> int:
        """How many passages a search by vector alone gives."""
        (dense,) = await embedder.embed([""], "query")
        async with self.memory(embedder) as memory:
            wanted = MemoryQuery(tenant=TENANT, session=None, text="", dense=dense, limit=1_000)
            return len(await memory.search(wanted))


@pytest.fixture(params=["embedded", "server"])
async def memory_env(
    request: pytest.FixtureRequest, tmp_path: Path, env: AgentEnvironment
) -> AsyncGenerator[ReindexingEnvironment]:
    """With passages that the old embedder has brought in."""
    with run_qdrant_server() as qdrant:
        url = qdrant.url if request.param == "server" else None
        memory_env = ReindexingEnvironment(
            Settings(home=tmp_path, qdrant_url=url, qdrant_grpc_port=0), qdrant if url is not None else None
        )
        assert not await has_memory(memory_env.settings)
        await commit_passages(env, COUNT)
        async with memory_env.memory(OLD) as memory:
            await OutboxDrainer(env.store, OLD, memory, env.redactor).drain()
        assert await has_memory(memory_env.settings)
        yield memory_env


def of_another_indexing(memory_env: ReindexingEnvironment) -> None:
    """What is written down of the memory names another way in which passages were indexed."""
    if memory_env.qdrant is None:
        path = memory_env.settings.memory_folder / "embedder.json"
        record = json.loads(path.read_text())
        assert record["indexing"] == 1
        path.write_text(json.dumps({**record, "indexing": 0}))
    else:
        memory_env.qdrant.is_indexed_otherwise = True


async def test_another_embedder_is_refused_at_the_start_with_the_command_that_helps(
    memory_env: ReindexingEnvironment,
) -> None:
    with pytest.raises(OtherEmbedder, match=r"made with the embedder old .4 dimensions.* `waystation memory reindex`"):
        async with memory_env.memory(NEW):
            pass


async def test_after_reindexing_the_new_embedder_finds_everything_and_the_old_one_is_refused(
    memory_env: ReindexingEnvironment, env: AgentEnvironment
) -> None:
    assert await memory_env.reindex(env, NEW) == ReindexResult(passages=COUNT, embedded=COUNT, refused=())
    assert await memory_env.found(NEW) == COUNT
    with pytest.raises(OtherEmbedder):
        await memory_env.found(OLD)


async def test_a_run_goes_on_where_the_last_one_ended_and_until_then_the_old_memory_is_in_use(
    memory_env: ReindexingEnvironment, env: AgentEnvironment
) -> None:
    with pytest.raises(MemoryUnavailable, match="told to fail"):
        await memory_env.reindex(env, Compass("new", 6, left=EMBEDDING_BATCH))
    assert await memory_env.found(OLD) == COUNT
    again = Compass("new", 6)
    assert (await memory_env.reindex(env, again)).embedded == len(again.embedded) == COUNT - EMBEDDING_BATCH
    assert await memory_env.found(NEW) == COUNT


async def test_there_and_back_again_and_once_more(memory_env: ReindexingEnvironment, env: AgentEnvironment) -> None:
    for embedder in (NEW, OLD, NEW):
        assert (await memory_env.reindex(env, embedder)).embedded == COUNT
        assert await memory_env.found(embedder) == COUNT
    assert (await memory_env.reindex(env, NEW)).embedded == 0


async def test_it_is_made_anew_by_the_same_embedder_again_and_again(
    memory_env: ReindexingEnvironment, env: AgentEnvironment
) -> None:
    for _ in range(3):
        assert (await memory_env.reindex(env, OLD, rebuild=True)).embedded == COUNT
        assert await memory_env.found(OLD) == COUNT
    assert (await memory_env.reindex(env, OLD)).embedded == 0


async def test_what_the_same_embedder_makes_anew_goes_on_where_it_ended(
    memory_env: ReindexingEnvironment, env: AgentEnvironment
) -> None:
    with pytest.raises(MemoryUnavailable, match="told to fail"):
        await memory_env.reindex(env, Compass("old", 4, left=EMBEDDING_BATCH), rebuild=True)
    assert await memory_env.found(OLD) == COUNT
    assert (await memory_env.reindex(env, OLD, rebuild=True)).embedded == COUNT - EMBEDDING_BATCH
    assert await memory_env.found(OLD) == COUNT


async def test_a_draft_that_is_the_memory_already_can_be_published_again(
    memory_env: ReindexingEnvironment, env: AgentEnvironment
) -> None:
    async with open_memory_draft(memory_env.settings, OLD, rebuild=True) as draft:
        await Reindexer(env.store, OLD, draft, env.redactor, lambda there, of: None).run()
        await draft.publish()
        assert len(await draft.list_point_ids()) == COUNT
    assert await memory_env.found(OLD) == COUNT


async def test_what_was_half_made_anew_goes_when_memory_is_filled_where_it_stands(
    memory_env: ReindexingEnvironment, env: AgentEnvironment
) -> None:
    with pytest.raises(MemoryUnavailable, match="told to fail"):
        await memory_env.reindex(env, Compass("old", 4, left=EMBEDDING_BATCH), rebuild=True)
    assert (await memory_env.reindex(env, OLD)).embedded == 0
    assert (await memory_env.reindex(env, OLD, rebuild=True)).embedded == COUNT


async def test_a_memory_that_is_indexed_otherwise_is_in_use_as_it_is_and_made_anew_when_that_is_asked_for(
    memory_env: ReindexingEnvironment, env: AgentEnvironment
) -> None:
    of_another_indexing(memory_env)
    assert await memory_env.found(OLD) == COUNT
    assert (await memory_env.reindex(env, OLD)).embedded == COUNT
    assert await memory_env.found(OLD) == COUNT
    assert (await memory_env.reindex(env, OLD)).embedded == 0


async def test_passages_that_were_taken_back_are_left_out_and_taken_out(
    memory_env: ReindexingEnvironment, env: AgentEnvironment
) -> None:
    with pytest.raises(MemoryUnavailable):
        await memory_env.reindex(env, Compass("new", 6, left=EMBEDDING_BATCH))
    ids = await env.store.list_passage_ids()
    site = await env.make_tool_context("research-1")
    record = RewindRecord(id="back", message_id="m1")
    await env.store.commit_rewind(
        site.fence, 1, TranscriptRewind(record=record, removed_messages=frozenset({"m2"}), removed_calls=frozenset())
    )
    assert await env.store.list_passage_ids() == frozenset()
    assert await env.store.list_deleted_passage_ids() == ids
    assert (await memory_env.reindex(env, NEW)).passages == 0
    assert await memory_env.found(NEW) == 0


async def test_what_was_put_aside_is_left_out_unless_it_is_asked_for(
    memory_env: ReindexingEnvironment, env: AgentEnvironment
) -> None:
    await commit_passages(env, 2, "research-2")
    refused = [one.id for one in (await env.store.load_outbox_batch(10)).pending]
    await env.store.mark_passages_rejected(refused)
    assert (await memory_env.reindex(env, NEW)).passages == COUNT
    assert await env.store.list_rejected_passage_ids() == tuple(refused)
    done = await memory_env.reindex(env, NEW, with_refused=True)
    assert (done.passages, done.embedded) == (COUNT + 2, 2)
    assert await env.store.list_rejected_passage_ids() == ()


async def test_a_memory_that_was_lost_is_written_anew_by_the_same_command(
    memory_env: ReindexingEnvironment, env: AgentEnvironment
) -> None:
    if memory_env.qdrant is not None:
        memory_env.qdrant.delete_collection("waystation")
    else:
        memory_env.settings.memory_folder.rename(memory_env.settings.memory_folder.with_name("lost"))
    assert (await memory_env.reindex(env, OLD)).embedded == COUNT
    assert await memory_env.found(OLD) == COUNT
