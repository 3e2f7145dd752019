"""`waystation dev`, `up`, `down`, `status` and `worker`: the dev server as a child process, the workers in this
process, and the run file that records both.
"""

import asyncio
import fcntl
import os
import subprocess
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from waystation.cli.console import OK, UNREACHABLE, print_json, print_message, print_text
from waystation.cli.options import JsonOption
from waystation.cli.serve import serve_pages
from waystation.config.settings import Settings, describe_unknown_variables
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput, Unreachable, WaystationError
from waystation.kernel.files import create_private_folder, ensure_private_folder, open_private_file
from waystation.kernel.imports import pause_gc_for_imports
from waystation.kernel.text import format_names
from waystation.kernel.value import Value
from waystation.runtime.temporal.run_file import (
    ProcessIdentity,
    RunFile,
    has_server_in_environment,
    read_run_file,
    remove_run_file,
    write_run_file,
)
from waystation.security.confined_process import build_module_command, build_safe_python_path
from waystation.workers.shutdown import stop_on_signals as stop_on_signals  # noqa: PLC0414  dev and demo stop as workers do

if TYPE_CHECKING:
    from waystation.runtime.temporal.dev_server import CodecForUi, DevServer

CHECK_SECONDS = 1.0
POLLED_SECONDS = 10.0
"""Workers poll a moment after they start; a person who submits later than this is warned if none does."""
POLLED_CHECK_SECONDS = 0.1
LOCK_TRIES, LOCK_PAUSE_SECONDS = 10, 0.1
"""A process that checks whether the lock is taken holds it for an instant, which must not look like another run."""
ORPHAN_SECONDS = 10.0
"""Maximum seconds that a server may take to end after its workers' process was killed."""


@asynccontextmanager
async def run_platform_locally(settings: Settings) -> AsyncGenerator[RunFile]:
    """Run server, workers and, if the settings have them, web pages, until the block ends.

    Raises:
        BadInput: One runs here already, or the environment names another server.
        Unreachable: The server does not start.
    """
    require_no_external_temporal_server()
    with pause_gc_for_imports():
        # `up`, `down` and help need not wait for these imports.
        from waystation.runtime.temporal.connect import ensure_search_attributes  # noqa: PLC0415
        from waystation.runtime.temporal.dev_server import run_dev_server  # noqa: PLC0415

    log = settings.logs_folder / "temporal.log"
    codec = _codec(settings)
    started = run_dev_server(settings.temporal_database, log, codec=codec, prefix=settings.prefix)
    async with _only_run(settings), _loading_meanwhile(), started as server:
        run = build_run_file(server)
        write_run_file(settings.run_file, run)
        try:
            if not await ensure_search_attributes(server.client):
                print_message(
                    "Search attributes on the Temporal server have the names that Waystation uses, but other types. "
                    "Tasks run without search attributes, so the Temporal UI cannot filter tasks by these attributes."
                )
            async with serve_pages(settings, partial(_without_pages, settings)) as pages, run_local_workers(settings):
                await _until_polled(server)
                run = run.replace(ready=True, pages=pages)
                write_run_file(settings.run_file, run)
                yield run
        finally:
            remove_run_file(settings.run_file, run)


@asynccontextmanager
async def _loading_meanwhile() -> AsyncGenerator[None]:
    """Import what workers need in a thread while the server starts."""
    loaded = asyncio.create_task(asyncio.to_thread(_load))
    try:
        yield
    finally:
        await loaded


def _load() -> tuple[ModuleType, ...]:
    from waystation.runtime import redaction_setup  # noqa: PLC0415
    from waystation.workers import memory, models, wiring  # noqa: PLC0415

    return redaction_setup, memory, models, wiring


def _without_pages(settings: Settings, why: str) -> None:
    print_message(f"Pages are not served: {why}")
    if (run := read_run_file(settings.run_file)) is not None:
        write_run_file(settings.run_file, run.replace(pages=""))


@asynccontextmanager
async def ensure_platform_running(settings: Settings, who: str) -> AsyncGenerator[None]:
    """Use the platform that runs here or is named; else run one of our own until the block ends.

    Raises as `run_platform_locally`.
    """
    run = read_run_file(settings.run_file)
    if has_server_in_environment() or (run is not None and run.is_server_alive):
        yield
        return
    async with run_platform_locally(settings.replace(pages=False)) as started:
        print_message(f"Temporal UI while {who} runs: {started.ui_url}")
        yield


