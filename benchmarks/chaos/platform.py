"""A home folder with a Temporal dev server and a worker, each a process that can be killed at any moment."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.chaos.kills import Victim
from waystation.config.settings import Settings
from waystation.runtime.temporal import die_with_parent
from waystation.runtime.temporal.dev_server import DevServer, find_free_port, run_dev_server
from waystation.runtime.temporal.run_file import ProcessIdentity, RunFile, write_run_file

ROOT = Path(__file__).parents[2]
SETTINGS = ("WAYSTATION_", "TEMPORAL_", "ANTHROPIC_", "QDRANT_", "DATABASE_URL")
"""Nobody's settings but the run's own: it must reach neither a person's provider nor their store."""


class Platform:
    """Server and worker on one home folder, which commands find through its run file."""

    server: DevServer
    worker: subprocess.Popen[bytes]

    def __init__(self, settings: Settings, model_url: str) -> None:
        self._settings, self._model_url = settings, model_url
        self._ports = find_free_port(0), find_free_port(0)
        self._server_life = AsyncExitStack()
        self.exits: list[int] = []
        """Exit codes of workers that ended by themselves, as one does that starts while its server is away."""

    async def kill(self, victim: Victim) -> None:
        """By SIGKILL; what was killed is started again at once."""
        if victim is not Victim.SERVER:
            self.kill_worker()
        if victim is not Victim.WORKER:
            os.kill(self.server.pid, signal.SIGKILL)
            await self.forget_server()
            await self.start_server()
        if victim is not Victim.SERVER:
            self.start_worker()

    def kill_worker(self) -> None:
        """Without a word."""
        self.worker.kill()
        self.worker.wait()

    def supervise(self) -> None:
        """Start a worker that ended by itself again, as every service manager does."""
        code = self.worker.poll()
        if code is not None:
            self.exits.append(code)
            self.start_worker()

    async def start_server(self) -> None:
        """On the same file and ports as before. Raises Unreachable."""
        database, log = self._settings.temporal_database, self._settings.logs_folder / "temporal.log"
        self.server = await self._server_life.enter_async_context(run_dev_server(database, log, *self._ports))
        mark, mine = ProcessIdentity.from_pid(self.server.pid), ProcessIdentity.from_pid(os.getpid())
        target = self.server.target
        run = RunFile(
            address=target.address,
            namespace=target.namespace,
            ui_url=target.ui_url or "",
            server=mark,
            workers=mine,
            started=datetime.now(UTC),
        )
        write_run_file(self._settings.run_file, run)

    async def forget_server(self) -> None:
        """Wait for the end of its process, which is asked to stop where it still runs."""
        await self._server_life.aclose()

    def start_worker(self) -> None:
        """All queues in one process, as embedded memory has it. It ends with this process, however that ends."""
        ends_with_us = [sys.executable, "-I", "-S", die_with_parent.__file__, str(os.getpid())]
        command = [*ends_with_us, sys.executable, "-m", "waystation.cli.main", "worker"]
        with (self._settings.logs_folder / "worker.log").open("ab") as log:
            # A process group of its own: Ctrl-C reaches us alone, and we end what we started.
            self.worker = subprocess.Popen(
                command, cwd=ROOT, env=self._environment, stdout=log, stderr=log, process_group=0
            )

    @property
    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)}
        ours = {"ANTHROPIC_API_KEY": "a-key-for-nobody", "ANTHROPIC_BASE_URL": self._model_url}
        return {**kept, **ours, "WAYSTATION_HOME": str(self._settings.home)}


@asynccontextmanager
async def running_platform(settings: Settings, model_url: str) -> AsyncGenerator[Platform]:
    """Server and worker until the block ends."""
    platform = Platform(settings, model_url)
    try:
        await platform.start_server()
        platform.start_worker()
        try:
            yield platform
        finally:
            platform.kill_worker()
    finally:
        await platform.forget_server()
