"""PostgreSQL: what teams' URLs say, who upgrades it, and what its failures become."""

import asyncio
from collections.abc import Callable

import pytest
from sqlalchemy import select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tests.support.postgres_server import PASSWORD, PostgresServer
from tests.support.scopes import SYSTEM_SCOPE
from tests.support.store_fixtures import store_clock
from tests.support.store_values import make_passage, make_question, make_summary, open_run
from waystation.config.settings import Settings
from waystation.kernel.errors import BadInput, StoreError, StoreUnavailable
from waystation.runtime.sql_store import SqlStore, load_store_status, migrate
from waystation.store.engine import (
    Database,
    SqlRepository,
    read_transaction,
    translate_database_errors,
    write_transaction,
)
from waystation.store.schema import REVISION, runs


def sqlalchemy_url(url: str) -> str:
    return Settings(store_url=url).database_url


async def opened(url: str) -> SqlStore:
    return await SqlStore.open(sqlalchemy_url(url), store_clock)


def shown(failure: pytest.ExceptionInfo[Exception]) -> str:
    return f"{failure.value} {failure.value!r} {failure.value.__cause__!r}"


def name_of(url: str) -> str:
    return url.rpartition("/")[2]


def disconnect(postgres: PostgresServer, url: str) -> None:
    postgres.run(f"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{name_of(url)}'")


@pytest.mark.parametrize(
    ("scheme", "parameters"),
    [
        ("postgres", ""),
        ("postgresql+psycopg2", ""),
        ("postgresql", "?sslmode=prefer&connect_timeout=5&application_name=agents"),
        ("postgresql", "?pgbouncer=true"),
    ],
)
async def test_the_urls_that_teams_have_open_the_store(
    postgres: PostgresServer, migrated_database: str, scheme: str, parameters: str
) -> None:
    place = postgres.new_database(migrated_database).partition("://")[2]
    store = await opened(f"{scheme}://{place}{parameters}")
    assert (await open_run(store)).number == 1
    await store.aclose()


async def test_a_passage_that_memory_has_is_not_written_again(postgres: PostgresServer, migrated_database: str) -> None:
    url = postgres.new_database(migrated_database)
    store = await opened(url)
    fence = await open_run(store)
    await store.commit_compaction(fence, 0, make_summary(), [make_passage("p-1")], None)

    def find_place() -> str:
        return postgres.run("SELECT ctid FROM passages", name_of(url))

    before = find_place()
    await store.mark_passages_stored(["p-1"])
    assert (await store.count_pending_passages(), await store.list_passage_ids()) == (0, {"p-1"})
    assert find_place() == before
    await store.aclose()


@pytest.mark.parametrize("parameter", ["sslmode=require", "ssl=require"])
async def test_encryption_that_is_asked_for_is_not_given_up(postgres: PostgresServer, parameter: str) -> None:
    with pytest.raises(StoreUnavailable, match="rejected SSL upgrade"):
        await opened(f"{postgres.url('postgres')}?{parameter}")


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({PASSWORD: "h%40sh"}, StoreError, "rejects the user or the password of DATABASE_URL"),
        ({"/postgres?": "/nowhere?"}, StoreError, "no database with the name in DATABASE_URL: create it"),
        ({"?": "?channel_binding=require"}, StoreError, "does not know a parameter of DATABASE_URL: remove it"),
        ({"?": "?sslmode=always"}, BadInput, "`sslmode` parameter must be one of: disable, allow"),
        ({"?": "?sslmode=verify-full&sslrootcert=/nowhere.crt"}, StoreUnavailable, "No such file or directory"),
    ],
)
async def test_a_url_that_the_server_does_not_take_is_refused_with_what_to_do(
    postgres: PostgresServer, change: dict[str, str], error: type[Exception], words: str
) -> None:
    url = postgres.url("postgres") + "?"
    for old, new in change.items():
        url = url.replace(old, new)
    with pytest.raises(error, match=words) as failure:
        await opened(url)
    assert type(failure.value) is error
    assert not [secret for secret in (PASSWORD, "h%40sh", "h@sh") if secret in shown(failure)]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hush@127.0.0.1:hush/db",
        "postgresql://me:hush@hush@127.0.0.1/db",
        "mysql://me:hush@127.0.0.1/db",
        "postgresql+asyncpg//me:hush@127.0.0.1/db",
    ],
)
async def test_a_url_that_cannot_be_used_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(BadInput, match=r"write it as postgresql://user:password@host:5432/database.*sqlite:////") as no:
        await opened(url)
    assert "hush" not in shown(no)


