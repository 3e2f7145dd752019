"""The health endpoint over a real server and a real store."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from pydantic import JsonValue
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from tests.support.free_ports import find_free_port
from tests.support.stub_workflows import StubSessionWorkflow
from tests.support.temporal_platform import open_store, start_dev_server
from waystation.kernel.errors import BadInput
from waystation.runtime.sql_store import SqlStore
from waystation.testing.doubles import ListMemory
from waystation.workers.health import HealthCheck, run_health_server
from waystation.workers.wiring import run_workers


@dataclass
class Served:
    """The endpoint, and what it looks at."""

    port: int
    store: SqlStore
    memory: ListMemory
    workers: Sequence[Worker]

    async def get(self, path: str) -> tuple[int, JsonValue]:
        """Status and body."""
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{self.port}{path}") as answer:
            return answer.status, await answer.json()

    async def missing(self) -> tuple[int, set[str]]:
        """What `/readyz` answers, and which parts are not there."""
        status, body = await self.get("/readyz")
        assert isinstance(body, dict)
        parts = body["parts"]
        assert isinstance(parts, dict)
        assert body == {"ready": status == 200, "parts": parts}
        assert set(parts) == {"workers", "temporal", "store", "memory"}
        return status, {name for name, there in parts.items() if not there}


@asynccontextmanager
async def serving(client: Client, store: SqlStore, *workers: Worker) -> AsyncGenerator[Served]:
    port, memory = find_free_port(), ListMemory()
    async with run_health_server(f"127.0.0.1:{port}", HealthCheck(client, store, memory, workers)):
        yield Served(port, store, memory, workers)


@pytest.fixture
async def served(temporal_client: Client, tmp_path: Path) -> AsyncGenerator[Served]:
    worker = Worker(
        temporal_client,
        task_queue="health",
        workflows=[StubSessionWorkflow],
        workflow_runner=UnsandboxedWorkflowRunner(),
    )
    async with open_store(tmp_path) as store, serving(temporal_client, store, worker) as served:
        yield served


async def test_a_process_lives_before_it_is_ready_and_is_ready_while_its_workers_poll(served: Served) -> None:
    assert await served.get("/livez") == (200, {"live": True})
    assert await served.missing() == (503, {"workers"})
    async with run_workers(served.workers):
        while (await served.missing()) != (200, set()):
            await asyncio.sleep(0.01)
    assert await served.missing() == (503, {"workers"})


async def test_a_memory_that_is_down_is_told_and_makes_nothing_unready(served: Served) -> None:
    served.memory.failing = True
    async with run_workers(served.workers):
        while (await served.missing()) != (200, {"memory"}):
            await asyncio.sleep(0.01)


async def test_without_its_store_a_worker_is_not_ready(served: Served, tmp_path: Path) -> None:
    await served.store.aclose()
    (tmp_path / "waystation.db").unlink()
    (tmp_path / "waystation.db").mkdir()
    assert await served.missing() == (503, {"store", "workers"})


async def test_without_its_server_a_worker_is_not_ready(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        async with start_dev_server() as gone:
            pass
        async with serving(gone, store) as health:
            assert await health.missing() == (503, {"temporal"})


async def test_a_port_that_is_taken_names_the_setting(served: Served, temporal_client: Client) -> None:
    address = f"127.0.0.1:{served.port}"
    with pytest.raises(BadInput, match=f"WAYSTATION_HEALTH_ADDRESS is '{address}', where nothing can listen"):
        async with run_health_server(address, HealthCheck(temporal_client, served.store, served.memory, [])):
            pass
