"""Publishes what an agent's model is thinking or writing while someone watches the task, redacted as the reply will be.

While no one watches, nothing is redacted or written.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from waystation.agents.partial_replies import PartialReply, ReplyBuffer, shorten_to_end
from waystation.agents.ports import PartialReplyRepository
from waystation.context.transcript import Fence
from waystation.kernel.clock import Clock
from waystation.kernel.errors import ModelError, WaystationError
from waystation.kernel.refs import RunRef
from waystation.privacy.policy import TextDestination
from waystation.privacy.ports import Redactor

PUBLISH_SECONDS = 1.0
"""Minimum seconds between two writes. A reply that takes less time is never written."""
UNWATCHED_SECONDS = 3.0
"""Seconds until an agent whose task no one watches asks again."""
PAUSE_PER_WORK = 10
"""How many times as long as redacting and writing the pause after it lasts, at least."""


@dataclass(frozen=True)
class PartialReplyPublisher:
    """Writes what one call's reply has brought so far, while someone watches the task."""

    store: PartialReplyRepository
    redactor: Redactor
    run: RunRef
    fence: Fence
    clock: Clock
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Waits for a number of seconds."""
    buffer: ReplyBuffer = field(default_factory=ReplyBuffer)

    async def publish(self) -> None:
        """Publish until the caller cancels, or until a text cannot be redacted or stored."""
        with suppress(WaystationError):
            await self._publish()

    async def _publish(self) -> None:
        published: PartialReply | None = None
        pause, is_watched = PUBLISH_SECONDS, False
        while True:
            await self.sleep(pause)
            pause, arrived = PUBLISH_SECONDS, self._build_reply()
            if arrived is None or arrived == published:
                continue
            begun = self.clock()
            if is_watched or await self.store.is_watched(self.run.task_id, self.run.scope):
                (redacted,) = await self.redactor.redact([arrived.text], TextDestination.MODEL_OUTPUT, self.run.tenant)
                if redacted.redaction_failed:
                    return
                shown = arrived.replace(text=shorten_to_end(redacted.text))
                is_watched = await self.store.save_partial_reply(self.fence, self.run.task_id, shown)
                published = arrived
                pause = max(PUBLISH_SECONDS, PAUSE_PER_WORK * (self.clock() - begun).total_seconds())
            if not is_watched:
                published, pause = None, max(pause, UNWATCHED_SECONDS)

    def _build_reply(self) -> PartialReply | None:
        """Build the reply as it has arrived, not redacted yet. None before the first delta."""
        received = self.buffer
        if received.kind is None:
            return None
        return PartialReply(
            agent=self.run.step_id,
            kind=received.kind,
            text=received.whole_paragraphs,
            calls_tool=received.calls_tool,
        )

    @asynccontextmanager
    async def publishing(self) -> AsyncGenerator[ReplyBuffer]:
        """Publish what the block's call passes to the buffer. Nothing is written after the block.

        What was written stays until the reply is committed; if there is none, it is deleted.
        """
        publishing = asyncio.create_task(self.publish())
        try:
            yield self.buffer
        except ModelError:
            await _stop(publishing)
            if self.buffer.kind is not None:
                with suppress(WaystationError):
                    await self.store.drop_partial_reply(self.fence)
            raise
        finally:
            await _stop(publishing)


async def _stop(task: asyncio.Task[None]) -> None:
    """Cancel the task and wait until a write that has begun is over."""
    task.cancel()
    await asyncio.wait([task])
