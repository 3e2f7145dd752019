"""What an agent can know of the earlier tasks of its session: that there are some, and what their reports say."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from waystation.domain.compaction.tokens import estimate_text
from waystation.domain.errors import TextMissing
from waystation.domain.foreign_text import Tagged, one_line, tagged
from waystation.domain.leg import RunRef
from waystation.domain.memory import MemoryScope
from waystation.domain.task import TaskRef, TaskRow
from waystation.ports import DocumentStore, TaskStore

MOST_NAMED = 10
WINDOW_SHARE = 20
"""At most this part of a window tells of earlier tasks."""
HEAD = (
    "Earlier tasks of this session, the newest first. `recall` finds passages of their reports, findings and "
    "conversations; `expand` with the id of one shows its report."
)


@dataclass(frozen=True)
class EarlierTasks:
    """Of one session; of its tenant, where an agent recalls as widely."""

    tasks: TaskStore
    texts: DocumentStore

    async def named(self, own: TaskRow, window: int) -> Tagged | None:
        """Tasks that were over before this one was handed in, and have a report: by id, day and redacted title, as many
        of the newest as fit. None without any.
        """
        shown, room = list[str](), window // WINDOW_SHARE - estimate_text(HEAD)
        for line in await self._lines(own.ref, own.submitted_at):
            room -= estimate_text(line)
            if room < 0:
                break
            shown.append(line)
        return _part(shown)

    async def most_tokens(self, ref: TaskRef, at: datetime) -> int:
        """Estimated tokens of what a task that is submitted now is told, in a window where all of it fits."""
        return estimate_text(_part(await self._lines(ref, at)) or "")

    async def _lines(self, ref: TaskRef, at: datetime) -> Sequence[str]:
        rows = [row for row in await self.tasks.tasks(ref.reader.recalling("session")) if _is_earlier(row, ref, at)]
        return [_line(row) for row in rows[:MOST_NAMED]]

    async def report(self, run: RunRef, task: str, scope: MemoryScope) -> str | None:
        """The whole report of a task that the agent may look into, by its id or the beginning of it; else None."""
        reader = run.reader.recalling(scope)
        found = await self.tasks.find_tasks(task, reader)
        row = await self.tasks.task(found[0], reader) if len(found) == 1 else None
        if row is None or row.progress is None or row.progress.report is None:
            return None
        try:
            return await self.texts.get_text(row.progress.report, reader)
        except TextMissing:  # it was forgotten
            return None


def _part(lines: Sequence[str]) -> Tagged | None:
    return tagged("session", HEAD, *lines) if lines else None


def _is_earlier(row: TaskRow, own: TaskRef, submitted_at: datetime) -> bool:
    return (
        row.ref != own
        and row.submitted_at <= submitted_at
        and row.progress is not None
        and row.progress.phase.over
        and row.progress.report is not None
    )


def _line(row: TaskRow) -> str:
    phase = row.progress.phase if row.progress is not None else ""
    return f"- {row.ref.task_id} ({row.submitted_at:%Y-%m-%d}, {phase}): {one_line(row.title)}"
