"""The task of which histories are recorded beside the usual one: all that can come to pass in one comes to pass in it.

Its researcher delegates, and asks before it writes a letter; so does a subagent, and another asks for money, which it
gets from what the first hands back, and later from a person; people tell it something and give it a document again; its
plan is revised, and its report is sent back once.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from temporalio.client import Client

from tests.crew import NOTE, Call, Gate
from tests.delegating import HAND_IN, DelegatingCrew, delegate, delegating
from tests.letters import SendLetter
from tests.overseeing import ADDED, FAULTY, GOOD, OverseenCrew, overseen
from tests.post import letter
from tests.readers import ANYONE
from tests.running import Counter, Task, opened_parts, until, working
from waystation.client.sessions import compare_documents, read_again, store_document_set
from waystation.documents.table_engine.engine import DuckDbTableEngine
from waystation.privacy.ports import Redactor
from waystation.tasks.approvals import APPROVE_BUDGET
from waystation.tasks.signals import TELL, UPDATE_DOCUMENTS
from waystation.tasks.task import TaskPhase
from workers.outside import ToolBackends
from workflows.task import TaskWorkflow

NEWER = "Keep the white beacon to starboard.\nThe bar carries three fathoms.\n"
SCRIPTS = {
    "harbours": [[delegate("beacons", 60), delegate("bars", 20)], [NOTE, letter()], [HAND_IN]],
    "harbours.1": [*[[NOTE]] * 60, [HAND_IN]],
    "harbours.2": [[letter()], [HAND_IN]],
}
HELD = Call("tides", 3)
GRANT = 30_000
"""Tokens. It leaves enough for the step that the revision adds."""


@dataclass
class WholeCrew(DelegatingCrew, OverseenCrew):
    """Delegates by its scripts, revises and reviews."""


@asynccontextmanager
async def divided(client: Client, folder: Path, redactor: Redactor) -> AsyncGenerator[Counter]:
    """The platform on which that task has come to its end."""
    gate = Gate(HELD)
    crew = WholeCrew(before=gate, scripts=SCRIPTS, revisions=[ADDED], reviews=[FAULTY, GOOD])
    async with opened_parts(folder, redactor, crew) as plain:
        parts = replace(plain, reach=ToolBackends(tables=DuckDbTableEngine(), web=(SendLetter(),)))
        async with working(client, parts):
            counter = Counter(client, parts.store)
            terms = overseen(given=delegating(budget=60_000, agent_budget=30_000))
            await counter.submit(under=terms.replace(remembered_characters=1_000))
            await gate.reached.wait()
            await _told(counter, folder)
            gate.opened.set()
            await until(lambda: answered(counter.task()))
            yield counter


async def _told(counter: Counter, folder: Path) -> None:
    """Words of a person's, and a newer version of the document."""
    await counter.task().signal(TELL, {"text": "Give depths in metres.", "by": "Ada"})
    (folder / "pilot.md").write_text(NEWER, encoding="utf-8")
    task = (await counter.store.task(counter.task().id, ANYONE)).ref.reader
    loaded = await read_again(await counter.store.documents(task.task_id, task), [folder / "pilot.md"])
    again = await compare_documents(counter.store, task, loaded, remove_missing=False)
    await counter.task().signal(
        UPDATE_DOCUMENTS, {"documents": await store_document_set(counter.store, again, task), "by": "Ada"}
    )


async def answered(task: Task) -> bool:
    """Say yes to whatever is asked when nobody works any more; whether the task is over.

    Calls of tools first: what those agents hand back may answer who waits for money.
    """
    progress = await task.query(TaskWorkflow.progress)
    if progress.phase is TaskPhase.PAUSED:
        waiting = [one for one in progress.approvals if one.decision == "pending"]
        for asked in [one for one in waiting if one.action is not None] or waiting:
            money = {} if asked.action is not None else {"tokens": GRANT}
            await task.signal(APPROVE_BUDGET, {"request_id": asked.request_id, "by": "Ada", **money})
    return progress.phase.over
