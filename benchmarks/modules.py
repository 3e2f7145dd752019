"""Prints every product module with the first paragraph of its docstring, folder by folder, then code statistics: `make
map`.
"""

import ast
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDERS = ("waystation", "workflows", "activities", "workers")
FRAMEWORKS = {"app", "main", "prepare", "answer"}
"""Names that are looked up: Typer's applications, entry points, and the two functions of a child's program."""
SMALL = 40
"""Lines: a shorter module is counted as small."""


class Module(NamedTuple):
    """One file of the product."""

    path: Path
    name: str
    """Dotted."""
    tree: ast.Module
    lines: int

    @property
    def folder(self) -> str:
        """Relative to the checkout."""
        return self.path.parent.relative_to(ROOT).as_posix()

    @property
    def owns(self) -> str:
        """The first paragraph of its docstring, on one line."""
        return " ".join((ast.get_docstring(self.tree) or "").split("\n\n")[0].split())

    def public_names(self) -> Iterator[str]:
        """Functions, classes and values at its top level, without migrations and commands: those are a framework's."""
        for node in self.tree.body if "versions" not in self.path.parts else ():
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if _is_command(node):
                    continue
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    found = [name]
                case ast.Assign(targets=targets):
                    found = [target.id for target in targets if isinstance(target, ast.Name)]
                case ast.AnnAssign(target=ast.Name(id=name)):
                    found = [name]
                case _:
                    continue
            yield from (name for name in found if not name.startswith("_") and name not in FRAMEWORKS)


class CodeBase:
    """All modules of the product, as they are now."""

    def __init__(self) -> None:
        files = sorted((path for name in FOLDERS for path in (ROOT / name).rglob("*.py")), key=lambda one: one.parts)
        self.all = tuple(map(_module, files))

    @cached_property
    def modules(self) -> tuple[Module, ...]:
        """Without `__init__`."""
        return tuple(module for module in self.all if module.path.name != "__init__.py")

    @cached_property
    def importers(self) -> dict[str, set[str]]:
        """By whom each module is imported, within functions, too."""
        known = {module.name for module in self.all}
        found: defaultdict[str, set[str]] = defaultdict(set)
        for module in self.all:
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ImportFrom) and node.module:
                    for alias in node.names:
                        whole = f"{node.module}.{alias.name}"
                        found[whole if whole in known else node.module].add(module.name)
        return found

    @cached_property
    def small_modules(self) -> tuple[Module, ...]:
        """Modules under `SMALL` lines."""
        return tuple(module for module in self.modules if module.lines < SMALL)

    @cached_property
    def single_importer_modules(self) -> tuple[Module, ...]:
        """Modules that only one other imports, which is in the same folder."""
        folders = {module.name: module.folder for module in self.all}
        return tuple(
            module
            for module in self.modules
            if len(who := self.importers[module.name]) == 1 and folders[next(iter(who))] == module.folder
        )

    @cached_property
    def duplicate_names(self) -> dict[str, list[str]]:
        """Public names that two modules define, with those modules."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for module in self.modules:
            for name in dict.fromkeys(module.public_names()):
                found[name].append(module.name)
        return {name: where for name, where in sorted(found.items()) if len(where) > 1}


def _is_command(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(
        isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr in {"command", "callback"}
        for one in function.decorator_list
    )


def _module(path: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Module(path, name, ast.parse(text), len(text.splitlines()))


def main() -> None:
    """One line a module, under its folder; then the numbers."""
    house, folder = CodeBase(), ""
    for module in house.modules:
        if module.folder != folder:
            folder = module.folder
            sys.stdout.write(f"\n{folder}/\n")
        sys.stdout.write(f"  {module.path.stem:<24} {module.owns}\n")
    numbers = {
        "modules": len(house.modules),
        "lines": sum(module.lines for module in house.all),
        "median module, lines": statistics.median(module.lines for module in house.modules),
        f"modules under {SMALL} lines": len(house.small_modules),
        "modules that only one other of their folder imports": len(house.single_importer_modules),
        "public names of two modules or more": len(house.duplicate_names),
    }
    sys.stdout.write("\n" + "".join(f"{count:>8,}  {what}\n" for what, count in numbers.items()))


if __name__ == "__main__":
    main()
