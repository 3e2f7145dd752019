"""SQL repositories of tasks, their plans, their costs, and forks.

Plans are never changed or removed. A fork copies finished work under its own IDs in the transaction that adds it.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from functools import partial
from typing import Any

from pydantic_core import from_json
from sqlalchemy import (
    ColumnElement,
    Label,
    Row,
    RowMapping,
    Select,
    Table,
    exists,
    func,
    insert,
    literal,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.agents.partial_reply_repository import delete_watch
from waystation.agents.ports import LoadedRun
from waystation.agents.run_repository import load_run_transcript, load_run_usage
from waystation.agents.run_tables import RUN_TABLES
from waystation.context.transcript import CallIntent, Charge
from waystation.documents.documents import Document, SourceDocument
from waystation.documents.text_repository import add_documents, add_texts, load_task_documents, make_document
from waystation.kernel.amount import Amount
from waystation.kernel.errors import BadInput, RequestConflict, UnknownTask
from waystation.kernel.identifiers import ClassifiedString, map_field_strings
from waystation.kernel.refs import RunRef, TaskRef
from waystation.kernel.scopes import ReadScope, SessionScope, TenantScope
from waystation.kernel.usage import Usage
from waystation.planning.plan import PLANNING_ID, Plan, PlanVersion
from waystation.store.encryption import EncryptedText, bind_to_row
from waystation.store.engine import (
    MAX_VALUES_PER_STATEMENT,
    SqlRepository,
    build_owner_filter,
    fetch_bodies,
    insert_if_absent,
    iter_batches,
    read_transaction,
    sum_or_zero,
    write_transaction,
)
from waystation.store.events import UnnumberedEvent
from waystation.store.schema import (
    audit,
    charges,
    intents,
    plan_revisions,
    runs,
    sessions,
    tasks,
)
from waystation.store.stored_tables import StoredTable
from waystation.tasks.events import build_phase_event
from waystation.tasks.progress import (
    MAX_SPENDING_LINES,
    AgentCharge,
    DayRange,
    SessionSummary,
    SpendingLine,
    SpendingReport,
    TaskCharges,
    UnansweredCall,
    build_spending_report,
)
from waystation.tasks.schedules import MonthlyBudget
from waystation.tasks.session import SessionKey, SessionState
from waystation.tasks.session_repository import lock_session
from waystation.tasks.signals import DOCUMENTS_UPDATE_PREFIX, TASK_MESSAGE_PREFIX
from waystation.tasks.task import ReusedWork, TaskConfig, TaskPhase, TaskProgress, TaskRequest, TaskRow
from waystation.tasks.task_tables import TASK_TABLES


class SqlTaskRepository(SqlRepository):
    """`TaskRepository` in SQL: tasks, without plans and audit trail."""

    async def get_store_id(self) -> str:
        """Return the ID of this store, made when it was created."""
        return self._store_id

    async def register_task(self, row: TaskRow, documents: Sequence[SourceDocument]) -> bool:
        """Store a new task with its documents. Return False if the same request exists already.

        Raises RequestConflict if the request ID was used for another question, other documents or other options.
        """
        # Large texts are hashed before the transaction, while others can write.
        return await self._register(row, documents, [make_document(source) for source in documents])

    @write_transaction
    async def _register(
        self,
        connection: AsyncConnection,
        row: TaskRow,
        documents: Sequence[SourceDocument],
        listed: Sequence[Document],
    ) -> bool:
        return await self._add(connection, row, documents, listed)

    async def _add(
        self,
        connection: AsyncConnection,
        row: TaskRow,
        documents: Sequence[SourceDocument],
        listed: Sequence[Document],
    ) -> bool:
        digest = compute_request_digest(row.request, listed)
        if not await insert_if_absent(connection, tasks, {**build_task_columns(row), "digest": digest}):
            await require_same_request(connection, row, digest)
            return False
        by_hash = {document.blob: source.text for document, source in zip(listed, documents, strict=True)}
        # In the same order everywhere: two tasks with the same documents must not wait for each other.
        await add_texts(connection, row.ref.scope, sorted(by_hash.items()))
        await add_documents(connection, row.ref.task_id, listed)
        self._tell(connection, row.ref.task_id, UnnumberedEvent(kind="submitted"))
        return True

    async def register_scheduled_task(
        self, row: TaskRow, documents: Sequence[SourceDocument], month: MonthlyBudget
    ) -> str:
        """Store the task of a scheduled run as `register_task` does, unless it would exceed the month's limit.

        Returns:
            Why it was not stored; empty if it was stored, or existed already.

        Raises:
            RequestConflict: As in `register_task`.
        """
        return await self._register_scheduled(row, documents, [make_document(source) for source in documents], month)

    @write_transaction
    async def _register_scheduled(
        self,
        connection: AsyncConnection,
        row: TaskRow,
        documents: Sequence[SourceDocument],
        listed: Sequence[Document],
        month: MonthlyBudget,
    ) -> str:
        # On PostgreSQL, two transactions would each count without the other's row.
        await lock_session(connection, SessionKey(tenant=row.ref.tenant, session=row.ref.session))
        first = month.at.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        whole = SessionScope(tenant=row.ref.tenant, session=row.ref.session)
        of_month = select(tasks).where(build_owner_filter(tasks, whole), tasks.c.submitted_at >= first)
        others = [parse_task_row(found) for found in (await connection.execute(of_month)).all()]
        if all(other.ref.task_id != row.ref.task_id for other in others) and (
            reason := month.find_overrun_reason(others, row.config.budget)
        ):
            return reason
        await self._add(connection, row, documents, listed)
        return ""

    @read_transaction
    async def get_task(self, connection: AsyncConnection, task_id: str, reader: ReadScope) -> TaskRow:
        """Return a task. Raises UnknownTask, which does not reveal whether it exists for someone else."""
        return await _load_task(connection, task_id, reader)

    @read_transaction
    async def load_run(self, connection: AsyncConnection, run: RunRef) -> LoadedRun:
        """What an attempt at a leg or at a compaction begins with, in one snapshot. Raises UnknownTask."""
        return LoadedRun(
            transcript=await load_run_transcript(connection, run.run_id, run.scope),
            totals=await load_run_usage(connection, run.run_id),
            task=await _load_task(connection, run.task_id, run.scope),
            documents=await load_task_documents(connection, run.task_id, run.scope),
        )

    @read_transaction
    async def find_task_ids(self, connection: AsyncConnection, prefix: str, reader: ReadScope) -> tuple[str, ...]:
        """Return the IDs of the reader's tasks that start with the prefix, newest first."""
        starts = func.substr(tasks.c.task_id, 1, len(prefix)) == prefix
        found = select(tasks.c.task_id, tasks.c.terms).where(starts, build_owner_filter(tasks, reader))
        return tuple(await fetch_bodies(connection, found.order_by(tasks.c.ordinal.desc())))

    @read_transaction
    async def list_tasks(
        self,
        connection: AsyncConnection,
        reader: ReadScope,
        limit: int = 50,
        *,
        ended_before: datetime | None = None,
        since: datetime | None = None,
        ended_only: bool = False,
    ) -> tuple[TaskRow, ...]:
        """Return the reader's tasks, newest first.

        Args:
            connection: Passed by the transaction decorator.
            reader: Scope to read in.
            limit: Maximum number of tasks.
            ended_before: Only tasks that ended before this time, without completely forgotten ones. A task without a
                recorded end counts from its submission: it was terminated, or is still running.
            since: Only tasks submitted since this time.
            ended_only: Only tasks with a recorded end.
        """
        newest = select(tasks).where(build_owner_filter(tasks, reader)).order_by(tasks.c.ordinal.desc()).limit(limit)
        if ended_before is not None:
            ended = func.coalesce(tasks.c.ended_at, tasks.c.submitted_at) < ended_before
            newest = newest.where(ended, tasks.c.forgotten_at.is_(None))
        if since is not None:
            newest = newest.where(tasks.c.submitted_at >= since)
        if ended_only:
            newest = newest.where(tasks.c.ended_at.is_not(None))
        rows = (await connection.execute(newest)).all()
        return tuple(parse_task_row(row) for row in rows)

    async def get_session_name(self, reader: SessionScope) -> str | None:
        """Return the name of the reader's session; None if it has no task."""
        newest = await self.list_tasks(reader, 1)
        return newest[0].request.session if newest else None

    async def save_task_title(self, task_id: str, title: str) -> None:
        """Store the redacted title. Raises UnknownTask."""
        await self._set(task_id, UnnumberedEvent(kind="admitted"), title=bind_to_row(title, task_id))

    async def save_task_progress(self, task_id: str, progress: TaskProgress) -> None:
        """Store how the task ended, replacing what was stored before. Raises UnknownTask."""
        ended_at = self._clock() if progress.phase.over else None
        body = bind_to_row(progress.model_dump_json(), task_id)
        await self._set(task_id, build_phase_event(progress.phase), progress=body, ended_at=ended_at)

    @write_transaction
    async def _set(self, connection: AsyncConnection, task_id: str, event: UnnumberedEvent, **values: object) -> None:
        if values.get("ended_at") is not None:
            await delete_watch(connection, task_id)
        changed = await connection.execute(update(tasks).where(tasks.c.task_id == task_id).values(**values))
        if changed.rowcount != 1:
            raise build_unknown_task_error(task_id)
        self._tell(connection, task_id, event)


