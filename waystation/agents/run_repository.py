"""SQL repositories of agent runs: fences, transcripts, charges, leg outcomes, notes and deliverables.

Every write checks the run's newest fence in the same transaction. The check locks the run's row: SQLite has a single
writer anyway, and on PostgreSQL the writers of a run, and those who take it over, wait for this row.
"""

from bisect import bisect
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import (
    ColumnElement,
    Integer,
    ScalarSelect,
    Table,
    bindparam,
    case,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.agents.deliverables import Deliverable, Note
from waystation.agents.leg import LegOutcome
from waystation.agents.run_events import build_charge_event, build_record_event, build_wait_event
from waystation.agents.run_tables import DELIVERABLE, OUTCOME, RECORD, RUN_TABLES
from waystation.agents.transcript_rewind import TranscriptRewind
from waystation.budgets.budget import RunUsage
from waystation.context.transcript import CallIntent, Charge, Fence, Message, Record, Transcript
from waystation.kernel.amount import Amount
from waystation.kernel.errors import StaleFenceError, StoreError, VersionConflict
from waystation.kernel.refs import RunRef
from waystation.kernel.scopes import ReadScope, TaskScope
from waystation.kernel.usage import Usage
from waystation.memory.outbox_repository import add_passages, withdraw_passages
from waystation.memory.passages import Passage
from waystation.store.encryption import add_row_proof, bind_to_row
from waystation.store.engine import (
    SqlRepository,
    build_owner_filter,
    build_task_filter,
    fetch_bodies,
    insert_if_absent,
    read_transaction,
    sum_or_zero,
    write_transaction,
)
from waystation.store.event_numbering import EventOwner, note_owner
from waystation.store.events import UnnumberedEvent
from waystation.store.schema import (
    charges,
    compactions,
    deliverables,
    intents,
    messages,
    notes,
    outcomes,
    partial_replies,
    runs,
    tool_intents,
)

# Statements of every turn are built once, and so is their key in SQLAlchemy's cache. Parameters have names that no
# column of an updated table has: those would be new values.
_THIS_RUN = runs.c.run_id == bindparam("this_run")
_FENCE_IS_HELD = (_THIS_RUN, runs.c.fence == bindparam("held"))
_OWNER = (runs.c.tenant, runs.c.task_id, runs.c.step_id)
_TAKE_FENCE = (
    update(runs).where(_THIS_RUN).values(fence=runs.c.fence + 1).returning(runs.c.fence, runs.c.version, *_OWNER)
)
_RELEASE_FENCE = update(runs).where(_THIS_RUN).values(fence=runs.c.fence - 1)
_DELETE_PARTIAL_REPLY = delete(partial_replies).where(partial_replies.c.run_id == bindparam("this_run"))
_LOCK = select(runs.c.version, *_OWNER).where(*_FENCE_IS_HELD).with_for_update()
_INCREMENT = (
    update(runs)
    .where(*_FENCE_IS_HELD, runs.c.version == bindparam("known"))
    .values(version=runs.c.version + bindparam("by", type_=Integer))
    .returning(*_OWNER)
)


async def _take(connection: AsyncConnection, run_id: str) -> tuple[Fence, int]:
    """The next fence of the run, and its version. Raises StoreError for a run that was never opened."""
    taken = (await connection.execute(_TAKE_FENCE, {"this_run": run_id})).one_or_none()
    if taken is None:
        raise StoreError(f"agent run {run_id} was never opened in this store")
    number, version, *owner = taken
    note_owner(connection, run_id, EventOwner(*owner))
    await delete_partial_reply(connection, run_id)
    return Fence(run_id=run_id, number=number), version


async def delete_partial_reply(connection: AsyncConnection, run_id: str) -> None:
    """Delete what is stored of a reply that still arrives."""
    await connection.execute(_DELETE_PARTIAL_REPLY, {"this_run": run_id})


async def lock_run(connection: AsyncConnection, fence: Fence) -> int:
    """The run's version. Until the transaction ends nobody else can take the run over. Raises StaleFenceError."""
    held = (await connection.execute(_LOCK, {"this_run": fence.run_id, "held": fence.number})).one_or_none()
    if held is None:
        raise StaleFenceError(fence.run_id, fence.number)
    version, *owner = held
    note_owner(connection, fence.run_id, EventOwner(*owner))
    return version


async def increment_version(connection: AsyncConnection, fence: Fence, version: int, by: int = 1) -> None:
    """Compare-and-set: so many versions on, if the run still has `version`; the run is locked then, too.

    Raises StaleFenceError, VersionConflict.
    """
    given = {"this_run": fence.run_id, "held": fence.number, "known": version, "by": by}
    changed = (await connection.execute(_INCREMENT, given)).one_or_none()
    if changed is None:
        raise VersionConflict(fence.run_id, version, await lock_run(connection, fence))
    note_owner(connection, fence.run_id, EventOwner(*changed))


async def revert_work(connection: AsyncConnection, run_id: str, rewind: TranscriptRewind) -> None:
    """Delete what withdrawn calls have written, such as notes, and restore the deliverable as it was."""
    ids = [f"{run_id}/{call_id}" for call_id in rewind.removed_calls]
    for stored in RUN_TABLES:
        if stored.call_id is not None:
            withdrawn = (stored.owner == run_id, stored.call_id.in_(ids))
            await connection.execute(delete(stored.table).where(*withdrawn))
    own = deliverables.c.run_id == run_id
    if rewind.deliverable is None:
        await connection.execute(delete(deliverables).where(own))
    else:
        await connection.execute(
            update(deliverables).where(own).values(body=bind_to_row(rewind.deliverable.model_dump_json(), run_id))
        )


class SqlWorkRepository(SqlRepository):
    """`WorkRepository` in SQL: notes and deliverables of agents."""

    @write_transaction
    async def add_note(self, connection: AsyncConnection, fence: Fence, task_id: str, note: Note) -> int:
        """Add a note and return how many the run has now; the same ID twice is one note. Raises StaleFenceError."""
        body = bind_to_row(note.model_dump_json(), fence.run_id, note.id)
        row = {"run_id": fence.run_id, "note_id": note.id, "task_id": task_id, "body": body}
        await lock_run(connection, fence)
        if await insert_if_absent(connection, notes, row):
            self._tell(connection, fence.run_id, UnnumberedEvent(kind="noted", reference=note.id))
        return (await connection.execute(_COUNT_NOTES, {"run_id": fence.run_id})).scalar_one()

    @read_transaction
    async def list_notes(
        self, connection: AsyncConnection, task_id: str, reader: ReadScope, run_id: str | None = None
    ) -> tuple[Note, ...]:
        """Notes of a task or of one agent run, in the order in which they were taken."""
        return await _notes(connection, task_id, reader, run_id)

    @write_transaction
    async def commit_deliverable(
        self, connection: AsyncConnection, fence: Fence, task_id: str, deliverable: Deliverable
    ) -> None:
        """Store the run's deliverable, replacing an earlier one. Raises StaleFenceError."""
        row = {
            "run_id": fence.run_id,
            "task_id": task_id,
            "body": bind_to_row(deliverable.model_dump_json(), fence.run_id),
        }
        await lock_run(connection, fence)
        await connection.execute(delete(deliverables).where(deliverables.c.run_id == fence.run_id))
        await connection.execute(insert(deliverables).values(row))
        self._tell(connection, fence.run_id, UnnumberedEvent(kind="delivered"))

    @read_transaction
    async def get_deliverable(self, connection: AsyncConnection, run_id: str, reader: ReadScope) -> Deliverable | None:
        """Return what the run submitted."""
        return await _deliverable(connection, run_id, reader)

    @read_transaction
    async def load_work(
        self, connection: AsyncConnection, run_id: str, task: TaskScope
    ) -> tuple[Deliverable | None, tuple[Note, ...]]:
        """Return what a run of the task submitted, and its notes, in one snapshot."""
        handed_in = await _deliverable(connection, run_id, task)
        return handed_in, await _notes(connection, task.task_id, task, run_id)

    @read_transaction
    async def get_deliverables(
        self, connection: AsyncConnection, task_id: str, reader: ReadScope
    ) -> dict[str, Deliverable]:
        """Return the deliverables of a task by run ID."""
        chosen = select(deliverables.c.run_id, deliverables.c.body, runs.c.proof)
        handed_in = chosen.where(build_task_filter(deliverables, task_id))
        own = handed_in.join(runs, runs.c.run_id == deliverables.c.run_id).where(build_owner_filter(runs, reader))
        rows = (await connection.execute(own)).all()
        return {row.run_id: DELIVERABLE.validate_json(row.body) for row in rows}


_COUNT_NOTES = select(func.count()).where(notes.c.run_id == bindparam("run_id"))


async def _deliverable(connection: AsyncConnection, run_id: str, reader: ReadScope) -> Deliverable | None:
    own = select(deliverables.c.body, runs.c.proof).join(runs, runs.c.run_id == deliverables.c.run_id)
    handed_in = own.where(deliverables.c.run_id == run_id, build_owner_filter(runs, reader))
    found = await fetch_bodies(connection, handed_in)
    return DELIVERABLE.validate_json(found[0]) if found else None


async def _notes(connection: AsyncConnection, task_id: str, reader: ReadScope, run_id: str | None) -> tuple[Note, ...]:
    own = (
        select(notes.c.body, runs.c.proof)
        .join(runs, runs.c.run_id == notes.c.run_id)
        .where(build_owner_filter(runs, reader))
    )
    taken = own.where(build_task_filter(notes, task_id)).order_by(notes.c.ordinal)
    if run_id is not None:
        taken = taken.where(notes.c.run_id == run_id)
    return tuple(Note.model_validate_json(body) for body in await fetch_bodies(connection, taken))


class _Committed(NamedTuple):
    version: int
    body: str


class SqlTranscriptRepository(SqlRepository):
    """`RunRepository` in SQL: transcripts, charges and leg outcomes."""

    @write_transaction
    async def open_run(self, connection: AsyncConnection, run: RunRef) -> None:
        """Create the run if it is not there. Raises WrongStore if `run.store_id` is not this store's."""
        await self._open_run(connection, run)

    async def _open_run(self, connection: AsyncConnection, run: RunRef) -> None:
        self.require_own_store(run.store_id)
        row = {
            "tenant": run.tenant,
            "session": run.session,
            "task_id": run.task_id,
            "step_id": run.step_id,
            "role": run.role,
            "run_id": run.run_id,
            "fence": 0,
            "version": 0,
            "opened_at": self._clock(),
        }
        await insert_if_absent(connection, runs, add_row_proof(runs, row))

    @write_transaction
    async def acquire_fence(self, connection: AsyncConnection, run_id: str) -> Fence:
        """Take the run over: all older fences become stale. Raises StoreError for an unknown run."""
        fence, _ = await self._take_over(connection, run_id)
        return fence

    @write_transaction
    async def take_over(self, connection: AsyncConnection, run: RunRef) -> tuple[Fence, int]:
        """Open the run if it is not there, and take it over; its version by then. Raises as `open_run` does."""
        await self._open_run(connection, run)
        return await self._take_over(connection, run.run_id)

    async def _take_over(self, connection: AsyncConnection, run_id: str) -> tuple[Fence, int]:
        fence, version = await _take(connection, run_id)
        self._tell(connection, run_id, UnnumberedEvent(kind="taken", reference=str(fence.number)))
        return fence, version

    @read_transaction
    async def load_transcript(self, connection: AsyncConnection, run_id: str, reader: ReadScope) -> Transcript:
        """The whole transcript with its compaction records; empty for a run without messages, or of somebody else."""
        return await load_run_transcript(connection, run_id, reader)

    @read_transaction
    async def list_run_ids(self, connection: AsyncConnection, task_id: str, reader: ReadScope) -> tuple[str, ...]:
        """Return the IDs of a task's agent runs: planning, steps and subagents."""
        own = select(runs.c.run_id, runs.c.proof).where(runs.c.task_id == task_id, build_owner_filter(runs, reader))
        return tuple(await fetch_bodies(connection, own.order_by(runs.c.run_id)))

    @read_transaction
    async def get_run_usage(self, connection: AsyncConnection, run_id: str) -> RunUsage:
        """Return the sum of all charges and open intents of the run."""
        return await load_run_usage(connection, run_id)

    @read_transaction
    async def get_usage_by_agent(self, connection: AsyncConnection, task_id: str) -> Mapping[str, RunUsage]:
        """Return what each agent of the task has spent, by step ID, without its current call.

        The cost of a call in progress is not known yet, and its worst case has not been spent.
        """
        found = await connection.execute(select(runs.c.run_id, runs.c.step_id).where(runs.c.task_id == task_id))
        return {step_id: await load_settled_run_usage(connection, run_id) for run_id, step_id in found.all()}

    @write_transaction
    async def record_and_count_intents(self, connection: AsyncConnection, fence: Fence, intent: CallIntent) -> int:
        """Store an intent before its call; return the number of open intents of the key.

        Earlier attempts' intents stay.

        Raises StaleFenceError.
        """
        await lock_run(connection, fence)
        return await self._add_intent(connection, fence, intent)

    @write_transaction
    async def drop_intent(self, connection: AsyncConnection, fence: Fence, key: str) -> None:
        """Delete the newest intent of the key. Raises StaleFenceError."""
        await lock_run(connection, fence)
        await drop_newest_intent(connection, fence.run_id, key)

    @write_transaction
    async def update_intent(self, connection: AsyncConnection, fence: Fence, key: str, worst_case: Amount) -> None:
        """Set the worst case of the key's newest intent. Raises StaleFenceError."""
        await lock_run(connection, fence)
        held = {"worst_case": worst_case.tokens, "worst_case_micro_usd": worst_case.micro_usd}
        newest = intents.c.ordinal == _newest_intent(fence.run_id, key)
        await connection.execute(update(intents).where(newest).values(held))

    @write_transaction
    async def commit_reply(
        self, connection: AsyncConnection, fence: Fence, version: int, message: Message, charge: Charge
    ) -> RunUsage:
        """The reply and its charge, and what the run has cost by then. A key that was charged before changes nothing.

        Raises:
            StaleFenceError: Another attempt has taken over.
            VersionConflict: The transcript has another version.
            StoreError: The run already has a message with this ID.
        """
        await lock_run(connection, fence)
        await delete_partial_reply(connection, fence.run_id)
        if await add_charge(connection, fence.run_id, charge):
            await self._append(connection, fence, version, [message])
            if charge.waited_ms:
                self._tell(connection, fence.run_id, build_wait_event(charge))
            self._tell(connection, fence.run_id, build_charge_event("replied", charge, message))
        return await load_run_usage(connection, fence.run_id)

    @write_transaction
    async def commit_message(self, connection: AsyncConnection, fence: Fence, version: int, message: Message) -> None:
        """Append a user message. Raises as `commit_reply` does."""
        await self._append_given(connection, fence, version, [message])

    @write_transaction
    async def commit_messages(
        self,
        connection: AsyncConnection,
        fence: Fence,
        version: int,
        added: Sequence[Message],
        intent: CallIntent | None = None,
    ) -> int:
        """User messages, and with them the intent of the call that they are sent with: together or not at all.

        How many intents of its key are open then, 0 without one. Raises as `commit_reply` does.
        """
        if added:
            await self._append_given(connection, fence, version, added)
        else:
            await lock_run(connection, fence)
        return 0 if intent is None else await self._add_intent(connection, fence, intent)

    @write_transaction
    async def commit_charge(self, connection: AsyncConnection, fence: Fence, charge: Charge) -> None:
        """Store a charge without a message; the same key counts once. Raises StaleFenceError."""
        await lock_run(connection, fence)
        if await add_charge(connection, fence.run_id, charge):
            if charge.waited_ms:
                self._tell(connection, fence.run_id, build_wait_event(charge))
            self._tell(connection, fence.run_id, build_charge_event("charged", charge))

    @write_transaction
    async def record_tool_intent(self, connection: AsyncConnection, fence: Fence, tool_use_id: str) -> bool:
        """Return whether this attempt is the first that is about to run the call. Raises StaleFenceError."""
        row = {"run_id": fence.run_id, "tool_use_id": tool_use_id, "at": self._clock()}
        await lock_run(connection, fence)
        return await insert_if_absent(connection, tool_intents, row)

    @read_transaction
    async def get_leg_outcome(
        self, connection: AsyncConnection, run_id: str, leg: int, reader: ReadScope
    ) -> LegOutcome | None:
        """Return the outcome of a leg; None if none is committed, or for a run that the reader may not see."""
        return await _outcome(connection, run_id, leg, reader)

    @write_transaction
    async def start_leg(self, connection: AsyncConnection, run: RunRef, leg: int) -> Fence | LegOutcome:
        """Open the run if it is not there, and take it over; or the leg's outcome, where it was committed before: it
        would be taken away from a later leg. Raises WrongStore if `run.store_id` is not this store's.
        """
        await self._open_run(connection, run)
        # Whoever commits the outcome holds this row: it is there by now, or its fence is too old for it.
        fence, _ = await _take(connection, run.run_id)
        if (known := await _outcome(connection, run.run_id, leg, run.scope)) is not None:
            await connection.execute(_RELEASE_FENCE, {"this_run": run.run_id})
            return known
        self._tell(connection, run.run_id, UnnumberedEvent(kind="taken", reference=str(fence.number)))
        return fence

    @write_transaction
    async def commit_outcome(
        self,
        connection: AsyncConnection,
        fence: Fence,
        leg: int,
        outcome: LegOutcome,
        version: int = 0,
        added: Sequence[Message] = (),
    ) -> None:
        """The leg is over, with the user messages that it has not committed yet. The same leg twice: the first outcome
        stays, and nothing is added. Raises StaleFenceError; with messages, as `commit_reply` does.
        """
        body = bind_to_row(outcome.model_dump_json(), fence.run_id, leg)
        row = {"leg": leg, "body": body, **self._stamp(fence)}
        await lock_run(connection, fence)
        await delete_partial_reply(connection, fence.run_id)
        if await insert_if_absent(connection, outcomes, row):
            if added:
                await self._append_given(connection, fence, version, added)
            self._tell(connection, fence.run_id, UnnumberedEvent(kind="left", reference=str(leg), detail=outcome.type))

    @write_transaction
    async def commit_compaction(
        self,
        connection: AsyncConnection,
        fence: Fence,
        version: int,
        record: Record,
        passages: Sequence[Passage],
        charge: Charge | None,
    ) -> None:
        """Commit a record, its passages and its charge in one transaction. The same record ID twice changes nothing.

        Raises StaleFenceError, VersionConflict.
        """
        await lock_run(connection, fence)
        if await self._recorded(connection, fence, version, record):
            await add_passages(connection, passages)
            if charge is not None and await add_charge(connection, fence.run_id, charge):
                if charge.waited_ms:
                    self._tell(connection, fence.run_id, build_wait_event(charge))
                self._tell(connection, fence.run_id, build_charge_event("charged", charge))

    @write_transaction
    async def commit_rewind(
        self, connection: AsyncConnection, fence: Fence, version: int, rewind: TranscriptRewind
    ) -> None:
        """Commit a rewind and its consequences in one transaction. Raises as `commit_compaction` does."""
        await lock_run(connection, fence)
        if await self._recorded(connection, fence, version, rewind.record):
            await revert_work(connection, fence.run_id, rewind)
            await withdraw_passages(connection, fence.run_id, rewind.removed_messages, self._clock())

    async def _recorded(self, connection: AsyncConnection, fence: Fence, version: int, record: Record) -> bool:
        """Insert a record. Return False if its ID exists already."""
        if await _is_recorded(connection, fence.run_id, record.id):
            return False
        body = bind_to_row(record.model_dump_json(), fence.run_id, version + 1)
        row = {"version": version + 1, "record_id": record.id, "body": body, **self._stamp(fence)}
        await increment_version(connection, fence, version)
        await connection.execute(insert(compactions).values(row))
        if (happened := build_record_event(record)) is not None:
            self._tell(connection, fence.run_id, happened)
        return True

    async def _add_intent(self, connection: AsyncConnection, fence: Fence, intent: CallIntent) -> int:
        """Store the intent of a run that is locked; how many of its key are open then."""
        await add_intent(connection, fence.run_id, intent)
        self._tell(connection, fence.run_id, UnnumberedEvent(kind="called", reference=intent.key))
        return (await connection.execute(_COUNT_INTENTS, {"run_id": fence.run_id, "key": intent.key})).scalar_one()

    async def _append_given(
        self, connection: AsyncConnection, fence: Fence, version: int, added: Sequence[Message]
    ) -> None:
        """Append user messages."""
        await self._append(connection, fence, version, added)
        for message in added:
            self._tell(connection, fence.run_id, UnnumberedEvent(kind="given", reference=message.id))

    async def _append(self, connection: AsyncConnection, fence: Fence, version: int, added: Sequence[Message]) -> None:
        stamp = self._stamp(fence)
        rows = [
            {
                "version": number,
                "message_id": message.id,
                "body": bind_to_row(message.model_dump_json(), fence.run_id, number),
                **stamp,
            }
            for number, message in enumerate(added, version + 1)
        ]
        await increment_version(connection, fence, version, len(rows))
        try:
            await connection.execute(_ADD_MESSAGE, rows[0] if len(rows) == 1 else rows)
        except IntegrityError as error:
            ids = ", ".join(message.id for message in added)
            raise StoreError(f"agent run {fence.run_id} already has a message with one of these ids: {ids}") from error

    def _stamp(self, fence: Fence) -> Mapping[str, object]:
        return {"run_id": fence.run_id, "committed_at": self._clock()}


def _own(run_id: str, reader: ReadScope) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return runs.c.run_id == run_id, build_owner_filter(runs, reader)


async def _outcome(connection: AsyncConnection, run_id: str, leg: int, reader: ReadScope) -> LegOutcome | None:
    joined = select(outcomes.c.body, runs.c.proof).join(runs, runs.c.run_id == outcomes.c.run_id)
    committed = joined.where(*_own(run_id, reader), outcomes.c.leg == leg)
    found = await fetch_bodies(connection, committed)
    return OUTCOME.validate_json(found[0]) if found else None


async def load_run_transcript(connection: AsyncConnection, run_id: str, reader: ReadScope) -> Transcript:
    """The whole transcript with its records; empty for a run that was never opened, or of another tenant."""
    known = await connection.execute(select(runs.c.version, runs.c.proof).where(*_own(run_id, reader)))
    opened = known.one_or_none()
    if opened is None:
        return Transcript(run_id=run_id)
    said = await _bodies(connection, messages, run_id)
    done = await _bodies(connection, compactions, run_id)
    versions = [row.version for row in said]
    return Transcript(
        run_id=run_id,
        version=opened.version,
        messages=tuple(Message.model_validate_json(row.body) for row in said),
        records=tuple(RECORD.validate_json(row.body).replace(after=bisect(versions, row.version)) for row in done),
    )


async def _bodies(connection: AsyncConnection, table: Table, run_id: str) -> Sequence[_Committed]:
    ordered = select(table.c.version, table.c.body).where(table.c.run_id == run_id).order_by(table.c.version)
    return [_Committed(*row) for row in await connection.execute(ordered)]


async def _is_recorded(connection: AsyncConnection, run_id: str, record_id: str) -> bool:
    found = select(compactions.c.version).where(compactions.c.run_id == run_id, compactions.c.record_id == record_id)
    return (await connection.execute(found)).scalar_one_or_none() is not None


async def add_intent(connection: AsyncConnection, run_id: str, intent: CallIntent) -> None:
    """Insert an intent."""
    row = {
        "run_id": run_id,
        "key": intent.key,
        "model": intent.model,
        "worst_case": intent.worst_case.tokens,
        "worst_case_micro_usd": intent.worst_case.micro_usd,
        "at": intent.at,
    }
    await connection.execute(_ADD_INTENT, row)


_ADD_MESSAGE, _ADD_INTENT = insert(messages), insert(intents)
_SAME_KEY = (intents.c.run_id == bindparam("run_id"), intents.c.key == bindparam("key"))
_COUNT_INTENTS = select(func.count()).where(*_SAME_KEY)
_NEWEST_INTENT = select(func.max(intents.c.ordinal)).where(*_SAME_KEY).scalar_subquery()
_DROP_NEWEST_INTENT = delete(intents).where(intents.c.ordinal == _NEWEST_INTENT)


async def drop_newest_intent(connection: AsyncConnection, run_id: str, key: str) -> None:
    """Take the newest intent of the key back, if there is one."""
    await connection.execute(_DROP_NEWEST_INTENT, {"run_id": run_id, "key": key})


def _newest_intent(run_id: str, key: str) -> ScalarSelect[int]:
    newest = select(func.max(intents.c.ordinal)).where(intents.c.run_id == run_id, intents.c.key == key)
    return newest.scalar_subquery()


async def add_charge(connection: AsyncConnection, run_id: str, charge: Charge) -> bool:
    """Insert a charge and close one intent of its key.

    Return False, changing nothing, if the key was charged before.
    """
    row = {
        "run_id": run_id,
        "key": charge.key,
        "kind": charge.kind,
        "model": charge.model,
        **charge.usage.model_dump(),
        "cost_micro_usd": charge.cost_micro_usd,
        "at": charge.at,
        "answered_by": charge.answered_by,
        "stop": charge.stop,
        "dropped_thinking": charge.dropped_thinking,
        "cache_miss": charge.cache_miss,
        "waited_ms": charge.waited_ms,
    }
    if not await insert_if_absent(connection, charges, row):
        return False
    await drop_newest_intent(connection, run_id, charge.key)
    return True


async def load_run_usage(connection: AsyncConnection, run_id: str) -> RunUsage:
    """All charges and open intents of the run, added up."""
    row = (await connection.execute(_USAGE, {"run_id": run_id})).one()
    return RunUsage(
        usage=Usage.model_validate({kind: getattr(row, kind) for kind in Usage.model_fields}),
        turns=row.turns,
        possibly_billed=row.possibly_billed,
        possibly_billed_micro_usd=row.possibly_billed_micro_usd,
        last_prompt_tokens=row.last_prompt or 0,
        cost_micro_usd=row.cost if row.priced == row.charges else None,
    )


async def load_settled_run_usage(connection: AsyncConnection, run_id: str) -> RunUsage:
    """Return the totals without the newest intent while its key has no charge.

    Its answer may still arrive; an older intent's will not.
    """
    known = await load_run_usage(connection, run_id)
    newest = select(intents).where(intents.c.run_id == run_id).order_by(intents.c.ordinal.desc()).limit(1)
    open_call = (await connection.execute(newest)).one_or_none()
    if open_call is None:
        return known
    charged = select(charges.c.ordinal).where(charges.c.run_id == run_id, charges.c.key == open_call.key)
    if (await connection.execute(charged)).first() is not None:
        return known
    return known.replace(
        possibly_billed=known.possibly_billed - open_call.worst_case,
        possibly_billed_micro_usd=known.possibly_billed_micro_usd - open_call.worst_case_micro_usd,
    )


def _open(worst_case: ColumnElement[int]) -> ScalarSelect[int]:
    return select(sum_or_zero(worst_case)).where(intents.c.run_id == bindparam("run_id")).scalar_subquery()


def _last_prompt() -> ScalarSelect[int]:
    turns = charges.alias()
    reported = turns.c.input + turns.c.cache_write + turns.c.cache_read
    prompt = case((turns.c.estimated > 0, 0), else_=reported)  # a bound would teach estimates nothing
    of_run = select(prompt).where(turns.c.run_id == bindparam("run_id"), turns.c.kind == "turn")
    return of_run.order_by(turns.c.ordinal.desc()).limit(1).scalar_subquery()


_USAGE = select(
    *(sum_or_zero(charges.c[kind]).label(kind) for kind in Usage.model_fields),
    sum_or_zero(charges.c.cost_micro_usd).label("cost"),
    func.count().label("charges"),
    func.count(charges.c.cost_micro_usd).label("priced"),
    func.count().filter(charges.c.kind == "turn").label("turns"),
    _open(intents.c.worst_case).label("possibly_billed"),
    _open(intents.c.worst_case_micro_usd).label("possibly_billed_micro_usd"),
    _last_prompt().label("last_prompt"),
).where(charges.c.run_id == bindparam("run_id"))
