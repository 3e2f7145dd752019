"""Tables of docs/reference that people wrote list what the code has, no more and no less."""

import re
from pathlib import Path
from typing import get_args

from waystation.kernel.client_permissions import CLIENT_PERMISSIONS
from waystation.plugins.web.mcp import TOOLS
from waystation.store.events import EventKind, UnnumberedEvent
from waystation.tasks.events import TaskEvent

ROOT = Path(__file__).parents[2]
CREATED = re.compile(r'\.create_(counter|gauge)\(\s*"(\w+)"')


def list_first_cells(page: str, heading: str) -> list[str]:
    """Names in backticks in the first column of the table under this row of headings."""
    table = (ROOT / "docs" / page).read_text(encoding="utf-8").split(f"| {heading} |")[1].split("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")]
    return [name for row in rows for name in re.findall(r"`(\w+)`", row)]


def test_the_page_on_events_has_every_kind_and_every_field() -> None:
    assert sorted(list_first_cells("reference/events.md", "kind")) == sorted(get_args(EventKind))
    named = set(list_first_cells("reference/events.md", "field"))
    assert {*UnnumberedEvent.model_fields, "number", "task_id"} - named == set()
    assert named - {*TaskEvent.model_fields} == set()


def test_the_page_on_metrics_has_every_metric_that_a_worker_creates() -> None:
    modules = ("waystation/runtime/temporal/metrics.py", "activities/activity_errors.py")
    source = "".join((ROOT / module).read_text(encoding="utf-8") for module in modules)
    created = {f"{name}_total" if kind == "counter" else name for kind, name in CREATED.findall(source)}
    assert set(list_first_cells("reference/metrics.md", "metric")) == created


def test_the_page_on_the_mcp_server_has_every_tool() -> None:
    assert sorted(list_first_cells("reference/mcp-tools.md", "tool")) == sorted(TOOLS)


def test_the_page_on_keys_has_every_role() -> None:
    assert list_first_cells("how-to/let-a-team-in.md", "role") == [*CLIENT_PERMISSIONS, "assistant"]