async def _load_task(connection: AsyncConnection, task_id: str, reader: ReadScope) -> TaskRow:
    this = select(tasks).where(tasks.c.task_id == task_id, build_owner_filter(tasks, reader))
    found = (await connection.execute(this)).one_or_none()
    if found is None:
        raise build_unknown_task_error(task_id)
    return parse_task_row(found)


async def require_task(connection: AsyncConnection, task_id: str) -> None:
    """Raise UnknownTask if the task does not exist."""
    found = await connection.execute(select(tasks.c.ordinal).where(tasks.c.task_id == task_id))
    if found.one_or_none() is None:
        raise build_unknown_task_error(task_id)


async def require_same_request(connection: AsyncConnection, row: TaskRow, digest: str) -> None:
    """Raise RequestConflict if the request ID was used for something else."""
    known = select(tasks.c.digest).where(
        tasks.c.tenant == row.ref.tenant,
        tasks.c.session == row.ref.session,
        tasks.c.request_id == row.request.request_id,
    )
    if (await connection.execute(known)).scalar_one_or_none() != digest:
        raise RequestConflict(
            f"the request id {row.request.request_id!r} was already used in this session with another "
            "question, other documents or other options: use a new request id"
        )


def compute_request_digest(request: TaskRequest, documents: Sequence[Document]) -> str:
    """Return the digest of what the person gave.

    Defaults and the configuration are excluded: they change with the software.
    """
    asked = request.model_dump(mode="json", exclude_defaults=True)
    if asked.get("session") == "default":  # omitted in the past, when every task without a session had this one
        del asked["session"]
    content = [asked, [[document.name, document.blob] for document in documents]]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def build_task_columns(row: TaskRow) -> dict[str, object]:
    """Build the table row, without digest and plan."""
    ref, task_id = row.ref, row.ref.task_id
    return {
        **ref.model_dump(),
        "request_id": row.request.request_id,
        "request": bind_to_row(row.request.model_dump_json(), task_id),
        "terms": bind_to_row(row.config.model_dump_json(), task_id, ref.tenant, ref.session),
        "title": bind_to_row(row.title, task_id),
        "submitted_at": row.submitted_at,
        "ended_at": row.ended_at,
        "progress": None if row.progress is None else bind_to_row(row.progress.model_dump_json(), task_id),
    }


