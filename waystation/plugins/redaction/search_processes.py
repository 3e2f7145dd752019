"""Child processes that search texts: each is killed when it takes too long, and replaced when it dies or hangs.

Short-lived commands and tests search in their own process instead.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from waystation.kernel.errors import RedactionFailed, TextRedactionError
from waystation.plugins.redaction.rules import DetectionConfig
from waystation.plugins.redaction.search_protocol import (
    LOADING_SECONDS,
    ChunkSearchRequest,
    ChunkSearchResult,
    LoadRulesRequest,
    SearchFailure,
    SerialThreadRunner,
    TextRequiredResponse,
    TimeLimit,
    decode_search_answer,
    encode_search_request,
)
from waystation.security.confined_process import ChildProcessFailedError, ChildTimeoutError, ConfinedProcess

STUCK_SECONDS = 5.0
"""If every child works on one request for this long and others wait, another child is started."""
IDLE_SECONDS = 300.0
"""Seconds without a text after which all children are ended, since each takes a quarter of a gigabyte; the next text
starts one again.
"""
MAX_SPARE_PROCESSES = 2
"""Maximum number of children at once besides the configured ones."""
MIN_UNSENT_CHARACTERS = 50_000
"""Minimum characters of a text that is not sent if the child may still have it."""
_TRIES = 2
_PROGRAM = "waystation.plugins.redaction.search_child"


class _Gone(TextRedactionError):
    """The child died, perhaps because of this text."""


class SearchProcessPool:
    """A `SearchBackend` with the configured number of processes. To be used within one event loop."""

    def __init__(self, rules: DetectionConfig, count: int) -> None:
        self._begun: Callable[[], _Searching] = lambda: _Searching(rules, self._threads)
        self._count = count
        self._threads = ThreadPoolExecutor(count + MAX_SPARE_PROCESSES, "redaction")
        self._all = {self._begun() for _ in range(count)}
        self._idle = list(self._all)
        self._idle_timer: asyncio.TimerHandle | None = None
        self._change = asyncio.Condition()
        self._asking = set[asyncio.Task[object]]()
        self._closed = False

    @property
    def pids(self) -> frozenset[int]:
        """Process ids of the running children."""
        return frozenset(child.pid for child in self._all if child.pid is not None)

    async def load(self) -> None:
        """Start all children. Raises RedactionFailed."""
        await asyncio.gather(*(child.load() for child in self._all))

    async def search(self, text: str, stretch: ChunkSearchRequest, limit: TimeLimit) -> ChunkSearchResult:
        """See `SearchBackend`.

        Raises:
            RedactionTimeoutError: The child was killed when the time limit was reached. Waiting for a turn does not
                count.
            TextRedactionError: Two children died one after the other.
            RedactionFailed: No child can search now.
        """
        for _ in range(_TRIES - 1):
            with suppress(_Gone):
                return await self._searched(text, stretch, limit)
        return await self._searched(text, stretch, limit)

    def close(self) -> None:
        """End all children. Callers that wait for an answer are notified."""
        self._closed = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        for child in self._all:
            child.end()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _searched(self, text: str, stretch: ChunkSearchRequest, limit: TimeLimit) -> ChunkSearchResult:
        child = await self._turn()
        # The caller may be cancelled; the request to the child still runs to its end, and frees the child for others.
        asking = asyncio.create_task(self._asked(child, text, stretch, limit))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)
        outcome = await asyncio.shield(asking)
        if isinstance(outcome, RedactionFailed):
            raise outcome
        return outcome

    async def _asked(
        self, child: "_Searching", text: str, stretch: ChunkSearchRequest, limit: TimeLimit
    ) -> ChunkSearchResult | RedactionFailed:
        try:
            return await child.search(text, stretch, limit)
        except RedactionFailed as failed:
            return failed
        finally:
            await self._free(child)

    async def _turn(self) -> "_Searching":
        async with self._change:
            while not self._idle:
                self._check_open()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._change.wait(), STUCK_SECONDS)
                if not self._idle and self._all_are_stuck():
                    self._add()
            self._check_open()
            return self._idle.pop()

    def _check_open(self) -> None:
        if self._closed:
            raise RedactionFailed("the redactor is closed")

    def _all_are_stuck(self) -> bool:
        since = time.monotonic() - STUCK_SECONDS
        return len(self._all) < self._count + MAX_SPARE_PROCESSES and all(child.asked_at < since for child in self._all)

    def _add(self) -> None:
        child = self._begun()
        self._all.add(child)
        self._idle.append(child)

    async def _free(self, child: "_Searching") -> None:
        """Return the child to the pool; if it hung or died, start another, unless there is a spare."""
        async with self._change:
            if child.ended or len(self._all) > self._count:
                child.end()
                self._all.discard(child)
            else:
                self._idle.append(child)
            if len(self._all) < self._count and not self._closed:
                self._add()
                self._keep(asyncio.create_task(self._begin(self._idle[-1])))
            self._restart_idle_timer()
            self._change.notify_all()

    def _restart_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._idle_timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._end_idle)

    def _end_idle(self) -> None:
        """End all children, unless one is working: the timer restarts when it is free."""
        if self._closed or len(self._idle) < len(self._all):
            return
        for child in self._all:
            child.end()
        self._all = {self._begun() for _ in range(self._count)}
        self._idle = list(self._all)

    async def _begin(self, child: "_Searching") -> None:
        """Start a child in advance. The next caller that uses it is notified of a failure."""
        with suppress(RedactionFailed):
            await child.load()

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)


class _Searching:
    """One process, started on its first request, and never used again after its end: an answer might be late."""

    def __init__(self, rules: DetectionConfig, threads: ThreadPoolExecutor) -> None:
        self._rules, self._threads = rules, threads
        self._child: ConfinedProcess | None = None
        self._loaded = asyncio.Lock(), asyncio.Event()
        self.asked_at = float("inf")
        """Time of the current request, on the monotonic clock."""
        self.ended = False

    @property
    def pid(self) -> int | None:
        """Its process id, while it runs."""
        return self._child.pid if self._child is not None and not self.ended else None

    async def load(self) -> None:
        """Start it, and let it load what most texts need. Raises RedactionFailed."""
        lock, loaded = self._loaded
        async with lock:
            if loaded.is_set():
                return
            try:
                # Started by the event loop's thread: on Linux a child ends with the thread that started it.
                self._child = self._child or ConfinedProcess(_PROGRAM)
                await self._ask(
                    self._child, encode_search_request(LoadRulesRequest.from_rules(self._rules)), "", LOADING_SECONDS
                )
            except (ChildProcessFailedError, OSError):
                self.end()
                raise RedactionFailed("a redaction process could not be started") from None
            loaded.set()

    async def search(self, text: str, stretch: ChunkSearchRequest, limit: TimeLimit) -> ChunkSearchResult:
        """Search chunks of a text. Raises RedactionFailed."""
        await self.load()
        self.asked_at = time.monotonic()
        try:
            return await self._found(text, stretch, limit)
        except ChildTimeoutError:
            raise limit.make_timeout_error() from None
        except ChildProcessFailedError:
            raise _Gone("a redaction process ended while it searched this text") from None
        finally:
            limit.charge(time.monotonic() - self.asked_at)
            self.asked_at = float("inf")

    async def _found(self, text: str, stretch: ChunkSearchRequest, limit: TimeLimit) -> ChunkSearchResult:
        assert self._child is not None
        is_there = len(text) > MIN_UNSENT_CHARACTERS and (stretch.first, stretch.view) != (0, 0)
        for given in (None, text) if is_there else (text,):
            answer = await self._ask(self._child, encode_search_request(stretch, given), text, limit.seconds_left)
            if isinstance(answer, ChunkSearchResult):
                return answer
        raise _Gone("a redaction process lost this text")

    async def _ask(
        self, child: ConfinedProcess, request: bytes, text: str, seconds: float
    ) -> ChunkSearchResult | TextRequiredResponse:
        """Send one request. Raises ChildProcessFailedError: it has ended; RedactionFailed: it says so."""
        if self.ended:
            raise ChildProcessFailedError
        loop = asyncio.get_running_loop()
        try:
            said = await loop.run_in_executor(self._threads, child.send_request, request, seconds)
            answer = decode_search_answer(said, text)
        except ChildProcessFailedError:
            self.end()
            raise
        except (ValueError, RuntimeError):  # its answer is invalid, or the threads are closed
            self.end()
            raise ChildProcessFailedError from None
        if isinstance(answer, SearchFailure):
            raise answer.error
        return answer

    def end(self) -> None:
        """Kill it, whatever it is doing."""
        self.ended = True
        if self._child is not None:
            self._child.kill()


if TYPE_CHECKING:
    from waystation.plugins.redaction.search_child import TextSearch


class LocalSearch:
    """A `SearchBackend` with one thread; one that hangs is abandoned, since no thread can be ended."""

    def __init__(self, rules: DetectionConfig) -> None:
        self._rules = rules
        self._lane = SerialThreadRunner()

    async def load(self) -> None:
        """See `SearchBackend`."""
        await self._lane.run(self._load, TimeLimit(LOADING_SECONDS))

    async def search(self, text: str, stretch: ChunkSearchRequest, limit: TimeLimit) -> ChunkSearchResult:
        """See `SearchBackend`."""
        searched = await self._lane.run(lambda: self._search.search(stretch, text), limit)
        assert not isinstance(searched, TextRequiredResponse)
        return searched

    def close(self) -> None:
        """See `SearchBackend`."""
        self._lane.close()

    def _load(self) -> None:
        self._search.load()

    @cached_property
    def _search(self) -> "TextSearch":
        # This import loads Presidio and spaCy, which a process that searches in children does not need.
        from waystation.plugins.redaction.search_child import TextSearch  # noqa: PLC0415

        return TextSearch(self._rules)
