"""Reports as files in the home folder, and what is said of one that is not the last word on its task."""

from pathlib import Path

from waystation.client import Client
from waystation.domain.task import TaskPhase, TaskProgress
from waystation.private_files import own_folder, write_private
from waystation.report_files import report_file
from waystation.settings import Settings


async def keep_report(client: Client, settings: Settings, progress: TaskProgress) -> Path | None:
    """Write each version of the task's report to its file; the path of the one that is shown, None while it has none.

    A file holds its version and never a later one: what a cancelled rewind leaves overwrites no finished report.
    """
    task_id, readable = progress.task_id, progress.readable
    for version in progress.versions:
        path = report_file(settings, task_id, version.number)
        own_folder(path.parent)
        text = await client.report_text(version)
        if not path.exists() or path.read_text(encoding="utf-8") != text:  # somebody was erased from it
            write_private(path, text.encode())
    return None if readable is None else report_file(settings, task_id, readable.number)


def remark_on(progress: TaskProgress) -> str:
    """Why the version that is shown is not the end of it; empty where it is."""
    task_id, shown = progress.task_id, progress.readable
    if shown is None or (progress.phase.over and shown == progress.versions[-1]):
        return ""
    this = f"this is version {shown.number} of its report, which was delivered before ({shown.phase})"
    if not progress.phase.over:
        return f"{task_id} was rewound and goes on (it is {progress.phase}): {this}"
    last = progress.versions[-1]
    how = "cancelled" if last.phase is TaskPhase.CANCELLED else "failed"
    there = f"what there was at the end is version {last.number}, in {task_id}.v{last.number}.md beside it"
    return f"{task_id} was rewound and then {how}: {this}; {there}"
