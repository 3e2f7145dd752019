"""The page of commands, from the command line."""

import enum
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args, get_origin

from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from benchmarks.reference.markdown import fill_paragraphs, render_page, render_table
from waystation.cli.main import GROUPS, build_command_line_app

INTRODUCTION = """
Every command explains itself with `--help`. `--json`, where a command has it, prints JSON with stable keys. TASK is
the id of a task or its first characters.

Exit codes: 0 means success, 1 that the work failed, 2 wrong usage, 3 that something needed cannot be reached.
"""
VALUE_NAMES: dict[object, str] = {bool: "", int: "N", Path: "PATH", str: "TEXT", tuple[str, str]: "TEXT TEXT"}
"""What stands for the value of an option of this type; others are lists, literals and enumerations."""


def render_commands_page() -> str:
    """Render every command with its arguments and options, under the headings of the top-level help."""
    blocks = [fill_paragraphs(INTRODUCTION), _render_parameters(_get_group(None))]
    for heading, group in GROUPS.items():
        blocks.append(f"## {heading}")
        for name in group:
            blocks += _render_command(_get_group(name).commands[name], f"waystation {name}", "###")
    return render_page("Commands", blocks)


def _get_group(name: str | None) -> TyperGroup:
    group = get_command(build_command_line_app(name))
    if not isinstance(group, TyperGroup):
        raise TypeError(f"the command line with {name} has no commands")
    return group


def _render_command(command: object, path: str, marks: str) -> Iterator[str]:
    match command:
        case TyperGroup():
            yield f"{marks} {path}"
            yield fill_paragraphs(command.help or "")
            for name, nested in command.commands.items():
                yield from _render_command(nested, f"{path} {name}", f"{marks}#")
        case TyperCommand():
            arguments = (_name_argument(one) for one in command.params if isinstance(one, TyperArgument))
            yield f"{marks} {' '.join([path, *arguments])}"
            yield fill_paragraphs(command.help or "")
            yield _render_parameters(command)
        case _:
            raise TypeError(f"{path} is neither a command nor a group")


def _name_argument(argument: TyperArgument) -> str:
    name = f"{argument.metavar or str(argument.name).upper()}{'…' if argument.nargs == -1 else ''}"
    return name if argument.required else f"[{name}]"


def _render_parameters(command: TyperCommand | TyperGroup) -> str:
    rows: list[tuple[str, str]] = []
    for parameter in command.params:
        match parameter:
            case TyperArgument() if parameter.help:
                rows.append((f"`{_name_argument(parameter)}`", parameter.help))
            case TyperOption() if not parameter.hidden:
                rows.append((_spell_option(parameter), f"{parameter.help or ''}{_describe_default(parameter)}"))
            case _:
                pass
    return render_table(("argument or option", "description"), rows)


def _spell_option(option: TyperOption) -> str:
    value = option.metavar or _name_value(option.type_descriptor.annotation)
    return ", ".join(f"`{name} {value}`" if value else f"`{name}`" for name in [*option.opts, *option.secondary_opts])


def _name_value(annotation: object) -> str:
    """Return what stands for the value of an option; empty for a flag."""
    if annotation in VALUE_NAMES:
        return VALUE_NAMES[annotation]
    if get_origin(annotation) is list:
        return _name_value(get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return "|".join(get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return "|".join(str(member.value) for member in annotation)
    raise TypeError(f"nothing stands for a value of the type {annotation}")


def _describe_default(option: TyperOption) -> str:
    default = option.default
    if not default or re.search("default", option.help or "", re.IGNORECASE):
        return ""
    return f" Default: `{default.value if isinstance(default, enum.Enum) else default}`."
