"""What the client checks of edits before it sends them, and how it has a finished task go on."""

from datetime import timedelta

from waystation.adapters.clock import utc_now
from waystation.adapters.store import SqlStore
from waystation.adapters.temporal.tasks import TemporalTasks
from waystation.domain.edits import MAX_INSTRUCTIONS, EditInput
from waystation.domain.errors import BadInput
from waystation.domain.reopening import going_on
from waystation.domain.rewind import TaskRewind, taken_back
from waystation.domain.session import SessionStart
from waystation.domain.task import TaskRow, session_workflow_id
from waystation.domain.task_state import TaskState
from waystation.seen import Answer

PATIENCE = timedelta(seconds=20)


def checked(instructions: str) -> str:
    """The same. Raises BadInput where they are too long."""
    if len(instructions) > MAX_INSTRUCTIONS:
        raise BadInput(f"the instructions have {len(instructions):,} characters; they may have {MAX_INSTRUCTIONS:,}")
    return instructions


async def edit_finished(store: SqlStore, temporal: TemporalTasks, row: TaskRow, edit: EditInput) -> Answer:
    """Let a finished task go on from a message: all that can be done to its contexts.

    Raises BadInput where it cannot be, and nothing has changed then; Unreachable.
    """
    ref = row.ref
    if edit.action != "rewind" or edit.message is None:
        raise BadInput(f"{ref.task_id} has ended: {edit.action} is for agents at work, `waystation rewind` for others")
    asked = TaskRewind(
        ref=ref,
        agent=edit.agent,
        message=edit.message,
        keep=edit.keep is not False,
        by=edit.by,
        note=edit.note,
        asked_at=utc_now(),
    )
    await _check(store, row, asked)
    start = SessionStart(store_id=ref.store_id, tenant=ref.tenant, session=ref.session)
    session = session_workflow_id(row.request.tenant, row.request.session)
    if (await temporal.rewind(start, session, asked, PATIENCE)).state != "started":
        return Answer(outcome="refused", reason="the task runs again already")
    return Answer(outcome="done", reason=f"{ref.task_id} goes on from there; what built on it begins anew")


async def _check(store: SqlStore, row: TaskRow, asked: TaskRewind) -> None:
    """As the worker will do it, without an effect."""
    if row.progress is None or row.progress.state is None:
        raise BadInput(f"{row.ref.task_id} ended under a release that kept no state: submit it anew")
    ended = TaskState.model_validate_json(await store.get_text(row.progress.state, row.ref.reader))
    going_on(ended, asked, row.terms.agent_budget)
    taken_back(
        await store.load(f"{row.ref.task_id}/{asked.agent}", row.ref.reader), asked.message, "check", keep=asked.keep
    )