def parse_task_row(row: Row[tuple[object, ...]]) -> TaskRow:
    """Parse a table row."""
    return TaskRow(
        ref=TaskRef(store_id=row.store_id, tenant=row.tenant, session=row.session, task_id=row.task_id),
        request=TaskRequest.model_validate_json(row.request),
        config=TaskConfig.model_validate_json(row.terms),
        title=row.title,
        submitted_at=row.submitted_at,
        ended_at=row.ended_at,
        progress=None if row.progress is None else TaskProgress.model_validate_json(row.progress),
    )


def build_unknown_task_error(task_id: str) -> UnknownTask:
    """Build the error about a missing task."""
    return UnknownTask(f"no task {task_id} in this store: `waystation list` shows the newest tasks")


class SqlCostRepository(SqlRepository):
    """Costs of tasks."""

    @read_transaction
    async def list_task_charges(self, connection: AsyncConnection, task_id: str, reader: ReadScope) -> TaskCharges:
        """Return the task's calls so far; empty for a task without model calls, or of someone else."""
        own = await fetch_bodies(
            connection,
            select(runs.c.run_id, runs.c.proof).where(runs.c.task_id == task_id, build_owner_filter(runs, reader)),
        )
        paid = select(charges).where(charges.c.run_id.in_(own))
        open_calls = select(intents).where(intents.c.run_id.in_(own))
        found = (await connection.execute(paid.order_by(charges.c.ordinal))).mappings()
        silent = (await connection.execute(open_calls.order_by(intents.c.ordinal))).mappings()
        return TaskCharges(paid=tuple(map(_paid, found)), unanswered=tuple(map(_unanswered, silent)))

    @read_transaction
    async def get_spending(self, connection: AsyncConnection, days: DayRange, reader: ReadScope) -> SpendingReport:
        """Return what the reader's tasks have spent in these days. Raises BadInput if that is too much to show."""
        kinds = [sum_or_zero(charges.c[kind]).label(kind) for kind in Usage.model_fields]
        priced = func.count(charges.c.cost_micro_usd).label("priced")
        cost = sum_or_zero(charges.c.cost_micro_usd).label("cost")
        paid = _by_day(connection, charges, days, reader, [func.count().label("calls"), priced, cost, *kinds])
        worst = [sum_or_zero(intents.c[name]).label(name) for name in ("worst_case", "worst_case_micro_usd")]
        silent = _by_day(connection, intents, days, reader, worst)
        spent = [_spent(row) for chosen in (paid, silent) for row in (await connection.execute(chosen)).mappings()]
        titles: dict[str, str] = {}
        ids: dict[str, str] = {}
        for batch in iter_batches(line.task_id for line in spent):
            named = select(tasks.c.task_id, tasks.c.title, tasks.c.terms, tasks.c.session)
            rows = await connection.execute(named.where(tasks.c.task_id.in_(batch), build_owner_filter(tasks, reader)))
            for row in rows:
                titles[row.task_id], ids[row.task_id] = row.title, row.session
        names = await _session_names(connection, ids.values(), reader)
        named_lines = [line.replace(session=names.get(ids.get(line.task_id, ""), "")) for line in spent]
        return build_spending_report(days, named_lines, titles)

    @read_transaction
    async def list_sessions(
        self, connection: AsyncConnection, reader: ReadScope, first: int, count: int
    ) -> tuple[SessionSummary, ...]:
        """Return `count` of the reader's sessions from the `first` on, those with the newest tasks first."""
        newest = func.max(tasks.c.ordinal)
        page = select(newest).where(build_owner_filter(tasks, reader)).group_by(tasks.c.session).order_by(newest.desc())
        ordinals = (await connection.execute(page.offset(first).limit(count))).scalars().all()
        named = select(tasks).where(tasks.c.ordinal.in_(ordinals), build_owner_filter(tasks, reader))
        rows = [parse_task_row(row) for row in (await connection.execute(named.order_by(tasks.c.ordinal.desc()))).all()]
        return tuple([await _session(connection, row, reader) for row in rows])


