"""Submitting tasks to sessions, forking finished ones, messages to running ones, and updates of their documents."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import Field

from waystation.agents.action_approvals import UnattendedPolicy
from waystation.agents.task_messages import MAX_MESSAGE_CHARACTERS, list_received_message_numbers
from waystation.config.resolver import build_task_row, collect_adjustments, collect_config_warnings
from waystation.config.settings import Settings
from waystation.documents.document_loading import DocumentLoadResult, load_documents
from waystation.documents.documents import (
    Document,
    DocumentChange,
    DocumentSet,
    SkippedItem,
    SourceDocument,
    apply_document_set,
    compute_document_changes,
    resolve_document_names,
    validate_document_count,
)
from waystation.documents.stored_documents import load_source_documents
from waystation.documents.text_repository import make_document
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput, RequestConflict, UnknownTask
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.scopes import TaskScope, TenantScope
from waystation.kernel.value import Value
from waystation.mcp.config import list_server_names
from waystation.memory.passage_builder import find_unindexed_documents
from waystation.models.prices import load_prices
from waystation.models.profiles import OFFLINE_MODEL
from waystation.runtime.sql_store import SqlStore
from waystation.security.untrusted import DEFAULT_SERVERS, is_blank
from waystation.tasks.continuation import build_fork_state
from waystation.tasks.earlier_tasks import EarlierTaskReader
from waystation.tasks.progress import build_task_progress
from waystation.tasks.session import REFUSAL_PREFIX, RefusedTask, SessionWorkflowInput, build_session_input_for_row
from waystation.tasks.signals import AnswerResult
from waystation.tasks.state import TaskState
from waystation.tasks.state_storage import store_task_refusal
from waystation.tasks.task import (
    ForkOrigin,
    TaskBudget,
    TaskPhase,
    TaskProgress,
    TaskRequest,
    TaskRow,
    build_reader_scope,
    make_session_workflow_id,
    make_task_id,
    session_hash,
    tenant_hash,
)
from waystation.tasks.view import ProcedureView, SubmittedTask, TaskMessageView

if TYPE_CHECKING:
    from waystation.runtime.temporal.task_client import TemporalTaskClient

CONTROL_CHARACTERS = compile_bounded(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


async def build_session_start(store: SqlStore, tenant: str, session: str) -> SessionWorkflowInput:
    """Build the input with which a session workflow is started."""
    return SessionWorkflowInput(
        store_id=await store.get_store_id(), tenant=tenant_hash(tenant), session=session_hash(tenant, session)
    )


async def prepare_task_row(settings: Settings, store: SqlStore, request: TaskRequest) -> TaskRow:
    """Build the task row to be stored.

    Raises BadInput for a configuration that cannot work, and for names that lists cannot show.
    """
    require_one_line("a session", request.session)
    require_one_line("a tenant", request.tenant)
    _require_servers(settings, request.servers or ())
    prices = load_prices(settings.prices, published=not settings.uses_offline_model)
    return await build_task_row(request, settings, EarlierTaskReader(store), prices, utc_now())


def require_one_line(what: str, name: str) -> None:
    """Raise BadInput for a name that lists cannot show."""
    if CONTROL_CHARACTERS.search(name):
        raise BadInput(f"the name of {what} must be one line without control characters, and {name!r} is not")


def _require_servers(settings: Settings, named: Sequence[str]) -> None:
    """Raise BadInput for tool servers that the config file does not have, if it is on this machine too."""
    if settings.tool_servers is not None and not {DEFAULT_SERVERS}.issuperset(named):
        known = list_server_names(settings.tool_servers)
        if unknown := [name for name in named if name not in {DEFAULT_SERVERS, *known}]:
            there = ", ".join(known) or "none"
            raise BadInput(f"{settings.tool_servers} has no tool server {unknown[0]!r}; it has {there}")


async def submit_stored_task(
    settings: Settings,
    store: SqlStore,
    temporal: "TemporalTaskClient",
    row: TaskRow,
    patience: timedelta,
) -> SubmittedTask:
    """Submit a stored task to its session. Raises BadInput if the session refuses it, Unreachable."""
    request, task_id = row.request, row.ref.task_id
    try:
        await temporal.admit(
            build_session_input_for_row(row),
            make_session_workflow_id(request.tenant, request.session),
            row.ref,
            patience,
        )
    except BadInput as refused:
        # A working session has stored it; one of another store's workers, or one that refuses plain payloads, has not.
        known = await store.get_task(task_id, row.ref.scope)
        if not known.was_refused and await temporal.run_id(task_id) is None:
            reason = str(refused).removeprefix(REFUSAL_PREFIX)
            await store_task_refusal(store, RefusedTask(ref=row.ref, reason=reason))
        raise
    run_id, documents = await asyncio.gather(temporal.run_id(task_id), store.list_documents(task_id, row.ref.scope))
    left_out = find_unindexed_documents(documents, row.config.remembered_characters)
    return SubmittedTask(
        task_id=task_id,
        run_id=run_id,
        ui_url=temporal.build_task_link(task_id),
        warnings=(
            *collect_adjustments(request, settings),
            *collect_config_warnings(row.config),
            *([left_out.sentence] if left_out is not None else []),
        ),
        procedures=tuple(map(ProcedureView.from_source, row.request.procedures)),
    )


class ForkRequest(Value):
    """Where a fork of a finished task starts, and what of the request changes; the rest stays the same."""

    step: str
    """Id of the first step to run again."""
    request_id: str = Field(min_length=1, max_length=200)
    """The same id always finds the same task."""
    instructions: str | None = None
    budget: TaskBudget | None = None
    """Budget of the new task; default: what the first one was submitted with."""


# ---------------------------------------------------------------------------------------------------------- messages


NOT_FOLLOWED = "the built-in model works by rules and cannot follow a message; the message is stored anyway"


def get_ignored_message_reason(model: str) -> str:
    """Return why a model ignores messages to its agents; empty if it reads them."""
    return NOT_FOLLOWED if model == OFFLINE_MODEL else ""


def annotate_message_answer(answer: AnswerResult, model: str) -> AnswerResult:
    """Return the answer to a message, with a remark if the model ignores messages."""
    if answer.outcome == "refused":
        return answer
    return answer.replace(reason="; ".join(filter(None, [answer.reason, get_ignored_message_reason(model)])))


def validate_message_text(row: TaskRow, phase: TaskPhase, words: str) -> str:
    """Return the text as it can be sent to this task.

    Raises BadInput if the task has ended, and for a blank or long text.
    """
    task_id = row.ref.task_id
    if phase.over:
        raise BadInput(
            f"{task_id} has ended ({phase}), so no agent would read the message. Submit a new task in its "
            f"session with `waystation submit --session {row.request.session} …`, or rewind an agent with "
            f"`waystation rewind {task_id} …`"
        )
    if is_blank(words):
        raise BadInput("the message is blank: write what the agents should know")
    if len(words) > MAX_MESSAGE_CHARACTERS:
        raise BadInput(
            f"the message has {len(words):,} characters; the maximum is {MAX_MESSAGE_CHARACTERS:,}. Put a longer "
            "text into a document of a new task in the session"
        )
    return words


async def load_task_messages(
    store: SqlStore, progress: TaskProgress, reader: TenantScope
) -> tuple[TaskMessageView, ...]:
    """Load the messages sent to the task, and who has received each so far."""
    task_id = progress.task_id
    kept = [message for message in progress.task_messages if message.text]
    if not kept:
        return ()
    agents = {run_id.removeprefix(f"{task_id}/"): run_id for run_id in await store.list_run_ids(task_id, reader)}
    by_agent = {
        agent: list_received_message_numbers((await store.load_transcript(run_id, reader)).messages)
        for agent, run_id in agents.items()
    }
    return tuple(
        [
            TaskMessageView(
                number=message.number,
                by=message.by,
                sent_at=message.sent_at,
                text=await store.get_text(message.text, reader),
                received_by=tuple(agent for agent, numbers in by_agent.items() if message.number in numbers),
            )
            for message in kept
        ]
    )


# ----------------------------------------------------------------------------------------------------------- forking


async def register_fork(settings: Settings, store: SqlStore, row: TaskRow, fork: ForkRequest) -> TaskRow:
    """Store a task that begins with the finished steps of this one. The same request finds it again.

    Raises:
        BadInput: The task is not over, or has no such step.
        RequestConflict: The id was used for another request.
    """
    request = _request(row, fork)
    if (known := await _known(store, request)) is not None:
        return known
    if row.progress is None or not row.progress.phase.over:
        raise BadInput(f"{row.ref.task_id} has not ended: `waystation watch` follows it, `waystation cancel` stops it")
    if row.progress.state is None:
        raise BadInput(f"{row.ref.task_id} has no stored state to continue from: submit its question again")
    ended = TaskState.model_validate_json(await store.get_text(row.progress.state, row.ref.scope))
    new = await prepare_task_row(settings, store, request)
    state = build_fork_state(ended, ForkOrigin(task_id=row.ref.task_id, step=fork.step), new.ref, new.config)
    progress = build_task_progress(state, new.ref, new.config, row.title).replace(
        phase=TaskPhase.SUBMITTED, state=await store.put_text(state.model_dump_json(), new.ref.scope)
    )
    new = new.replace(progress=progress)
    plan = await store.get_newest_plan(row.ref.task_id, row.ref.scope)
    if state.reused is not None and plan is not None:
        await store.register_fork(new, plan, state.reused, row.progress.state)
    return new


def _request(row: TaskRow, fork: ForkRequest) -> TaskRequest:
    asked = row.request
    changes: dict[str, object] = {
        "request_id": fork.request_id,
        "forked_from": ForkOrigin(task_id=row.ref.task_id, step=fork.step),
        "servers": (DEFAULT_SERVERS,) if asked.servers is None else asked.servers,
    }
    if fork.instructions is not None:
        changes["instructions"] = fork.instructions
    if fork.budget is not None:
        changes["budget"] = fork.budget
    if asked.unattended.answer_by is not None and asked.unattended.answer_by <= utc_now():
        changes["unattended"] = UnattendedPolicy()
    return TaskRequest.model_validate({**asked.model_dump(), **changes})


async def _known(store: SqlStore, request: TaskRequest) -> TaskRow | None:
    """Return the task of the same request, also if the other task has been forgotten meanwhile."""
    try:
        known = await store.get_task(make_task_id(request), build_reader_scope(request.tenant))
    except UnknownTask:
        return None
    first = known.request
    asked = (request.forked_from, request.instructions, request.budget)
    if (first.forked_from, first.instructions, first.budget) != asked:
        raise RequestConflict(
            f"the request id {request.request_id!r} was already used in this session for another request: use a new id"
        )
    return known


# -------------------------------------------------------------------------------------------------------- follow-ups


async def load_session_documents(store: SqlStore, tenant: str, session: str) -> tuple[SourceDocument, ...]:
    """Load the documents of a session's newest task; empty if it has no task, or all was forgotten."""
    reader = build_reader_scope(tenant, session)
    newest = await store.list_tasks(reader, limit=1)
    return tuple([one for row in newest for one in await load_source_documents(store, row.ref.task_id, reader)])


