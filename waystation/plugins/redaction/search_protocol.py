"""Requests of a redactor to a search, in this process or in a child, and its answers: detections, never text. Also runs
work off the event loop with a time limit, with errors that quote nothing of the text.

In messages a text is separate bytes, since it may have surrogate halves, which JSON cannot express.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from threading import Thread
from types import TracebackType
from typing import Annotated, Generic, Literal, Protocol, TypeVar
from weakref import WeakKeyDictionary

from pydantic import Field, TypeAdapter, ValidationError

from waystation.kernel.errors import RedactionFailed, RedactionTimeoutError, TextRedactionError
from waystation.kernel.value import Value, text_hash
from waystation.plugins.redaction.detections import Detection
from waystation.plugins.redaction.rules import CustomDetectionConfig, CustomRecognizerSpec, DetectionConfig
from waystation.privacy.policy import RedactionLevel, RedactionPolicy

CHARACTERS_A_SECOND = 2_000
"""Characters per second of the time limit: a tenth of what one busy core does."""
LOADING_SECONDS = 600.0
"""Maximum seconds for loading models, which counts for no text."""
MAX_ABANDONED_THREADS = 32
_T = TypeVar("_T")


@dataclass(frozen=True)
class WorkResult(Generic[_T]):
    """The result of work that succeeded."""

    result: _T


@dataclass(frozen=True)
class WorkFailure:
    """The error of work that failed. It reveals nothing of the text."""

    error: RedactionFailed


class _Caught(AbstractContextManager["_Caught"]):
    """Catches any error, to be reported by its name only: message and chain may quote the text."""

    failure: WorkFailure | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, RedactionFailed):
            self.failure = WorkFailure(type(error)(*error.args))
        elif error is not None:
            self.failure = WorkFailure(TextRedactionError(f"redaction failed with {type(error).__name__}"))
        return True


def run_capturing_errors(work: Callable[[], _T]) -> WorkResult[_T] | WorkFailure:
    """Run the work, and return its result or failure."""
    caught = _Caught()
    with caught:
        return WorkResult(work())
    assert caught.failure is not None
    return caught.failure


@dataclass
class TimeLimit:
    """The remaining computing time of one text's redaction. Waiting for its turn does not count."""

    seconds: float
    _spent: float = field(default=0, init=False)

    @classmethod
    def for_text(cls, text: str, seconds: float) -> "TimeLimit":
        """Build the limit: `seconds`, and more for a long text."""
        return cls(seconds + len(text) / CHARACTERS_A_SECOND)

    @property
    def seconds_left(self) -> float:
        """Remaining seconds."""
        return max(0, self.seconds - self._spent)

    def charge(self, seconds: float) -> None:
        """Subtract computing time in seconds."""
        self._spent += seconds

    def make_timeout_error(self) -> RedactionTimeoutError:
        """Build the error for an exceeded limit."""
        return RedactionTimeoutError(
            f"redaction took more than {self.seconds:g} s and was stopped (the setting redaction_seconds)"
        )

    async def wait_for(self, done: asyncio.Future[_T]) -> None:
        """Wait while there is time. Raises RedactionTimeoutError when there is none left."""
        start = time.monotonic()
        try:
            finished, _ = await asyncio.wait({done}, timeout=self.seconds_left)
        finally:
            self.charge(time.monotonic() - start)
        if not finished:
            raise self.make_timeout_error()


