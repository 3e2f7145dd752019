"""The page of settings, from their fields."""

import enum
from collections.abc import Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Literal, Union, cast, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from benchmarks.reference.markdown import fill_paragraphs, render_page, render_table
from waystation.config.model_settings import ModelSettings
from waystation.config.setting_sections import (
    AccessSettings,
    AgentSettings,
    AssistantSettings,
    ContextSettings,
    EmbedderSettings,
    MemorySettings,
    PluginSettings,
    PrivacySettings,
)
from waystation.config.setting_types import NOT_IN_A_FILE, list_setting_variables
from waystation.config.settings import EncryptionSettings, Settings
from waystation.kernel.amount import Limit, format_limit

INTRODUCTION = """
Waystation reads a setting from its environment variable. If the variable is not set, Waystation reads the setting from
the config file (`config.toml` in the home folder, or the file that `WAYSTATION_CONFIG` names), and otherwise uses the
default. In the config file, the key is the name of the variable in lower case without `WAYSTATION_`. Settings with a
star (*) are read from the environment only.

A setting of the type *table* is a TOML table in the config file. Each value of the table also has a variable, for
example `WAYSTATION_ROLES__WRITING__MODEL`. In a variable, the values of a list are separated by commas. A budget is
written as `600k` (tokens), `$2.00` or `600k+$2.00`.

Temporal's own variables (`TEMPORAL_ADDRESS` and others) and profiles configure the connection to Temporal.
OpenTelemetry's variables configure traces.
"""
SECTIONS = {
    "Models": ModelSettings,
    "Compaction": ContextSettings,
    "Agents and tools": AgentSettings,
    "Privacy": PrivacySettings,
    "Keys and encryption": EncryptionSettings,
    "Qdrant and retention": MemorySettings,
    "Embeddings": EmbedderSettings,
    "Access over HTTP": AccessSettings,
    "Assistants that submit tasks by MCP": AssistantSettings,
    "Plug-ins": PluginSettings,
}
"""Classes of settings by heading, after those that `Settings` itself has."""
TYPE_NAMES: Mapping[object, str] = {
    bool: "true or false",
    int: "integer",
    float: "number",
    str: "text",
    Path: "path",
    SecretStr: "secret",
    Limit: "budget",
}


def render_settings_page() -> str:
    """Render every setting with its variables, type, default and description."""
    sections = {heading: list(section.model_fields) for heading, section in SECTIONS.items()}
    others = {name for names in sections.values() for name in names}
    general = {"General, budgets and workers": [name for name in Settings.model_fields if name not in others]}
    blocks = [fill_paragraphs(INTRODUCTION)]
    for heading, names in {**general, **sections}.items():
        rows = (_describe_setting(name, Settings.model_fields[name]) for name in names)
        blocks += [f"## {heading}", render_table(("variable", "type", "default", "description"), rows)]
    return render_page("Settings", blocks)


def _describe_setting(name: str, field: FieldInfo) -> tuple[str, str, str, str]:
    variables = ", ".join(f"`{variable}`" for variable in list_setting_variables(name, field))
    star = "*" if name in NOT_IN_A_FILE else ""
    description = field.description or ""
    # The default of a budget depends on the models: only its description can say that.
    is_described = isinstance(field.default, Limit) and "Default: " in description
    default = "" if is_described else _describe_default(field.default)
    return f"{variables}{star}", _describe_type(field), default, description


def _describe_type(field: FieldInfo) -> str:
    bounds = (bound for constraint in field.metadata if (bound := _describe_bound(constraint)))
    return ", ".join([name_type(field.annotation), *bounds])


def _describe_bound(constraint: object) -> str:
    match constraint:
        case Ge(ge=int() | float() as least):
            return f"≥ {least:,}"
        case Gt(gt=int() | float() as least):
            return f"> {least:,}"
        case Le(le=int() | float() as most):
            return f"≤ {most:,}"
        case _:
            return ""


def name_type(annotation: object) -> str:
    """Return the type of a setting in words, or its choices."""
    if annotation in TYPE_NAMES:
        return TYPE_NAMES[annotation]
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return ", ".join(f"`{member.value}`" for member in annotation)
    arguments = get_args(annotation)
    match get_origin(annotation):
        case origin if origin is Literal:
            return ", ".join(f"`{choice}`" for choice in arguments)
        case origin if origin is Annotated:
            return name_type(arguments[0])
        case origin if origin in {Union, UnionType}:
            return " or ".join(dict.fromkeys(name_type(one) for one in arguments if one is not NoneType))
        case origin if origin is tuple:
            return "list"
        case origin if origin is dict:
            return "table"
        case _:
            raise TypeError(f"no words for the type {annotation}")


def _describe_default(default: object) -> str:
    match default:
        case bool():
            return f"`{str(default).lower()}`"
        case enum.Enum():
            return f"`{default.value}`"
        case int():
            return f"{default:,}"
        case Limit():
            return format_limit(default)
        case tuple():
            return ", ".join(f"`{one}`" for one in cast("tuple[object, ...]", default))
        case _:
            return f"`{default}`" if default else ""
