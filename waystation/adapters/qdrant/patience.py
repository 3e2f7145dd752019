"""How long a call to the server may take: a time limit for each try, and a few tries where waiting may help."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from waystation.adapters.qdrant.failures import CLIENT_ERRORS, Trouble, failure_of
from waystation.domain.errors import MemoryUnavailable, PassagesRefused
from waystation.domain.value import Value

LONGEST_WAIT_S = 2.0
"""A server that asks for more is given up: what could not be written waits in the outbox."""
_T = TypeVar("_T")


class Patience(Value):
    """At most 19 seconds in all as it stands, which is less than the heartbeat time-out of an activity."""

    timeout_s: float = 5.0
    pauses_s: tuple[float, ...] = (0.25, 1.0)
    """Between tries, on average; one try more than pauses."""


PATIENCE = Patience()


async def patiently(work: Callable[[], Awaitable[_T]], purpose: str, server: str, patience: Patience) -> _T:
    """What `work` gives, which must be harmless to repeat.

    Raises:
        MemoryUnavailable: it could not be done; the message says so by `purpose`, `server` and the kind of failure.
        PassagesRefused: the server does not take what it was sent.
    """
    pauses = iter(patience.pauses_s)
    while True:
        try:
            async with asyncio.timeout(patience.timeout_s):
                return await work()
        except CLIENT_ERRORS as error:
            failure = failure_of(error)
        pause_s = next(pauses, None)
        if pause_s is None or not failure.trouble.passes or failure.wait_s > LONGEST_WAIT_S:
            # Out here the client's error, which may quote a payload, is no context of ours.
            refused = failure.trouble is Trouble.UNFIT
            raise (PassagesRefused if refused else MemoryUnavailable)(f"cannot {purpose}: {server} {failure}")
        await asyncio.sleep(max(failure.wait_s, pause_s * random.uniform(0.5, 1.5)))
