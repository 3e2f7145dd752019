"""The child's side of `security.children`: what a process gives up before it sees foreign text, and its loop.

`python -P -m waystation.security.confinement MODULE SOCKET BOUNDS` imports MODULE, lets it `prepare`, gives up what it
does not need, and lets its `answer` answer each request until the parent is gone. What the kernel takes from a process,
it takes from the thread that asks and from threads that begin later: no module may begin one while it is prepared.

What a kernel lacks is left out, and the parent is told what holds: `ConfinementStatus` is the first message. The three
calls of Landlock and one filter of seccomp are made here, since the packages for them are unreleased, new, or whole
sandboxes.
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
"""Before each message: how many bytes it has."""
MAX_FILES = 2
"""That come with a request."""
_CHUNK = 1 << 20
_ORPHAN_CHECK_SECONDS = 1.0
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38


@dataclass(frozen=True)
class ResourceLimits:
    """What a child may use. It reaches no network, and of the file system only the libraries, in any case."""

    parent: int
    """Process id: without that process it ends."""
    memory: int | None = None
    """Bytes of address space."""


@dataclass(frozen=True)
class ConfinementStatus:
    """What this kernel keeps from a child. Limits on size and the end with the parent hold everywhere."""

    landlock: int = 0
    """Version of the interface; 0: none. Files are kept from 1 on, signals from 6 on."""
    seccomp: bool = False
    """Whether sockets and programs are kept from it."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left out."""
        return self.landlock > 0 and self.seccomp

    @property
    def description(self) -> str:
        """What holds, for a person."""
        files = f"no file but libraries (Landlock {self.landlock})" if self.landlock else "files as they may be opened"
        reach = "no network, program or other process (seccomp)" if self.seccomp else "the network"
        return f"they reach {files}, and {reach}"


class ConfinedService(Protocol):
    """A module that answers requests."""

    @staticmethod
    def prepare() -> None:
        """Load what needs more than a confined process may do, and is not foreign."""
        ...

    @staticmethod
    def answer(request: bytes, files: Sequence[int], /) -> bytes:
        """The answer. `files`: open files that came with the request, to be closed. An error ends the child."""
        ...


def main() -> None:
    """Confine this process, then answer until the parent is gone."""
    module, number, bounds = sys.argv[1:]
    with socket.socket(fileno=int(number)) as line:
        apply_bounds(ResourceLimits(**json.loads(bounds)))
        service: ConfinedService = importlib.import_module(module)  # pyright: ignore[reportAssignmentType]
        service.prepare()
        held = apply_confinement()
        send_with_files(line, json.dumps(asdict(held)).encode())
        with suppress(EOFError, ConnectionError):
            while True:
                send_with_files(line, service.answer(*_request(line)))


def send_with_files(line: socket.socket, message: bytes, files: Sequence[int] = ()) -> None:
    """Send a message with open files, as `receive` takes it. Raises OSError."""
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


def receive_chunk(line: socket.socket, most: int) -> bytes:
    """What there is, up to so many bytes. Raises EOFError: the other side is gone."""
    part = line.recv(min(_CHUNK, most))
    if not part:
        raise EOFError
    return part


def _received(line: socket.socket, count: int) -> bytes:
    message = bytearray()
    while len(message) < count:
        message += receive_chunk(line, count - len(message))
    return bytes(message)


def apply_bounds(bounds: ResourceLimits) -> None:
    """Limits that hold while it loads, too. Ends this process where the parent is gone already."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its work in order, and then this process
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file would hold documents
    if bounds.memory is not None:
        with suppress(ValueError, OSError):
            # macOS has the limit in name only.
            resource.setrlimit(resource.RLIMIT_AS, (bounds.memory, bounds.memory))
    with suppress(OSError):
        # Where memory runs out, this process is worth less than the worker. Only Linux has this.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    exit_with_parent(bounds.parent)


def apply_confinement() -> ConfinementStatus:
    """Give up files, sockets, and other programs and processes, as far as this kernel can take them."""
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
    """End when the parent ends, however that ends. On Linux the parent is the thread that started this process."""
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
"""From which version on how many rights there are, as bits from the lowest."""
_NET_FROM, _SCOPES_FROM = 4, 6
_BOTH = 0b11
"""Binding and connecting of TCP; abstract Unix sockets and signals."""
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
    """Where programs and libraries lie, and nothing that people keep."""
    yield from map(Path, (*_SYSTEM, *_MACHINE))
    yield from map(Path, (sys.prefix, sys.base_prefix, sys.exec_prefix, *sysconfig.get_paths().values()))
    package = Path(__file__).resolve().parents[1]
    yield package
    yield from map(Path, filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)))
    # Of a checkout only the package: beside it may lie anything.
    yield from (Path(entry) for entry in sys.path if entry and Path(entry).resolve() != package.parent)


def _without_files(library: ctypes.CDLL) -> int:
    """Keep every file but the libraries from this process, which may only be read; the version, 0 where none."""
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
"""Which column of the tables below, and what the kernel calls it (linux/audit.h)."""
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
"""Where they stand in `struct seccomp_data`, of the argument the lower half."""
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_MODE_FILTER = 2


def _without_sockets(library: ctypes.CDLL) -> bool:
    """Keep sockets, other programs and other processes from this process; whether that holds now."""
    if platform.machine() not in _PROCESSORS:
        return False
    instructions = list(_filter(*_PROCESSORS[platform.machine()], own=os.getpid()))
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *one) for one in instructions))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(instructions), ctypes.addressof(code)))
    return library.prctl(_PR_SET_SECCOMP, _MODE_FILTER, program) == 0


def _filter(column: int, processor: int, own: int) -> Iterator[tuple[int, int, int, int]]:
    """The filter's instructions: code, how many to skip where that is true and where it is false, and a number."""
    refuse = (_RETURN, 0, 0, _ERRNO | _EPERM)
    yield from ((_LOAD, 0, 0, _PROCESSOR), (_EQUAL, 1, 0, processor), (_RETURN, 0, 0, _KILL))
    yield from ((_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, _X32), refuse)
    for numbers in _REFUSED.values():
        number = numbers[column]
        if number is not None:
            yield from ((_EQUAL, 0, 1, number), refuse)
    # The C library falls back to the call whose flags can be seen.
    yield from ((_EQUAL, 0, 1, _CLONE3[column]), (_RETURN, 0, 0, _ERRNO | _ENOSYS))
    # Threads, and no processes; signals to itself; its own limits.
    conditions = ((_CLONE, _ANY_BIT, _CLONE_THREAD), (_TGKILL, _EQUAL, own), (_PRLIMIT, _EQUAL, 0))
    for numbers, test, value in conditions:
        yield from ((_EQUAL, 0, 4, numbers[column]), (_LOAD, 0, 0, _FIRST_ARGUMENT), (test, 0, 1, value))
        yield from ((_RETURN, 0, 0, _ALLOW), refuse)
    yield (_RETURN, 0, 0, _ALLOW)


if __name__ == "__main__":
    main()
