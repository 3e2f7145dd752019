"""Feeds of events for listeners: read from the store once for all of them, and separately for each that has fallen
behind.

A listener has a number and no queue: what it has not received yet stays in the store. One that never reads delays no
other, and costs its connection only.
"""

import asyncio
import json
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from waystation.agents.partial_replies import PartialReply
from waystation.client import Client
from waystation.client.activity import read_events_to_end
from waystation.kernel.errors import BadInput, WaystationError
from waystation.plugins.web.access import ProblemDetails
from waystation.security.untrusted import replace_control_characters
from waystation.tasks.events import EventPage, TaskEvent

EVENT_STREAM = "text/event-stream"
POLL_SECONDS = 0.2
MAX_RECENT_EVENTS = 1_000
"""Number of events in memory. A listener further behind reads from the store."""
MAX_CACHED_EVENTS = 20_000
"""Maximum number of events in memory, of tasks whose pages are viewed."""
ALIVE_SECONDS = 15.0
"""Seconds without an event after which a listener gets an empty comment, which reveals a dead connection."""
RETRY = b"retry: 1000\n\n"
"""Milliseconds until a browser reconnects."""
ALIVE = b":\n\n"
HEARTBEAT = b"event: alive\ndata: {}\n\n"
"""A heartbeat for pages, since browsers do not report comments to them."""


REPLY_SECONDS, RENEWAL_SECONDS = 1.0, 5.0
"""Seconds between two reads of what the agents of a viewed task are writing, and until the store is updated with
the fact that someone still views the task.
"""


class _NotKnown(BadInput):
    """The listener's permission has ended."""


AccessCheck = Callable[[], Awaitable[bool]]
"""Whether a listener still has permission: keys are revoked, and tokens expire."""


async def is_always_allowed() -> bool:
    """Return True."""
    return True


def format_replies(replies: Sequence[PartialReply]) -> bytes:
    """Format partial replies as a server-sent event."""
    shown = [{**one.model_dump(), "text": replace_control_characters(one.text)} for one in replies]
    return b"event: replies\ndata: %s\n\n" % json.dumps(shown).encode()


class TaskEventCache:
    """All events of the most recently viewed tasks; only new ones are read from the store."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: OrderedDict[str, list[TaskEvent]] = OrderedDict()

    async def list_events(self, task_id: str) -> Sequence[TaskEvent]:
        """Return all events of the task, in order. Raises UnknownTask."""
        found = await read_events_to_end(
            lambda after, count: self._client.list_events(after, task_id, count), self._known.get(task_id, ())
        )
        self._known[task_id] = found
        self._known.move_to_end(task_id)
        while len(self._known) > 1 and sum(map(len, self._known.values())) > MAX_CACHED_EVENTS:
            self._known.popitem(last=False)
        return found


class PartialReplyCache:
    """What the agents of viewed tasks are thinking or writing: read from the store once for all viewers of a task."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: OrderedDict[str, tuple[float, Sequence[PartialReply]]] = OrderedDict()
        """By task: when it was read, on the event loop's clock; the least recently read first."""
        self._renewed: dict[str, float] = {}
        """By task: when the store was told that someone views it."""

    async def get_replies(self, task_id: str) -> Sequence[PartialReply]:
        """Return the partial replies, and record that someone views the task. Raises UnknownTask."""
        now = asyncio.get_running_loop().time()
        while self._known and next(iter(self._known.values()))[0] < now - ALIVE_SECONDS:
            self._renewed.pop(self._known.popitem(last=False)[0], None)
        at, found = self._known.get(task_id, (-REPLY_SECONDS, ()))
        if now - at >= REPLY_SECONDS:
            # Other viewers get what was known before, until this read is over.
            self._set(task_id, now, found)
            if now - self._renewed.get(task_id, -RENEWAL_SECONDS) >= RENEWAL_SECONDS:
                self._renewed[task_id] = now
                await self._client.watch_task(task_id)
            found = await self._client.list_partial_replies(task_id)
            self._set(task_id, now, found)
        return found

    def _set(self, task_id: str, at: float, found: Sequence[PartialReply]) -> None:
        self._known[task_id] = at, found
        self._known.move_to_end(task_id)


