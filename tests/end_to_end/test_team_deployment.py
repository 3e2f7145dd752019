"""The same task on the servers that teams run: PostgreSQL, a Qdrant server, and two worker processes, one of which is
stopped in the middle of a leg, and then killed in the middle of another."""

import asyncio
import subprocess
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.end_to_end.messages_server import run_messages_server
from tests.end_to_end.shell import Shell, assert_no_committed_turn_repeated, terminate, wait_until
from tests.end_to_end.survey_documents import BROAD_QUESTION, write_survey_documents
from tests.support.free_ports import find_free_port
from tests.support.postgres_server import PostgresServer
from tests.support.qdrant_server import run_qdrant_server
from waystation.runtime.temporal.dev_server import run_dev_server

AGENTS, THE_REST = "agents", "workflows,context"
QDRANT_KEY = "a-key-of-qdrant"


@contextmanager
def run_temporal_server(folder: Path) -> Generator[str]:
    """A Temporal server; its address."""
    with asyncio.Runner() as runner:
        server = run_dev_server(folder / "temporal.db", folder / "temporal.log", port=0, ui_port=0)
        started = runner.run(server.__aenter__())
        yield started.target.address
        runner.run(server.__aexit__(None, None, None))


class Workers:
    """Two worker processes on one shell's settings."""

    def __init__(self, shell: Shell, folder: Path) -> None:
        self._shell, self._folder = shell, folder
        self.agents = self.start(AGENTS)
        self.rest = self.start(THE_REST)

    def start(self, queues: str) -> subprocess.Popen[bytes]:
        """A process that serves these queues, once it says that it is ready."""
        health = f"127.0.0.1:{find_free_port()}"
        shell = self._shell.with_settings(WAYSTATION_HEALTH_ADDRESS=health)
        process = shell.start("worker", "--queues", queues, log=self._folder / f"{queues}.log")
        wait_until(lambda: is_health_ready(health), 180, f"readiness of the process for {queues}")
        return process

    def stop_agents(self) -> int:
        """With the usual grace; then another process takes the agents' queue. Returns the exit code."""
        code = terminate(self.agents)
        self.agents = self.start(AGENTS)
        return code

    def kill_agents(self) -> None:
        """No warning, no grace; then another process takes the agents' queue."""
        self.agents.kill()
        self.agents.wait()
        self.agents = self.start(AGENTS)


def is_health_ready(address: str) -> bool:
    try:
        with urlopen(f"http://{address}/readyz") as answer:
            return answer.status == 200
    except URLError:  # an answer of 503, too
        return False


@contextmanager
def working(shell: Shell, folder: Path) -> Generator[Workers]:
    workers = Workers(shell, folder)
    try:
        yield workers
    finally:
        codes = [terminate(process) for process in (workers.agents, workers.rest)]
    assert codes == [0, 0]


@pytest.mark.timeout(900)
def test_a_task_ends_on_server_adapters_though_its_agents_process_is_stopped_and_then_killed(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    documents = write_survey_documents(tmp_path / "survey")
    with ExitStack() as stack:
        model = stack.enter_context(run_messages_server(delay=0.1))
        memory = stack.enter_context(run_qdrant_server(api_key=QDRANT_KEY))
        settings = {
            "ANTHROPIC_API_KEY": "a-key-for-tests",
            "ANTHROPIC_BASE_URL": model.url,
            "DATABASE_URL": postgres.new_database(),
            "QDRANT_URL": memory.url,
            "QDRANT_API_KEY": QDRANT_KEY,
            "WAYSTATION_QDRANT_GRPC_PORT": "0",
            "WAYSTATION_KEY": "17" * 32,
            "TEMPORAL_ADDRESS": stack.enter_context(run_temporal_server(tmp_path)),
        }
        shell = Shell(tmp_path / "home", settings)
        assert shell.run("store", "migrate").returncode == 0
        workers = stack.enter_context(working(shell, tmp_path))
        submitted = shell.run_json(
            "submit", BROAD_QUESTION, "--docs", str(documents), "--budget", "300k", "--window", "11k", "--detach"
        )
        task_id = str(submitted["task_id"])

        wait_until(lambda: len(shell.list_paid_turns()) >= 3, 270, "three committed turns")
        assert workers.stop_agents() == 0
        assert max(Counter((call.step, call.turn) for call in model.answered).values()) == 1

        paid = len(shell.list_paid_turns())
        wait_until(lambda: len(shell.list_paid_turns()) >= paid + 2, 270, "two turns more")
        workers.kill_agents()

        assert shell.approve_until_over(task_id) in {"done", "partial"}
        assert "# " in shell.run("report", task_id).stdout
        assert_no_committed_turn_repeated(model, shell)
        assert memory.points("waystation")
