"""Earlier tasks of a session, as agents are shown them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from waystation.agents.ports import AgentTask
from waystation.context.tokens import estimate_text
from waystation.documents.ports import TextStore
from waystation.kernel.errors import TextNotFoundError
from waystation.kernel.refs import RunRef, TaskRef
from waystation.memory.passages import MemoryScope
from waystation.security.untrusted import SafeMarkup, sanitize_line, wrap_untrusted
from waystation.tasks.ports import TaskReader
from waystation.tasks.task import TaskRow
from waystation.tasks.view import select_shown_version

_MOST_NAMED = 10
_MOST_READ = 50
"""The listing is made from this many ended tasks at most."""
WINDOW_SHARE = 20
"""Earlier tasks take at most 1/20 of a window."""
_HEAD = (
    "Earlier tasks of this session, the newest first. `recall` finds passages of their reports, findings and "
    "conversations; `expand` with the id of a task shows its report."
)


class EarlierTaskSource(TaskReader, TextStore, Protocol):
    """Tasks and their reports."""


@dataclass(frozen=True)
class EarlierTaskReader:
    """`EarlierTasks`, read from the store."""

    store: EarlierTaskSource

    async def render_listing(self, own: AgentTask, window: int) -> SafeMarkup | None:
        """List tasks that were over before this one was submitted and have a report.

        Newest first, by ID, day and redacted title, as many as fit. None if there are none.
        """
        shown, room = list[str](), window // WINDOW_SHARE - estimate_text(_HEAD)
        for line in await self._lines(own.ref, own.submitted_at):
            room -= estimate_text(line)
            if room < 0:
                break
            shown.append(line)
        return _part(shown)

    async def estimate_max_tokens(self, ref: TaskRef, at: datetime) -> int:
        """Return the estimated tokens of the listing for a task submitted now, in a window where all of it fits."""
        return estimate_text(_part(await self._lines(ref, at)) or "")

    async def _lines(self, ref: TaskRef, at: datetime) -> Sequence[str]:
        """Return the lines of the listing.

        Every submission needs them, and a row holds a whole configuration. So tasks that have not ended are not read,
        and more than `_MOST_NAMED` rows only if some of these have no report or are not earlier.
        """
        scope, rows = ref.scope.get_recall_scope("session"), list[TaskRow]()
        for most in (_MOST_NAMED, _MOST_READ):
            ended = await self.store.list_tasks(scope, most, ended_only=True)
            rows = [row for row in ended if _is_earlier(row, ref, at)]
            if len(ended) < most or len(rows) == most:
                break
        return [_line(row) for row in rows[:_MOST_NAMED]]

    async def load_report(self, run: RunRef, task: str, scope: MemoryScope) -> str | None:
        """Load the report of a task that the agent may read; None if there is none.

        `task` is its ID or the beginning of it.
        """
        reader = run.scope.get_recall_scope(scope)
        found = await self.store.find_task_ids(task, reader)
        row = await self.store.get_task(found[0], reader) if len(found) == 1 else None
        progress = None if row is None else row.progress
        version = None if progress is None else select_shown_version(progress.report_versions)
        if version is None:
            return None
        try:
            return await self.store.get_text(version.report, reader)
        except TextNotFoundError:  # it was erased
            return None


def _part(lines: Sequence[str]) -> SafeMarkup | None:
    return wrap_untrusted("session", _HEAD, *lines) if lines else None


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
    return f"- {row.ref.task_id} ({row.submitted_at:%Y-%m-%d}, {phase}): {sanitize_line(row.title)}"
