"""The page of Temporal names, from the definitions of workflows and activities."""

import inspect
from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from benchmarks.reference.markdown import fill_paragraphs, render_page, render_table
from waystation import activities, workflows
from waystation.kernel.temporal_names import QUEUES
from waystation.runtime.temporal.connect import FIELDS, SEARCH_ATTRIBUTE_TYPES

INTRODUCTION = """
The names that the Temporal server and its UI show. [For Temporal users](../temporal.md) explains how they work
together.

A signal and an Update of the same name take the same JSON.
"""
WORKFLOW, ACTIVITY = "__temporal_workflow_definition", "__temporal_activity_definition"
"""Attributes in which Temporal's decorators store what they define."""


def render_temporal_page() -> str:
    """Render workflows with their messages, activities, task queues and search attributes."""
    attribute_types = {number: name for name, number in FIELDS.items()}
    attributes = ((f"`{name}`", attribute_types[number]) for name, number in SEARCH_ATTRIBUTE_TYPES.items())
    blocks = [fill_paragraphs(INTRODUCTION), "## Workflows"]
    for defined in sorted(_list_classes(workflows), key=lambda one: one.__name__):
        if definition := getattr(defined, WORKFLOW, None):
            blocks += _render_workflow(definition, inspect.getdoc(defined) or "")
    blocks += ["## Activities", render_table(("activity", "description"), sorted(_list_activities()))]
    blocks += ["## Task queues", fill_paragraphs(", ".join(f"`{queue}`" for queue in QUEUES) + ".")]
    blocks += ["## Search attributes", render_table(("attribute", "type"), attributes)]
    return render_page("Temporal names", blocks)


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
                yield f"`{definition.name}`", (inspect.getdoc(member) or "").partition("\n\n")[0]
