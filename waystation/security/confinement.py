"""The child's side of `waystation.security.confined_process`: gives up rights, then answers requests.

`python -P -m waystation.security.confinement MODULE SOCKET BOUNDS` imports MODULE, calls its `prepare`, gives up what
it does not need before untrusted text arrives, and calls its `answer` for each request until the parent is gone. The
kernel takes rights from the calling thread and from threads that start later, so no module may start a thread while it
is prepared.

What a kernel does not support is left out, and the parent learns what applies: `ConfinementStatus` is the first
message. The three Landlock calls and one seccomp filter are made here, since the packages for them are unreleased, new,
or whole sandboxes.
"""

import ctypes
import importlib
import json
import os
import platform
import resource
import signal
import socket
import struct
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

LENGTH_HEADER = struct.Struct("!Q")
"""Precedes each message: its length in bytes."""
MAX_FILES = 2
"""Maximum number of files sent with a request."""
_CHUNK = 1 << 20
_ORPHAN_CHECK_SECONDS = 1.0
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38


@dataclass(frozen=True)
class ResourceLimits:
    """What a child may use. In any case it reaches no network, and of the file system only the libraries."""

    parent: int
    """Process id of the parent; the child ends when it does."""
    memory: int | None = None
    """Maximum address space in bytes; None for no limit."""


@dataclass(frozen=True)
class ConfinementStatus:
    """What this kernel keeps from a child. Limits on size, and ending with the parent, apply everywhere."""

    landlock: int = 0
    """Version of the Landlock interface, 0 if there is none. Files are blocked from version 1, signals from
    version 6.
    """
    seccomp: bool = False
    """Whether sockets and other programs are blocked."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left out."""
        return self.landlock > 0 and self.seccomp

    @property
    def description(self) -> str:
        """What is blocked, for a person."""
        files = (
            f"no file except libraries (Landlock {self.landlock})"
            if self.landlock
            else "every file that this user may open"
        )
        reach = "no network, program or other process (seccomp)" if self.seccomp else "the network"
        return f"these processes can open {files}, and can reach {reach}"


class ConfinedService(Protocol):
    """A module that answers requests."""

    @staticmethod
    def prepare() -> None:
        """Load trusted things that need more rights than a confined process has."""
        ...

    @staticmethod
    def answer(request: bytes, files: Sequence[int], /) -> bytes:
        """Return the answer. `files` are open files that came with the request, to be closed. An error ends the
        child.
        """
        ...


def main() -> None:
    """Confine this process, then answer requests until the parent is gone."""
    module, number, bounds = sys.argv[1:]
    with socket.socket(fileno=int(number)) as line:
        apply_resource_limits(ResourceLimits(**json.loads(bounds)))
        service: ConfinedService = importlib.import_module(module)  # pyright: ignore[reportAssignmentType]
        service.prepare()
        held = apply_confinement()
        send_with_files(line, json.dumps(asdict(held)).encode())
        with suppress(EOFError, ConnectionError):
            while True:
                send_with_files(line, service.answer(*_request(line)))


def send_with_files(line: socket.socket, message: bytes, files: Sequence[int] = ()) -> None:
    """Send a message with open files.

    Raises:
        OSError: the other side is gone.
    """
    head = LENGTH_HEADER.pack(len(message)) + message[:_CHUNK]
    sent = socket.send_fds(line, [head], files) if files else line.send(head)
    line.sendall(memoryview(head)[sent:])
    line.sendall(memoryview(message)[_CHUNK:])


def _request(line: socket.socket) -> tuple[bytes, Sequence[int]]:
    head, files, _, _ = socket.recv_fds(line, LENGTH_HEADER.size, MAX_FILES)
    if not head:
        raise EOFError
    head += _received(line, LENGTH_HEADER.size - len(head))
    return _received(line, LENGTH_HEADER.unpack(head)[0]), files


def receive_chunk(line: socket.socket, maximum: int) -> bytes:
    """Return the available data, at most `maximum` bytes.

    Raises:
        EOFError: the other side is gone.
    """
    part = line.recv(min(_CHUNK, maximum))
    if not part:
        raise EOFError
    return part


def _received(line: socket.socket, count: int) -> bytes:
    message = bytearray()
    while len(message) < count:
        message += receive_chunk(line, count - len(message))
    return bytes(message)


def apply_resource_limits(bounds: ResourceLimits) -> None:
    """Apply limits that also hold during loading. Exits if the parent is gone already."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent finishes its work in order, and then ends this process
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would contain documents
    if bounds.memory is not None:
        with suppress(ValueError, OSError):
            # macOS has this limit in name only.
            resource.setrlimit(resource.RLIMIT_AS, (bounds.memory, bounds.memory))
    with suppress(OSError):
        # If memory runs out, kill this process rather than the worker. Linux only.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    exit_with_parent(bounds.parent)


def apply_confinement() -> ConfinementStatus:
    """Give up files, sockets, and other programs and processes, as far as this kernel supports it."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if sys.platform != "linux":
        return ConfinementStatus()
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return ConfinementStatus()
    alone = len(os.listdir("/proc/self/task")) == 1
    landlock, seccomp = _without_files(library), _without_sockets(library)
    return ConfinementStatus(landlock=landlock * alone, seccomp=seccomp and alone)


