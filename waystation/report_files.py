"""Reports as files in the home folder: one file a version, which no later version replaces.

They go when their tasks are forgotten, and lose who is erased.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from waystation.domain.persons import Sought
from waystation.settings import Settings


def report_file(settings: Settings, task_id: str, version: int) -> Path:
    """Where this version of a task's report lies, from 1 on."""
    return settings.reports_folder / (f"{task_id}.md" if version == 1 else f"{task_id}.v{version}.md")


def without_reports(settings: Settings, task_ids: Sequence[str]) -> int:
    """Remove the reports of these tasks; how many there were."""
    there = _there(settings, task_ids)
    for path in there:
        path.unlink(missing_ok=True)
    return len(there)


def reports_with(settings: Settings, task_ids: Iterable[str], sought: Sought) -> dict[str, int]:
    """How often the report of each of these tasks has the person; those without are left out."""
    counts = Counter[str]()
    for path in _there(settings, task_ids):
        counts[path.name.partition(".")[0]] += sought.count(path.read_text(encoding="utf-8"))
    return {task_id: count for task_id, count in counts.items() if count}


def rewritten_reports(settings: Settings, task_ids: Iterable[str], sought: Sought) -> int:
    """Write those anew that have the person; how many."""
    count = 0
    for path in _there(settings, task_ids):
        if sought.count(text := path.read_text(encoding="utf-8")):
            path.write_text(sought.without(text), encoding="utf-8")
            count += 1
    return count


def _there(settings: Settings, task_ids: Iterable[str]) -> list[Path]:
    wanted = frozenset(task_ids)
    return sorted(path for path in settings.reports_folder.glob("*.md") if path.name.partition(".")[0] in wanted)
