"""What the client looks up in the store alone.

What the client looks up in the store alone: which task is meant, and what memory does not have of it.

Which agents a task has, as the store knows them: those of its plan, its planner, and all others that have begun.

Texts as their owner may read them: whose they are, and with which key.
"""

from contextlib import aclosing

from waystation.agents.decisions import Resolution
from waystation.agents.redaction import restored
from waystation.config.settings import Settings
from waystation.documents.redacted import RedactedDocuments, document_names
from waystation.kernel.errors import BadInput, UnknownTask, WrongKey
from waystation.kernel.scopes import OfTenant, Reader
from waystation.kernel.text import FORGOTTEN
from waystation.planning.plan import PLANNING_ID, Plan, share_errors
from waystation.privacy.policy import WithOriginals
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.stores import key_of, no_key, opened_store, other_key, present_cipher
from waystation.security.untrusted import plain
from waystation.tasks.progress import left_for_steps
from waystation.tasks.task import ReportVersion, TaskProgress, TaskRequest, TaskRow, reader_of, tenant_hash
from waystation.tasks.view import TaskFilter, TaskView


def require_here(settings: Settings) -> None:
    """Raise BadInput where another machine is meant than the one that has the store."""
    if settings.server is not None:
        raise BadInput("this is done where the store is, and not by WAYSTATION_SERVER: run it there, without that")


def require_own(request: TaskRequest, tenant: str) -> None:
    """Raise BadInput where a request is another tenant's: whoever hands it in could not follow it."""
    if request.tenant != tenant:
        raise BadInput(
            f"the request is of tenant {request.tenant!r} and the settings of {tenant!r}: set WAYSTATION_TENANT, or "
            "give the request the same"
        )


def require_words(task_id: str, title: str) -> None:
    """Raise BadInput where the task was forgotten, every word of it."""
    if title == FORGOTTEN:
        raise BadInput(
            f"{task_id} was forgotten, every word of it: only numbers stay (`waystation cost {task_id}`, "
            f"`waystation show {task_id}`)"
        )


def without_report(progress: TaskProgress) -> BadInput:
    """Why there is none. Raises BadInput itself where the task was forgotten."""
    task_id = progress.task_id
    require_words(task_id, progress.title)
    follows = "" if progress.phase.over else f": `waystation watch {task_id}` follows it"
    return BadInput(f"{task_id} has no report (it is {progress.phase}){follows}")


def version_of(progress: TaskProgress, number: int | None) -> ReportVersion:
    """The version of its report with this number; None: the one that is shown. Raises BadInput where there is none."""
    if progress.readable is None:
        raise without_report(progress)
    if number is None:
        return progress.readable
    for version in progress.versions:
        if version.number == number:
            return version
    raise BadInput(f"{progress.task_id} has no version {number} of its report; it has {versions_text(progress)}")


def versions_text(progress: TaskProgress) -> str:
    """All versions of its report, each with how the task ended with it, and when."""
    return ", ".join(
        f"{one.number} ({one.phase}{f', {one.stored_at:%Y-%m-%d %H:%M} UTC' if one.stored_at else ''})"
        for one in progress.versions
    )


async def own_task(store: SqlStore, reader: OfTenant, task_id: str) -> TaskRow:
    """The task, if it is the tenant's. Raises UnknownTask, which does not tell whether another tenant has it."""
    return await store.task(task_id, reader)


async def plan_of(store: SqlStore, row: TaskRow) -> Plan:
    """The newest plan of a task, goals included. Raises BadInput where it has none yet."""
    task_id = row.ref.task_id
    plan = await store.plan(task_id, row.ref.reader)
    if plan is None:
        raise BadInput(f"{task_id} has no plan yet: `waystation show {task_id}` tells how far it is")
    return plan


NEWEST, ALL = 50, 10_000


async def rows_in(store: SqlStore, tenant: str, wanted: TaskFilter, most: int) -> list[TaskRow]:
    """So many of the tenant's or session's newest tasks; where more than that is wanted of them, as good as all that
    may be meant.
    """
    reader = reader_of(tenant, wanted.session)
    rows = await store.tasks(reader, ALL if wanted.narrows else most, since=wanted.since)
    return [row for row in rows if wanted.may_hold(row)]


async def resolved(store: SqlStore, reader: OfTenant, prefix: str) -> str:
    """The tenant's one task id that starts so, with or without `task-`. Raises UnknownTask; BadInput if several do."""
    if not prefix.strip():
        raise BadInput("the id of the task is empty: `waystation list` shows what there is")
    any_task = "task-".startswith(prefix)
    wanted = prefix if prefix.startswith("task-") or any_task else f"task-{prefix}"
    found = await store.find_tasks(wanted, reader)
    match found:
        case ():
            raise UnknownTask(f"no task starts with {prefix!r} in this store: `waystation list` shows what there is")
        case (only,) if not any_task:
            return only
        case _ if wanted in found:
            return wanted
        case _:
            raise BadInput(f"{prefix!r} could be {', '.join(found[:5])}: give more of the id")


