"""Takes agents' conversations back, between two legs or after the end; what went on after that counts no more."""

from dataclasses import dataclass

from waystation.agents.archive import Archive
from waystation.agents.tools.hand_ins import handed_in_by
from waystation.domain.compaction.apply import with_record
from waystation.domain.compaction.history import current
from waystation.domain.errors import StoreError
from waystation.domain.leg import RunRef
from waystation.domain.reopening import going_on
from waystation.domain.rewind import TaskRewind, taken_back
from waystation.domain.task import TaskPhase
from waystation.domain.task_state import TaskState
from waystation.ports import DocumentStore, TaskStore, TranscriptStore


@dataclass(frozen=True)
class Rewinder:
    """Takes back. Every step of it can be repeated: a record of the same id is committed once."""

    transcripts: TranscriptStore
    tasks: TaskStore
    texts: DocumentStore
    archive: Archive

    async def rewind(self, run: RunRef, message_id: str, record_id: str, *, keep: bool) -> None:
        """Commit it, and take passages out of memory. Raises BadInput, FenceLost, VersionConflict, StoreError."""
        await self.transcripts.open_run(run)
        transcript = await self.transcripts.load(run.run_id, run.reader)
        if not any(record.id == record_id for record in transcript.records):
            rewind = taken_back(transcript, message_id, record_id, keep=keep)
            stays = current(with_record(transcript, rewind.record)).messages
            rewind = rewind.model_copy(update={"handed_in": handed_in_by(stays)})
            fence = await self.transcripts.take_fence(run.run_id)
            await self.transcripts.commit_rewind(fence, transcript.version, rewind)
        await self.archive.drain(run.run_id)

    async def reopen(self, asked: TaskRewind) -> TaskState:
        """The state from which a finished task goes on: one agent taken back, and those that built on it begin anew.

        Raises BadInput, StoreError.
        """
        row = await self.tasks.task(asked.ref.task_id, asked.ref.reader)
        if row.progress is None or row.progress.state is None:
            raise StoreError(f"{asked.ref.task_id} has not ended, or an earlier release kept no state of it")
        ended = TaskState.model_validate_json(await self.texts.get_text(row.progress.state, row.ref.reader))
        state, edit = going_on(ended, asked, row.terms.agent_budget)
        await self.rewind(state.runs[asked.agent].run, asked.message, edit.id, keep=asked.keep)
        for shelved in state.shelved.values():
            await self._start_over(shelved.run, f"{asked.agent}-{edit.id}")
        await self.tasks.audit(asked.ref.task_id, edit)
        # What was delivered stays to be read, also where this comes to nothing.
        reports = row.progress.versions
        goes_on = {"phase": TaskPhase.WORKING, "reports": reports}
        await self.tasks.finish(asked.ref.task_id, row.progress.model_copy(update=goes_on))
        return state.with_(reports=reports)

    async def _start_over(self, run: RunRef, record_id: str) -> None:
        transcript = await self.transcripts.load(run.run_id, run.reader)
        if said := current(transcript).messages:
            await self.rewind(run, said[0].id, record_id, keep=False)
