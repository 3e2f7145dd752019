import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from waystation.documents.ports import TableEngine
from waystation.documents.table_engine.engine import DuckDbTableEngine
from waystation.documents.tables import Column, QueryResult, TableText
from waystation.kernel.errors import TableQueryError
from waystation.security.confined_process import build_child_environment

ENDLESS = "WITH RECURSIVE r AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM r) SELECT count(*) FROM r"
LOADED = """
import sys
import waystation.documents.table_engine.engine_child, waystation.documents.table_engine.database
print(*sys.modules)
"""
SALES = TableText(name="sales", text="region,amount\nNorth,1.10\nSouth,2.20")


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE}


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    before = children()
    yield
    assert children() <= before


async def test_a_query_is_answered_over_the_tables_that_it_names() -> None:
    engine: TableEngine = DuckDbTableEngine()
    assert await engine.query("SELECT sum(amount) AS total FROM sales", [await engine.read(SALES)], 10) == QueryResult(
        columns=(Column(name="total", type="DECIMAL(38,2)"),), rows=(("3.30",),), row_count=1
    )


async def test_nothing_is_kept_from_one_query_to_the_next() -> None:
    engine = DuckDbTableEngine()
    await engine.query("FROM sales", [await engine.read(SALES)], 1)
    with pytest.raises(TableQueryError, match="sales does not exist"):
        await engine.query("FROM sales", (), 1)


async def test_a_text_of_lone_halves_of_characters_is_read_all_the_same() -> None:
    engine = DuckDbTableEngine()
    table = await engine.read(TableText(name="t", text="a;b\n\ud800;1"))
    assert (await engine.query("SELECT a FROM t", [table], 1)).rows == (("?",),)


async def test_a_large_table_is_read_whole() -> None:
    rows = 60_000
    text = "\n".join(["id;note;amount", *(f"{number};{'x' * 100};0.01" for number in range(rows))])
    engine = DuckDbTableEngine()
    table = await engine.read(TableText(name="t", text=text))
    result = await engine.query("SELECT sum(amount), max(_line) FROM t", [table], 1)
    assert result.rows == (("600.00", str(rows + 1)),)


async def test_a_query_without_end_is_ended() -> None:
    with pytest.raises(TableQueryError, match=r"took longer than 2 s\. Query less data at a time"):
        await DuckDbTableEngine(seconds=2).query(ENDLESS, (), 1)


@pytest.mark.parametrize("sql", ["SELECT range(100000000)", "SELECT length(repeat('x', 4000000000))"])
async def test_a_query_for_more_memory_than_there_may_be_is_refused(sql: str) -> None:
    with pytest.raises(TableQueryError, match="over 500 MB of memory"):
        await DuckDbTableEngine().query(sql, (), 1)


async def test_an_engine_that_breaks_down_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waystation.documents.table_engine.engine._PROGRAM", "antigravity_that_is_not_there")
    with pytest.raises(TableQueryError, match="engine failed at this query"):
        await DuckDbTableEngine().query("SELECT 1", (), 1)


async def test_an_engine_that_cannot_be_started_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(TableQueryError, match=r"could not be started \(FileNotFoundError\)"):
        await DuckDbTableEngine().query("SELECT 1", (), 1)


async def test_a_query_that_is_given_up_ends_its_child() -> None:
    query = asyncio.create_task(DuckDbTableEngine().query(ENDLESS, (), 1))
    before = children()
    while children() == before:
        await asyncio.sleep(0.05)
    query.cancel()
    with pytest.raises(asyncio.CancelledError):
        await query


def test_a_child_loads_no_port_and_nothing_of_tasks() -> None:
    # One is started for every table that is read and for every query: each module more is paid for each time.
    loaded = subprocess.run(
        [sys.executable, "-P", "-c", LOADED], env=build_child_environment(), capture_output=True, text=True, check=True
    ).stdout.split()
    ours = {name.removeprefix("waystation.") for name in loaded if name.startswith("waystation.")}
    assert {name for name in ours if not name.startswith(("documents.table_engine", "security."))} == {
        "documents",
        "documents.tables",
        "kernel",
        "kernel.amount",
        "kernel.errors",
        "kernel.patterns",
        "kernel.value",
        "privacy",
        "privacy.policy",
        "security",
    }


async def test_no_more_children_run_at_once_than_may() -> None:
    engine, before, most = DuckDbTableEngine(at_once=1), children(), 0
    queries = asyncio.gather(*(engine.query("SELECT 1", (), 1) for _ in range(3)))
    while not queries.done():
        most = max(most, len(children() - before))
        await asyncio.sleep(0.02)
    assert most == 1
    assert [result.rows for result in await queries] == [(("1",),)] * 3


async def test_a_child_sees_no_key_and_no_module_of_the_working_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    (tmp_path / "duckdb.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-live-4711")
    query = asyncio.create_task(DuckDbTableEngine(seconds=5).query(ENDLESS, (), 1))
    before = children()
    while children() == before:
        await asyncio.sleep(0.05)
    (child,) = children() - before
    assert "ANTHROPIC_API_KEY" not in psutil.Process(child).environ()
    with pytest.raises(TableQueryError, match="took longer"):
        await query
