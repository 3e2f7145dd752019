"""The description of what tasks keep: it has every table of the schema, and what it says is what happens."""

from collections.abc import Iterator
from inspect import isclass
from typing import get_args

from sqlalchemy import ColumnElement, func, select, true

from tests.support.store_values import make_task_request, make_task_row
from tests.support.stored_task import AGENT, CALL, MESSAGES, StoredTask, store_whole_task
from waystation.agents.transcript_rewind import TranscriptRewind
from waystation.context.transcript import RewindRecord
from waystation.erasure.erasure import ForgetOrder
from waystation.erasure.forget_repository import SEARCHED_COLUMNS
from waystation.kernel.identifiers import get_string_kinds
from waystation.kernel.value import Value
from waystation.runtime.sql_store import SqlStore
from waystation.store.encryption import EncryptedBytes, EncryptedText, RowProofType
from waystation.store.schema import metadata, report_links, sessions, tasks, texts
from waystation.store.stored_tables import StoredTable
from waystation.tasks.task import ReusedWork
from waystation.tasks.task_tables import STORED_TABLES

PERSON = "<PERSON_aaaaaaaaaaaa>"
WORDLESS = {tasks.c.terms: "numbers and settings", sessions.c.state: "amounts and IDs", report_links.c.body: "times"}
"""Encrypted columns in which nobody is named."""
HASHES = {texts.c.content}
"""Contents, which are searched by their hashes."""


async def whole_task(store: SqlStore, request_id: str = "first") -> StoredTask:
    row = make_task_row(make_task_request(request_id, question=f"What does {PERSON} say?"))
    return await store_whole_task(store, row, f"{PERSON} speaks", originals=[PERSON])


def test_every_table_of_runs_and_tasks_is_described() -> None:
    owned = {table.name for table in metadata.sorted_tables if not {"run_id", "task_id"}.isdisjoint(table.c.keys())}
    described = [stored.table.name for stored in STORED_TABLES]
    assert sorted(described) == sorted(owned), (
        "a table with data of agent runs has a row in waystation/agents/run_tables.py, "
        "one of tasks in waystation/tasks/task_tables.py"
    )


def test_every_encrypted_column_is_searched_for_people() -> None:
    encrypted = {
        column
        for table in metadata.sorted_tables
        for column in table.columns
        if isinstance(column.type, EncryptedText | EncryptedBytes) and not isinstance(column.type, RowProofType)
    }
    assert {text.column for text in SEARCHED_COLUMNS} | HASHES | WORDLESS.keys() == encrypted
    of_other_tables = [
        text.column for stored in STORED_TABLES for text in stored.texts if text.column.table is not stored.table
    ]
    assert of_other_tables == []


async def count_rows(store: SqlStore, stored: StoredTable, where: ColumnElement[bool] = true()) -> int:  # noqa: B008
    async with store.database.read() as connection:
        counted = select(func.count()).select_from(stored.table).where(where)
        return (await connection.execute(counted)).scalar_one()


async def count_by_table(store: SqlStore, task: StoredTask) -> dict[str, int]:
    return {
        stored.table.name: await count_rows(
            store, stored, stored.owner == (task.run.run_id if stored.is_of_run else task.row.ref.task_id)
        )
        for stored in STORED_TABLES
    }


async def test_the_whole_task_of_the_tests_has_a_row_in_every_table_and_its_words_in_every_column(
    store: SqlStore,
) -> None:
    task = await whole_task(store)
    async with store.database.read() as connection:
        empty = [
            table.name
            for table in metadata.sorted_tables
            if (await connection.execute(select(func.count()).select_from(table))).scalar_one() == 0
        ]
    assert empty == [], "store_whole_task in tests/support/stored_task.py writes one row of each"
    assert 0 not in (await count_by_table(store, task)).values()
    for text in SEARCHED_COLUMNS:
        if text.column.name != "name" and text.place != "passages not in memory (waiting or withdrawn)":
            async with store.database.read() as connection:
                said = (await connection.execute(select(text.column))).scalars().all()
            assert any(PERSON in one for one in said), f"no {text.column} has the words of the test"