def exit_with_parent(parent: int) -> None:
    """Make this process end when its parent ends for any reason.

    On Linux, "parent" means the thread that started it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:
        sys.exit("the parent is gone already")


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_ORPHAN_CHECK_SECONDS)
    os._exit(0)


_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""Landlock's calls have the same numbers on every processor."""
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_EXECUTE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 2, 1 << 3
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}
"""Number of file rights from each Landlock version on, as bits from the lowest."""
_NET_FROM, _SCOPES_FROM = 4, 6
_BOTH = 0b11
"""TCP bind and connect; abstract Unix sockets and signals."""
_SYSTEM = ("/usr", "/lib", "/lib64", "/nix/store", "/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_MACHINE = (
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
    "/proc/self/cgroup",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/etc/localtime",
    "/etc/ld.so.cache",
)


def _libraries() -> Iterator[Path]:
    """Yield the paths of programs and libraries, without anything that people store."""
    yield from map(Path, (*_SYSTEM, *_MACHINE))
    yield from map(Path, (sys.prefix, sys.base_prefix, sys.exec_prefix, *sysconfig.get_paths().values()))
    package = Path(__file__).resolve().parents[1]
    yield package
    yield from map(Path, filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)))
    # Of a checkout, only the package: anything may lie next to it.
    yield from (Path(entry) for entry in sys.path if entry and Path(entry).resolve() != package.parent)


def _without_files(library: ctypes.CDLL) -> int:
    """Block every file except the libraries, which become read-only.

    Returns Landlock's version, or 0 if there is none.
    """
    version = library.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG)
    if version < 1:
        return 0
    bits = max(count for since, count in _FILE_RIGHTS.items() if since <= version)
    fields = [(1 << bits) - 1, _BOTH * (version >= _NET_FROM), _BOTH * (version >= _SCOPES_FROM)]
    sizes = 1 + (version >= _NET_FROM) + (version >= _SCOPES_FROM)
    attributes = struct.pack(f"={sizes}Q", *fields[:sizes])
    ruleset = library.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        return 0
    try:
        for path in set(_libraries()):
            _allow_reading(library, ruleset, path)
        return 0 if library.syscall(_RESTRICT_SELF, ruleset, 0) else version
    finally:
        os.close(ruleset)


def _allow_reading(library: ctypes.CDLL, ruleset: int, path: Path) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)  # pyright: ignore[reportAttributeAccessIssue] only Linux has it
    except OSError:
        return
    rights = _EXECUTE | _READ_FILE | (_READ_DIR if path.is_dir() else 0)
    rule = struct.pack("=Qi", rights, place)
    library.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    os.close(place)


_PROCESSORS = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Column in the tables below, and the kernel's name for the processor (linux/audit.h)."""
_REFUSED = {
    **{"socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201)},
    **{"accept": (43, 202), "accept4": (288, 242), "io_uring_setup": (425, 425), "execve": (59, 221)},
    **{"execveat": (322, 281), "fork": (57, None), "vfork": (58, None), "ptrace": (101, 117), "kill": (62, 129)},
    **{"tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240)},
    **{"pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "pidfd_getfd": (438, 438)},
    **{"process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "bpf": (321, 280)},
    **{"add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "unshare": (272, 97)},
    **{"setns": (308, 268), "mount": (165, 40), "userfaultfd": (323, 282), "perf_event_open": (298, 241)},
}
"""Number of each call on each processor (asm/unistd.h)."""
_CLONE, _CLONE3, _TGKILL, _PRLIMIT = (56, 220), (435, 435), (234, 131), (302, 261)
_CLONE_THREAD = 0x10000
_X32 = 0x40000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _PROCESSOR, _FIRST_ARGUMENT = 0, 4, 16
"""Offsets in `struct seccomp_data`; of the argument, the lower half."""
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_MODE_FILTER = 2


def _without_sockets(library: ctypes.CDLL) -> bool:
    """Block sockets, other programs and other processes. Returns whether that applies now."""
    if platform.machine() not in _PROCESSORS:
        return False
    instructions = list(_filter(*_PROCESSORS[platform.machine()], own=os.getpid()))
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *one) for one in instructions))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(instructions), ctypes.addressof(code)))
    return library.prctl(_PR_SET_SECCOMP, _MODE_FILTER, program) == 0


def _filter(column: int, processor: int, own: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the filter's instructions: code, how many to skip if it is true and if it is false, and a number."""
    refuse = (_RETURN, 0, 0, _ERRNO | _EPERM)
    yield from ((_LOAD, 0, 0, _PROCESSOR), (_EQUAL, 1, 0, processor), (_RETURN, 0, 0, _KILL))
    yield from ((_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, _X32), refuse)
    for numbers in _REFUSED.values():
        number = numbers[column]
        if number is not None:
            yield from ((_EQUAL, 0, 1, number), refuse)
    # The C library falls back to the call whose flags the filter can see.
    yield from ((_EQUAL, 0, 1, _CLONE3[column]), (_RETURN, 0, 0, _ERRNO | _ENOSYS))
    # Allow threads but not processes, signals to itself, and its own limits.
    conditions = ((_CLONE, _ANY_BIT, _CLONE_THREAD), (_TGKILL, _EQUAL, own), (_PRLIMIT, _EQUAL, 0))
    for numbers, test, value in conditions:
        yield from ((_EQUAL, 0, 4, numbers[column]), (_LOAD, 0, 0, _FIRST_ARGUMENT), (test, 0, 1, value))
        yield from ((_RETURN, 0, 0, _ALLOW), refuse)
    yield (_RETURN, 0, 0, _ALLOW)


if __name__ == "__main__":
    main()
