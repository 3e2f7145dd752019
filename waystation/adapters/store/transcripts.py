"""Agent runs: append-only transcripts with their compactions, and how legs ended. Nothing is changed or removed."""

from bisect import bisect
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import TypeAdapter
from sqlalchemy import ColumnElement, Table, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store import charges, fences
from waystation.adapters.store.engine import add_once
from waystation.adapters.store.outbox import add_passages, take_passages_back
from waystation.adapters.store.part import StorePart, owned, reading, writing
from waystation.adapters.store.schema import compactions, messages, outcomes, runs, tool_intents
from waystation.adapters.store.sealed import bound
from waystation.adapters.store.work import take_work_back
from waystation.domain.budget import RunTotals
from waystation.domain.errors import StoreError
from waystation.domain.leg import LegOutcome, RunRef
from waystation.domain.memory import Passage
from waystation.domain.messages import Message
from waystation.domain.ownership import Reader
from waystation.domain.rewind import Rewind
from waystation.domain.transcript import Record, Transcript
from waystation.domain.turn import Charge, Fence, Intent

_RECORD: TypeAdapter[Record] = TypeAdapter(Record)
_OUTCOME: TypeAdapter[LegOutcome] = TypeAdapter(LegOutcome)


class _Committed(NamedTuple):
    version: int
    body: str