async def document_text(store: SqlStore, row: TaskRow, name: str) -> str:
    """A document as it was handed in. Raises BadInput where none has that name now."""
    for document in await store.documents(row.ref.task_id, row.ref.reader):
        if document.name == name:
            return await store.get_text(document.blob, row.ref.reader)
    raise BadInput(f"{row.ref.task_id} has no document {name!r} now: it was replaced or removed since it was cited")


async def with_stored(store: SqlStore, view: TaskView, reader: OfTenant) -> TaskView:
    """The view with what memory does not have of the task: passages that wait, or that it does not take, and documents
    beyond what the terms let into it; with its plans, what its tools were given of the vault, and files left out.
    """
    task_id = view.progress.task_id
    row = await store.task(task_id, reader)
    most = row.terms.remembered_characters
    characters = sum(document.characters for document in await store.documents(task_id, reader) if not document.removed)
    return view.replace(
        characters_not_remembered=max(0, characters - most) if most else 0,
        left_out=row.request.left_out,
        passages_waiting=await store.count_waiting(task_id),
        passages_refused=await store.refused(task_id),
        plans=await store.plan_versions(task_id, reader),
        resolutions=tuple([one for one in await store.audit_trail(task_id, reader) if isinstance(one, Resolution)]),
    )


async def agents_of(store: SqlStore, task_id: str, reader: Reader, wanted: str | None = None) -> tuple[str, ...]:
    """Ids of all of them, subagents among them, or the one that is wanted. None before there is a plan.

    Raises BadInput for an agent that the task does not have.
    """
    plan = await store.plan(task_id, reader)
    runs = [run_id for run_id in await store.run_ids(task_id, reader) if not run_id.endswith("/")]  # not its documents
    begun = [run_id.removeprefix(f"{task_id}/") for run_id in runs]
    agents = tuple(dict.fromkeys((*(step.id for step in plan.steps), PLANNING_ID, *begun))) if plan else ()
    if wanted is not None and wanted not in agents:
        raise BadInput(f"{task_id} has no agent {wanted!r}; it has {', '.join(agents) or 'none yet'}")
    return agents if wanted is None else (wanted,)


async def restored_for_owner(settings: Settings, task_id: str, text: str) -> WithOriginals:
    """A text of this task, with what its placeholders stand for.

    Raises:
        UnknownTask: the tenant of the settings has no such task.
        BadInput: the key is not here, or is another one.
    """
    async with aclosing(await opened_store(settings)) as store:
        await own_task(store, reader_of(settings.tenant), task_id)
        return await _restored(settings, store, text)


async def restored_for_tenant(settings: Settings, text: str) -> WithOriginals:
    """Any text, with what the placeholders of the settings' tenant stand for. Raises BadInput for the key."""
    async with aclosing(await opened_store(settings)) as store:
        return await _restored(settings, store, text)


async def _restored(settings: Settings, store: SqlStore, text: str) -> WithOriginals:
    cipher = present_cipher(settings, "vault")
    if cipher is None:
        raise no_key(settings, "what placeholders stand for")
    try:
        return await restored(text, store.vault(cipher), tenant_hash(settings.tenant))
    except WrongKey:
        raise other_key(settings) from None


async def document_as_shown(settings: Settings, task_id: str, name: str) -> str:
    """A document of this task as agents were shown it, line for line as it was handed in: for who is told no more than
    a model is. `name`: as handed in, as agents know it, or as that is shown to people.

    Raises UnknownTask; BadInput where no document is called so; RedactionFailed.
    """
    # Presidio takes seconds, where the text is not kept as it was shown.
    from waystation.runtime.knowledge import redaction_rules, redactor_of  # noqa: PLC0415

    async with aclosing(await opened_store(settings)) as store:
        reader = (await own_task(store, reader_of(settings.tenant), task_id)).ref.reader
        documents = await store.documents(task_id, reader)
        key = await key_of(store, settings)
        redactor = redactor_of(settings, key)
        try:
            called = [one for one in documents if one.name == name]
            if not called and documents:
                known = await document_names(documents, redactor, reader.tenant)
                called = [one for one in documents if name in {known.shown[one.name], plain(known.shown[one.name])}]
            if not called or called[0].removed:
                raise BadInput(f"{task_id} has no document {name!r} now")
            redacted = RedactedDocuments(store, redactor, redaction_rules(settings, key), keeps=False)
            return (await redacted.text(called[0].blob, reader)).text
        finally:
            redactor.close()


def refuse_unfit_shares(plan: Plan, progress: TaskProgress) -> None:
    """Raises BadInput where a person gave shares that do not fit, while the plan waits."""
    left = left_for_steps(progress)
    if left is not None and (faults := share_errors(plan, left)):
        raise BadInput(f"the plan cannot be paid for: {'; '.join(faults)}")
