"""Computing off the event loop that is given up when it takes too long, and whose errors quote nothing of the text."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from threading import Thread
from types import TracebackType
from typing import Generic, TypeVar

from waystation.domain.errors import RedactionFailed, TextNotRedacted, TextTookTooLong

CHARACTERS_A_SECOND = 2_000
"""What redaction is granted time for: a tenth of what one busy core does."""
LOADING_SECONDS = 600.0
"""What models may take to load, which counts for no text."""
MOST_LEFT_BEHIND = 32
_T = TypeVar("_T")


@dataclass(frozen=True)
class Outcome(Generic[_T]):
    """What came of a piece of work that did not fail."""

    result: _T


@dataclass(frozen=True)
class Failure:
    """What came of one that did. The error says nothing of the text."""

    error: RedactionFailed


class _Caught(AbstractContextManager["_Caught"]):
    """Takes any error, to be told by its name alone: message and chain may quote the text."""

    failure: Failure | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, RedactionFailed):
            self.failure = Failure(type(error)(*error.args))
        elif error is not None:
            self.failure = Failure(TextNotRedacted(f"redaction failed with {type(error).__name__}"))
        return True


def outcome_of(work: Callable[[], _T]) -> Outcome[_T] | Failure:
    """Do it, and say what came of it."""
    caught = _Caught()
    with caught:
        return Outcome(work())
    assert caught.failure is not None
    return caught.failure


@dataclass
class TimeLimit:
    """How long the redaction of one text may compute. Waiting for its turn does not count."""

    seconds: float
    _spent: float = field(default=0, init=False)

    @classmethod
    def of(cls, text: str, seconds: float) -> "TimeLimit":
        """So many seconds, and more for a long text."""
        return cls(seconds + len(text) / CHARACTERS_A_SECOND)

    @property
    def left(self) -> float:
        """Seconds."""
        return max(0, self.seconds - self._spent)

    def spend(self, seconds: float) -> None:
        """So long it was computed."""
        self._spent += seconds

    def passed(self) -> TextTookTooLong:
        """That there is no time left."""
        return TextTookTooLong(
            f"redaction took over {self.seconds:g} s and was given up (the setting redaction_seconds)"
        )

    async def wait_for(self, done: asyncio.Future[_T]) -> None:
        """Wait as long as there is time. Raises TextTookTooLong when there is none left."""
        start = time.monotonic()
        try:
            finished, _ = await asyncio.wait({done}, timeout=self.left)
        finally:
            self.spend(time.monotonic() - start)
        if not finished:
            raise self.passed()


async def in_thread(work: Callable[[], _T], limit: TimeLimit) -> _T:
    """The result of work in a thread of its own, which does not keep the process from ending.

    Raises RedactionFailed, and TextNotRedacted for any other error and where it takes too long: the thread is left
    behind then.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Outcome[_T] | Failure] = loop.create_future()

    def settle(outcome: Outcome[_T] | Failure) -> None:
        if not done.done():
            done.set_result(outcome)

    def run() -> None:
        outcome = outcome_of(work)
        with suppress(RuntimeError):  # nobody waits any longer: the loop is closed
            loop.call_soon_threadsafe(settle, outcome)

    Thread(target=run, name="redaction", daemon=True).start()
    await limit.wait_for(done)
    outcome = done.result()
    if isinstance(outcome, Failure):
        raise outcome.error from None
    return outcome.result


class Lane:
    """Threads for one piece of work after another. One that hangs is left behind, since no thread can be ended."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._at_work = set[object]()
        self._closed = False

    async def run(self, work: Callable[[], _T], limit: TimeLimit) -> _T:
        """The result of work, when it is its turn. Raises RedactionFailed."""
        async with self._turn:
            if self._closed:
                raise RedactionFailed("the redactor is closed")
            if len(self._at_work) >= MOST_LEFT_BEHIND:
                raise RedactionFailed(f"redaction hangs in {MOST_LEFT_BEHIND} threads: start the worker anew")
            return await in_thread(self._noted(work), limit)

    def close(self) -> None:
        """Nothing more is begun."""
        self._closed = True

    def _noted(self, work: Callable[[], _T]) -> Callable[[], _T]:
        """The same work, at work from now until it ends, also where nobody waits for it any longer."""
        self._at_work.add(work)

        def noted() -> _T:
            try:
                return work()
            finally:
                self._at_work.discard(work)

        return noted
