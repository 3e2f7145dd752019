"""Report and plan files of tasks in a folder of this user: their paths, and their deletion.

There is one file for each version of a report, which no later version replaces, and one for a plan that its task did
not accept.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path


def get_report_path(folder: Path, task_id: str, version: int) -> Path:
    """Return the path of this version of a task's report, counted from 1."""
    return folder / (f"{task_id}.md" if version == 1 else f"{task_id}.v{version}.md")


def get_plan_path(folder: Path, task_id: str) -> Path:
    """Return the path of a plan that someone wrote for the task and that was not accepted."""
    return folder / f"{task_id}.plan.yaml"


def delete_task_files(folder: Path, task_ids: Sequence[str]) -> int:
    """Delete the reports and plans of these tasks and return how many there were."""
    there = list_task_files(folder, task_ids)
    for path in there:
        path.unlink(missing_ok=True)
    return len(there)


_OURS = ("*.md", "*.md.*", "*.plan.yaml", "*.plan.yaml.*")
"""Includes the drafts of a process that was killed while it wrote one."""


def list_task_files(folder: Path, task_ids: Iterable[str]) -> list[Path]:
    """Return the reports and plans of these tasks, sorted by path."""
    wanted = frozenset(task_ids)
    return sorted(path for form in _OURS for path in folder.glob(form) if path.name.partition(".")[0] in wanted)
