"""Reports in a folder of this user: where they lie, and those of tasks that are removed."""

from collections.abc import Iterable, Sequence
from pathlib import Path


def get_report_path(folder: Path, task_id: str, version: int) -> Path:
    """Where this version of a task's report lies, from 1 on."""
    return folder / (f"{task_id}.md" if version == 1 else f"{task_id}.v{version}.md")


def get_plan_path(folder: Path, task_id: str) -> Path:
    """Where a plan lies that somebody wrote for the task and that was not taken."""
    return folder / f"{task_id}.plan.yaml"


def delete_task_files(folder: Path, task_ids: Sequence[str]) -> int:
    """Remove the reports and plans of these tasks; how many there were."""
    there = list_task_files(folder, task_ids)
    for path in there:
        path.unlink(missing_ok=True)
    return len(there)


_OURS = ("*.md", "*.md.*", "*.plan.yaml", "*.plan.yaml.*")
"""With what a process left that was killed while it wrote one."""


def list_task_files(folder: Path, task_ids: Iterable[str]) -> list[Path]:
    """The reports and plans of these tasks, in order of their paths."""
    wanted = frozenset(task_ids)
    return sorted(path for form in _OURS for path in folder.glob(form) if path.name.partition(".")[0] in wanted)
