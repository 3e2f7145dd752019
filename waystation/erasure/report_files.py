"""Reports in a folder that have a person in them."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from waystation.erasure.removal import Sought
from waystation.reports.files import files_of_tasks


def reports_with(folder: Path, task_ids: Iterable[str], sought: Sought) -> dict[str, int]:
    """How often the files of each of these tasks have the person; those without are left out."""
    counts = Counter[str]()
    for path in files_of_tasks(folder, task_ids):
        counts[path.name.partition(".")[0]] += sought.count(path.read_text(encoding="utf-8"))
    return {task_id: count for task_id, count in counts.items() if count}


def rewritten_reports(folder: Path, task_ids: Iterable[str], sought: Sought) -> int:
    """Write those anew that have the person; how many."""
    count = 0
    for path in files_of_tasks(folder, task_ids):
        if sought.count(text := path.read_text(encoding="utf-8")):
            path.write_text(sought.without(text), encoding="utf-8")
            count += 1
    return count
