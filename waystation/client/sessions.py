"""How the client lets sessions go on: messages to tasks at work, forks of finished ones, documents of earlier ones."""

from pydantic import Field

from waystation.adapters.clock import utc_now
from waystation.adapters.store import SqlStore
from waystation.client.submitting import new_row
from waystation.domain.errors import BadInput, RequestConflict, UnknownTask
from waystation.domain.fork import ForkedFrom
from waystation.domain.forking import forked
from waystation.domain.ownership import OfTenant
from waystation.domain.task import (
    SourceDocument,
    TaskBudget,
    TaskPhase,
    TaskRequest,
    TaskRow,
    reader_of,
    task_id_of,
)
from waystation.domain.task_progress import progress_of
from waystation.domain.task_state import TaskState
from waystation.domain.telling import MAX_TELLING, heard
from waystation.domain.unattended import Unattended
from waystation.domain.value import Input
from waystation.seen import SeenTelling, TaskView
from waystation.settings import Settings


class ForkWish(Input):
    """What a fork of a finished task begins anew, and what of the request changes; the rest stays as it was."""

    step: str
    """Id of the step."""
    request_id: str = Field(min_length=1, max_length=200)
    """The same one again finds the same task."""
    instructions: str | None = None
    budget: TaskBudget | None = None
    """Of the new task; by default what the first one was submitted with."""


# ----------------------------------------------------------------------------------------------------------- telling


def checked_words(row: TaskRow, phase: TaskPhase, words: str) -> str:
    """The words as they can be told to this task. Raises BadInput where it has ended, and for blank or long words."""
    task_id = row.ref.task_id
    if phase.over:
        raise BadInput(
            f"{task_id} has ended ({phase}): none of its agents would hear it. Ask on in its session by `waystation "
            f"submit --session {row.request.session} …`, or take an agent back by `waystation rewind {task_id} …`"
        )
    if not words.strip():
        raise BadInput("the message is blank: say what the agents shall know")
    if len(words) > MAX_TELLING:
        raise BadInput(
            f"the message has {len(words):,} characters; it may have {MAX_TELLING:,}: what is longer belongs into a "
            "document of a new task in the session"
        )
    return words


async def with_tellings(store: SqlStore, view: TaskView, reader: OfTenant) -> TaskView:
    """The view with what was told to the task, and who has heard it by now."""
    task_id = view.progress.task_id
    kept = [telling for telling in view.progress.tellings if telling.text]
    if not kept:
        return view
    agents = {run_id.removeprefix(f"{task_id}/"): run_id for run_id in await store.run_ids(task_id, reader)}
    by_agent = {agent: heard((await store.load(run_id, reader)).messages) for agent, run_id in agents.items()}
    seen = [
        SeenTelling(
            **telling.model_dump(include={"number", "by", "told_at"}),
            text=await store.get_text(telling.text, reader),
            heard_by=tuple(agent for agent, numbers in by_agent.items() if telling.number in numbers),
        )
        for telling in kept
    ]
    return view.model_copy(update={"tellings": tuple(seen)})


# ----------------------------------------------------------------------------------------------------------- forking


async def register_fork(settings: Settings, store: SqlStore, row: TaskRow, wish: ForkWish) -> TaskRow:
    """Store a task that begins with the finished steps of this one. The same wish again finds it again.

    Raises BadInput for a task that is not over or a step that it does not have; RequestConflict.
    """
    request = _request(row, wish)
    if (known := await _known(store, request)) is not None:
        return known
    if row.progress is None or not row.progress.phase.over:
        raise BadInput(f"{row.ref.task_id} is not over: `waystation watch` follows it, `waystation cancel` stops it")
    if row.progress.state is None:
        raise BadInput(f"{row.ref.task_id} has no state to go on from any more: submit it anew")
    ended = TaskState.model_validate_json(await store.get_text(row.progress.state, row.ref.reader))
    new = await new_row(settings, store, request)
    kept = {"procedures_among_documents": row.terms.procedures_among_documents}
    new = new.model_copy(update={"terms": new.terms.model_copy(update=kept)})  # its finished steps followed them
    state = forked(ended, ForkedFrom(task_id=row.ref.task_id, step=wish.step), new.ref, new.terms)
    progress = progress_of(state, new.ref, new.terms, row.title).model_copy(
        update={"phase": TaskPhase.SUBMITTED, "state": await store.put_text(state.model_dump_json(), new.ref.reader)}
    )
    new = new.model_copy(update={"progress": progress})
    plan = await store.plan(row.ref.task_id, row.ref.reader)
    if state.reused is not None and plan is not None:
        await store.register_fork(new, plan, state.reused, row.progress.state)
    return new


def _request(row: TaskRow, wish: ForkWish) -> TaskRequest:
    asked = row.request
    changes: dict[str, object] = {
        "request_id": wish.request_id,
        "forked_from": ForkedFrom(task_id=row.ref.task_id, step=wish.step),
    }
    if wish.instructions is not None:
        changes["instructions"] = wish.instructions
    if wish.budget is not None:
        changes["budget"] = wish.budget
    if asked.unattended.answer_by is not None and asked.unattended.answer_by <= utc_now():
        changes["unattended"] = Unattended()
    return TaskRequest.model_validate({**asked.model_dump(), **changes})


async def _known(store: SqlStore, request: TaskRequest) -> TaskRow | None:
    """The task of the same wish, also where the other task has been forgotten meanwhile."""
    try:
        known = await store.task(task_id_of(request), reader_of(request.tenant))
    except UnknownTask:
        return None
    said = {"forked_from", "instructions", "budget"}
    if known.request.model_dump(include=said) != request.model_dump(include=said):
        raise RequestConflict(
            f"the request id {request.request_id!r} was used in this session before, for something else: use a new one"
        )
    return known


# -------------------------------------------------------------------------------------------------------- follow-ups


async def documents_of_session(store: SqlStore, tenant: str, session: str) -> tuple[SourceDocument, ...]:
    """The documents of the newest task of a session; none where it has no task, or all was forgotten."""
    reader = reader_of(tenant, session)
    newest = await store.tasks(reader, limit=1)
    found = [one for row in newest for one in await store.documents(row.ref.task_id, reader) if not one.removed]
    return tuple(
        [SourceDocument(name=one.name, text=await store.get_text(one.blob, reader), source=one.source) for one in found]
    )
