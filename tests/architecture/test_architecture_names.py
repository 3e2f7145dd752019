import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("waystation", "workflows", "activities", "workers")
LISTS: dict[str, list[str]] = tomllib.loads((ROOT / "tests/architecture/names.toml").read_text(encoding="utf-8"))
WORDS = {kind: frozenset(LISTS[kind]) for kind in ("verbs", "nouns")}
IRREGULAR = frozenset(LISTS["irregular_participles"])
NO_PARTICIPLE = {"embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed"}
READ_BY_TEMPLATES = {"lasted"}
"""Names that begin with a participle although they should not, and why they still do."""


def words_of(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def is_participle(word: str) -> bool:
    return word in IRREGULAR or (word.endswith("ed") and len(word) > 4 and word not in NO_PARTICIPLE)


def public_names() -> Iterator[tuple[str, str, str]]:
    """`verbs` or `nouns`, the name, and where it is defined; of functions within functions none."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            scopes = [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
            for node in (node for scope in scopes for node in scope.body):
                where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    yield "nouns", node.name, where
                elif _is_called_by_name(node):
                    yield "verbs", node.name, where


def _is_called_by_name(node: ast.stmt) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
        return False
    return all(map(_changes_no_name, node.decorator_list))


def _changes_no_name(decorator: ast.expr) -> bool:
    """Properties are nouns; handlers, routes and commands have the names that their callers know."""
    names = {getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(decorator)}
    return bool(names & {"classmethod", "staticmethod", "read_transaction", "write_transaction", "contextmanager"})


@pytest.fixture(scope="module")
def names() -> list[tuple[str, str, str]]:
    found = list(public_names())
    assert len(found) > 2_000
    return found


def test_public_names_are_made_of_known_words(names: list[tuple[str, str, str]]) -> None:
    place = {"verbs": 0, "nouns": -1}
    unknown = [
        f"{where} {name}: `{word}` is not among the {kind} of tests/architecture/names.toml"
        for kind, name, where in names
        if (words := words_of(name))
        and (word := words[place[kind]]) not in WORDS[kind]
        and name not in READ_BY_TEMPLATES
    ]
    assert unknown == []


def test_no_public_function_begins_with_a_participle(names: list[tuple[str, str, str]]) -> None:
    """`build_report`, not `report_built` or `built_report`."""
    assert {
        name for kind, name, _ in names if kind == "verbs" and is_participle(words_of(name)[0])
    } <= READ_BY_TEMPLATES


def test_each_known_word_is_used(names: list[tuple[str, str, str]]) -> None:
    used = {"verbs": {words_of(name)[0] for kind, name, _ in names if kind == "verbs"}}
    used["nouns"] = {words_of(name)[-1] for kind, name, _ in names if kind == "nouns"}
    assert {kind: words - used[kind] for kind, words in WORDS.items()} == {"verbs": set(), "nouns": set()}