UNCHANGED = AnswerResult(outcome="done", reason="nothing has changed")


class DocumentUpdateAnswer(Value):
    """The result of an update of documents."""

    answer: AnswerResult
    changes: tuple[DocumentChange, ...] = ()
    not_given: tuple[str, ...] = ()
    """Documents of the task that were not given, and stay as they are."""
    left_out: tuple[SkippedItem, ...] = ()
    """Given items that cannot be used; a document that was read from one before stays as it is."""


class DocumentSetDiff(NamedTuple):
    """Documents as they are now, compared with those of the task."""

    document_set: DocumentSet
    texts: Mapping[str, str]
    """Texts that the task does not have, by content hash."""
    changes: tuple[DocumentChange, ...]
    unlisted: tuple[str, ...]
    skipped_items: tuple[SkippedItem, ...]

    def to_answer(self, answer: AnswerResult) -> DocumentUpdateAnswer:
        """Combine the diff with the task's answer; an update that the task refused has changed nothing."""
        made = () if answer.outcome == "refused" else self.changes
        return DocumentUpdateAnswer(answer=answer, changes=made, not_given=self.unlisted, left_out=self.skipped_items)


def require_running(row: TaskRow, phase: TaskPhase) -> None:
    """Raise BadInput if the task has ended."""
    task_id = row.ref.task_id
    if phase.over:
        raise BadInput(
            f"{task_id} has ended ({phase}), so no agent would read the documents again. Submit a new task "
            f"with them (`waystation submit --session {row.request.session} --docs …`), or rewind an agent with "
            f"`waystation rewind {task_id} …` and then send the documents again"
        )


