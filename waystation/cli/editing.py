"""What the commands share that edit the context of a running agent: send the edit, tell what became of it."""

import asyncio
from getpass import getuser

from waystation.cli.answers import conclude
from waystation.client import Client
from waystation.domain.compaction.edit import Action
from waystation.domain.edits import EditInput
from waystation.domain.value import Value
from waystation.seen import Answer
from waystation.settings import Settings


class Asked(Value):
    """An edit as it was typed."""

    task: str
    action: Action
    agent: str
    message: str | None = None
    keep: bool | None = None
    compaction: str | None = None
    instructions: str = ""
    by: str | None = None
    note: str = ""


def edit_context(asked: Asked, *, as_json: bool) -> None:
    """Have it carried out, and exit: 1 where it was refused."""
    conclude(asyncio.run(_edit(asked)), "refused", as_json=as_json)


async def _edit(asked: Asked) -> Answer:
    edit = EditInput(
        action=asked.action,
        agent=asked.agent,
        message=asked.message,
        keep=asked.keep,
        compaction=asked.compaction,
        by=asked.by or getuser(),
        note=asked.note,
    )
    async with await Client.connect(Settings()) as client:
        return await client.edit(await client.resolve(asked.task), edit, asked.instructions)
