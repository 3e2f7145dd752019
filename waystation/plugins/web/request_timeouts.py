"""Timeouts of connections that send no request, or send one too slowly: they are closed, so that others can connect."""

import asyncio
from collections import OrderedDict

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_TIMEOUT_SECONDS = 10.0
"""Seconds within which a whole request head must arrive, after the connection or the previous response."""
MAX_WAITING_CONNECTIONS = 300
"""Maximum simultaneous connections without a request. Beyond, those that have waited longest are closed."""


class RequestTimeoutProtocol(H11Protocol):
    """A connection that must send its request in time. uvicorn closes one that is idle after a response, but none that
    never sends a request, or sends a byte a minute.
    """

    _waiting: "OrderedDict[RequestTimeoutProtocol, None]" = OrderedDict()
    """Waiting connections of this process, the longest-waiting first."""
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See base class."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """See base class."""
        super().data_received(data)
        if self._is_asked:
            self._wait_no_more()

    def on_response_complete(self) -> None:
        """See base class."""
        super().on_response_complete()
        if not self.transport.is_closing() and not self._is_asked:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """See base class."""
        self._wait_no_more()
        super().connection_lost(exc)

    @property
    def _is_asked(self) -> bool:
        """Whether a request is in progress. Data after a response, including the rest of a body, is none."""
        return bool(self.cycle) and not self.cycle.response_complete

    def _wait(self) -> None:
        self._wait_no_more()
        self._waiting[self] = None
        self._deadline = self.loop.call_later(HEADER_TIMEOUT_SECONDS, self._give_up)
        while len(self._waiting) > MAX_WAITING_CONNECTIONS:
            next(iter(self._waiting))._give_up()

    def _wait_no_more(self) -> None:
        self._waiting.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._wait_no_more()
        self.transport.close()