async def run_in_thread(work: Callable[[], _T], limit: TimeLimit) -> _T:
    """Run the work in a thread of its own, which does not keep the process from ending.

    Raises:
        RedactionFailed: The work raised it.
        TextRedactionError: Any other error, or the limit was exceeded: the thread is abandoned then.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[WorkResult[_T] | WorkFailure] = loop.create_future()

    def settle(outcome: WorkResult[_T] | WorkFailure) -> None:
        if not done.done():
            done.set_result(outcome)

    def run() -> None:
        outcome = run_capturing_errors(work)
        with suppress(RuntimeError):  # no one waits any longer: the loop is closed
            loop.call_soon_threadsafe(settle, outcome)

    Thread(target=run, name="redaction", daemon=True).start()
    await limit.wait_for(done)
    outcome = done.result()
    if isinstance(outcome, WorkFailure):
        raise outcome.error from None
    return outcome.result


class SerialThreadRunner:
    """Runs one piece of work after another in a thread. A thread that hangs is abandoned, since it cannot be ended.

    It may serve one event loop after another, for example if a script calls `asyncio.run` repeatedly.
    """

    def __init__(self) -> None:
        self._turns = WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]()
        self._at_work = set[object]()
        self._closed = False

    async def run(self, work: Callable[[], _T], limit: TimeLimit) -> _T:
        """Run the work when it is its turn. Raises RedactionFailed."""
        async with self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            if self._closed:
                raise RedactionFailed("the redactor is closed")
            if len(self._at_work) >= MAX_ABANDONED_THREADS:
                raise RedactionFailed(f"redaction hangs in {MAX_ABANDONED_THREADS} threads: restart the worker")
            return await run_in_thread(self._noted(work), limit)

    def close(self) -> None:
        """Start no more work."""
        self._closed = True

    def _noted(self, work: Callable[[], _T]) -> Callable[[], _T]:
        """Wrap the work so that it counts as running until it ends, even if no one waits for it any longer."""
        self._at_work.add(work)

        def noted() -> _T:
            try:
                return work()
            finally:
                self._at_work.discard(work)

        return noted


STRETCH_CHUNKS = 5
"""Number of chunks per request, which takes about half a second: other texts take turns in between."""
MAX_REASON_CHARACTERS = 400
"""Maximum characters of a failure's reason: untrusted text may control what a child says."""
_ENCODED = ("utf-8", "surrogatepass")


class ChunkSearchRequest(Value):
    """A request to search chunks of one view of a text (`detections.iter_normalized_views`)."""

    kind: Literal["stretch"] = "stretch"
    digest: str
    """Identifies the text."""
    level: RedactionLevel
    view: int = 0
    first: int = 0
    """Index of the first chunk. Chunk 0 includes the search of the whole text."""

    @classmethod
    def for_text(cls, text: str, level: RedactionLevel) -> "ChunkSearchRequest":
        """Build the first request for a text."""
        return cls(digest=text_hash(text), level=level)

    def remaining_requests(self, chunks: int) -> Sequence["ChunkSearchRequest"]:
        """Return all further requests for a view of this many chunks."""
        starts = range(self.first + STRETCH_CHUNKS, chunks, STRETCH_CHUNKS)
        return [self.replace(first=start) for start in starts]


class LoadRulesRequest(Value):
    """The first request to a child: what to detect, and to load what that needs."""

    kind: Literal["loading"] = "loading"
    policy: RedactionPolicy
    models: dict[str, str]
    countries: tuple[str, ...]
    kinds: tuple[CustomRecognizerSpec, ...]
    values: frozenset[str]
    patterns: tuple[str, ...]

    @classmethod
    def from_rules(cls, rules: DetectionConfig) -> "LoadRulesRequest":
        """Build it from these rules."""
        own = rules.custom
        return cls(
            policy=rules.policy,
            models=dict(rules.models),
            countries=tuple(rules.countries),
            kinds=tuple(own.recognizers),
            values=own.values,
            patterns=tuple(own.patterns),
        )

    @property
    def rules(self) -> DetectionConfig:
        """The rules in it."""
        own = CustomDetectionConfig(self.kinds, self.values, self.patterns)
        return DetectionConfig(self.policy, self.models, self.countries, own)


_Type = Annotated[str, Field(pattern=r"^[A-Z]+(_[A-Z]+)*$", max_length=40)]
_Language = Annotated[str, Field(pattern=r"^[a-z]{2,3}$")]
_Place = Annotated[int, Field(ge=0)]


