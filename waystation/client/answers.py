"""Sends a task what a person decided, and looks what became of it."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping

from pydantic import JsonValue

from waystation.adapters.temporal.tasks import TemporalTasks
from waystation.domain.task import TaskProgress
from waystation.seen import Answer, effect

ANSWER_SECONDS = 10.0
EDIT_SECONDS = 60.0
"""So long a summary may take, or the rest of a leg, before nobody looks any more."""
ANSWER_POLL_SECONDS = 0.2
UNATTENDED = Answer(outcome="unseen", reason="no worker answers for this task; it will be read when one runs")
UNREAD = Answer(outcome="unseen", reason="no worker has read it yet; `waystation show` tells when one has")

Look = Callable[[], Awaitable[TaskProgress]]


async def send(
    temporal: TemporalTasks, task_id: str, signal: str, answer: Mapping[str, JsonValue], look: Look
) -> Answer:
    """Send the signal, and wait until it has had its effect; an edit that still waits by then, waits.

    `look` gives the task as it is now. Raises BadInput where the task does not run; Unreachable.
    """
    answer_id = secrets.token_hex(8)
    attended = await temporal.ask(task_id) is not None
    await temporal.signal(task_id, signal, {**answer, "answer_id": answer_id})
    if not attended:
        return UNATTENDED
    seen: Answer | None = None
    patience, began = ANSWER_SECONDS, asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() - began < patience:
        seen = effect(answer_id, await look())
        if seen is not None and seen.outcome != "waiting":
            return seen
        patience = ANSWER_SECONDS if seen is None else EDIT_SECONDS
        await asyncio.sleep(ANSWER_POLL_SECONDS)
    return seen or UNREAD
