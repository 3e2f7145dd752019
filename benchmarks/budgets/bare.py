"""Workflows without the platform, on the same server, as the baseline."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

QUEUE = "bare"
SLOTS = 32
"""Activities at once, as many as a worker of the platform takes legs."""
TIMEOUT = timedelta(minutes=20)


class Tally:
    """What the bare activities saw. One for each process: activities run outside the sandbox."""

    def __init__(self) -> None:
        self.calls = 0
        self.waiting = 0
        self.full = asyncio.Event()
        """As many wait as there are slots."""
        self.released = asyncio.Event()
        self.reached: dict[str, float] = {}
        """By workflow id: when its activity ran, by the event loop's clock."""

    @activity.defn
    async def nothing(self) -> None:
        """Do nothing."""
        self.reached[activity.info().workflow_id or ""] = asyncio.get_running_loop().time()

    @activity.defn
    async def wait_inside(self) -> None:
        """Wait for a person, holding the slot."""
        self.waiting += 1
        if self.waiting == SLOTS:
            self.full.set()
        await self.released.wait()

    @activity.defn
    async def answer(self, conversation: list[str]) -> str:
        """A model call that is given the whole conversation."""
        self.calls += 1
        return f"Reply {len(conversation)}."

    @activity.defn
    async def answer_with_all(self, conversation: list[str]) -> list[str]:
        """A model call that is given the whole conversation and returns it with the reply."""
        self.calls += 1
        return [*conversation, f"Reply {len(conversation)}."]


@workflow.defn
class Chain:
    """Activities that do nothing, one after another."""

    @workflow.run
    async def run(self, length: int) -> None:
        for _ in range(length):
            await workflow.execute_activity_method(Tally.nothing, start_to_close_timeout=TIMEOUT)


@workflow.defn
class AnsweredPause:
    """Waits for a signal, then runs an activity."""

    def __init__(self) -> None:
        self._answered = False

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: self._answered)
        await workflow.execute_activity_method(Tally.nothing, start_to_close_timeout=TIMEOUT)

    @workflow.signal
    def approve(self) -> None:
        self._answered = True


@workflow.defn
class BlockingPause:
    """Waits for a person in an activity."""

    @workflow.run
    async def run(self) -> None:
        await workflow.execute_activity_method(Tally.wait_inside, start_to_close_timeout=TIMEOUT)


@workflow.defn
class Conversation:
    """A conversation that every model call is given, and that each may give back."""

    @workflow.run
    async def run(self, calls: int, opening: str, returned: bool) -> None:
        conversation = [opening]
        for _ in range(calls):
            if returned:
                conversation = await workflow.execute_activity_method(
                    Tally.answer_with_all, conversation, start_to_close_timeout=TIMEOUT
                )
            else:
                conversation.append(
                    await workflow.execute_activity_method(Tally.answer, conversation, start_to_close_timeout=TIMEOUT)
                )


@asynccontextmanager
async def bare_worker(client: Client) -> AsyncGenerator[Tally]:
    """A worker for all of them, and what its activities see."""
    tally = Tally()
    async with Worker(
        client,
        task_queue=QUEUE,
        workflows=[Chain, AnsweredPause, BlockingPause, Conversation],
        activities=[tally.nothing, tally.wait_inside, tally.answer, tally.answer_with_all],
        max_concurrent_activities=SLOTS,
    ):
        yield tally