class EventFeed:
    """The newest events of a tenant, while anyone listens."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.known = TaskEventCache(client)
        self._replies = PartialReplyCache(client)
        self._recent: deque[TaskEvent] = deque()
        self._since = self._upto = 0
        """`_recent` has the tenant's events after the first number, up to the second."""
        self._moved = asyncio.Event()
        self._failed: WaystationError | None = None
        self._listeners = 0
        self._beginning = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None

    async def resolve_start(self, asked: int | None, otherwise: int) -> int:
        """Return the number after which a listener starts. Raises BadInput for one that the store has not reached."""
        if asked is None:
            return otherwise
        newest = await self._client.get_newest_event_number()
        if asked > newest:
            raise BadInput(
                f"there is no event {asked} in this store yet; the newest is {newest}: start with ?after=0, or leave "
                "Last-Event-ID out"
            )
        return asked

    async def stream(
        self,
        after: int,
        task_id: str | None,
        still: AccessCheck = is_always_allowed,
        heartbeat: float | None = None,
        watched: str | None = None,
    ) -> AsyncGenerator[bytes]:
        """Stream events of all tasks, or of one until it ends.

        If the store fails or the listener's permission ends, an event says so, and the stream ends.

        Args:
            after: Number of the last event that the listener has.
            task_id: The task; None: all of the tenant's.
            still: Whether the listener still has permission.
            heartbeat: Seconds without an event after which an event is sent.
            watched: Task whose agents' partial replies are sent, too, each time that they have changed.
        """
        seconds, alive = (ALIVE_SECONDS, ALIVE) if heartbeat is None else (heartbeat, HEARTBEAT)
        replies: Sequence[PartialReply] | None = None
        silent = 0.0
        yield RETRY
        try:
            async with self._listened():
                while True:
                    page = None
                    pause = self._limit_pause(seconds - silent, after, watched)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(pause):
                            page = await self.wait_for_page(after, task_id)
                    if not await still():
                        raise _NotKnown(
                            "the key was revoked, or the token has expired: connect again with another key or token"
                        )
                    if watched is not None and (newest := await self._replies.get_replies(watched)) != replies:
                        replies, silent = newest, 0.0
                        yield format_replies(newest)
                    elif page is None:
                        silent += pause
                    if page is None:
                        if silent >= seconds:
                            silent = 0.0
                            yield alive
                        continue
                    silent = 0.0
                    for one in page.events:
                        yield b"id: %d\ndata: %s\n\n" % (one.number, one.model_dump_json().encode())
                    after = page.upto
                    if task_id is not None and await self._is_last(page, task_id):
                        return
        except WaystationError as error:
            # The response has begun: an error can only be reported in it.
            status = 401 if isinstance(error, _NotKnown) else 503
            problem = ProblemDetails(
                title="No more events", status=status, detail=replace_control_characters(" ".join(str(error).split()))
            )
            yield b"event: problem\ndata: %s\n\n" % problem.model_dump_json().encode()

    def _limit_pause(self, seconds: float, after: int, watched: str | None) -> float:
        """Return how long to wait for an event. A listener that has fallen behind reads from the store: that read is
        not cut short.
        """
        return seconds if watched is None or after < self._since else min(seconds, REPLY_SECONDS)

    async def _is_last(self, page: EventPage, task_id: str) -> bool:
        return page.events[-1].kind in {"ended", "forgotten"} and await self._client.is_over(task_id)

    async def wait_for_page(self, after: int, task_id: str | None) -> EventPage:
        """Return the events after that number, as soon as there are any. Raises as the store does."""
        while True:
            if self._failed is not None:
                raise self._failed
            if after < self._since:
                reached = self._since
                page = await self._client.list_events(after, task_id)
                if page.events:
                    return page
                after = page.upto if page.upto > after else reached
                continue
            found = tuple(one for one in self._recent if one.number > after and task_id in {None, one.task_id})
            if found:
                return EventPage(events=found, upto=found[-1].number)
            await self._moved.wait()

    @asynccontextmanager
    async def _listened(self) -> AsyncGenerator[None]:
        """Poll the store while the block runs."""
        async with self._beginning:
            if self._reading is None or self._reading.done():
                self._failed = None
                self._recent.clear()
                self._since = self._upto = await self._client.get_newest_event_number()
                self._reading = asyncio.create_task(self._read_on())
            self._listeners += 1
        try:
            yield
        finally:
            self._listeners -= 1
            if not self._listeners:
                await self._rest()

    async def _rest(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading

    async def _read_on(self) -> None:
        while True:
            try:
                page = await self._client.list_events(self._upto)
            except WaystationError as error:
                self._failed = error
                self._wake()
                return
            if page.upto == self._upto:
                await asyncio.sleep(POLL_SECONDS)
                continue
            self._recent.extend(page.events)
            while len(self._recent) > MAX_RECENT_EVENTS:
                self._since = self._recent.popleft().number
            self._upto = page.upto
            self._wake()

    def _wake(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()
