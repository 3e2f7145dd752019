"""Waystation on this machine: the dev server as a child, the workers in this process, and the record of both."""

import asyncio
import fcntl
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from waystation.adapters.clock import utc_now
from waystation.adapters.temporal.connect import named_in_environment
from waystation.adapters.temporal.dev_server import CodecForUi, DevServer, running_dev_server
from waystation.adapters.temporal.run_file import (
    ProcessMark,
    RunFile,
    read_run_file,
    remove_run_file,
    write_run_file,
)
from waystation.adapters.temporal.search_attributes import ensure_search_attributes
from waystation.adapters.temporal.tasks import TemporalTasks
from waystation.cli.console import say
from waystation.domain.errors import BadInput, Unreachable
from waystation.loading import loading
from waystation.private_files import opened_private, private_folder
from waystation.settings import Settings
from workers.stopping import stop_on_signals as stop_on_signals  # noqa: PLC0414  dev and demo stop as workers do

CHECK_SECONDS = 1.0
POLLED_SECONDS = 10.0
"""Workers poll a moment after they start; who submits later than this is told that none does."""
POLLED_CHECK_SECONDS = 0.1
LOCK_TRIES, LOCK_PAUSE_SECONDS = 10, 0.1
"""Who looks whether the lock is taken holds it for an instant, and that must not look like another run."""
ORPHAN_SECONDS = 10.0
"""How long a server may take to end after its workers' process was killed."""


@asynccontextmanager
async def running_locally(settings: Settings) -> AsyncGenerator[RunFile]:
    """Server and workers, until the block ends.

    Raises:
        BadInput: one runs here already, or the environment names another server.
        Unreachable: the server does not start.
    """
    refuse_named_server()
    log = settings.logs_folder / "temporal.log"
    codec = _codec(settings)
    async with _only_run(settings), running_dev_server(settings.temporal_database, log, codec=codec) as server:
        run = _record(server)
        write_run_file(settings.run_file, run)
        try:
            if not await ensure_search_attributes(server.client):
                say("The server has search attributes of our names with other types: tasks run without them.")
            async with workers_here(settings):
                await _until_polled(server)
                yield run
        finally:
            remove_run_file(settings.run_file, run)


@asynccontextmanager
async def _only_run(settings: Settings) -> AsyncGenerator[None]:
    """Hold the lock of the home folder; the kernel releases it when this process ends, however it ends."""
    path = _lock_path(settings)
    private_folder(path.parent)
    with opened_private(path) as lock:
        for _ in range(LOCK_TRIES):
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            await asyncio.sleep(LOCK_PAUSE_SECONDS)
        else:
            raise _runs_already(settings)
        await _orphan_ended(settings)
        yield


def taken(settings: Settings) -> bool:
    """Whether a process runs, or just starts, server and workers in this home folder."""
    try:
        with _lock_path(settings).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def serves_itself(settings: Settings) -> bool:
    """Whether the server of this home folder was started by this process, and so ends with it."""
    run = read_run_file(settings.run_file)
    return run is not None and run.workers == ProcessMark.of(os.getpid())


def _lock_path(settings: Settings) -> Path:
    return settings.home / "run.lock"


def _runs_already(settings: Settings) -> BadInput:
    found = read_run_file(settings.run_file)
    where = found.ui_url if found is not None and found.alive else "it is just starting"
    return BadInput(f"it runs already: {where} (`waystation status`, `waystation down`)")


async def _orphan_ended(settings: Settings) -> None:
    found = read_run_file(settings.run_file)
    with suppress(TimeoutError):
        async with asyncio.timeout(ORPHAN_SECONDS):
            while found is not None and found.alive:  # noqa: ASYNC110  a process gives no event
                await asyncio.sleep(POLLED_CHECK_SECONDS)
    if found is not None and found.alive:
        raise _runs_already(settings)


def refuse_named_server() -> None:
    """Raise BadInput where the environment names a server, which our own would then be in vain."""
    if named_in_environment():
        raise BadInput(
            "the environment names a Temporal server (TEMPORAL_ADDRESS or TEMPORAL_PROFILE), and `dev` starts its own: "
            "unset it, or run `waystation worker` against that server"
        )


@asynccontextmanager
async def workers_here(settings: Settings) -> AsyncGenerator[None]:
    """All workers in this process, until the block ends. Raises Unreachable, BadInput."""
    # Presidio, the model's SDK and Qdrant come with this import: whoever asks for help should not wait for them.
    with loading():
        from workers.wiring import running_workers  # noqa: PLC0415

    async with running_workers(settings):
        yield


async def _until_polled(server: DevServer) -> None:
    temporal = TemporalTasks(server.client, server.target)
    with suppress(TimeoutError):
        async with asyncio.timeout(POLLED_SECONDS):
            while await temporal.unattended_queues():  # noqa: ASYNC110  the server gives no event
                await asyncio.sleep(POLLED_CHECK_SECONDS)


def _codec(settings: Settings) -> CodecForUi | None:
    if not settings.encrypts_payloads:
        return None
    # A web server comes with this import, which who encrypts nothing does not need.
    from waystation.cli.codec_server import codec_for_ui  # noqa: PLC0415

    return partial(codec_for_ui, settings)


def _record(server: DevServer) -> RunFile:
    return RunFile(
        address=server.target.address,
        namespace=server.target.namespace,
        ui_url=server.target.ui_url or "",
        server=ProcessMark.of(server.pid),
        workers=ProcessMark.of(os.getpid()),
        started=utc_now(),
        codec_endpoint=server.codec_endpoint,
    )


def say_where(run: RunFile) -> None:
    """Tell a person where UI and server are, and what the UI needs to show encrypted payloads."""
    say(f"Temporal UI {run.ui_url}  server {run.address}")
    if run.codec_endpoint is not None:
        say(
            "Payloads are encrypted. To read and answer them in the UI: the codec server button at its top, there "
            f'"Use my browser setting", with {run.codec_endpoint} (for this run; tell nobody)'
        )


async def while_alive(run: RunFile) -> None:
    """Wait for as long as the server runs. Raises Unreachable when it has ended."""
    while run.alive:  # noqa: ASYNC110  a process gives no event
        await asyncio.sleep(CHECK_SECONDS)
    raise Unreachable("the Temporal dev server has ended; its log is in the logs folder (`waystation status`)")
