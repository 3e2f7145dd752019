"""Reports as files in the home folder: they go when their tasks are forgotten."""

from collections.abc import Sequence

from waystation.settings import Settings


def without_reports(settings: Settings, task_ids: Sequence[str]) -> int:
    """Remove the reports of these tasks; how many there were."""
    paths = [settings.reports_folder / f"{task_id}.md" for task_id in task_ids]
    there = [path for path in paths if path.exists()]
    for path in there:
        path.unlink()
    return len(there)
