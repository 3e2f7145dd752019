"""Two tenants with the same texts, in the real embedded engine, under whatever a query restricts."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.memory.memory_values import DIMENSION, EAST, NORTH, make_passage
from waystation.memory.passages import EmbeddedPassage, MemoryQuery
from waystation.memory.qdrant.edge import QdrantEdgeMemory

TENANTS, SESSIONS, TASKS, AGENTS = ("t1", "t2"), ("s1", "s2"), ("task-1", "task-2"), ("r1", "r2")
TEXTS = {"the keeper of the harbour": EAST, "the ferry at night": NORTH}
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def everything() -> list[EmbeddedPassage]:
    """Every text in every place, the same for both tenants."""
    return [
        EmbeddedPassage(
            passage=make_passage(f"{text} {task} {agent} {hour}", tenant=tenant, session=session).passage.replace(
                task_id=task, step_id=agent, created=NOON + hour * HOUR, text=text
            ),
            dense=dense,
        )
        for tenant, session, task, agent, hour, (text, dense) in product(
            TENANTS, SESSIONS, TASKS, AGENTS, range(2), TEXTS.items()
        )
    ]


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[QdrantEdgeMemory]:
    memory = await QdrantEdgeMemory.open(tmp_path / "memory", "compass", DIMENSION)
    await memory.upsert(everything())
    yield memory
    await memory.aclose()


def some(*values: str) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from([*values, "elsewhere"]), max_size=2).map(tuple)


TIMES = st.none() | st.integers(-1, 3).map(lambda hours: NOON + hours * HOUR)
QUERIES = st.builds(
    MemoryQuery,
    tenant=st.sampled_from([*TENANTS, "t3", ""]),
    session=st.none() | st.sampled_from([*SESSIONS, "t2", ""]),
    tasks=some(*TASKS),
    agents=some(*AGENTS),
    kinds=st.sampled_from([(), ("conversation",)]),
    since=TIMES,
    until=TIMES,
    text=st.sampled_from([*TEXTS, "keeper ferry", "t2 tenant t1", "of the", ""]),
    dense=st.sampled_from([None, EAST, NORTH, (0.5, 0.5, 0.0, 0.0)]),
    limit=st.integers(1, 100),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(wanted=QUERIES)
async def test_a_query_finds_all_that_it_admits_of_its_tenant_and_nothing_else(
    memory: QdrantEdgeMemory, wanted: MemoryQuery
) -> None:
    found = [recalled.passage for recalled in await memory.search(wanted)]
    assert all(one.tenant == wanted.tenant for one in found)
    assert all(wanted.session in {None, one.session} for one in found)
    assert all(not wanted.tasks or one.task_id in wanted.tasks for one in found)
    assert all(not wanted.agents or one.step_id in wanted.agents for one in found)
    assert all(wanted.since is None or wanted.since <= one.created for one in found)
    assert all(wanted.until is None or one.created < wanted.until for one in found)
    assert len(found) <= wanted.limit
    if wanted.dense is not None:  # then every passage is more or less near
        assert len(found) == min(wanted.limit, sum(admits(wanted, one) for one in everything()))


def admits(wanted: MemoryQuery, item: EmbeddedPassage) -> bool:
    one = item.passage
    return (
        one.tenant == wanted.tenant
        and wanted.session in {None, one.session}
        and (not wanted.tasks or one.task_id in wanted.tasks)
        and (not wanted.agents or one.step_id in wanted.agents)
        and (wanted.since is None or wanted.since <= one.created)
        and (wanted.until is None or one.created < wanted.until)
    )
