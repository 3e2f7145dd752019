"""Several processes, one database: nothing lost, nothing half-written, and no text in any error."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, text

from tests.support.scopes import SYSTEM_SCOPE
from tests.support.store_fixtures import store_clock
from tests.support.store_values import (
    make_charge,
    make_intent,
    make_question,
    make_reply,
    make_task_request,
    make_task_row,
    open_run,
)
from waystation.documents.documents import SourceDocument
from waystation.kernel.errors import StoreError
from waystation.runtime.sql_store import SqlStore, load_store_status, migrate
from waystation.store.schema import REVISION, metadata, tasks

SCRIPTS = Path(__file__).parent
ROOT = Path(__file__).parents[2]


def sqlite_url(folder: Path) -> str:
    return f"sqlite+aiosqlite:///{folder}/waystation.db"


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
    tally, fence, turns = await open_run(store, "tally"), await open_run(store), 20
    arguments = (store_url, tally.run_id, fence.run_id)
    await all_at_once([await started("write_turns.py", *arguments, writer, str(turns)) for writer in "abc"])
    transcript, totals = (
        await store.load_transcript(fence.run_id, SYSTEM_SCOPE),
        await store.get_run_usage(fence.run_id),
    )
    assert {message.id for message in transcript.messages} == {f"{w}-{turn}" for w in "abc" for turn in range(turns)}
    assert (transcript.version, totals.turns, totals.usage.output) == (3 * turns, 3 * turns, 3 * turns)
    assert (await store.load_transcript(tally.run_id, SYSTEM_SCOPE)).version == 3 * turns


async def test_two_processes_can_open_a_new_file_at_once(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path)
    said = await all_at_once([await started("open_store.py", url) for _ in range(2)])
    assert set(said) == {(await load_store_status(url)).store_id}


async def test_a_transaction_that_was_abandoned_left_nothing(store: SqlStore) -> None:
    fence = await open_run(store)

    async def die_between() -> None:
        async with store.database.write() as connection:
            await connection.execute(tasks.delete())
            await connection.exec_driver_sql("UPDATE runs SET version = 7, fence = 7")
            raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await die_between()
    await store.commit_message(fence, 0, make_question(1))
    assert (await store.load_transcript(fence.run_id, SYSTEM_SCOPE)).version == 1


@pytest.mark.timeout(25)  # Under the busy time-out: a lock that stayed behind would be waited for until then.
async def test_a_cancelled_commit_is_whole_or_absent_and_holds_nobody_up(store: SqlStore) -> None:
    fence, version = await open_run(store), 0
    for patience in range(40):
        commit = asyncio.create_task(
            store.commit_reply(fence, version, make_reply(patience), make_charge(f"turn-{patience}", cost=1))
        )
        for _ in range(patience):
            await asyncio.sleep(0.0001)
        commit.cancel()
        await asyncio.wait([commit])
        version = (await store.load_transcript(fence.run_id, SYSTEM_SCOPE)).version
        assert (await store.get_run_usage(fence.run_id)).turns == version
        await store.record_and_count_intents(fence, make_intent("probe"))
    assert version > 0


async def test_many_coroutines_of_one_process_write_side_by_side(store: SqlStore) -> None:
    fences = [await open_run(store, f"step-{n}") for n in range(32)]
    await asyncio.gather(*(store.commit_reply(fence, 0, make_reply(1), make_charge("turn-1")) for fence in fences))
    assert {(await store.get_run_usage(fence.run_id)).turns for fence in fences} == {1}


@pytest.fixture(params=["sqlite", "postgresql"])
def damaged_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.getfixturevalue("postgres_url")) if request.param == "postgresql" else sqlite_url(tmp_path)


@pytest.fixture
async def damaged(damaged_url: str) -> AsyncIterator[SqlStore]:
    """A store that the test may damage."""
    opened = await SqlStore.open(damaged_url, store_clock)
    yield opened
    await opened.aclose()


async def test_a_database_of_a_newer_version_is_refused_and_left_alone(damaged: SqlStore, damaged_url: str) -> None:
    await set_revision(damaged, "0999")
    newer = (
        f"the database has schema 0999, but this version of Waystation only knows schemas up to {REVISION}: "
        "update Waystation, or choose another database"
    )
    for attempt in (SqlStore.open(damaged_url, store_clock), migrate(damaged_url, store_clock)):
        with pytest.raises(StoreError) as refusal:
            await attempt
        assert str(refusal.value) == newer
    status = await load_store_status(damaged_url)
    assert (status.schema_here, status.ready, status.finding) == ("0999", False, newer)


async def test_a_database_of_another_program_is_refused_and_left_alone(damaged: SqlStore, damaged_url: str) -> None:
    await set_revision(damaged, "ae1027a6acf3")
    for attempt in (SqlStore.open(damaged_url, store_clock), migrate(damaged_url, store_clock)):
        with pytest.raises(
            StoreError, match=r"^the database belongs to another program: give Waystation a separate database"
        ):
            await attempt
    status = await load_store_status(damaged_url)
    assert (status.schema_here, status.ready, status.store_id) == ("ae1027a6acf3", False, None)


@pytest.mark.parametrize("revision", ["0001", "0018"])
async def test_a_database_of_an_unreleased_version_is_refused_and_left_alone(
    damaged: SqlStore, damaged_url: str, tmp_path: Path, revision: str
) -> None:
    await set_revision(damaged, revision)
    file = tmp_path / "waystation.db"
    aside = (
        f"To continue with an empty database, rename the old one: `mv {file} {file}.old`"
        if file.exists()
        else "Create a new database for Waystation, and name it"
    )
    for attempt in (SqlStore.open(damaged_url, store_clock), migrate(damaged_url, store_clock)):
        with pytest.raises(
            StoreError, match=rf"^the database has schema {revision}, which an unreleased .*no other version can read"
        ) as no:
            await attempt
        assert aside in str(no.value)
    status = await load_store_status(damaged_url)
    assert (status.schema_here, status.ready, status.finding) == (revision, False, str(no.value))


async def test_an_unreleased_home_folder_is_set_aside_as_a_whole(tmp_path: Path) -> None:
    """Its Temporal and its memory name tasks that another store does not have."""
    home = tmp_path / "my home"
    home.mkdir()
    opened = await SqlStore.open(f"sqlite+aiosqlite:///{home}/waystation.db", store_clock)
    await set_revision(opened, "0018")
    await opened.aclose()
    (home / "key").touch()
    finding = (await load_store_status(f"sqlite+aiosqlite:///{home}/waystation.db")).finding
    assert f"`mv '{home}' '{home}.old'`" in finding
    (tmp_path / "my home.old").mkdir()
    finding = (await load_store_status(f"sqlite+aiosqlite:///{home}/waystation.db")).finding
    assert f"`mv '{home}' '{home}.old-2'`" in finding, "an earlier one that was set aside is not overwritten"


async def test_an_old_schema_without_our_tables_is_refused_as_old(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/waystation.db"
    opened = await SqlStore.open(url, store_clock)
    await set_revision(opened, "0018")
    async with opened.database.write() as connection:
        await connection.execute(text("DROP TABLE identity"))
    await opened.aclose()
    with pytest.raises(StoreError, match=r"^the database has schema 0018, which an unreleased .*the old one: `mv "):
        await SqlStore.open(url, store_clock)


async def set_revision(store: SqlStore, revision: str) -> None:
    async with store.database.write() as connection:
        await connection.execute(text(f"UPDATE alembic_version SET version_num = '{revision}'"))


async def test_the_migrations_make_exactly_the_tables_of_the_schema(store: SqlStore) -> None:
    def differences(connection: Connection) -> object:
        return compare_metadata(MigrationContext.configure(connection), metadata)

    async with store.database.read() as connection:
        assert await connection.run_sync(differences) == []


async def test_an_error_of_the_database_prints_no_text_of_the_conversation(damaged: SqlStore) -> None:
    async with damaged.database.write() as connection:
        await connection.execute(text("DROP TABLE documents"))
    with pytest.raises(StoreError, match=r"no such table: documents|a table of the database is missing") as failure:
        await damaged.register_task(
            make_task_row(make_task_request(question="whispered")), [SourceDocument(name="secret.md", text="murmured")]
        )
    said = f"{failure.value!r} {failure.value.__cause__!r}"
    assert not [word for word in ("whispered", "secret.md", "murmured", "INSERT") if word in said]
    assert await damaged.list_tasks(SYSTEM_SCOPE) == ()


async def test_titles_and_names_may_hold_what_postgresql_refuses(store: SqlStore) -> None:
    task = make_task_row(make_task_request("a\x00b")).replace(title="Sky\x00")
    assert await store.register_task(task, [SourceDocument(name="a\x00.md", text="x\x00y")])
    assert not await store.register_task(task, [SourceDocument(name="a\x00.md", text="x\x00y")])
    (document,) = await store.list_documents(task.ref.task_id, SYSTEM_SCOPE)
    assert (document.name, await store.get_text(document.blob, SYSTEM_SCOPE)) == ("a\ufffd.md", "x\x00y")
    assert (await store.get_task(task.ref.task_id, SYSTEM_SCOPE)).title == "Sky\ufffd"


async def test_the_first_key_that_is_claimed_is_the_key_of_the_store(store: SqlStore) -> None:
    claims = await asyncio.gather(*(store.claim_key(check) for check in ("one", "two", "three")))
    assert claims.count(True) == 1
    first = ("one", "two", "three")[claims.index(True)]
    assert await store.claim_key(first)
    assert not await store.claim_key("four")
