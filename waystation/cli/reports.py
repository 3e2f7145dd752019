"""Reports as files in the home folder."""

from pathlib import Path

from waystation.client import Client
from waystation.domain.task import TaskProgress
from waystation.private_files import own_folder, write_private
from waystation.settings import Settings


async def keep_report(client: Client, settings: Settings, progress: TaskProgress) -> Path | None:
    """Write the task's report to its file; None while it has none."""
    if progress.report is None:
        return None
    path = settings.reports_folder / f"{progress.task_id}.md"
    own_folder(path.parent)
    write_private(path, (await client.report(progress.task_id)).encode())
    return path
