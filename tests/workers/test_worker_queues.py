"""Which queues a worker process serves, and what it opens for them."""

import os
import socket
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import pytest
from temporalio.worker import PollerBehaviorAutoscaling, PollerBehaviorSimpleMaximum

from tests.support.temporal_platform import wait_until
from waystation.cli.main import run
from waystation.cli.platform import run_local_workers
from waystation.config.setting_types import ListenAddress, parse_listen_address
from waystation.config.settings import Settings
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput, MemoryUnavailable
from waystation.kernel.temporal_names import AGENTS_QUEUE, CONTEXT_QUEUE, QUEUES
from waystation.memory.embedders.local import NoEmbedder
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.temporal.connect import TemporalTarget, connect
from waystation.runtime.temporal.deployment_client import TemporalDeploymentClient
from waystation.workers.memory import open_memory
from waystation.workers.queues import DEV_TIMING, build_worker_tuning, select_served_queues
from waystation.workers.wiring import run_configured_workers

SERVER = "http://127.0.0.1:9"
SERVES_WORKFLOWS = """
import sys
import waystation.workers.wiring
print(*{"spacy", "presidio_analyzer", "anthropic", "qdrant_client", "qdrant_edge"} & set(sys.modules))
"""

EMBEDS_MEMORY = """
import sys
import waystation.workers.memory
print(*{"qdrant_client"} & set(sys.modules))
"""


def test_all_queues_are_served_unless_some_are_named() -> None:
    assert select_served_queues(Settings()) == set(QUEUES)
    assert select_served_queues(Settings(queues="context, agents,workflows")) == set(QUEUES)
    assert select_served_queues(Settings(queues="agents,context", qdrant_url=SERVER)) == {AGENTS_QUEUE, CONTEXT_QUEUE}


def test_an_unknown_queue_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(BadInput, match="there is no queue agent: the queues are workflows, agents, context"):
        select_served_queues(Settings(queues="agent,workflows", qdrant_url=SERVER))


def test_embedded_memory_needs_one_process_for_all_queues() -> None:
    with pytest.raises(BadInput, match=r"without QDRANT_URL one process runs all queues.*set QDRANT_URL to a Qdrant"):
        select_served_queues(Settings(queues="agents"))


async def test_a_second_process_on_embedded_memory_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    async with open_memory(settings, NoEmbedder()) as memory:
        assert await memory.count("t") == 0
        with pytest.raises(BadInput, match=r"another process runs the workers of .*or set QDRANT_URL"):
            async with open_memory(settings, NoEmbedder()):
                pass
    async with open_memory(settings, NoEmbedder()):
        pass


async def test_memory_on_a_server_is_shared_and_opens_while_the_server_is_down(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, qdrant_url=SERVER, qdrant_grpc_port=0)
    async with open_memory(settings, NoEmbedder()), open_memory(settings, NoEmbedder()) as second:
        with pytest.raises(MemoryUnavailable, match=r"127\.0\.0\.1:9"):
            await second.count("t")


def test_a_process_of_workflows_alone_loads_neither_redaction_nor_model_nor_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    ran = subprocess.run([sys.executable, "-c", SERVES_WORKFLOWS], capture_output=True, text=True, check=True)
    assert ran.stdout == "\n"


def test_a_process_with_embedded_memory_does_not_load_the_client_of_a_server() -> None:
    ran = subprocess.run([sys.executable, "-c", EMBEDS_MEMORY], capture_output=True, text=True, check=True)
    assert ran.stdout == "\n"


def test_slots_are_fixed_unless_a_target_is_set() -> None:
    fixed = build_worker_tuning(Settings(), 32)
    assert fixed.polling == PollerBehaviorSimpleMaximum()
    assert "FixedSizeSlotSupplier(num_slots=32)" in repr(fixed.slots)
    by_resources = build_worker_tuning(Settings(target_memory=0.5), 4)
    assert by_resources.polling == PollerBehaviorAutoscaling()
    assert "ResourceBasedTunerConfig(target_memory_usage=0.5, target_cpu_usage=1.0)" in repr(by_resources.slots)
    assert "maximum_slots=4" in repr(by_resources.slots)


def test_addresses_are_read_with_their_hosts_resolved() -> None:
    assert parse_listen_address("S", "0.0.0.0:9464") == ListenAddress("0.0.0.0", 9464)
    assert parse_listen_address("S", "[::1]:80") == ListenAddress("::1", 80)
    assert parse_listen_address("S", "localhost:80").host in {"127.0.0.1", "::1"}


@pytest.mark.parametrize("text", ["9464", ":9464", "host:", "host:0", "host:65536", "::1:80", "http://host:80"])
def test_an_address_that_is_none_names_its_setting(text: str) -> None:
    with pytest.raises(BadInput, match=r"WAYSTATION_X is .*: write it as host:port"):
        parse_listen_address("WAYSTATION_X", text)


@pytest.mark.parametrize("command", [("-m", "waystation.workers"), ("-m", "waystation.cli.main", "worker")])
def test_both_entry_points_refuse_a_queue_that_is_none(command: tuple[str, ...], tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, *command, "--queues", "nope"],
        env={**os.environ, "WAYSTATION_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert ran.stderr.endswith("there is no queue nope: the queues are workflows, agents, context\n")


async def test_a_process_that_cannot_start_leaves_no_claim_on_the_key_of_its_store(
    temporal_server: TemporalTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_server.address)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = Settings(home=tmp_path, health_address=f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(BadInput, match="WAYSTATION_HEALTH_ADDRESS"):
            async with run_configured_workers(settings):
                pass
    async with aclosing(await SqlStore.open(settings.database_url, utc_now)) as store:
        assert await store.claim_key("another")


async def test_the_first_build_becomes_the_current_one_and_workers_of_dev_take_no_part(
    temporal_server: TemporalTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_server.address)
    deployment = TemporalDeploymentClient(await connect(temporal_server))
    settings = Settings(home=tmp_path, versioning=True, build_id="7.1")
    async with run_local_workers(settings):
        with pytest.raises(BadInput, match="no deployment waystation"):
            await deployment.list_builds()

    async def list_states() -> list[tuple[str, str]]:
        return [(build.build_id, build.state) for build in await deployment.list_builds()]

    async def is_listed() -> bool:
        return len(await list_states()) == 2

    async with run_configured_workers(settings, DEV_TIMING):
        assert await list_states() == [("7.1", "current")]
    async with run_configured_workers(settings.replace(build_id="7.2"), DEV_TIMING):
        await wait_until(is_listed)
    assert await list_states() == [("7.1", "current"), ("7.2", "inactive")]


def test_a_qdrant_url_that_is_none_is_something_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    monkeypatch.setenv("QDRANT_URL", "qdrant")
    assert run(["doctor"]) == 1
    assert "FAIL memory: QDRANT_URL is not the address of a server" in capsys.readouterr().out


def test_the_doctor_tells_which_server_queues_and_memory_there_are(
    temporal_server: TemporalTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_server.address)
    run(["doctor"])
    embedded = capsys.readouterr().out
    assert f"ok   Temporal server: {temporal_server.address}, namespace default, TLS no, API key no\n" in embedded
    assert f"ok   memory: embedded in {tmp_path}/memory; " in embedded
    assert "workers: " in embedded
    monkeypatch.setenv("QDRANT_URL", SERVER)
    monkeypatch.setenv("WAYSTATION_QDRANT_GRPC_PORT", "0")
    run(["doctor"])
    assert "--   memory: the Qdrant server at http://127.0.0.1:9 does not answer" in capsys.readouterr().out