async def test_a_rewind_does_with_every_table_what_its_description_says(store: SqlStore) -> None:
    task = await whole_task(store)
    before = await count_by_table(store, task)
    record = RewindRecord(id="rewind-1", message_id=MESSAGES[0])
    rewind = TranscriptRewind(record=record, removed_messages=frozenset(MESSAGES[1:]), removed_calls=frozenset({CALL}))
    await store.commit_rewind(task.fence, task.version, rewind)
    after = await count_by_table(store, task)
    for stored in STORED_TABLES:
        name = stored.table.name
        if stored.rewind == "deleted":
            assert (before[name], after[name]) == (1, 0), name
        elif stored.rewind == "kept":
            assert after[name] >= before[name], name


async def test_a_fork_does_with_every_table_what_its_description_says(store: SqlStore) -> None:
    task = await whole_task(store)
    before = await count_by_table(store, task)
    progress = (await store.get_task(task.row.ref.task_id, task.row.ref.scope)).progress
    assert progress is not None
    state = "the state in which it ended"
    await store.save_task_progress(task.row.ref.task_id, progress.replace(state=state))
    row = make_task_row(make_task_request("second")).replace(ref=task.row.ref.replace(task_id="task-fork"))
    reused = ReusedWork(task_id=task.row.ref.task_id, agents=(AGENT,))
    assert await store.register_fork(row, task.plan, reused, state)
    run = task.run.replace(task_id="task-fork")
    after = await count_by_table(store, task._replace(row=row, run=run))
    for stored in STORED_TABLES:
        name = stored.table.name
        if stored.fork != "separate" and stored.table.name != "events":
            assert after[name] == (before[name] if stored.fork == "copied" else 0), name
        if stored.fork == "copied":
            await assert_own_ids(store, stored, task, run.run_id)


async def assert_own_ids(store: SqlStore, stored: StoredTable, task: StoredTask, run_id: str) -> None:
    """No copy of a row that a tool wrote has an ID of the original."""
    if stored.call_id is None:
        return
    async with store.database.read() as connection:
        copied = await connection.execute(select(stored.table).where(stored.owner == run_id))
        for row in copied.mappings():
            assert row[stored.call_id.name] == f"{run_id}/{CALL}"
            assert [name for name, value in row.items() if task.run.run_id in str(value)] == []


async def test_forgetting_leaves_no_words_and_does_with_every_table_what_its_description_says(store: SqlStore) -> None:
    task = await whole_task(store)
    ref = task.row.ref
    before = await count_by_table(store, task)
    forgotten = await store.forget_tasks(
        ForgetOrder(store_id=ref.store_id, tenant=ref.tenant, task_ids=(ref.task_id,), everything=True)
    )
    after = await count_by_table(store, task)
    for stored in STORED_TABLES:
        name = stored.table.name
        if stored.forget == "deleted":
            assert after[name] == 0, name
        elif stored.forget == "kept":
            assert after[name] >= before[name], name
    counts = forgotten.model_dump()
    for category in ("messages", "work", "documents", "audits"):
        counted = [stored.table.name for stored in STORED_TABLES if stored.counted_as == category]
        assert counts[category] == sum(before[name] for name in counted), category
    async with store.database.read() as connection:
        rows = [(await connection.execute(select(table))).all() for table in metadata.sorted_tables]
    assert [row for of_table in rows for row in of_table if PERSON in str(row)] == []


ID_SUFFIXES = ("_id", "_ids", "hash", "blob", "digest")
ID_NAMES = {"id", "ids", "tenant", "session", "agent", "agents"}


def values_in(annotation: object) -> Iterator[type[Value]]:
    """Every class of values in a type."""
    if isclass(annotation) and issubclass(annotation, Value):
        yield annotation
        for field in annotation.model_fields.values():
            yield from values_in(field.annotation)
    for part in get_args(annotation):
        yield from values_in(part)


def test_ids_in_stored_values_say_that_they_are_ids() -> None:
    """Erased in one place and kept in another, an ID would find nothing any more."""
    known = {kind for text in SEARCHED_COLUMNS for kind in values_in(_parsed_type(text.parse))}
    unmarked = [
        f"{kind.__name__}.{name}"
        for kind in known
        for name, what in get_string_kinds(kind).items()
        if what == "text" and (name in ID_NAMES or name.endswith(ID_SUFFIXES))
    ]
    assert len(known) > 30
    assert unmarked == [], "annotate them as Identifier (waystation/kernel/identifiers.py)"


def _parsed_type(parse: object) -> object:
    """The type that a parser reads: that of its adapter, or its class."""
    owner = getattr(parse, "__self__", None)
    return getattr(owner, "_type", owner)
