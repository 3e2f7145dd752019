"""What SQLite has to be told, and what becomes of its file."""

import asyncio
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.scopes import SYSTEM_SCOPE
from tests.support.store_fixtures import store_clock
from tests.support.store_values import NOON, make_question, make_task_request, make_task_row, open_run
from waystation.kernel.errors import BadInput, StoreError, StoreUnavailable
from waystation.runtime.sql_store import SqlStore


@pytest.fixture
def store_file(tmp_path: Path) -> Path:
    return tmp_path / "waystation.db"


@pytest.fixture
def store_url(store_file: Path) -> str:
    return url_of(store_file)


def url_of(path: Path) -> str:
    return f"sqlite+aiosqlite:///{path}"


async def test_a_write_has_the_lock_before_it_reads(store: SqlStore, store_file: Path) -> None:
    with closing(sqlite3.connect(store_file, timeout=0, isolation_level=None)) as other:
        async with store.database.write():
            with pytest.raises(sqlite3.OperationalError, match="database is locked"):
                other.execute("BEGIN IMMEDIATE")
            assert other.execute("SELECT count(*) FROM tasks").fetchone() == (0,)
        other.execute("BEGIN IMMEDIATE")


async def test_a_process_that_died_in_a_transaction_left_nothing(store: SqlStore, store_file: Path) -> None:
    fence = await open_run(store)
    dying = (
        f"import os, sqlite3; c = sqlite3.connect({str(store_file)!r}, isolation_level=None); "
        "c.execute('BEGIN IMMEDIATE'); c.execute('UPDATE runs SET version = 7, fence = 7'); os._exit(1)"
    )
    assert await (await asyncio.create_subprocess_exec(sys.executable, "-c", dying)).wait() == 1
    await store.commit_message(fence, 0, make_question(1))
    assert (await store.load_transcript(fence.run_id, SYSTEM_SCOPE)).version == 1


async def test_a_store_keeps_its_id_and_its_content_when_it_is_opened_again(tmp_path: Path) -> None:
    url = url_of(tmp_path / "new" / "folders" / "waystation.db")
    first = await SqlStore.open(url, store_clock, lambda: "made-at-first")
    await first.register_task(make_task_row(make_task_request()), [])
    await first.aclose()
    second = await SqlStore.open(url, store_clock, lambda: "never-used")
    assert await second.get_store_id() == "made-at-first"
    assert await second.list_tasks(SYSTEM_SCOPE) == (make_task_row(make_task_request()),)
    await second.aclose()


@pytest.mark.parametrize("url", ["nonsense", "sqlite:///sync.db", "oracle+thing://host/db", "sqlite+aiosqlite://"])
async def test_a_url_that_cannot_be_used_is_refused_with_what_to_write(url: str) -> None:
    with pytest.raises(BadInput, match=r"database URL cannot be used|needs a database file"):
        await SqlStore.open(url, store_clock)


async def test_a_file_that_is_no_database_is_refused(store_file: Path) -> None:
    store_file.write_text("This is a letter, not a database. " * 100)
    with pytest.raises(StoreError, match=r"^the database file cannot be used \(file is not a database\): check"):
        await SqlStore.open(url_of(store_file), store_clock)


async def test_a_folder_that_cannot_be_made_is_said(store_file: Path) -> None:
    store_file.touch()
    with pytest.raises(StoreError, match=r"^the folder of the database cannot be created: .*Not a directory"):
        await SqlStore.open(url_of(store_file / "below" / "waystation.db"), store_clock)


async def test_times_come_from_the_clock(store: SqlStore, store_file: Path) -> None:
    await open_run(store)
    with closing(sqlite3.connect(store_file)) as other:
        assert other.execute("SELECT opened_at FROM runs").fetchone() == (f"{NOON:%Y-%m-%d %H:%M:%S.%f}",)


async def test_a_file_that_another_program_holds_too_long_is_worth_another_try(
    store_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waystation.store.sqlite.BUSY_TIMEOUT_S", 0)
    store = await SqlStore.open(url_of(store_file), store_clock)
    with closing(sqlite3.connect(store_file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match=r"^the database is not available \(database is locked\): try"):
            await open_run(store)
    await store.aclose()
