"""What SQLite has to be told: several processes, one file, nothing lost, nothing half-written."""

import asyncio
import sqlite3
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine

from tests.adapters.conftest import store_clock
from tests.store_contract.values import NOON, charge, intent, opened_run, question, reply, request, row
from waystation.adapters.store import SqlStore
from waystation.adapters.store.schema import REVISION, metadata, tasks
from waystation.domain.errors import BadInput, StoreError
from waystation.domain.task import SourceDocument

SCRIPTS = Path(__file__).parents[1] / "store_contract"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def store_file(tmp_path: Path) -> Path:
    return tmp_path / "waystation.db"


@pytest.fixture
def store_url(store_file: Path) -> str:
    return url_of(store_file)


def url_of(path: Path) -> str:
    return f"sqlite+aiosqlite:///{path}"


async def started(script: str, *arguments: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-Werror", str(SCRIPTS / script), *arguments, stdin=PIPE, stdout=PIPE, cwd=ROOT
    )


async def all_at_once(processes: list[Process]) -> list[str]:
    """Let the processes go when every one of them is ready; what each said after that."""
    for process in processes:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
    outputs = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    assert [process.returncode for process in processes] == [0] * len(processes)
    return [output.decode().strip() for output, _ in outputs]


async def test_three_processes_that_write_to_one_run_lose_nothing(store: SqlStore, store_url: str) -> None:
    tally, fence, turns = await opened_run(store, "tally"), await opened_run(store), 20
    arguments = (store_url, tally.run_id, fence.run_id)
    await all_at_once([await started("write_turns.py", *arguments, writer, str(turns)) for writer in "abc"])
    transcript, totals = await store.load(fence.run_id), await store.totals(fence.run_id)
    assert {message.id for message in transcript.messages} == {f"{w}-{turn}" for w in "abc" for turn in range(turns)}
    assert (transcript.version, totals.turns, totals.usage.output) == (3 * turns, 3 * turns, 3 * turns)
    assert (await store.load(tally.run_id)).version == 3 * turns


async def test_two_processes_can_open_a_new_database_at_once(store_url: str) -> None:
    said = await all_at_once([await started("open_store.py", store_url) for _ in range(2)])
    store = await SqlStore.open(store_url, store_clock)
    assert set(said) == {await store.store_id()}
    await store.aclose()


async def test_a_write_has_the_lock_before_it_reads(store: SqlStore, store_file: Path) -> None:
    with closing(sqlite3.connect(store_file, timeout=0, isolation_level=None)) as other:
        async with store.database.write():
            with pytest.raises(sqlite3.OperationalError, match="database is locked"):
                other.execute("BEGIN IMMEDIATE")
            assert other.execute("SELECT count(*) FROM tasks").fetchone() == (0,)
        other.execute("BEGIN IMMEDIATE")


async def test_a_transaction_that_was_abandoned_left_nothing(store: SqlStore) -> None:
    fence = await opened_run(store)

    async def die_between() -> None:
        async with store.database.write() as connection:
            await connection.execute(tasks.delete())
            await connection.exec_driver_sql("UPDATE runs SET version = 7, fence = 7")
            raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await die_between()
    await store.commit_message(fence, 0, question(1))
    assert (await store.load(fence.run_id)).version == 1


async def test_a_process_that_died_in_a_transaction_left_nothing(store: SqlStore, store_file: Path) -> None:
    fence = await opened_run(store)
    dying = (
        f"import os, sqlite3; c = sqlite3.connect({str(store_file)!r}, isolation_level=None); "
        "c.execute('BEGIN IMMEDIATE'); c.execute('UPDATE runs SET version = 7, fence = 7'); os._exit(1)"
    )
    assert await (await asyncio.create_subprocess_exec(sys.executable, "-c", dying)).wait() == 1
    await store.commit_message(fence, 0, question(1))
    assert (await store.load(fence.run_id)).version == 1


