import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from waystation.domain.foreign import TAGS

ROOT = Path(__file__).parents[2]
PACKAGES = ("waystation", "workflows", "activities", "workers")
MODULE_LINES = {"workflows": 350, "activities": 450, "waystation": 450, "workers": 450, "tests": 450}
FUNCTION_LINES = 40
ENTRY_POINTS = {"waystation/cli/main.py", "workers/__main__.py"}
ENGINES = {"re", "re2", "regex", "sre_compile", "_sre"}
RE_FUNCTIONS = {"compile", "match", "search", "sub", "subn", "split", "findall", "finditer", "fullmatch", "template"}
PATTERNS = (
    "waystation/patterns.py",
    # A program of its own, which loads the standard library alone; its patterns are pumped, too.
    "waystation/adapters/mcp/keeper.py",
    # What people write for themselves runs on RE2 or, where that cannot read it, with a time limit.
    "waystation/adapters/presidio/rules.py",
)
EMPTY_NAMES = r"managers?|helpers?|utils?|handlers?"

TAG_READERS = {
    "waystation/domain/transcript.py": "tells the platform's messages from a person's",
    "waystation/domain/foreign.py": "names the frame of a result below it",
    "waystation/domain/layers.py": "weighs the parts of a contract",
    "waystation/domain/compaction/summary.py": "takes a summary or a ledger out of its frame again",
    "waystation/domain/compaction/restoration.py": "takes restored files out of a summary",
    "waystation/domain/web.py": "finds the pages that were fetched",
    "waystation/adapters/conversation/request_body.py": "finds a marker's ledger",
    "waystation/adapters/offline/summary.py": "the offline model reads what it is sent",
    "waystation/adapters/offline/research.py": "the offline model reads what it is sent",
    "waystation/adapters/offline/plan.py": "the offline model reads what it is sent",
    "waystation/adapters/offline/view.py": "the offline model reads what it is sent",
}
"""Modules that have tags of models in their strings, to read them and not to write them."""
TAG_WRITER = "waystation/domain/foreign.py"
PROMISES = {
    TAG_WRITER,
    "waystation/domain/compaction/summary.py",
    "waystation/domain/transcript.py",
    "waystation/domain/layers.py",
    "waystation/agents/summariser.py",
}
"""Modules that make a `Tagged` of a string, and so promise that what others wrote in it is defused."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def python_files(*folders: str) -> Iterator[tuple[str, str]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def nodes(*folders: str) -> Iterator[tuple[str, ast.AST]]:
    for name, text in python_files(*folders):
        for node in ast.walk(ast.parse(text)):
            yield name, node


def strings_of(tree: ast.AST) -> Iterator[str]:
    """Texts in code, those in f-strings with a sign for each value; no docstrings."""
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in bare:
            yield node.value


def lines_of(function: Function) -> int:
    """Length without decorators and docstring."""
    first = function.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring = (first.end_lineno or 0) - first.lineno + 1 if is_docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


def test_imports_keep_to_the_layers() -> None:
    command = [Path(sys.executable).with_name("lint-imports"), "--no-logo", "--no-cache"]
    linted = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert linted.returncode == 0, linted.stdout + linted.stderr


def test_the_domain_imports_only_itself_patterns_the_standard_library_and_pydantic() -> None:
    allowed = sys.stdlib_module_names | {"pydantic", "pydantic_core"}
    foreign: list[str] = []
    for name, node in nodes("waystation/domain"):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        foreign += [
            f"{name}: {module}"
            for module in modules
            if module.split(".")[0] not in allowed
            and not f"{module}.".startswith(("waystation.domain.", "waystation.patterns."))
        ]
    assert foreign == []


def test_patterns_are_compiled_in_one_place() -> None:
    """So that each is known to the test that pumps them. Type names, flags and `re.escape` are used anywhere."""
    strays = [
        f"{name}:{getattr(node, 'lineno', 0)} {used}"
        for name, node in nodes(*PACKAGES)
        if not name.startswith(PATTERNS)
        for used in _engines_used(node)
    ]
    assert strays == []


def _engines_used(node: ast.AST) -> list[str]:
    match node:
        case ast.Attribute(value=ast.Name(id="re"), attr=attr) if attr in RE_FUNCTIONS:
            return [f"re.{attr}"]
        case ast.Import():
            imported = [alias.name for alias in node.names if alias.name != "re" or alias.asname]
        case ast.ImportFrom(module=str(module)):
            imported = [f"{module}.{alias.name}" for alias in node.names]
            imported = [one for one in imported if one.removeprefix("re.") in RE_FUNCTIONS or not one.startswith("re.")]
        # Pydantic's own engine is linear; asked for this one, it is not.
        case ast.Constant(value="python-re"):
            return ["python-re"]
        case _:
            return []
    return [one for one in imported if one.split(".")[0] in ENGINES]


def test_tags_around_words_of_others_are_written_in_one_place() -> None:
    tag = re.compile(r"(?<!\(\?P)<\s*/?\s*([a-z_]+)")
    literal = {
        name
        for name, text in python_files(*PACKAGES)
        for node in strings_of(ast.parse(text))
        if any(found.replace("_", "") in TAGS for found in tag.findall(node))
    }
    assert literal == set(TAG_READERS)


def test_a_string_is_called_tagged_where_that_is_argued_for() -> None:
    promised = {
        name
        for name, node in nodes(*PACKAGES)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Tagged"
    }
    assert promised == PROMISES


def test_no_module_is_longer_than_its_folder_allows() -> None:
    too_long = [
        f"{name}: {lines} lines, {limit} allowed"
        for folder, limit in MODULE_LINES.items()
        for name, text in python_files(folder)
        if (lines := len(text.splitlines())) > limit
    ]
    assert too_long == []


def test_no_function_is_too_long_to_be_read_at_once() -> None:
    too_long = [
        f"{name}:{node.lineno} {node.name}: {lines} lines, {FUNCTION_LINES} allowed"
        for name, node in nodes(*PACKAGES)
        if isinstance(node, Function) and (lines := lines_of(node)) > FUNCTION_LINES
    ]
    assert too_long == []


def test_only_the_entry_points_keep_every_exception() -> None:
    catching = [
        f"{name}:{node.lineno}"
        for name, node in nodes(*PACKAGES)
        if isinstance(node, ast.ExceptHandler) and name not in ENTRY_POINTS and _keeps_everything(node)
    ]
    assert catching == []


def _keeps_everything(handler: ast.ExceptHandler) -> bool:
    """Cleaning up after anything is fine where the handler ends in a bare `raise`."""
    caught = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)} if handler.type else {""}
    last = handler.body[-1]
    passes_on = isinstance(last, ast.Raise) and last.exc is None
    return not passes_on and not caught.isdisjoint({"", "Exception", "BaseException"})


def test_no_name_says_nothing() -> None:
    modules = [
        name
        for name, _ in python_files(*PACKAGES)
        if any(re.fullmatch(rf"_?({EMPTY_NAMES}|data|info|process)", part) for part in Path(name).with_suffix("").parts)
        or re.search(rf"_({EMPTY_NAMES})$", Path(name).stem)
    ]
    classes = [
        f"{name}: {node.name}"
        for name, node in nodes(*PACKAGES)
        if isinstance(node, ast.ClassDef) and re.search(rf"({EMPTY_NAMES})$", node.name, re.IGNORECASE)
    ]
    assert modules + classes == []
