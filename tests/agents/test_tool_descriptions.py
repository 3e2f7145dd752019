"""Every tool of ours says when to use it, what it returns and what it is not for, and describes each parameter."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pydantic import Field, JsonValue, ValidationError

from waystation.agents.planner import SUBMIT_PLAN
from waystation.agents.roles import list_built_in_tool_names
from waystation.agents.tools.tool import ToolInput, TypedTool, build_input_schema
from waystation.kernel.value import Value
from waystation.models.ports import ToolSpec
from waystation.reports.reviewers import REVIEW_REPORT, REVISE_PLAN

SUBMISSIONS = "waystation.agents.tools.submissions"
"""Its tools say what to submit and how; they end a step, or belong to one role."""


def list_classes(base: type[TypedTool[Any]]) -> Iterator[type[TypedTool[Any]]]:
    for kind in base.__subclasses__():
        if kind.__module__.startswith("waystation.agents.tools.") and "name" in vars(kind):
            yield kind
        yield from list_classes(kind)


TOOLS = {kind.name: kind for kind in list_classes(TypedTool)}


def find_undescribed(schema: Mapping[str, JsonValue], path: str = "") -> Iterator[str]:
    """Yield the properties without a description, also those of nested objects."""
    parts = {**_properties(schema, "$defs"), "": schema}
    for name, part in parts.items():
        for field, described in _properties(part, "properties").items():
            if isinstance(described, dict) and "description" not in described:
                yield f"{path}{name}.{field}".removeprefix(".")


def _properties(schema: JsonValue | Mapping[str, JsonValue], key: str) -> dict[str, JsonValue]:
    found = schema.get(key) if isinstance(schema, Mapping) else None
    return {**found} if isinstance(found, dict) else {}


def test_the_tools_of_all_roles_are_looked_at() -> None:
    others = {"submit_plan", "revise_plan", "review_report", "judge_sentences"}
    assert list_built_in_tool_names() - others - {"web"} <= set(TOOLS)


@pytest.mark.parametrize("name", sorted(name for name, kind in TOOLS.items() if kind.__module__ != SUBMISSIONS))
def test_a_tool_says_when_to_use_it_what_comes_back_and_what_it_is_not_for(name: str) -> None:
    description = TOOLS[name].description
    assert [words for words in ("Use it ", "Returns ", "Not for ") if words not in description] == []
    assert len(description) <= 1_000
    arguments: object = vars(TOOLS[name])["input_model"]
    assert isinstance(arguments, type)
    assert issubclass(arguments, ToolInput)
    assert [*find_undescribed(arguments.model_json_schema())] == []


@pytest.mark.parametrize("spec", [SUBMIT_PLAN, REVISE_PLAN, REVIEW_REPORT], ids=lambda spec: spec.name)
def test_a_tool_that_gives_one_answer_says_what_becomes_of_it(spec: ToolSpec) -> None:
    assert len(spec.description) > 100
    assert [*find_undescribed(spec.input_schema)] == []


class Place(Value):
    """For readers of the code."""

    name: str = Field(description="Its name.", max_length=60)
    aliases: tuple[str, ...] = Field(default=(), description="Other names.")


class FindPlaceInput(ToolInput):
    """For readers of the code."""

    query: str = Field(min_length=1, max_length=1_000, description="Words.")
    first: int = Field(default=1, ge=1, le=200, description="Where to begin.")
    last: int | None = Field(default=None, ge=1, description="Where to end.")
    among: tuple[Place, ...] = Field(default=(), description="Places.")
    near: str = Field(default="", description="Only near this.")


def test_a_schema_says_only_what_helps_a_model_to_make_a_call() -> None:
    assert build_input_schema(FindPlaceInput) == {
        "$defs": {
            "Place": {
                "additionalProperties": False,
                "properties": {
                    "name": {"description": "Its name.", "maxLength": 60, "type": "string"},
                    "aliases": {"description": "Other names.", "items": {"type": "string"}, "type": "array"},
                },
                "required": ["name"],
                "type": "object",
            }
        },
        "additionalProperties": False,
        "properties": {
            "query": {"description": "Words.", "type": "string"},
            "first": {"default": 1, "description": "Where to begin.", "maximum": 200, "type": "integer"},
            "last": {"description": "Where to end.", "type": "integer"},
            "among": {"description": "Places.", "items": {"$ref": "#/$defs/Place"}, "type": "array"},
            "near": {"description": "Only near this.", "type": "string"},
        },
        "required": ["query"],
        "type": "object",
    }


@pytest.mark.parametrize("wrong", [{"query": ""}, {"query": "x" * 1_001}, {"query": "x", "first": 0}])
def test_what_a_schema_leaves_out_is_checked_in_a_call(wrong: dict[str, JsonValue]) -> None:
    assert FindPlaceInput.model_validate({"query": "x", "last": None}).last is None
    with pytest.raises(ValidationError):
        FindPlaceInput.model_validate(wrong)
