"""Reports in a folder that have a person in them."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from waystation.erasure.erasure import ErasureQuery
from waystation.reports.task_files import list_task_files


def count_report_matches(folder: Path, task_ids: Iterable[str], sought: ErasureQuery) -> dict[str, int]:
    """How often the files of each of these tasks have the person; those without are left out."""
    counts = Counter[str]()
    for path in list_task_files(folder, task_ids):
        counts[path.name.partition(".")[0]] += sought.count_matches(path.read_text(encoding="utf-8"))
    return {task_id: count for task_id, count in counts.items() if count}


def rewrite_matching_reports(folder: Path, task_ids: Iterable[str], sought: ErasureQuery) -> int:
    """Write those anew that have the person; how many."""
    count = 0
    for path in list_task_files(folder, task_ids):
        if sought.count_matches(text := path.read_text(encoding="utf-8")):
            path.write_text(sought.erase_text(text), encoding="utf-8")
            count += 1
    return count
