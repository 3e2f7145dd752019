"""Reports as files in the home folder."""

from pathlib import Path

from waystation.client import Client
from waystation.domain.task import TaskProgress
from waystation.settings import Settings


async def keep_report(client: Client, settings: Settings, progress: TaskProgress) -> Path | None:
    """Write the task's report to its file; None while it has none."""
    if progress.report is None:
        return None
    path = settings.reports_folder / f"{progress.task_id}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(await client.report(progress.task_id), encoding="utf-8")
    return path
