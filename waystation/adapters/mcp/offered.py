"""Which of a server's tools are taken over: those that are allowed, and that the Messages API takes as they are."""

import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Protocol

from jsonschema import Draft202012Validator, SchemaError
from mcp.types import Tool
from pydantic import JsonValue

from waystation.adapters.mcp.config import Server
from waystation.adapters.mcp.expansion import without_secrets
from waystation.domain.foreign_text import one_line, without_tags
from waystation.domain.foreign_tools import ForeignToolSpec, HiddenTool
from waystation.patterns import proven

MOST_TOOLS = 128
"""Of one server."""
DESCRIPTION_CHARACTERS = 2_000
SCHEMA_CHARACTERS = 16_000
"""As JSON: about 4,000 tokens, twice of what all tools together should have."""
ARGUMENT_CHARACTERS = 500
"""Of the description of one argument."""
NAME_SHOWN = 200
_REMARKS = frozenset({"$comment", "title", "examples"})
"""Words in a schema that say nothing of what may be given."""
_BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""What holds schemas by names that are not its keywords."""
_DATA = frozenset({"enum", "const", "default", "required", "dependentRequired", "pattern"})
"""Values themselves, which a server compares."""
_PROPERTY = proven(r"[a-zA-Z0-9_.-]{1,64}")
"""Names of arguments that the Messages API takes."""
_CHOICES = ("oneOf", "anyOf", "allOf")
"""What the Messages API refuses at the top of a schema."""
_UNPRINTABLE = proven(
    r"[^\S\n]|[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
"""Also characters that a person does not see and a model reads."""


class _Checks(Protocol):
    def __call__(self, schema: Mapping[str, JsonValue]) -> None: ...


_check_schema: _Checks = Draft202012Validator.check_schema


def offered(server: Server, tools: Sequence[Tool]) -> tuple[list[ForeignToolSpec], list[HiddenTool]]:
    """What agents may be shown, each still under the name that its server gave it, and what not."""
    specs: list[ForeignToolSpec] = []
    hidden: list[HiddenTool] = []
    for tool in tools[:MOST_TOOLS]:
        reason = _refused(server, tool) or (
            "the server has another tool of that name" if tool.name in {spec.tool for spec in specs} else ""
        )
        if reason:
            shown = "".join(one if one.isprintable() else "?" for one in tool.name[:NAME_SHOWN])
            hidden.append(HiddenTool(server=server.name, tool=shown, reason=reason))
        else:
            specs.append(_spec(server, tool))
    if len(tools) > MOST_TOOLS:
        reason = f"the server has more than {MOST_TOOLS} tools; the rest is left out"
        hidden.append(HiddenTool(server=server.name, tool="", reason=reason))
    return specs, hidden


def _refused(server: Server, tool: Tool) -> str:
    if not any(fnmatchcase(tool.name, pattern) for pattern in server.allow):
        return "the config file does not allow it"
    if len(tool.name) > NAME_SHOWN:
        return f"its name has {len(tool.name):,} characters; {NAME_SHOWN} are taken"
    if not tool.name.isprintable():
        return "its name has characters that nobody sees"
    return _unusable(tool.input_schema)


def _unusable(schema: dict[str, JsonValue]) -> str:
    """Why a schema cannot be handed to a model: one that is refused would have every request refused."""
    size = len(json.dumps(schema))
    if size > SCHEMA_CHARACTERS:
        return f"its schema has {size:,} characters; {SCHEMA_CHARACTERS:,} are taken"
    if schema.get("type") != "object" or any(choice in schema for choice in _CHOICES):
        return "its schema is not of one object: models take no other"
    properties = schema.get("properties", {})
    if isinstance(properties, dict) and not all(map(_PROPERTY.fullmatch, properties)):
        return "its schema has an argument whose name models do not take"
    try:
        _check_schema(schema)
    except (SchemaError, RecursionError):
        return "its schema is not valid JSON Schema"
    return ""


def _spec(server: Server, tool: Tool) -> ForeignToolSpec:
    hints = tool.annotations
    read_only = hints is not None and hints.read_only_hint is True
    return ForeignToolSpec(
        server=server.name,
        tool=tool.name,
        name=tool.name,
        description=_description(server, tool.description or ""),
        input_schema=_schema(server, tool.input_schema),
        read_only=read_only,
        idempotent=hints is not None and hints.idempotent_hint is True,
        asks=_asks(server, tool.name, read_only=read_only),
        roles=server.roles,
    )


def _asks(server: Server, tool: str, *, read_only: bool) -> bool:
    """By the config file. What the server says of itself counts where the file says that it does."""
    match server.ask:
        case "all":
            return True
        case "never":
            return False
        case "writes":
            return not read_only
        case patterns:
            return any(fnmatchcase(tool, pattern) for pattern in patterns)


def _description(server: Server, words: str) -> str:
    return f"[Tool server {one_line(server.name)}, in its own words] {_words(server, words, DESCRIPTION_CHARACTERS)}"


def _words(server: Server, words: str, most: int) -> str:
    """In one paragraph: what follows an empty line would look like somebody else's."""
    plain = " ".join(without_secrets(_UNPRINTABLE.sub(" ", words), server.secrets).split())
    cut = plain if len(plain) <= most else f"{plain[:most]} (cut here)"
    return without_tags(cut)


def _schema(server: Server, schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """The schema with its words cleaned as the description is; what arguments are checked by stays as it is."""
    return {key: _part(server, key, value) for key, value in schema.items() if key not in _REMARKS}


def _part(server: Server, key: str, value: JsonValue) -> JsonValue:
    match value:
        case str() if key == "description":
            return _words(server, value, ARGUMENT_CHARACTERS)
        case dict() if key in _BY_NAME:
            return {name: _part(server, "", part) for name, part in value.items()}
        case dict() if key not in _DATA:
            return _schema(server, value)
        case list() if key not in _DATA:
            return [_part(server, "", part) for part in value]
        case _:
            return value
