"""What the client reads from the store alone: tasks, their agents, plans, reports and documents, and texts with their
originals restored.
"""

from collections.abc import Sequence
from contextlib import aclosing

from waystation.agents.action_approvals import PlaceholderResolution
from waystation.config.settings import Settings
from waystation.kernel.errors import BadInput, UnknownTask, WrongKey
from waystation.kernel.scopes import ReadScope, TenantScope
from waystation.kernel.text import FORGOTTEN, format_first
from waystation.planning.plan import PLANNING_ID, Plan, find_share_errors
from waystation.privacy.policy import RestoredText, select_stricter_policy
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.store_setup import (
    build_missing_key_error,
    build_vault_if_key_exists,
    build_wrong_key_error,
    get_placeholder_key,
    open_store,
)
from waystation.security.untrusted import replace_control_characters
from waystation.tasks.task import TaskRequest, TaskRow, build_reader_scope, tenant_hash
from waystation.tasks.view import ReportVersionView, TaskFilter, TaskView


def require_local_store(settings: Settings) -> None:
    """Raise BadInput if the settings name another machine than the one that has the store."""
    if settings.server is not None:
        raise BadInput(
            "this command uses the store directly, so it does not work through WAYSTATION_SERVER: unset "
            "WAYSTATION_SERVER and run the command on the machine that has the store"
        )


def require_same_tenant(request: TaskRequest, tenant: str) -> None:
    """Raise BadInput if a request belongs to another tenant: its submitter could not follow the task."""
    if request.tenant != tenant:
        raise BadInput(
            f"the request belongs to tenant {request.tenant!r}, but the settings name {tenant!r}: set "
            "WAYSTATION_TENANT, or change the request's tenant"
        )


def require_not_forgotten(task_id: str, title: str) -> None:
    """Raise BadInput if the task, with all its texts, was forgotten."""
    if title == FORGOTTEN:
        raise BadInput(
            f"{task_id} was forgotten: its texts are deleted and only its numbers remain, which `waystation cost "
            f"{task_id}` and `waystation show {task_id}` print"
        )


def build_missing_report_error(view: TaskView) -> BadInput:
    """Build the error that says why there is no report. Raises BadInput itself if the task was forgotten."""
    task_id = view.task_id
    require_not_forgotten(task_id, view.title)
    follows = "" if view.over else f": `waystation watch {task_id}` follows it"
    return BadInput(f"{task_id} has no report (it is {view.phase}){follows}")


def get_report_version(view: TaskView, number: int | None) -> ReportVersionView:
    """Return the report version with this number; None: the one that is shown. Raises BadInput if it does not exist."""
    if view.shown_report is None:
        raise build_missing_report_error(view)
    if number is None:
        return view.shown_report
    for version in view.reports:
        if version.number == number:
            return version
    raise BadInput(
        f"{view.task_id} has no version {number} of its report; it has {format_report_versions(view.reports)}"
    )


def format_report_versions(versions: Sequence[ReportVersionView]) -> str:
    """Format all versions of a report, each with how the task ended with it, and when."""
    return ", ".join(
        f"{one.number} ({one.phase}{f', {one.stored_at:%Y-%m-%d %H:%M} UTC' if one.stored_at else ''})"
        for one in versions
    )


async def load_owned_task(store: SqlStore, reader: TenantScope, task_id: str) -> TaskRow:
    """Load the task if it is the tenant's. Raises UnknownTask, which does not reveal whether another tenant has it."""
    return await store.get_task(task_id, reader)


async def load_plan(store: SqlStore, row: TaskRow) -> Plan:
    """Load a task's newest plan, goals included. Raises BadInput if it has none yet."""
    task_id = row.ref.task_id
    plan = await store.get_newest_plan(task_id, row.ref.scope)
    if plan is None:
        raise BadInput(f"{task_id} has no plan yet: `waystation show {task_id}` shows its progress")
    return plan


DEFAULT_TASK_LIMIT, MAX_TASK_LIMIT = 50, 10_000


async def list_task_rows(store: SqlStore, tenant: str, task_filter: TaskFilter, maximum: int) -> list[TaskRow]:
    """Return up to `maximum` of the tenant's or session's newest tasks; if the filter narrows them later, up to
    `MAX_TASK_LIMIT`.
    """
    reader = build_reader_scope(tenant, task_filter.session)
    rows = await store.list_tasks(reader, MAX_TASK_LIMIT if task_filter.narrows else maximum, since=task_filter.since)
    return list(rows)


EXAMPLE_CHARACTERS = len("task-") + 4
"""Beginning of an id that an error shows as an example."""


async def resolve_task_id(store: SqlStore, reader: TenantScope, prefix: str) -> str:
    """Return the tenant's only task id that starts with `prefix`, with or without `task-`.

    Raises UnknownTask; BadInput if several do, or if every id starts with it.
    """
    if not prefix.strip():
        raise BadInput("the task id is empty: `waystation list` shows the newest tasks")
    any_task = "task-".startswith(prefix)
    wanted = prefix if prefix.startswith("task-") or any_task else f"task-{prefix}"
    found = await store.find_task_ids(wanted, reader)
    match found:
        case ():
            raise UnknownTask(
                f"no task in this store has an id that starts with {prefix!r}: `waystation list` shows the newest tasks"
            )
        case (only,) if not any_task:
            return only
        case _ if wanted in found:
            return wanted
        case (only,):
            raise BadInput(
                f"{prefix!r} is the beginning of every task id: give more of the id, like {only[:EXAMPLE_CHARACTERS]}"
            )
        case _:
            raise BadInput(f"{prefix!r} matches {format_first(found, 5)}: give more characters of the id")


