"""Every kind of value refuses a field that it does not have: none that was renamed loses its value in silence."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from inspect import isabstract

import pytest
from pydantic import PydanticUserError, ValidationError

from waystation.kernel.value import Value

PACKAGES = ("waystation",)
UNKNOWN = "no_such_field"
IGNORES = {
    "waystation.mcp.config._File": "a file of another program, with settings of its own",
    "waystation.agents.auditor._Line": "a line of a file that other programs write",
    "waystation.agents.auditor.EvalMessage": "the same",
    "waystation.agents.auditor.EvalQuestion": "the same",
    "waystation.documents.documents.DocumentChange": "its JSON has what is worked out of its fields, too",
    "waystation.plugins.web.assistant_gateway.AcceptedTask": "its schema admits more fields: a finished task has them",
    "waystation.plugins.web.pages.TasksPageQuery": "an address of a page, to which mail clients add fields",
    "waystation.plugins.web.pages.SpendingPageQuery": "the same",
    "waystation.plugins.web.pages.ActivityPageQuery": "the same",
}
"""Kinds that are read with unknown fields left out, and why. Copies of them refuse those, too."""


def modules() -> Iterator[str]:
    """All but programs, which run as they are imported: Alembic runs the migrations."""
    for package in map(importlib.import_module, PACKAGES):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(".__main__") and ".migrations." not in module.name:
                yield module.name


def kinds_below(kind: type[Value]) -> Iterator[type[Value]]:
    for one in kind.__subclasses__():
        yield one
        yield from kinds_below(one)


@pytest.fixture(scope="module")
def kinds() -> dict[str, type[Value]]:
    """Each by its full name; those that tests define are not among them."""
    for name in modules():
        importlib.import_module(name)
    return {
        f"{kind.__module__}.{kind.__qualname__}": kind
        for kind in kinds_below(Value)
        if kind.__module__.partition(".")[0] in PACKAGES and not isabstract(kind)
    }


def refuses(construct: Callable[..., Value]) -> bool:
    """Whatever else is wrong: required fields are missing as well."""
    try:
        construct(**{UNKNOWN: 1})
    except ValidationError as error:
        return ("extra_forbidden", (UNKNOWN,)) in [(fault["type"], fault["loc"]) for fault in error.errors()]
    return False


def refuses_in_copies(copy: Callable[..., Value], **given: object) -> bool:
    try:
        copy(**given)
    except TypeError as error:
        return f"has no field {UNKNOWN}" in str(error)
    return False


def test_kinds_of_the_whole_tree_are_looked_at(kinds: dict[str, type[Value]]) -> None:
    assert kinds.keys() >= {
        "waystation.tasks.task.TaskRequest",
        "waystation.activities.tasks.PlanRequest",
        "waystation.workflows.subagent.SubagentWorkflowInput",
    }


def test_only_what_comes_from_outside_is_read_with_unknown_fields_left_out(kinds: dict[str, type[Value]]) -> None:
    assert {name for name, kind in kinds.items() if not refuses(kind)} == IGNORES.keys()


def test_no_copy_of_any_value_takes_an_unknown_field(kinds: dict[str, type[Value]]) -> None:
    made = {name: kind.model_construct() for name, kind in kinds.items()}
    replaced = [name for name, value in made.items() if not refuses_in_copies(value.replace, **{UNKNOWN: 1})]
    copied = [name for name, value in made.items() if not refuses_in_copies(value.model_copy, update={UNKNOWN: 1})]
    assert (replaced, copied) == ([], [])


def test_the_validator_of_every_value_can_be_compiled(kinds: dict[str, type[Value]]) -> None:
    """Most are compiled when they are first used, so importing their module does not show a wrong annotation."""
    failed: dict[str, str] = {}
    for name, kind in kinds.items():
        try:
            kind.model_rebuild()
        except PydanticUserError as error:
            failed[name] = str(error)
    assert failed == {}