@pytest.mark.timeout(25)  # Under the busy time-out: a lock that stayed behind would be waited for until then.
async def test_a_cancelled_commit_is_whole_or_absent_and_holds_nobody_up(store: SqlStore) -> None:
    fence, version = await opened_run(store), 0
    for patience in range(40):
        commit = asyncio.create_task(
            store.commit_reply(fence, version, reply(patience), charge(f"turn-{patience}", cost=1))
        )
        for _ in range(patience):
            await asyncio.sleep(0.0001)
        commit.cancel()
        await asyncio.wait([commit])
        version = (await store.load(fence.run_id)).version
        assert (await store.totals(fence.run_id)).turns == version
        await store.record_intent(fence, intent("probe"))
    assert version > 0


async def test_many_coroutines_of_one_process_write_side_by_side(store: SqlStore) -> None:
    fences = [await opened_run(store, f"step-{n}") for n in range(24)]
    await asyncio.gather(*(store.commit_reply(fence, 0, reply(1), charge("turn-1")) for fence in fences))
    assert {(await store.totals(fence.run_id)).turns for fence in fences} == {1}


async def test_a_store_keeps_its_id_and_its_content_when_it_is_opened_again(tmp_path: Path) -> None:
    url = url_of(tmp_path / "new" / "folders" / "waystation.db")
    first = await SqlStore.open(url, store_clock, lambda: "made-at-first")
    await first.register(row(request()), [])
    await first.aclose()
    second = await SqlStore.open(url, store_clock, lambda: "never-used")
    assert await second.store_id() == "made-at-first"
    assert await second.tasks() == (row(request()),)
    await second.aclose()


async def test_a_database_of_a_newer_version_is_refused_and_left_alone(store_file: Path) -> None:
    await (await SqlStore.open(url_of(store_file), store_clock)).aclose()
    with closing(sqlite3.connect(store_file)) as newer, newer:
        newer.execute("UPDATE alembic_version SET version_num = '0999'")
    with pytest.raises(StoreError) as refusal:
        await SqlStore.open(url_of(store_file), store_clock)
    assert str(refusal.value) == (
        f"the database has schema 0999, this version of Waystation knows schemas up to {REVISION}: "
        "update Waystation, or choose another database"
    )
    with closing(sqlite3.connect(store_file)) as after:
        assert after.execute("SELECT version_num FROM alembic_version").fetchall() == [("0999",)]


async def test_the_migrations_make_exactly_the_tables_of_the_schema(store: SqlStore, store_file: Path) -> None:
    with create_engine(f"sqlite:///{store_file}").connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        connection.engine.dispose()


async def test_an_error_of_the_database_prints_no_text_of_the_conversation(store: SqlStore, store_file: Path) -> None:
    with closing(sqlite3.connect(store_file)) as other, other:
        other.execute("DROP TABLE documents")
    with pytest.raises(Exception, match="no such table: documents") as failure:
        await store.register(row(request(question="whispered")), [SourceDocument(name="secret.md", text="murmured")])
    assert not [word for word in ("whispered", "secret.md", "murmured") if word in str(failure.value)]
    assert await store.tasks() == ()


@pytest.mark.parametrize("url", ["nonsense", "sqlite:///sync.db", "oracle+thing://host/db", "sqlite+aiosqlite://"])
async def test_a_url_that_cannot_be_used_is_refused_with_what_to_write(url: str) -> None:
    with pytest.raises(BadInput, match=r"database URL cannot be used|needs a database file"):
        await SqlStore.open(url, store_clock)


async def test_a_file_that_is_no_database_is_refused(store_file: Path) -> None:
    store_file.write_text("This is a letter, not a database. " * 100)
    with pytest.raises(StoreError, match=r"^the database cannot be opened: file is not a database$"):
        await SqlStore.open(url_of(store_file), store_clock)


async def test_a_folder_that_cannot_be_made_is_said(store_file: Path) -> None:
    store_file.touch()
    with pytest.raises(StoreError, match=r"^the database cannot be opened: .*Not a directory"):
        await SqlStore.open(url_of(store_file / "below" / "waystation.db"), store_clock)


async def test_times_come_from_the_clock(store: SqlStore, store_file: Path) -> None:
    await opened_run(store)
    with closing(sqlite3.connect(store_file)) as other:
        assert other.execute("SELECT opened_at FROM runs").fetchone() == (f"{NOON:%Y-%m-%d %H:%M:%S.%f}",)