async def test_a_server_that_is_not_there_is_worth_another_try_and_shows_no_password() -> None:
    with pytest.raises(
        StoreUnavailable, match=r"^the database is not available \(Connect call failed .* try again$"
    ) as no:
        await opened("postgresql://me:hush@127.0.0.1:1/db")
    assert "hush" not in shown(no)


async def test_nobody_who_connects_upgrades_a_shared_database(postgres: PostgresServer) -> None:
    url = sqlalchemy_url(postgres.new_database())
    empty = (
        f"the database is empty, but this version of Waystation needs schema {REVISION}: run `waystation store migrate`"
    )
    with pytest.raises(StoreError, match=f"^{empty}$"):
        await SqlStore.open(url, store_clock)
    status = await load_store_status(url)
    assert (status.schema_here, status.store_id, status.ready, status.finding) == ("", None, False, empty)
    assert status.place == f"127.0.0.1:{url.partition('127.0.0.1:')[2]}"
    assert PASSWORD not in str(status)


async def test_several_can_migrate_at_once_and_one_of_them_does(postgres: PostgresServer) -> None:
    url = sqlalchemy_url(postgres.new_database())
    done = await asyncio.gather(*(migrate(url, store_clock) for _ in range(3)))
    assert sorted(each.before for each in done) == ["", REVISION, REVISION]
    assert {each.after for each in done} == {REVISION}
    store = await SqlStore.open(url, store_clock)
    assert {each.store_id for each in done} == {await store.get_store_id()}
    await store.aclose()


async def test_what_stands_in_the_way_of_a_migration_is_said(postgres: PostgresServer) -> None:
    url = postgres.new_database()
    postgres.run("CREATE ROLE reader LOGIN PASSWORD 'reader'")
    with pytest.raises(StoreError, match="grant it the right to create and write tables"):
        await migrate(sqlalchemy_url(url.replace(f"postgres:{PASSWORD}", "reader:reader")), store_clock)
    postgres.run("CREATE TABLE tasks (title text)", name_of(url))
    with pytest.raises(StoreError, match="the database has tables of another program"):
        await migrate(sqlalchemy_url(url), store_clock)


async def test_a_connection_that_was_lost_meanwhile_is_replaced_unseen(
    postgres: PostgresServer, postgres_url: str
) -> None:
    store = await SqlStore.open(postgres_url, store_clock)
    fence = await open_run(store)
    disconnect(postgres, postgres_url)
    await store.commit_message(fence, 0, make_question(1))
    assert (await store.load_transcript(fence.run_id, SYSTEM_SCOPE)).version == 1
    await store.aclose()


async def test_a_connection_that_is_lost_in_a_transaction_is_worth_another_try(
    postgres: PostgresServer, postgres_url: str
) -> None:
    store = await SqlStore.open(postgres_url, store_clock)
    fence = await open_run(store)

    async def write(*statements: str) -> None:
        with translate_database_errors():
            async with store.database.write() as connection:
                await connection.execute(update(runs).values(version=7))
                disconnect(postgres, postgres_url)
                for statement in statements:
                    await connection.execute(text(statement))

    for lost in (write("UPDATE runs SET role = 'writing'"), write()):  # before the commit, and in it
        with pytest.raises(StoreUnavailable, match="the connection was lost"):
            await lost
    assert (await store.load_transcript(fence.run_id, SYSTEM_SCOPE)).version == 0
    await store.aclose()


async def test_a_statement_that_waits_too_long_is_worth_another_try(postgres_url: str) -> None:
    store, hasty = await SqlStore.open(postgres_url, store_clock), Database(postgres_url, answer_timeout_s=0.2)
    fence = await open_run(store)
    async with store.database.write() as connection:
        await connection.execute(update(runs).values(version=0))
        with pytest.raises(StoreUnavailable, match="no answer in time"), translate_database_errors():
            async with hasty.write() as waiting:
                await waiting.execute(update(runs).values(version=9))
    await store.commit_message(fence, 0, make_question(1))
    await hasty.aclose()
    await store.aclose()