async def _session_names(connection: AsyncConnection, ids: Iterable[str], reader: ReadScope) -> dict[str, str]:
    """Return the names of sessions by ID, from the request of one task of each."""
    found: dict[str, str] = {}
    for batch in iter_batches(ids):
        owned = (tasks.c.session.in_(batch), build_owner_filter(tasks, reader))
        newest = select(func.max(tasks.c.ordinal)).where(*owned).group_by(tasks.c.session)
        named = select(tasks.c.session, tasks.c.request, tasks.c.terms).where(tasks.c.ordinal.in_(newest), owned[1])
        rows = await connection.execute(named)
        found.update({row.session: TaskRequest.model_validate_json(row.request).session for row in rows})
    return found


async def _session(connection: AsyncConnection, newest: TaskRow, reader: ReadScope) -> SessionSummary:
    whole = SessionScope(tenant=newest.ref.tenant, session=newest.ref.session)
    of_tasks, of_runs = [
        (build_owner_filter(table, whole), build_owner_filter(table, reader)) for table in (tasks, runs)
    ]
    known = await fetch_bodies(connection, select(tasks.c.task_id, tasks.c.terms).where(*of_tasks))
    # A rejected task never had an agent run: the progress of all others, which may be large, is not read.
    never_ran = ~exists().where(runs.c.task_id == tasks.c.task_id)
    ended = select(tasks.c.progress, tasks.c.terms).where(*of_tasks, tasks.c.ended_at.is_not(None), never_ran)
    refused = sum(
        _is_refused(body) for body in await fetch_bodies(connection, ended.where(tasks.c.progress.is_not(None)))
    )
    kept = select(sessions.c.state).where(sessions.c.tenant == whole.tenant, sessions.c.session == whole.session)
    state = (await connection.execute(kept)).scalar_one_or_none()
    account = (SessionState() if state is None else SessionState.model_validate_json(state)).account
    fresh = sum_or_zero(charges.c.input + charges.c.cache_write + charges.c.output).label("tokens")
    unpriced = (func.count() - func.count(charges.c.cost_micro_usd)).label("unpriced")
    sums = select(runs.c.run_id, runs.c.proof, fresh, sum_or_zero(charges.c.cost_micro_usd).label("cost"), unpriced)
    paid = sums.join(charges, charges.c.run_id == runs.c.run_id).where(*of_runs).group_by(runs.c.run_id)
    spent = (await connection.execute(paid)).all()
    first = select(tasks).where(*of_tasks).order_by(tasks.c.ordinal).limit(1)
    return SessionSummary(
        session=newest.request.session,
        first_title=parse_task_row((await connection.execute(first)).one()).title,
        id=newest.ref.session,
        tasks=len(known) - refused,
        refused=refused,
        last_at=newest.submitted_at,
        spent=Amount(tokens=sum(row.tokens for row in spent), micro_usd=sum(row.cost for row in spent)),
        held=account.total_reserved,
        limit=account.limit,
        unpriced_calls=sum(row.unpriced for row in spent),
    )