class SqlTranscripts(StorePart):
    """The port `TranscriptStore`."""

    @writing
    async def open_run(self, connection: AsyncConnection, run: RunRef) -> None:
        """Create the run if it is not there. Raises WrongStore if `run.store_id` is not this store's."""
        self.require_own(run.store_id)
        row = {
            **run.model_dump(include={"tenant", "session", "task_id", "step_id", "role"}),
            "run_id": run.run_id,
            "fence": 0,
            "version": 0,
            "opened_at": self._clock(),
        }
        await add_once(connection, runs, row)

    @writing
    async def take_fence(self, connection: AsyncConnection, run_id: str) -> Fence:
        """Take the run over: every older fence is lost from here on. Raises StoreError for an unknown run."""
        return await fences.take(connection, run_id)

    @reading
    async def load(self, connection: AsyncConnection, run_id: str, reader: Reader) -> Transcript:
        """The whole transcript with its compaction records; empty for a run without messages, or of somebody else."""
        known = await connection.execute(select(runs.c.version).where(*_own(run_id, reader)))
        version: int | None = known.scalar_one_or_none()
        if version is None:
            return Transcript(run_id=run_id)
        said = await _bodies(connection, messages, run_id)
        done = await _bodies(connection, compactions, run_id)
        versions = [row.version for row in said]
        return Transcript(
            run_id=run_id,
            version=version,
            messages=tuple(Message.model_validate_json(row.body) for row in said),
            records=tuple(
                _RECORD.validate_json(row.body).model_copy(update={"after": bisect(versions, row.version)})
                for row in done
            ),
        )

    @reading
    async def run_ids(self, connection: AsyncConnection, task_id: str, reader: Reader) -> tuple[str, ...]:
        """Of all agent runs of a task that were opened: planning, steps and subagents."""
        own = select(runs.c.run_id).where(runs.c.task_id == task_id, owned(runs, reader))
        return tuple((await connection.execute(own.order_by(runs.c.run_id))).scalars())

    @reading
    async def totals(self, connection: AsyncConnection, run_id: str) -> RunTotals:
        """All charges and open intents of the run, added up."""
        return await charges.totals(connection, run_id)

    @reading
    async def spent_by_agent(self, connection: AsyncConnection, task_id: str) -> Mapping[str, RunTotals]:
        """By step, what agents of the task have spent, without the call that each may be waiting for now: what that
        costs is not known yet, and its worst case is no spending.
        """
        found = await connection.execute(select(runs.c.run_id, runs.c.step_id).where(runs.c.task_id == task_id))
        return {step_id: await charges.spent(connection, run_id) for run_id, step_id in found.all()}

    @writing
    async def record_intent(self, connection: AsyncConnection, fence: Fence, intent: Intent) -> None:
        """Store the intent before its call; those of earlier attempts stay. Raises FenceLost."""
        await fences.hold(connection, fence)
        await charges.add_intent(connection, fence.run_id, intent)

    @writing
    async def drop_intent(self, connection: AsyncConnection, fence: Fence, key: str) -> None:
        """Take the newest intent of the key back. Raises FenceLost."""
        await fences.hold(connection, fence)
        await charges.drop_newest_intent(connection, fence.run_id, key)

    @writing
    async def commit_reply(
        self, connection: AsyncConnection, fence: Fence, version: int, message: Message, charge: Charge
    ) -> None:
        """The reply and its charge. A key that was charged before changes nothing.

        Raises FenceLost, VersionConflict, and StoreError for a message id that the run has already.
        """
        await fences.hold(connection, fence)
        if await charges.add_charge(connection, fence.run_id, charge):
            await self._append(connection, fence, version, message)

    @writing
    async def commit_message(self, connection: AsyncConnection, fence: Fence, version: int, message: Message) -> None:
        """Append a user message. Raises as `commit_reply` does."""
        await self._append(connection, fence, version, message)

    @writing
    async def commit_charge(self, connection: AsyncConnection, fence: Fence, charge: Charge) -> None:
        """A charge without a message; the same key twice counts once. Raises FenceLost."""
        await fences.hold(connection, fence)
        await charges.add_charge(connection, fence.run_id, charge)

    @writing
    async def record_tool_intent(self, connection: AsyncConnection, fence: Fence, tool_use_id: str) -> bool:
        """Whether this attempt is the first that is about to run the call. Raises FenceLost."""
        row = {"run_id": fence.run_id, "tool_use_id": tool_use_id, "at": self._clock()}
        await fences.hold(connection, fence)
        return await add_once(connection, tool_intents, row)

    @reading
    async def outcome(self, connection: AsyncConnection, run_id: str, leg: int, reader: Reader) -> LegOutcome | None:
        """The committed outcome of a leg."""
        joined = select(outcomes.c.body).join(runs, runs.c.run_id == outcomes.c.run_id)
        committed = joined.where(*_own(run_id, reader), outcomes.c.leg == leg)
        body: str | None = (await connection.execute(committed)).scalar_one_or_none()
        return None if body is None else _OUTCOME.validate_json(body)

    @writing
    async def commit_outcome(self, connection: AsyncConnection, fence: Fence, leg: int, outcome: LegOutcome) -> None:
        """The leg is over. The same leg twice: the first outcome stays. Raises FenceLost."""
        body = bound(outcome.model_dump_json(), fence.run_id, leg)
        row = {"leg": leg, "body": body, **self._stamp(fence)}
        await fences.hold(connection, fence)
        await add_once(connection, outcomes, row)

    @writing
    async def commit_compaction(
        self,
        connection: AsyncConnection,
        fence: Fence,
        version: int,
        record: Record,
        passages: Sequence[Passage],
        charge: Charge | None,
    ) -> None:
        """Record, passages and charge in one transaction. The same record id twice changes nothing.

        Raises FenceLost, VersionConflict.
        """
        await fences.hold(connection, fence)
        if await self._recorded(connection, fence, version, record):
            await add_passages(connection, passages)
            if charge is not None:
                await charges.add_charge(connection, fence.run_id, charge)

    @writing
    async def commit_rewind(self, connection: AsyncConnection, fence: Fence, version: int, rewind: Rewind) -> None:
        """The record, and what goes with it, in one transaction. Raises as `commit_compaction` does."""
        await fences.hold(connection, fence)
        if await self._recorded(connection, fence, version, rewind.record):
            await take_work_back(connection, fence.run_id, rewind)
            await take_passages_back(connection, fence.run_id, rewind.gone, self._clock())

    async def _recorded(self, connection: AsyncConnection, fence: Fence, version: int, record: Record) -> bool:
        """Whether the record is new. The same id twice changes nothing."""
        if await _is_recorded(connection, fence.run_id, record.id):
            return False
        body = bound(record.model_dump_json(), fence.run_id, version + 1)
        row = {"version": version + 1, "record_id": record.id, "body": body, **self._stamp(fence)}
        await fences.advance(connection, fence, version)
        await connection.execute(insert(compactions).values(row))
        return True

    async def _append(self, connection: AsyncConnection, fence: Fence, version: int, message: Message) -> None:
        body = bound(message.model_dump_json(), fence.run_id, version + 1)
        row = {"version": version + 1, "message_id": message.id, "body": body}
        await fences.advance(connection, fence, version)
        try:
            await connection.execute(insert(messages).values({**row, **self._stamp(fence)}))
        except IntegrityError as error:
            raise StoreError(f"agent run {fence.run_id} has another message with the id {message.id}") from error

    def _stamp(self, fence: Fence) -> Mapping[str, object]:
        return {"run_id": fence.run_id, "committed_at": self._clock()}


def _own(run_id: str, reader: Reader) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return runs.c.run_id == run_id, owned(runs, reader)


async def _bodies(connection: AsyncConnection, table: Table, run_id: str) -> Sequence[_Committed]:
    ordered = select(table.c.version, table.c.body).where(table.c.run_id == run_id).order_by(table.c.version)
    return [_Committed(*row) for row in await connection.execute(ordered)]


async def _is_recorded(connection: AsyncConnection, run_id: str, record_id: str) -> bool:
    found = select(compactions.c.version).where(compactions.c.run_id == run_id, compactions.c.record_id == record_id)
    return (await connection.execute(found)).scalar_one_or_none() is not None