async def load_changed_documents(known: Iterable[Document], paths: Sequence[Path]) -> DocumentLoadResult:
    """Read those of these files and folders whose content the task does not have yet: new and changed ones.

    Nothing is stored. Raises BadInput as `load_documents` does.
    """
    sources = frozenset(one.source for one in known if one.source)
    return await asyncio.to_thread(load_documents, paths, known=sources)


async def compare_documents(
    store: SqlStore, task: TaskScope, loaded: DocumentLoadResult, *, remove_missing: bool
) -> DocumentSetDiff:
    """Compare documents that were read again with those of the task.

    Stores nothing. Raises BadInput if it is another tenant's.
    """
    known = await store.list_documents(task.task_id, task)
    sources = {one.source: one for one in known if one.source}
    if any(one.source not in sources for one in loaded.unread):
        raise BadInput("the task's documents have changed since yours were read: send your documents again")
    found, texts = _found(loaded, sources)
    names = resolve_document_names((one.name for one in found), (one.name for one in known))
    documents = tuple(one.replace(name=names[one.name]) for one in found)
    absent = _absent(known, documents, loaded.skipped_items)
    given = DocumentSet(documents=documents, missing=absent if remove_missing else ())
    after = apply_document_set(known, given)
    validate_document_count(len(after), had=len(known))
    have = {one.blob for one in known}
    return DocumentSetDiff(
        document_set=given,
        texts={blob: text for blob, text in texts.items() if blob not in have},
        changes=compute_document_changes(known, after),
        unlisted=() if remove_missing else absent,
        skipped_items=loaded.skipped_items,
    )