def _is_refused(progress: str) -> bool:
    """Read the phase alone, without validating the rest: a session may have thousands of tasks."""
    return from_json(progress)["phase"] == TaskPhase.REFUSED


def _by_day(
    connection: AsyncConnection, table: Table, days: DayRange, reader: ReadScope, sums: Sequence[Label[int]]
) -> Select[*tuple[Any, ...]]:
    """Select sums of charges or intents by agent run, model and day, with the proofs of ownership.

    At most one row more than can be shown.
    """
    sqlite = connection.dialect.name == "sqlite"
    moment = table.c.at if sqlite else func.timezone("UTC", table.c.at)
    # With the index of runs, SQLite would fetch the rows of all days one by one; a scan takes a fifth of the time.
    run = (table.c.run_id + literal("") if sqlite else table.c.run_id).label("of_run")
    chosen = select(run, table.c.model, func.date(moment).label("day"), *sums)
    within = chosen.where(table.c.at >= days.start_time, table.c.at < days.end_time)
    # Added up before the owner is known: joining each charge with its run takes twice as long.
    added = within.group_by("of_run", table.c.model, "day").subquery()
    whose = select(runs.c.task_id, runs.c.role, runs.c.proof, added).join(added, added.c.of_run == runs.c.run_id)
    return whose.where(build_owner_filter(runs, reader)).limit(MAX_SPENDING_LINES + 1)


def _spent(row: RowMapping) -> SpendingLine:
    named = SpendingLine(
        day=date.fromisoformat(str(row["day"])), task_id=row["task_id"], role=row["role"], model=row["model"]
    )
    if "worst_case" in row:
        possibly = Amount(tokens=row["worst_case"], micro_usd=row["worst_case_micro_usd"])
        return named.replace(possibly_billed=possibly)
    return named.replace(
        calls=row["calls"],
        usage=Usage.model_validate(row, extra="ignore"),
        cost_micro_usd=row["cost"],
        unpriced_calls=row["calls"] - row["priced"],
    )


