"""A folder of real documents that is on every machine: what the modules of the standard library say of themselves."""

import ast
import sysconfig
from collections.abc import Iterator
from pathlib import Path

QUESTION = "What do the modules say about thread safety and locks, and what do they say about timeouts?"
MAX_CHARACTERS = 4_000
"""Of one document, so that a task over all of them takes minutes and not an hour."""
_LEFT_OUT = {"site-packages", "test", "tests", "idlelib", "lib2to3", "turtledemo"}


def write_stdlib_documents(folder: Path, count: int) -> Path:
    """The first so many modules that have docstrings, by name, one document each."""
    folder.mkdir()
    modules = sorted(_documents(), key=lambda document: document[0])[:count]
    for name, text in modules:
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    return folder


def _documents() -> Iterator[tuple[str, str]]:
    library = Path(sysconfig.get_path("stdlib"))
    for path in library.rglob("*.py"):
        if not _LEFT_OUT.intersection(path.parts):
            name = ".".join(path.relative_to(library).with_suffix("").parts)
            if parts := list(_docstrings(path)):
                yield name, f"# {name}\n\n" + "\n".join(parts)[:MAX_CHARACTERS] + "\n"


def _docstrings(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (said := ast.get_docstring(node)):
            yield f"## {node.name if not isinstance(node, ast.Module) else 'module'}\n\n{said}\n"