@asynccontextmanager
async def _only_run(settings: Settings) -> AsyncGenerator[None]:
    """Hold the lock of the home folder; the kernel releases it when this process ends, however it ends."""
    path = _lock_path(settings)
    create_private_folder(path.parent)
    with open_private_file(path) as lock:
        for _ in range(LOCK_TRIES):
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            await asyncio.sleep(LOCK_PAUSE_SECONDS)
        else:
            raise _runs_already(settings)
        await _orphan_ended(settings)
        yield


def is_home_in_use(settings: Settings) -> bool:
    """Return whether a process runs, or is starting, server and workers in this home folder."""
    try:
        with _lock_path(settings).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def _lock_path(settings: Settings) -> Path:
    return settings.home / "run.lock"


def _runs_already(settings: Settings) -> BadInput:
    found = read_run_file(settings.run_file)
    state = f"running: {found.ui_url}" if found is not None and found.is_server_alive else "starting"
    return BadInput(
        f"the platform is already {state} (`waystation status` shows its state, `waystation down` stops it)"
    )


async def _orphan_ended(settings: Settings) -> None:
    found = read_run_file(settings.run_file)
    with suppress(TimeoutError):
        async with asyncio.timeout(ORPHAN_SECONDS):
            while found is not None and found.is_server_alive:  # noqa: ASYNC110  a process gives no event
                await asyncio.sleep(POLLED_CHECK_SECONDS)
    if found is not None and found.is_server_alive:
        raise _runs_already(settings)


def require_no_external_temporal_server() -> None:
    """Raise BadInput if the environment names a server: our own would then be unused."""
    if has_server_in_environment():
        raise BadInput(
            "the environment names a Temporal server (TEMPORAL_ADDRESS or TEMPORAL_PROFILE), but this command starts "
            "its own: unset the variable, or run `waystation worker` against that server"
        )


@asynccontextmanager
async def run_local_workers(settings: Settings) -> AsyncGenerator[None]:
    """Run all workers in this process until the block ends. Raises Unreachable, BadInput."""
    # This import loads Presidio, the model's SDK and Qdrant, which help should not wait for.
    with pause_gc_for_imports():
        from waystation.workers.queues import DEV_TIMING  # noqa: PLC0415
        from waystation.workers.wiring import run_configured_workers  # noqa: PLC0415

    # An earlier build's workers do not run next to these, so that tasks of that build would wait for ever.
    async with run_configured_workers(settings.replace(versioning=False), DEV_TIMING):
        yield


async def _until_polled(server: "DevServer") -> None:
    from waystation.runtime.temporal.task_client import TemporalTaskClient  # noqa: PLC0415

    temporal = TemporalTaskClient(server.client, server.target)
    with suppress(TimeoutError):
        async with asyncio.timeout(POLLED_SECONDS):
            while await temporal.list_queues_without_workers():  # noqa: ASYNC110  the server gives no event
                await asyncio.sleep(POLLED_CHECK_SECONDS)


def _codec(settings: Settings) -> "CodecForUi | None":
    if not settings.encrypts_payloads:
        return None
    # This import loads a web server, which is only needed with encryption.
    from waystation.cli.codec_server import serve_codec_for_ui  # noqa: PLC0415

    return partial(serve_codec_for_ui, settings)


def build_run_file(server: "DevServer") -> RunFile:
    """Build the run file for a server that this process started."""
    return RunFile(
        address=server.target.address,
        namespace=server.target.namespace,
        ui_url=server.target.ui_url or "",
        server=ProcessIdentity.from_pid(server.pid),
        workers=ProcessIdentity.from_pid(os.getpid()),
        started=utc_now(),
        codec_endpoint=server.codec_endpoint,
        remarks=server.remarks,
    )


def print_run_info(run: RunFile) -> None:
    """Print where UI and server are, and what the UI needs to show encrypted payloads."""
    print_message(f"Temporal UI      {run.ui_url or '-'}")
    print_message(f"Temporal server  {run.address}")
    if run.pages:
        print_message(f"Pages            {run.pages} (private link, valid until the platform stops)")
    for remark in run.remarks:
        print_message(remark)
    if run.codec_endpoint is not None:
        print_message(
            "Payloads are encrypted. To read them in the Temporal UI, open its codec server settings, choose "
            f'"Use my browser setting" and enter {run.codec_endpoint} (private link, valid until the platform stops)'
        )


