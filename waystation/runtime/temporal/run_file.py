"""The run file, in which a `waystation dev` of this machine records the server and workers that it runs."""

import os
from datetime import datetime
from pathlib import Path

import psutil
from pydantic import ValidationError

from waystation.kernel.files import create_private_folder, write_private_file
from waystation.kernel.value import Value


class ProcessIdentity(Value):
    """Identifies one process: pids are reused, so its start time belongs to it."""

    pid: int
    uptime: float
    """Seconds from the machine's boot to the process's start. A time of day would change whenever the clock is set."""

    @classmethod
    def from_pid(cls, pid: int) -> "ProcessIdentity":
        """Return the identity of the process that has this pid now. Raises psutil.NoSuchProcess."""
        return cls(pid=pid, uptime=_uptime(psutil.Process(pid)))

    def find_process(self) -> psutil.Process | None:
        """Return the process, unless it has ended."""
        try:
            found = psutil.Process(self.pid)
            same = _uptime(found) == self.uptime and found.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return None
        return found if same else None


def _uptime(process: psutil.Process) -> float:
    # Both come from the same clock. The kernel counts in hundredths of a second.
    return round(process.create_time() - psutil.boot_time(), 2)


class RunFile(Value):
    """A running dev server with its workers."""

    address: str
    namespace: str
    ui_url: str
    server: ProcessIdentity
    workers: ProcessIdentity
    """The process that runs the workers and started the server."""
    started: datetime
    codec_endpoint: str | None = None
    """Where payloads are decrypted for the UI, including the secret path; None if they are not encrypted."""
    ready: bool = False
    """Whether the workers poll, and web pages are served if they are wanted."""
    pages: str = ""
    """Address of the web pages, with the token; empty if they are not served."""
    remarks: tuple[str, ...] = ()
    """What the server has to do without, and what to do about it."""

    @property
    def is_server_alive(self) -> bool:
        """Whether the server's process still exists. Whether it answers shows only in connecting."""
        return self.server.find_process() is not None


def read_run_file(path: Path) -> RunFile | None:
    """Read the run file; None if there is none, or it is unreadable."""
    try:
        return RunFile.model_validate_json(path.read_bytes(), extra="ignore")
    except (FileNotFoundError, ValidationError):
        return None


def is_started_by_this_process(path: Path) -> bool:
    """Return whether this process started the recorded server, which then ends with it."""
    run = read_run_file(path)
    return run is not None and run.workers == ProcessIdentity.from_pid(os.getpid())


def write_run_file(path: Path, run: RunFile) -> None:
    """Replace the run file atomically, so that a reader never sees half of it."""
    create_private_folder(path.parent)
    write_private_file(path, run.model_dump_json(indent=2).encode())


def remove_run_file(path: Path, run: RunFile) -> None:
    """Remove the run file, unless another run has written its own meanwhile."""
    found = read_run_file(path)
    if found is not None and found.replace(pages=run.pages, ready=run.ready) == run:
        path.unlink(missing_ok=True)


def has_server_in_environment() -> bool:
    """Return whether the environment names a server, which then takes precedence."""
    return bool(os.environ.get("TEMPORAL_ADDRESS") or os.environ.get("TEMPORAL_PROFILE"))