async def load_document_text(store: SqlStore, row: TaskRow, name: str) -> str:
    """Load a document as it was submitted. Raises BadInput if none has that name now."""
    for document in await store.list_documents(row.ref.task_id, row.ref.scope):
        if document.name == name:
            return await store.get_text(document.blob, row.ref.scope)
    raise BadInput(
        f"{row.ref.task_id} has no document {name!r} now: the document may have been replaced or "
        "removed after it was cited"
    )


async def add_stored_details(store: SqlStore, view: TaskView, row: TaskRow) -> TaskView:
    """Return the view with what the store has besides: passages that wait for memory or that it rejects, documents
    beyond the task's limit of memory, plans, placeholders whose originals its tools received, and skipped items.
    """
    task_id, reader, most = row.ref.task_id, row.ref.scope, row.config.remembered_characters
    characters = sum(
        document.characters for document in await store.list_documents(task_id, reader) if not document.removed
    )
    trail = await store.list_audit_entries(task_id, reader)
    return view.replace(
        unindexed_characters=max(0, characters - most) if most else 0,
        skipped_items=row.request.skipped_items,
        passages_pending=await store.count_pending_passages(task_id),
        passages_rejected=await store.list_rejected_passage_ids(task_id),
        plans=await store.list_plan_versions(task_id, reader),
        resolved_placeholders=tuple(one for one in trail if isinstance(one, PlaceholderResolution)),
    )


async def list_agent_ids(
    store: SqlStore, task_id: str, reader: ReadScope, wanted: str | None = None
) -> tuple[str, ...]:
    """Return the ids of all agents, subagents included, or the wanted one. Empty before there is a plan.

    Raises:
        BadInput: The task has no such agent.
    """
    plan = await store.get_newest_plan(task_id, reader)
    runs = [
        run_id for run_id in await store.list_run_ids(task_id, reader) if not run_id.endswith("/")
    ]  # without the run that indexes its documents
    begun = [run_id.removeprefix(f"{task_id}/") for run_id in runs]
    agents = tuple(dict.fromkeys((*(step.id for step in plan.steps), PLANNING_ID, *begun))) if plan else ()
    if wanted is not None and wanted not in agents:
        raise BadInput(f"{task_id} has no agent {wanted!r}; it has {', '.join(agents) or 'none yet'}")
    return agents if wanted is None else (wanted,)


async def restore_task_text(settings: Settings, task_id: str, text: str) -> RestoredText:
    """Restore the originals of a task's text, in place of its placeholders.

    Raises:
        UnknownTask: The tenant of the settings has no such task.
        BadInput: The key is missing, or is another one.
    """
    async with aclosing(await open_store(settings)) as store:
        await load_owned_task(store, build_reader_scope(settings.tenant), task_id)
        return await _restored(settings, store, text)


async def restore_tenant_text(settings: Settings, text: str) -> RestoredText:
    """Restore the originals of any text, in place of the placeholders of the settings' tenant.

    Raises BadInput for the key.
    """
    async with aclosing(await open_store(settings)) as store:
        return await _restored(settings, store, text)


async def _restored(settings: Settings, store: SqlStore, text: str) -> RestoredText:
    from waystation.agents.redaction import restore_text_from_vault  # noqa: PLC0415  lists restore nothing

    vault = build_vault_if_key_exists(store, settings)
    if vault is None:
        raise build_missing_key_error(settings, "the vault with the originals behind placeholders")
    try:
        return await restore_text_from_vault(text, vault, tenant_hash(settings.tenant))
    except WrongKey:
        raise build_wrong_key_error(settings) from None


async def load_redacted_document_text(settings: Settings, task_id: str, name: str) -> str:
    """Load a document of this task as agents were shown it, with the lines of the submitted one: for readers who may
    know no more than a model. If this process has another policy than the task was admitted under, the stricter counts.

    Args:
        settings: The settings, with the store, the tenant and the key.
        task_id: Id of the task.
        name: Name of the document: as submitted, as agents know it, or as it is shown to people.

    Raises:
        UnknownTask: The tenant of the settings has no such task.
        BadInput: No document has that name.
        RedactionFailed: The text could not be redacted.
    """
    from waystation.documents.redacted_documents import (  # noqa: PLC0415
        RedactedDocumentStore,
        build_document_names,
    )

    # Presidio takes seconds; it is needed if the text is not stored as it was shown.
    from waystation.runtime.redaction_setup import build_redaction_config, create_redactor  # noqa: PLC0415

    async with aclosing(await open_store(settings)) as store:
        row = await load_owned_task(store, build_reader_scope(settings.tenant), task_id)
        reader = row.ref.scope
        documents = await store.list_documents(task_id, reader)
        key = await get_placeholder_key(store, settings)
        admitted = None if row.progress is None else row.progress.privacy
        redactor = create_redactor(settings, key, select_stricter_policy(settings.privacy, admitted))
        try:
            called = [one for one in documents if one.name == name]
            if not called and documents:
                known = await build_document_names(documents, redactor, reader.tenant)
                called = [
                    one
                    for one in documents
                    if name in {known.shown_names[one.name], replace_control_characters(known.shown_names[one.name])}
                ]
            if not called or called[0].removed:
                raise BadInput(f"{task_id} has no document {name!r} now")
            redacted = RedactedDocumentStore(
                store, redactor, build_redaction_config(redactor, key), stores_results=False
            )
            return (await redacted.get_redacted_text(called[0].blob, reader)).text
        finally:
            redactor.close()


def validate_plan_shares(plan: Plan, view: TaskView) -> None:
    """Raise BadInput if a person gave shares that do not fit, while the plan waits."""
    left = view.pending_plan_limit
    if left is not None and (faults := find_share_errors(plan, left)):
        raise BadInput(f"the plan does not fit the budget: {'; '.join(faults)}")