async def wait_until_server_ends(run: RunFile) -> None:
    """Wait while the server runs. Raises Unreachable when it has ended."""
    while run.is_server_alive:  # noqa: ASYNC110  a process gives no event
        await asyncio.sleep(CHECK_SECONDS)
    raise Unreachable(
        "the Temporal dev server has ended; its log is logs/temporal.log in the home folder (`waystation status` shows "
        "where the home folder is)"
    )


app = typer.Typer()


@app.command()
def dev() -> None:
    """Run a Temporal dev server with its UI and the workers until Ctrl-C. All data stays in the home folder."""
    for sentence in describe_unknown_variables():
        print_message(sentence)
    asyncio.run(_dev(Settings()))


async def _dev(settings: Settings) -> None:
    stop_on_signals(lambda: print_message("Stopping after the current turns; press Ctrl-C again to stop at once."))
    try:
        async with run_platform_locally(settings) as run:
            print_run_info(run)
            print_message(f"Home folder      {settings.home}")
            print_message(
                'Next, in another terminal: waystation submit "your question" --docs FOLDER. Press Ctrl-C to stop.'
            )
            await wait_until_server_ends(run)
    except asyncio.CancelledError:
        print_message("Stopped. Tasks continue when the platform runs again.")


WIND_DOWN_SECONDS = 40
"""Maximum seconds of a shutdown: workers let running activities reach a safe point first."""
ENDED_POLL_SECONDS = 0.1


@app.command()
def down() -> None:
    """Stop the Temporal server and workers on this machine. Tasks continue when they run again."""
    settings = Settings()
    run = read_run_file(settings.run_file)
    if run is None:
        print_message("Nothing is running here.")
        return
    # The workers' process takes its server with it; the server is ended here only where that process was killed.
    running = [mark for mark in (run.workers, run.server) if _end(mark)]
    remove_run_file(settings.run_file, run)
    print_message("Stopped. Tasks continue after `waystation up`." if running else "The platform had already ended.")


def _end(mark: ProcessIdentity) -> bool:
    process = mark.find_process()
    if process is None:
        return False
    process.terminate()
    deadline = time.monotonic() + WIND_DOWN_SECONDS
    while time.monotonic() < deadline:
        if mark.find_process() is None:
            return True
        time.sleep(ENDED_POLL_SECONDS)
    process.kill()
    return True


class StatusJson(Value):
    """What runs on this machine."""

    home: str
    address: str
    namespace: str
    ui_url: str | None
    pages: str | None
    """Address of the web pages, with this run's token; None if `dev` serves none."""
    codec_endpoint: str | None
    """Where the UI has payloads decrypted, including the secret path; None if `dev` serves none."""
    started_here: bool
    """Whether `dev` or `up` started the server on this machine."""
    server_answers: bool
    unattended_queues: tuple[str, ...]
    waiting_approvals: int | None
    """None if no server answers."""
    offline: bool

    @property
    def ready(self) -> bool:
        """Whether a task that is submitted now is worked on."""
        return self.server_answers and not self.unattended_queues


@app.command()
def status(as_json: JsonOption = False) -> None:
    """Show what runs on this machine. Exits with 3 if no worker would start a task submitted now."""
    found = asyncio.run(_status(Settings()))
    if as_json:
        print_json(found)
    else:
        print_text(_text(found))
    raise typer.Exit(OK if found.ready else UNREACHABLE)


async def _status(settings: Settings) -> StatusJson:
    from waystation.runtime.temporal.connect import resolve_temporal_target  # noqa: PLC0415

    target = resolve_temporal_target(settings)
    run = read_run_file(settings.run_file)
    found = StatusJson(
        home=str(settings.home),
        address=target.address,
        namespace=target.namespace,
        ui_url=target.ui_url,
        pages=(run.pages or None) if run is not None and run.is_server_alive else None,
        codec_endpoint=run.codec_endpoint if run is not None and run.is_server_alive else None,
        started_here=run is not None and run.is_server_alive and run.address == target.address,
        server_answers=False,
        unattended_queues=(),
        waiting_approvals=None,
        offline=settings.uses_offline_model,
    )
    try:
        # The client takes half a second to load, and `down` and `up` do not need it.
        from waystation.client import Client  # noqa: PLC0415

        async with await Client.connect(settings) as client:
            unattended = await client.list_unattended_queues()
            waiting = len(await client.list_approvals())
    except Unreachable:
        return found
    return found.replace(server_answers=True, unattended_queues=unattended, waiting_approvals=waiting)


