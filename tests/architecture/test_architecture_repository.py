import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from benchmarks.diagrams import ARCHITECTURE, replace_diagram

ROOT = Path(__file__).parents[2]
REGISTRY_HOSTS = [
    ".".join(labels)
    for labels in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("crates", "io"),
        ("proxy", "golang", "org"),
        ("repo", "maven", "apache", "org"),
        ("repo1", "maven", "org"),
        ("deb", "debian", "org"),
    )
]
INDEX_OPTION = re.compile(r"--(?:extra-)?index-url|--find-links|^index-url\s*=", re.MULTILINE)
DEVELOPER_PAGES = ("ARCHITECTURE.md", "AGENTS.md", "CONTRIBUTING.md", "docs/design/")
CODE_SPAN = re.compile(r"`([^`\n]+)`")
NAME = re.compile(
    r"(?<![\w-])(?:[A-Z][a-zA-Z0-9]*[a-z][a-zA-Z0-9]*|[a-zA-Z0-9]+_[a-zA-Z0-9_]*[a-zA-Z0-9])(?![\w-]|\.py)"
)
"""Names of classes, and names of several words."""
EXAMPLE_NAMES = {
    *("CountWordsInput", "CountWordsTool", "count_words"),
    *("RememberTermInput", "RememberTermTool", "Term", "add_term", "list_terms", "remember_term", "term_id"),
    *("ImportanceChange", "WITHDRAWAL", "WithdrawInput", "set_deadline", "set_importance", "withdraw_request"),
}
"""What the examples in CONTRIBUTING.md add."""
EXAMPLE_PATHS = {"harbour-tools/harbour_tools.py"}
"""What a reader of the tutorial creates."""
HOME_PATH = re.compile(r"(?<![\w.~/-])/(?:home|Users|root)/\w")


def repository_files() -> Iterator[tuple[str, str]]:
    """Path and text of every file that is tracked or would be."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("this copy of the project is no git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        # A file may be deleted and not yet committed as such.
        if name != Path(__file__).relative_to(ROOT).as_posix() and (ROOT / name).is_file():
            yield name, (ROOT / name).read_text(encoding="utf-8", errors="replace")


def test_no_file_names_a_package_registry() -> None:
    named = [
        f"{name}: {found}"
        for name, text in repository_files()
        for found in [*(host for host in REGISTRY_HOSTS if host in text), *INDEX_OPTION.findall(text)]
    ]
    assert named == []


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    named = [
        f"{name}: {found}"
        for name, text in repository_files()
        for found in [*HOME_PATH.findall(text), *([str(ROOT)] if f"{ROOT}/" in text else [])]
    ]
    assert named == []


def test_the_licence_is_the_whole_apache_licence() -> None:
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License\n                           Version 2.0" in licence
    assert "END OF TERMS AND CONDITIONS" in licence


def test_every_recipe_is_one_line_and_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    rules = re.findall(r"^([\w-]+):.*\n((?:\t.*\n)*)", makefile, re.MULTILINE)
    assert [target for target, recipe in rules if recipe.count("\n") > 1] == []
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert [line.split()[0] for line in shown.splitlines()] == [target for target, _ in rules]


def test_types_are_checked_in_every_folder_with_code() -> None:
    """A type checker does not follow links to folders: each real folder is named."""
    configured = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["basedpyright"]
    folders = {name.partition("/")[0] for name, _ in repository_files() if name.endswith(".py") and "/" in name}
    assert {"waystation", "workflows", "activities", "workers"} <= folders
    assert folders - set(configured["include"]) == {"examples"}


def test_every_locked_requirement_carries_its_hashes() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    requirements = re.findall(r"^[a-z0-9].*$", lock, re.MULTILINE)
    assert len(requirements) > 60
    assert [line for line in requirements if not re.search(r"==.* \\$", line)] == []


def code_spans(*pages: str) -> Iterator[tuple[str, str]]:
    """Page and text of everything in backticks, outside of fenced blocks, on pages whose paths begin so."""
    for name, text in repository_files():
        if name.endswith(".md") and name.startswith(pages):
            prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
            yield from ((name, span) for span in CODE_SPAN.findall(prose))


@cache
def names_in_code() -> frozenset[str]:
    """Identifiers, and strings that could be one: names of activities, signals and settings."""
    found: set[str] = set()
    for name, text in repository_files():
        if not name.endswith(".py"):
            continue
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.ClassDef(name=one) | ast.FunctionDef(name=one) | ast.AsyncFunctionDef(name=one):
                    found.add(one)
                case ast.Name(id=one) | ast.arg(arg=one) | ast.Attribute(attr=one) | ast.keyword(arg=str(one)):
                    found.add(one)
                case ast.Constant(value=str(one)) if one.isidentifier():
                    found.add(one)
                case _:
                    pass
    return frozenset(found)


def test_paths_that_pages_name_exist() -> None:
    paths = {name for name, _ in repository_files()}
    folders = {parent.as_posix() for name in paths for parent in Path(name).parents}
    known = paths | folders | {Path(name).name for name in paths}
    top_level = {name.split("/")[0] for name in paths if "/" in name}
    dead = [
        f"{page}: {path}"
        for page, span in code_spans(*DEVELOPER_PAGES, "docs/", "README.md", "SECURITY.md")
        for path in (token.rstrip("/") for token in span.split())
        if re.fullmatch(r"[\w./-]+", path)
        and (path.endswith(".py") or (page.startswith(DEVELOPER_PAGES) and path.split("/")[0] in top_level))
        and path not in known | EXAMPLE_PATHS
    ]
    assert dead == []


def test_names_that_pages_for_developers_name_are_in_the_code() -> None:
    dead = [
        f"{page}: {name}"
        for page, span in code_spans(*DEVELOPER_PAGES)
        if "/" not in span and not span.startswith("<")
        for name in NAME.findall(span)
        if name not in names_in_code() | EXAMPLE_NAMES and not name.startswith("WAYSTATION_")
    ]
    assert dead == []


def test_the_diagram_of_an_agent_run_is_that_of_the_code() -> None:
    """`make diagrams` writes it. Every phase, outcome of a leg and status of a compaction is in it."""
    page = ARCHITECTURE.read_text(encoding="utf-8")
    assert page == replace_diagram(page)
