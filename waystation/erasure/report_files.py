"""Reports in a folder that have a person in them."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from waystation.erasure.erasure import ErasureQuery
from waystation.kernel.files import write_private_file
from waystation.reports.task_files import list_task_files


def count_report_matches(folder: Path, task_ids: Iterable[str], sought: ErasureQuery) -> dict[str, int]:
    """How often the files of each of these tasks have the person; those without are left out."""
    counts = Counter[str]()
    for path in list_task_files(folder, task_ids):
        counts[path.name.partition(".")[0]] += sought.count_matches(_read_text(path))
    return {task_id: count for task_id, count in counts.items() if count}


def rewrite_matching_reports(folder: Path, task_ids: Iterable[str], sought: ErasureQuery) -> int:
    """Write those anew that have the person; how many."""
    count = 0
    for path in list_task_files(folder, task_ids):
        if sought.count_matches(text := _read_text(path)):
            write_private_file(path, sought.erase_text(text).encode())
            count += 1
    return count


def _read_text(path: Path) -> str:
    """Read a report, or what a killed process left of one: that may end inside a character."""
    return path.read_text(encoding="utf-8", errors="replace")
