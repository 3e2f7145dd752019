"""Child processes that search long texts on several cores: each is replaced when it dies or hangs."""

import asyncio
import logging
import math
import multiprocessing
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from threading import Lock, Thread
from typing import NamedTuple, Protocol

from waystation.adapters.presidio.computing import LOADING_SECONDS, Failure, Outcome, TimeLimit, in_thread, outcome_of
from waystation.adapters.presidio.rules import Rules
from waystation.adapters.presidio.search import Chunk, Finds, PresidioSearch, SearchedText
from waystation.domain.errors import RedactionFailed, TextNotRedacted
from waystation.domain.privacy import Policy, Treatment

MOST_CHUNKS = 100
"""That a child searches at once, so that texts take turns."""
_TRIES = 2
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
"""Children read these when they load numpy: each would compute on all cores and take them from the others."""
_SPAWN = multiprocessing.get_context("spawn")


class _Stretch(NamedTuple):
    """Chunks of a text that a child is to search; None stands for loading what that needs."""

    text: str
    chunks: Sequence[Chunk]
    wanted: Treatment


class _Line(Protocol):
    """The parent's end of the pipe."""

    def send(self, obj: _Stretch | None, /) -> None: ...

    def recv(self) -> "Outcome[Finds] | Failure": ...


class _Gone(TextNotRedacted):
    """The child died, maybe of this text."""


class Children:
    """As many processes as are wanted, begun with the first text."""

    def __init__(self, rules: Rules, count: int) -> None:
        # A mapping proxy cannot be sent to another process.
        self._rules = replace(rules, models=dict(rules.models))
        self._count = count
        self._idle = [_Child(self._rules) for _ in range(count)]
        self._all = set(self._idle)
        self._turns = asyncio.Semaphore(count)
        self._closed = False
        for variable in _THREADS:
            os.environ.setdefault(variable, "1")

    async def load(self) -> None:
        """Begin all of them. Raises RedactionFailed."""
        await asyncio.gather(*(self._asked(None, TimeLimit(LOADING_SECONDS)) for _ in self._all))

    async def search(self, text: str, chunks: Sequence[Chunk], wanted: Treatment, limit: TimeLimit) -> Finds:
        """What is found in the chunks, as one search in this process would find it.

        Raises:
            TextNotRedacted: a child hung, or two died one after the other.
            RedactionFailed: none can search now.
        """
        size = min(MOST_CHUNKS, math.ceil(len(chunks) / self._count))
        stretches = [_Stretch(text, chunks[first : first + size], wanted) for first in range(0, len(chunks), size)]
        found = await asyncio.gather(*(self._asked(one, TimeLimit(limit.seconds)) for one in stretches))
        return Finds(
            [find for finds in found for find in finds.finds], frozenset().union(*(finds.not_sought for finds in found))
        )

    def close(self) -> None:
        """End all of them."""
        self._closed = True
        for child in self._all:
            child.end()

    async def _asked(self, stretch: _Stretch | None, limit: TimeLimit) -> Finds:
        for _ in range(_TRIES - 1):
            try:
                return await self._asked_once(stretch, limit)
            except _Gone:
                continue
        return await self._asked_once(stretch, limit)

    async def _asked_once(self, stretch: _Stretch | None, limit: TimeLimit) -> Finds:
        async with self._turns:
            if self._closed:
                raise RedactionFailed("the redactor is closed")
            child, answered = self._idle.pop(), False
            try:
                if not child.has_begun:
                    await in_thread(partial(child.ask, None), TimeLimit(LOADING_SECONDS))
                found = await in_thread(partial(child.ask, stretch), limit)
                answered = True
            finally:
                self._idle.append(child if answered else self._instead_of(child))
        return found

    def _instead_of(self, child: "_Child") -> "_Child":
        """Of one that hangs, is gone, or works on what nobody waits for any longer."""
        child.end()
        self._all.discard(child)
        self._all.add(another := _Child(self._rules))
        return another


class _Child:
    """One process, begun when it is first asked. It is never asked again after its end: an answer might be late."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._process: BaseProcess | None = None
        self._line: _Line | None = None
        self._ended = False
        self._changing = Lock()

    @property
    def has_begun(self) -> bool:
        """Whether it was asked before, at least to load what it needs."""
        return self._process is not None

    def ask(self, stretch: _Stretch | None) -> Finds:
        """Its answer. Raises RedactionFailed, and _Gone where it dies."""
        try:
            line = self._line or self._begun()
            line.send(stretch)
            answer = line.recv()
        except (EOFError, OSError):
            raise _Gone("a process of redaction ended while it searched this text") from None
        if isinstance(answer, Failure):
            raise answer.error
        return answer.result

    def end(self) -> None:
        """Kill it, whatever it does. Who waits for its answer is told that it is gone."""
        with self._changing:
            self._ended = True
            if self._process is not None:
                self._process.kill()
                self._process.join()

    def _begun(self) -> "_Line":
        with self._changing:
            if self._ended:
                raise EOFError
            line, its = _SPAWN.Pipe()
            self._process = _SPAWN.Process(target=_serve, args=(its, self._rules), name="redaction", daemon=True)
            self._process.start()
            its.close()  # what it alone holds, ends with it
            self._line = line
            return line


def _serve(line: Connection, rules: Rules) -> None:
    """Answer until the parent is gone. Nothing is logged: it might quote a text."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its work in order, and then this process
    logging.disable(logging.CRITICAL)
    Thread(target=_end_with_parent, daemon=True).start()
    search = PresidioSearch(rules)
    while True:
        try:
            stretch: _Stretch | None = line.recv()
            line.send(outcome_of(partial(_answer, search, rules, stretch)))
        except (EOFError, OSError):
            return


def _end_with_parent() -> None:
    """Also where this process hangs and never asks whether somebody waits for its answer."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(0)


def _answer(search: PresidioSearch, rules: Rules, stretch: _Stretch | None) -> Finds:
    if stretch is None:
        search.load(with_names=rules.policy is not Policy.SECRETS_ONLY)
        return Finds([], frozenset())
    return search.finds(_searched(stretch.text), stretch.chunks, stretch.wanted)


@lru_cache(maxsize=1)
def _searched(text: str) -> SearchedText:
    return SearchedText(text)