class ChunkSearchResult(Value):
    """The detections of a request, in positions of the text, and how much more of the text there is."""

    kind: Literal["searched"] = "searched"
    finds: tuple[tuple[_Type, _Place, _Place, float], ...] = ()
    unsearched_languages: frozenset[_Language] = frozenset()
    """Languages of chunks in which names were searched for by lists only, since there is no model."""
    chunks: _Place = 0
    """Number of chunks of this view."""
    views: Annotated[int, Field(ge=0, le=2)] = 1

    def validate_for(self, text: str) -> "ChunkSearchResult":
        """Return the result if it is plausible for this text. Raises ValueError."""
        if not all(start < end <= len(text) for _, start, end, _ in self.finds) or self.chunks > len(text):
            raise ValueError("finds outside of the text")
        return self

    @property
    def detections(self) -> list[Detection]:
        """The finds."""
        return [Detection(*find) for find in self.finds]


class TextRequiredResponse(Value):
    """The text has to be sent too."""

    kind: Literal["not held"] = "not held"


class SearchFailure(Value):
    """Why it failed: because of this very text, or because no text can be searched."""

    kind: Literal["not searched"] = "not searched"
    reason: Annotated[str, Field(max_length=MAX_REASON_CHARACTERS)]
    caused_by_text: bool

    @classmethod
    def from_error(cls, error: RedactionFailed) -> "SearchFailure":
        """Build it from an error, which reveals nothing of the text."""
        return cls(reason=str(error)[:MAX_REASON_CHARACTERS], caused_by_text=isinstance(error, TextRedactionError))

    @property
    def error(self) -> RedactionFailed:
        """The error."""
        return (TextRedactionError if self.caused_by_text else RedactionFailed)(" ".join(self.reason.split()))


SearchRequest = Annotated[ChunkSearchRequest | LoadRulesRequest, Field(discriminator="kind")]
_Answer = Annotated[ChunkSearchResult | TextRequiredResponse | SearchFailure, Field(discriminator="kind")]
_REQUEST = TypeAdapter[ChunkSearchRequest | LoadRulesRequest](SearchRequest)
_ANSWER = TypeAdapter[ChunkSearchResult | TextRequiredResponse | SearchFailure](_Answer)


class SearchBackend(Protocol):
    """Searches texts for private data."""

    async def load(self) -> None:
        """Load now what most texts need. Raises RedactionFailed."""
        ...

    async def search(self, text: str, stretch: ChunkSearchRequest, limit: TimeLimit) -> ChunkSearchResult:
        """Search chunks of a text. Raises RedactionFailed, and TextRedactionError."""
        ...

    def close(self) -> None:
        """Start no more work, and end what was started."""
        ...


def encode_search_request(request: ChunkSearchRequest | LoadRulesRequest, text: str | None = None) -> bytes:
    """Encode a request with its text, if that is to be sent."""
    head = request.model_dump_json().encode() + b"\n"
    return head if text is None else head + b"t" + text.encode(*_ENCODED)


def decode_search_request(message: bytes) -> tuple[ChunkSearchRequest | LoadRulesRequest, str | None]:
    """Decode what `encode_search_request` was given."""
    head, _, rest = message.partition(b"\n")
    return _REQUEST.validate_json(head), rest[1:].decode(*_ENCODED) if rest else None


def decode_search_answer(message: bytes, text: str) -> ChunkSearchResult | TextRequiredResponse | SearchFailure:
    """Decode a child's answer about this text. Raises ValueError: it is invalid, so the child is not to be trusted."""
    try:
        answer = _ANSWER.validate_json(message)
    except ValidationError:
        raise ValueError("no answer") from None  # the error quotes the validated value
    return answer.validate_for(text) if isinstance(answer, ChunkSearchResult) else answer
