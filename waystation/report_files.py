"""Reports as files in the home folder: they go when their tasks are forgotten, and lose who is erased."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from waystation.domain.persons import Sought
from waystation.settings import Settings


def without_reports(settings: Settings, task_ids: Sequence[str]) -> int:
    """Remove the reports of these tasks; how many there were."""
    there = _there(settings, task_ids)
    for path in there:
        path.unlink(missing_ok=True)
    return len(there)


def reports_with(settings: Settings, task_ids: Iterable[str], sought: Sought) -> dict[str, int]:
    """How often the report of each of these tasks has the person; those without are left out."""
    counts = {path.stem: sought.count(path.read_text(encoding="utf-8")) for path in _there(settings, task_ids)}
    return {task_id: count for task_id, count in counts.items() if count}


def rewritten_reports(settings: Settings, task_ids: Iterable[str], sought: Sought) -> int:
    """Write those anew that have the person; how many."""
    found = reports_with(settings, task_ids, sought)
    for path in _there(settings, found):
        path.write_text(sought.without(path.read_text(encoding="utf-8")), encoding="utf-8")
    return len(found)


def _there(settings: Settings, task_ids: Iterable[str]) -> list[Path]:
    paths = [settings.reports_folder / f"{task_id}.md" for task_id in sorted(task_ids)]
    return [path for path in paths if path.exists()]
