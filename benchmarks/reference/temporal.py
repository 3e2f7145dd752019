"""The page of Temporal names, from the definitions of workflows and activities."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any
from unittest.mock import Mock, patch

from temporalio.workflow import ActivityConfig

from benchmarks.reference.markdown import fill_paragraphs, render_page, render_table
from waystation import activities, workflows
from waystation.activities.tasks import NotificationActivities
from waystation.config.settings import Settings
from waystation.kernel.temporal_names import QUEUE_PREFIX, QUEUES
from waystation.runtime.temporal.connect import FIELDS, SEARCH_ATTRIBUTE_TYPES
from waystation.workers import queues as worker_queues
from waystation.workflows.options import ACCOUNT, ADMISSION, LEG, NOTIFICATION, REPORT, SHORT

INTRODUCTION = """
This page lists the names that the Temporal server and its UI show. [For Temporal users](../temporal.md) explains how
workflows, messages and activities work together.

If a signal and an Update have the same name, both take the same JSON.
"""
ACTIVITIES = """
The name of an activity's task queue is `waystation-` followed by the name in the column *queue* below. The field
`activity` of a role that you have added says which activity runs its legs; the default is `RunResearchAgent`. No
workflow starts `SearchMemory` or `CountPassages`: a command starts them as
[standalone activities](../temporal.md#standalone-activities).
"""
OPTIONS: Mapping[str, ActivityConfig] = {
    "legs of agents, planning, compaction": LEG,
    "reports": REPORT,
    "admission of a task": ADMISSION,
    "reads and writes of the store": SHORT,
    "account of a session": ACCOUNT,
    "notifications": NOTIFICATION,
}
"""Options by the activities that have them."""
WORKFLOW, ACTIVITY = "__temporal_workflow_definition", "__temporal_activity_definition"
"""Attributes in which Temporal's decorators store what they define."""


def render_temporal_page() -> str:
    """Render workflows with their messages, activities, task queues and search attributes."""
    attribute_types = {number: name for name, number in FIELDS.items()}
    attributes = ((f"`{name}`", attribute_types[number]) for name, number in SEARCH_ATTRIBUTE_TYPES.items())
    blocks = [fill_paragraphs(INTRODUCTION), "## Workflows"]
    for defined in sorted(_list_classes(workflows), key=lambda one: one.__name__):
        # A type for versioned workers derives from the one that it stands for.
        if (definition := vars(defined).get(WORKFLOW)) and not hasattr(defined.__base__, WORKFLOW):
            blocks += _render_workflow(definition, inspect.getdoc(defined) or "")
    by_activity = _find_queues()
    listed = ((f"`{name}`", by_activity[name], text) for name, text in sorted(_list_activities()))
    blocks += ["## Activities", fill_paragraphs(ACTIVITIES)]
    blocks += [render_table(("activity", "queue", "description"), listed)]
    headings = ("activities", "start-to-close", "schedule-to-close", "heartbeat", "retries")
    rows = ((activities_of, *_describe_options(options)) for activities_of, options in OPTIONS.items())
    blocks += ["## Time-outs and retries", render_table(headings, rows)]
    blocks += ["## Task queues", fill_paragraphs(", ".join(f"`{queue}`" for queue in QUEUES) + ".")]
    blocks += ["## Search attributes", render_table(("attribute", "type"), attributes)]
    return render_page("Temporal names", blocks)


def _describe_options(options: ActivityConfig) -> tuple[str, str, str, str]:
    retries = options.get("retry_policy")
    if retries is None or retries.maximum_interval is None or retries.maximum_attempts:
        raise ValueError("the page says that attempts have no limit, and how far apart they are")
    return (
        _format_duration(options.get("start_to_close_timeout")),
        _format_duration(options.get("schedule_to_close_timeout")),
        _format_duration(options.get("heartbeat_timeout")),
        f"no limit, {_format_duration(retries.initial_interval)} to {_format_duration(retries.maximum_interval)} apart",
    )


def _format_duration(duration: timedelta | None) -> str:
    """Return a duration in the largest unit of which it has whole numbers, or in seconds."""
    if duration is None:
        return ""
    seconds = duration.total_seconds()
    for unit, factor in (("h", 3_600), ("min", 60)):
        if seconds >= factor and seconds % factor == 0:
            return f"{seconds / factor:g} {unit}"
    return f"{seconds:g} s"


def _list_classes(package: ModuleType) -> Iterator[type]:
    """Yield the classes that a package's modules define."""
    for found in iter_modules(package.__path__, f"{package.__name__}."):
        module = import_module(found.name)
        yield from (one for _, one in inspect.getmembers(module, inspect.isclass) if one.__module__ == found.name)


def _render_workflow(definition: Any, docstring: str) -> Iterator[str]:
    yield f"### {definition.name}"
    yield fill_paragraphs(docstring.partition("\n\n")[0])
    kinds: dict[tuple[str, str], list[str]] = {}
    messages: dict[str, Mapping[str, Any]] = {
        "signal": definition.signals,
        "Update": definition.updates,
        "query": definition.queries,
    }
    for kind, known in messages.items():
        for name, message in known.items():
            kinds.setdefault((name, message.description or ""), []).append(kind)
    rows = ((f"`{name}`", ", ".join(found), description) for (name, description), found in sorted(kinds.items()))
    yield render_table(("message", "kind", "description"), rows)


def _list_activities() -> Iterator[tuple[str, str]]:
    for defined in _list_classes(activities):
        for _, member in inspect.getmembers(defined, inspect.isfunction):
            if definition := getattr(member, ACTIVITY, None):
                yield definition.name, (inspect.getdoc(member) or "").partition("\n\n")[0]


def _find_queues() -> Mapping[str, str]:
    """Return the short name of each activity's queue, from what the workers of each queue register."""
    found: dict[str, str] = {}

    def record(_: object, *, task_queue: str, activities: Sequence[object], **_others: object) -> None:
        for registered in activities:
            name = getattr(registered, ACTIVITY).name
            if name in found:
                raise ValueError(f"{name} has two queues, and the page names one")
            found[name] = task_queue.removeprefix(QUEUE_PREFIX)

    context = worker_queues.WorkerContext(
        client=Mock(),
        store=Mock(),
        settings=Settings(),
        runner=Mock(),
        search_attributes=True,
        notifications=NotificationActivities(Mock(), Mock()),
        timing=worker_queues.DEV_TIMING,
    )
    with (
        patch.object(worker_queues, "Worker", record),
        patch.object(worker_queues, "is_encryption_enabled", return_value=False),
    ):
        worker_queues.create_workflows_worker(context)
        for create in worker_queues.WORKER_FACTORIES.values():
            create(context, Mock())
    return found
