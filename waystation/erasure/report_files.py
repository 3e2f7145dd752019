"""Counts and erases a person in report files."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from waystation.erasure.erasure import ErasureQuery
from waystation.kernel.files import write_private_file
from waystation.reports.task_files import list_task_files


def count_report_matches(folder: Path, task_ids: Iterable[str], query: ErasureQuery) -> dict[str, int]:
    """Count how often the files of each task contain the person; tasks without a match are left out."""
    counts = Counter[str]()
    for path in list_task_files(folder, task_ids):
        counts[path.name.partition(".")[0]] += query.count_matches(_read_text(path))
    return {task_id: count for task_id, count in counts.items() if count}


def rewrite_matching_reports(folder: Path, task_ids: Iterable[str], query: ErasureQuery) -> int:
    """Rewrite the files that contain the person and return how many."""
    count = 0
    for path in list_task_files(folder, task_ids):
        if query.count_matches(text := _read_text(path)):
            write_private_file(path, query.erase_text(text).encode())
            count += 1
    return count


def _read_text(path: Path) -> str:
    """Read a report, or what a killed process left of one: that may end inside a character."""
    return path.read_text(encoding="utf-8", errors="replace")