def _text(found: StatusJson) -> str:
    rows: list[tuple[str, str]] = []
    if found.server_answers:
        rows += [("Temporal server", f"{found.address}, namespace {found.namespace}")]
        rows += [("Temporal UI", found.ui_url or "unknown")]
    else:
        where = f"does not answer at {found.address}" if found.address else "not running"
        ours = "`waystation up` starts a server"
        theirs = "start the server, or unset TEMPORAL_ADDRESS and TEMPORAL_PROFILE and run `waystation up`"
        hint = theirs if has_server_in_environment() else ours
        rows += [("Temporal server", f"{where}; {hint}")]
    if found.pages:
        rows += [("Pages", f"{found.pages} (private link)")]
    if found.codec_endpoint:
        rows += [("Codec for the UI", f"{found.codec_endpoint} (private link)")]
    if found.server_answers:
        queues = found.unattended_queues
        rows += [
            (
                "Workers",
                f"no worker polls the {format_names('queue', queues)}: run `waystation worker`"
                if queues
                else "poll every queue",
            )
        ]
        waiting = found.waiting_approvals or 0
        rows += [("Waiting requests", f"{waiting} (`waystation approvals` lists them)" if waiting else "0")]
    rows += [("Home folder", found.home)]
    rows += [("Model", "built-in offline model" if found.offline else "as in the settings (default: Claude)")]
    return "\n".join(f"{label:<17}{value}" for label, value in rows)


START_SECONDS = 300
READY_POLL_SECONDS = 0.1


@app.command()
def up() -> None:
    """Start the Temporal server and workers in the background.

    They outlive this terminal; `waystation down` stops them.
    """
    for sentence in describe_unknown_variables():
        print_message(sentence)
    settings = Settings()
    run = asyncio.run(_up(settings))
    print_run_info(run)
    ways = "open the pages, or run: " if run.pages else ""
    print_message(f'Next: {ways}waystation submit "your question" --docs FOLDER')


async def _up(settings: Settings) -> RunFile:
    require_no_external_temporal_server()
    log = settings.logs_folder / "dev.log"
    process: subprocess.Popen[bytes] | None = None
    try:
        async with asyncio.timeout(START_SECONDS):
            # Two may start at once: the one that lost waits for the other.
            while process is None or process.poll() is None or is_home_in_use(settings):
                run = read_run_file(settings.run_file)
                if run is not None and run.ready and run.is_server_alive and run.workers.find_process() is not None:
                    if process is None or run.workers.pid != process.pid:
                        print_message("The platform is already running.")
                    return run
                # A run whose server died still holds the lock until its workers have ended.
                if process is None and not is_home_in_use(settings):
                    process = _start(log)
                    print_message("Starting a Temporal dev server, workers and pages …")
                await asyncio.sleep(READY_POLL_SECONDS)
    except asyncio.CancelledError:
        if process is not None and process.poll() is None:
            print_message(
                "The platform is still starting in the background. `waystation status` shows whether it is ready; "
                "when it is, `waystation down` stops it."
            )
        raise
    except TimeoutError as error:
        if process is not None:
            process.terminate()
        raise Unreachable(
            f"the platform was not ready within {START_SECONDS} s and was stopped. {log} shows how far the start got. "
            "Nothing is lost: start the platform again"
        ) from error
    raise Unreachable(f"the platform exited before it was ready: {_last_line(log)} ({log})")


def _last_line(log: Path) -> str:
    """Return the last line of the log: most likely why its writer ended."""
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "its log is empty"


def _start(log: Path) -> subprocess.Popen[bytes]:
    ensure_private_folder(log.parent)
    with open_private_file(log) as output:
        return subprocess.Popen(
            build_module_command("waystation.cli.main", "dev"),
            # The workers read settings and keys from the environment.
            env={**os.environ, "PYTHONPATH": "", **build_safe_python_path()},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


@app.command()
def worker(
    queues: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Queues to poll; default: workflows,agents,context. A worker with fewer queues needs QDRANT_URL.",
        ),
    ] = None,
) -> None:
    """Run workers until Ctrl-C, for the server in TEMPORAL_ADDRESS or the Temporal profile."""
    settings = Settings() if queues is None else Settings(queues=queues)
    if settings.qdrant_url is None and is_home_in_use(settings):
        raise WaystationError(
            "workers already run with this home folder: stop them with `waystation down`, "
            "or set WAYSTATION_HOME to another folder"
        )
    # This import loads Temporal's SDK, which help should not wait for.
    with pause_gc_for_imports():
        from waystation.workers.wiring import serve  # noqa: PLC0415

    asyncio.run(serve(settings, print_message))
