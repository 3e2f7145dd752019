"""Prints every module of the product with the first paragraph of its docstring, folder by folder: `make map`."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("waystation", "workflows", "activities", "workers")


def list_modules() -> Iterator[Path]:
    """Every module but `__init__.py`, those of a folder together and before those of its folders."""
    for name in FOLDERS:
        files = (path for path in (ROOT / name).rglob("*.py") if path.name != "__init__.py")
        yield from sorted(files, key=lambda path: (path.parent.parts, path.name))


def read_summary(path: Path) -> str:
    """The first paragraph of a module's docstring, on one line."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(docstring.split("\n\n")[0].split())


def main() -> None:
    """One line a module, under its folder."""
    folder = None
    for path in list_modules():
        if path.parent != folder:
            folder = path.parent
            sys.stdout.write(f"\n{folder.relative_to(ROOT).as_posix()}/\n")
        sys.stdout.write(f"  {path.stem:<24} {read_summary(path)}\n")


if __name__ == "__main__":
    main()