def _paid(row: RowMapping) -> AgentCharge:
    return AgentCharge(agent=_agent(row), charge=parse_charge_row(row))


def parse_charge_row(row: RowMapping) -> Charge:
    """Parse a row of charges."""
    return Charge.model_validate({**row, "usage": Usage.model_validate(row, extra="ignore")}, extra="ignore")


def _unanswered(row: RowMapping) -> UnansweredCall:
    worst_case = Amount(tokens=row["worst_case"], micro_usd=row["worst_case_micro_usd"])
    intent = CallIntent.model_validate({**row, "worst_case": worst_case}, extra="ignore")
    return UnansweredCall(agent=_agent(row), intent=intent)


def _agent(row: RowMapping) -> str:
    return str(row["run_id"]).rpartition("/")[2]


class SqlPlanRepository(SqlRepository):
    """`PlanRepository` in SQL."""

    @write_transaction
    async def save_plan(self, connection: AsyncConnection, task_id: str, plan: Plan) -> None:
        """Store the first plan with its goals; a later call changes nothing. Raises UnknownTask."""
        unplanned = update(tasks).where(tasks.c.task_id == task_id, tasks.c.plan.is_(None))
        kept = await connection.execute(unplanned.values(plan=bind_to_row(plan.model_dump_json(), task_id)))
        if kept.rowcount != 1:
            await require_task(connection, task_id)
            return
        self._tell(connection, task_id, UnnumberedEvent(kind="planned", reference="1"))

    @write_transaction
    async def save_plan_version(self, connection: AsyncConnection, task_id: str, version: PlanVersion) -> None:
        """Store a plan that replaces the previous one; the first of each number stays. Raises UnknownTask."""
        await require_task(connection, task_id)
        body = bind_to_row(version.model_dump_json(), task_id, version.number)
        row = {"task_id": task_id, "number": version.number, "body": body}
        if await insert_if_absent(connection, plan_revisions, {**row, "made_at": self._clock()}):
            self._tell(connection, task_id, UnnumberedEvent(kind="planned", reference=str(version.number)))

    async def get_newest_plan(self, task_id: str, reader: ReadScope) -> Plan | None:
        """Return the newest plan with its goals."""
        versions = await self.list_plan_versions(task_id, reader)
        return versions[-1].plan if versions else None

    @read_transaction
    async def list_plan_versions(
        self, connection: AsyncConnection, task_id: str, reader: ReadScope
    ) -> tuple[PlanVersion, ...]:
        """Return all plans of the task, oldest first, each with its goals and the reason for it."""
        own = (tasks.c.task_id == task_id, build_owner_filter(tasks, reader))
        found = await fetch_bodies(
            connection, select(tasks.c.plan, tasks.c.terms).where(*own, tasks.c.plan.is_not(None))
        )
        if not found:
            return ()
        first = PlanVersion(number=1, plan=Plan.model_validate_json(found[0]), made_by=PLANNING_ID)
        revised = select(plan_revisions.c.body).where(plan_revisions.c.task_id == task_id)
        later = await connection.execute(revised.order_by(plan_revisions.c.number))
        return first, *(PlanVersion.model_validate_json(text) for text in later.scalars())


