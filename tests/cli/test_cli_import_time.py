import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import gc
from waystation.kernel.imports import pause_gc_for_imports
with pause_gc_for_imports():
    pass
print(gc.get_freeze_count() > 0)
with pause_gc_for_imports():
    import xml.dom.minidom
    print(gc.isenabled())
print(gc.get_freeze_count() > 0, gc.isenabled())
"""


def test_the_collector_rests_while_modules_are_loaded_and_leaves_only_those_alone() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["False", "False", "True True"]


LISTED = """
import sys
from waystation.cli.main import run
assert run(["list"]) == 0
slow = {"temporalio", "alembic", "numpy", "aiohttp", "httpx2", "anthropic", "presidio_analyzer", "asyncpg", "psutil"}
ours = {"agents.redaction", "cli.approvals", "cli.follow", "client.submission", "documents.document_loading"}
print(sorted((slow | {f"waystation.{name}" for name in ours}) & sys.modules.keys()))
"""


def test_a_list_of_tasks_loads_the_store_and_nothing_that_is_slow_to_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))

    def listed() -> str:
        return subprocess.run([sys.executable, "-c", LISTED], capture_output=True, text=True, check=True).stdout

    listed()  # makes the store, with alembic
    assert listed().splitlines()[-1:] == ["[]"]


STARTED = """
import sys
from waystation.cli import platform
print(sorted({"temporalio", "sqlalchemy", "fastapi"} & sys.modules.keys()))
platform._load()
print(sorted({"fastapi", "mcp", "anthropic", "presidio_analyzer", "spacy"} & sys.modules.keys()))
"""


def test_up_waits_for_a_platform_that_loads_neither_pages_nor_recognisers_nor_the_models_sdk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    ran = subprocess.run([sys.executable, "-c", STARTED], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["[]", "[]"]
