"""A server's stream of messages that tells when it has ended, which the SDK keeps to itself until the next call."""

import asyncio
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import anyio

# The SDK takes transports of one's own, and has their types nowhere else.
from mcp.client._transport import ReadStream, TransportStreams
from mcp.shared.message import SessionMessage

__all__ = ["TransportStreams", "Watched"]


@dataclass
class Watched:
    """A `ReadStream` of the SDK."""

    stream: ReadStream[SessionMessage | Exception]
    ended: asyncio.Event
    """Set when the server has nothing more to say."""

    async def receive(self) -> SessionMessage | Exception:
        """The next message, or why one could not be read."""
        try:
            return await self.stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self.ended.set()
            raise

    async def aclose(self) -> None:
        """Read no more."""
        await self.stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()
