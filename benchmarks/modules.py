"""Prints every product module with the first sentence of its docstring, folder by folder: `make map`."""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("waystation", "workflows", "activities", "workers")


def main() -> None:
    """One line a module, under its folder."""
    folder = Path()
    for path in sorted((path for name in FOLDERS for path in (ROOT / name).rglob("*.py")), key=lambda one: one.parts):
        if path.name == "__init__.py":
            continue
        if path.parent != folder:
            folder = path.parent
            sys.stdout.write(f"\n{folder.relative_to(ROOT).as_posix()}/\n")
        owns = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        sys.stdout.write(f"  {path.stem:<24} {' '.join(owns.split(chr(10) * 2)[0].split())}\n")


if __name__ == "__main__":
    main()