async def test_a_value_that_the_driver_refuses_is_not_quoted(postgres_url: str) -> None:
    store = await SqlStore.open(postgres_url, store_clock)
    with pytest.raises(StoreError, match="the database refused a statement") as failure, translate_database_errors():
        async with store.database.write() as connection:
            await connection.execute(update(runs).values(version="whispered"))
    assert "whispered" not in shown(failure)
    assert "UPDATE" not in shown(failure)
    await store.aclose()


@pytest.mark.parametrize(
    ("parameter", "named"),
    [
        ("", True),
        ("?prepared_statements=true&pgbouncer=true", True),
        ("?prepared_statements=false", False),
        ("?pgbouncer=true", False),
    ],
)
async def test_statements_have_names_unless_the_next_connection_of_a_pooler_would_not_know_them(
    postgres_url: str, parameter: str, named: bool
) -> None:
    store = await opened(postgres_url + parameter)
    await open_run(store)
    async with store.database.read() as connection:
        known = await connection.execute(text("SELECT count(*) FROM pg_prepared_statements WHERE name <> ''"))
        assert (known.scalar_one() > 0) is named
    await store.aclose()


async def test_whether_statements_are_prepared_is_said_clearly_or_refused(postgres_url: str) -> None:
    with pytest.raises(BadInput, match="prepared_statements in DATABASE_URL is neither true nor false"):
        await opened(f"{postgres_url}?prepared_statements=maybe")


class CuttingRepository(SqlRepository):
    """Its connection is lost at some moment of its first transaction."""

    attempts = 0

    @write_transaction
    async def add_version(self, connection: AsyncConnection, cut: Callable[[], None]) -> None:
        self.attempts += 1
        await connection.execute(update(runs).values(version=runs.c.version + 1))
        if self.attempts == 1:
            cut()
        await connection.execute(update(runs).values(version=runs.c.version + 1))

    @write_transaction
    async def add_version_and_lose_the_commit(self, connection: AsyncConnection, cut: Callable[[], None]) -> None:
        self.attempts += 1
        await connection.execute(update(runs).values(version=runs.c.version + 1))
        cut()

    @read_transaction
    async def load_version(self, connection: AsyncConnection, cut: Callable[[], None]) -> int:
        self.attempts += 1
        await connection.execute(select(runs.c.version))
        if self.attempts == 1:
            cut()
        return (await connection.execute(select(runs.c.version))).scalar_one()


async def test_what_was_not_committed_when_the_connection_was_lost_is_done_again_on_another(
    postgres: PostgresServer, postgres_url: str
) -> None:
    store = await SqlStore.open(postgres_url, store_clock)
    await open_run(store)

    def cut() -> None:
        disconnect(postgres, postgres_url)

    writing = CuttingRepository(store.database, store_clock, "store")
    await writing.add_version(cut)
    reading = CuttingRepository(store.database, store_clock, "store")
    assert (await reading.load_version(cut), writing.attempts, reading.attempts) == (2, 2, 2)
    await store.aclose()


async def test_a_commit_in_which_the_connection_was_lost_is_not_repeated_since_it_may_have_been_carried_out(
    postgres: PostgresServer, postgres_url: str
) -> None:
    store = await SqlStore.open(postgres_url, store_clock)
    await open_run(store)
    writing = CuttingRepository(store.database, store_clock, "store")
    with pytest.raises(StoreUnavailable):
        await writing.add_version_and_lose_the_commit(lambda: disconnect(postgres, postgres_url))
    assert writing.attempts == 1
    await store.aclose()


async def test_a_connection_that_is_known_to_be_closed_is_not_given_out(
    postgres: PostgresServer, postgres_url: str
) -> None:
    store = await SqlStore.open(postgres_url, store_clock)
    await open_run(store)
    disconnect(postgres, postgres_url)
    await asyncio.sleep(0.2)  # the loop hears of it
    async with store.database.read() as connection:
        assert (await connection.execute(select(runs.c.version))).scalar_one() == 0
    await store.aclose()