async def store_document_set(store: SqlStore, again: DocumentSetDiff, task: TaskScope) -> str:
    """Store the new texts, then the list of all documents. Returns the list's content hash."""
    for text in again.texts.values():
        await store.put_text(text, task)
    return await store.put_text(again.document_set.model_dump_json(), task)


def is_document_set_unchanged(again: DocumentSetDiff, now: TaskProgress) -> bool:
    """Return whether the task has all of it already, and no other update is pending."""
    return not again.changes and all(update.stored for update in now.document_updates)


def _found(loaded: DocumentLoadResult, sources: Mapping[str, Document]) -> tuple[list[Document], dict[str, str]]:
    """Return the documents by their given names, and the texts of those that were read, by content hash."""
    read = [make_document(document) for document in loaded.documents]
    texts = {one.blob: document.text for one, document in zip(read, loaded.documents, strict=True)}
    same = [sources[file.source].replace(name=file.name, removed=False) for file in loaded.unread]
    return [*read, *same], texts


def _absent(known: Sequence[Document], given: Sequence[Document], left_out: Sequence[SkippedItem]) -> tuple[str, ...]:
    """Return documents that were not given again. One that was given but could not be read is not absent."""
    there = {one.name for one in given}
    unreadable = [one.name for one in left_out]
    return tuple(
        one.name
        for one in known
        if not one.removed
        and one.name not in there
        and not any(f"/{one.name}".endswith(f"/{name}") for name in unreadable)
    )