class SqlForkRepository(SqlRepository):
    """Forks of tasks in SQL."""

    @write_transaction
    async def register_fork(
        self, connection: AsyncConnection, row: TaskRow, plan: Plan, reused: ReusedWork, state: str
    ) -> bool:
        """Store a new task with this plan, the documents of another task, and the work of these agents.

        Nothing is charged.

        Args:
            connection: Passed by the transaction decorator.
            row: The new task.
            plan: Its plan.
            reused: The other task and its agents.
            state: Content hash of the state in which the other task ended, when it was read.

        Returns:
            False if the same request exists already.

        Raises:
            RequestConflict: As in `register_task`.
            UnknownTask: The other task does not exist, or has no stored progress.
            BadInput: The other task has continued meanwhile.
        """
        source = reused.task_id
        tenants = TenantScope(tenant=row.ref.tenant)
        whose = (tasks.c.task_id == source, build_owner_filter(tasks, tenants), tasks.c.progress.is_not(None))
        ended = await fetch_bodies(connection, select(tasks.c.progress, tasks.c.terms).where(*whose).with_for_update())
        if not ended:
            raise build_unknown_task_error(source)
        if TaskProgress.model_validate_json(ended[0]).state != state:
            raise BadInput(f"{source} is running again: fork it when it has ended")
        digest = compute_request_digest(row.request, await load_task_documents(connection, source, tenants))
        planned = bind_to_row(plan.model_dump_json(), row.ref.task_id)
        columns = {**build_task_columns(row), "plan": planned, "digest": digest}
        if not await insert_if_absent(connection, tasks, columns):
            await require_same_request(connection, row, digest)
            return False
        own = row.ref.scope.model_dump()
        for stored in TASK_TABLES:
            if stored.fork == "copied":
                await _copy(connection, stored.table, stored.owner == source, own)
        for kind in (TASK_MESSAGE_PREFIX, DOCUMENTS_UPDATE_PREFIX):
            await _copy(connection, audit, (audit.c.task_id == source) & audit.c.entry_id.startswith(kind), own)
        for agent in reused.agents:
            await _copy_run(connection, f"{source}/{agent}", f"{row.ref.task_id}/{agent}", own)
        self._tell(connection, row.ref.task_id, UnnumberedEvent(kind="submitted", reference=source, detail="fork"))
        return True


async def _copy_run(connection: AsyncConnection, source: str, run_id: str, own: Mapping[str, str]) -> None:
    """Copy what the agent said, noted and delivered. Its charges, intents and leg outcomes stay with the original."""

    def rename(one: ClassifiedString) -> str:
        is_own_id = not one.is_text and (one.text == source or one.text.startswith(f"{source}/"))
        return run_id + one.text.removeprefix(source) if is_own_id else one.text

    for stored in RUN_TABLES:
        if stored.fork == "copied":
            own_ids = partial(_with_own_ids, stored, rename)
            await _copy(connection, stored.table, stored.owner == source, {**own, "run_id": run_id}, own_ids)


def _with_own_ids(
    stored: StoredTable, rename: Callable[[ClassifiedString], str], row: Mapping[str, object]
) -> dict[str, object]:
    """Return a row whose ID derives from a tool call with the ID that it has in the copy of the agent run."""
    if stored.call_id is None:
        return {**row}
    bodies = {
        text.column.name: map_field_strings(text.parse(str(row[text.column.name])), rename).model_dump_json()
        for text in stored.texts
        if text.parse is not None
    }
    call_id = ClassifiedString(str(row[stored.call_id.name]), is_text=False)
    return {**row, **bodies, stored.call_id.name: rename(call_id)}


async def _copy(
    connection: AsyncConnection,
    table: Table,
    where: ColumnElement[bool],
    own: Mapping[str, str],
    change: Callable[[Mapping[str, object]], dict[str, object]] = dict,
) -> None:
    """Copy the matching rows in order, with these columns replaced if the table has them.

    Encrypted columns are decrypted, and encrypted again for their new rows.

    Args:
        connection: Connection with the transaction.
        table: The table.
        where: Which rows.
        own: Columns of the new owner.
        change: Further changes of a row.
    """
    columns = [column for column in table.columns if column.name != "ordinal"]
    ordered = table.c.ordinal if "ordinal" in table.c else columns[0]
    found = await connection.execute(select(*columns).where(where).order_by(ordered))
    rows = [change({**row, **{name: value for name, value in own.items() if name in row}}) for row in found.mappings()]
    sealed = [(column.name, column.type.key) for column in columns if isinstance(column.type, EncryptedText)]
    for row in rows:
        row.update({name: bind_to_row(str(row[name]), *[str(row[part]) for part in key]) for name, key in sealed})
    for first in range(0, len(rows), MAX_VALUES_PER_STATEMENT):
        await connection.execute(insert(table), rows[first : first + MAX_VALUES_PER_STATEMENT])
