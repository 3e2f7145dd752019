"""Content is read by whose it is: a hash, an id or the beginning of one opens nothing of another tenant or session."""

import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from tests.memory.test_remembered_documents import (
    SHOWN,
    make_document_passage,
    register_task_with_document,
    store_document_passage,
)
from tests.store.test_store_encryption import READING, SEALING
from tests.support.store_fixtures import store_clock
from tests.support.store_values import (
    NOON,
    make_task_request,
    make_task_row,
)
from tests.support.stored_task import AGENT, make_passage_ids, make_text_key, store_whole_task
from waystation.documents.text_repository import content_hash
from waystation.erasure.erasure import ErasureQuery, ForgetOrder
from waystation.kernel.errors import StoreError, TextNotFoundError, UnknownTask, WrongKey
from waystation.kernel.refs import RunRef
from waystation.kernel.scopes import ReadScope, SessionScope, SystemScope, TaskScope, TenantScope
from waystation.memory.passage_builder import make_results_run_id
from waystation.privacy.policy import RedactedTextKey
from waystation.runtime.reencryption import reencrypt_database
from waystation.runtime.sql_store import SqlStore
from waystation.store.engine import Database
from waystation.tasks.progress import DayRange
from waystation.tasks.task import RejectedMessage, TaskRow
from waystation.tasks.traces import TraceCursor

WHOSE = (("harbour", "spring"), ("harbour", "autumn"), ("lighthouse", "spring"))
"""Tenants and sessions of the tasks that are there."""
UNKNOWN = "task-ffffffffffffffff"
Read = Callable[[SqlStore, TaskRow, ReadScope], Awaitable[object]]


def secret(kept: TaskRow) -> str:
    return f"The secret of {kept.request.tenant} in {kept.request.session}"


async def kept_task(store: SqlStore, tenant: str, session: str) -> TaskRow:
    """A task with something in every place from which content is read."""
    kept = make_task_row(make_task_request("r", tenant=tenant, session=session))
    return (await store_whole_task(store, kept, secret(kept))).row


def shown_key(kept: TaskRow) -> RedactedTextKey:
    return make_text_key(kept.ref.tenant, secret(kept))


def passage_id(kept: TaskRow) -> str:
    return make_passage_ids(kept.ref.task_id)[0]


def run_id(kept: TaskRow) -> str:
    return f"{kept.ref.task_id}/{AGENT}"


async def text_of(store: SqlStore, kept: TaskRow, reader: ReadScope) -> object:
    try:
        return await store.get_text(content_hash(secret(kept)), reader)
    except TextNotFoundError:
        return None


async def shown_of(store: SqlStore, kept: TaskRow, reader: ReadScope) -> object:
    return await store.get_redacted_text(shown_key(kept), reader)


async def row_of(store: SqlStore, kept: TaskRow, reader: ReadScope) -> object:
    try:
        return await store.get_task(kept.ref.task_id, reader)
    except UnknownTask:
        return None


def listed(rows: Sequence[TaskRow], kept: TaskRow) -> object:
    return [one for one in rows if one.ref == kept.ref]


async def listed_for(store: SqlStore, kept: TaskRow, reader: ReadScope) -> object:
    return listed(await store.list_tasks(reader), kept)


async def messages_of(store: SqlStore, kept: TaskRow, reader: ReadScope) -> object:
    log = await store.load_transcript(run_id(kept), reader)
    return (*log.messages, *log.records) if log.version or log.messages else ()


async def happened_to(store: SqlStore, kept: TaskRow, reader: ReadScope) -> object:
    """By the task's id, and among all events; upkeep has no use for them, so the port takes readers of a tenant."""
    asking = kept.ref.scope if isinstance(reader, SystemScope) else reader
    of_task = (await store.list_events(asking, 0, 100, kept.ref.task_id)).events
    assert of_task == tuple(
        one for one in (await store.list_events(asking, 0, 100)).events if one.task_id == kept.ref.task_id
    )
    return of_task


async def lines_of(store: SqlStore, kept: TaskRow, reader: ReadScope) -> object:
    return (await store.list_task_charges(kept.ref.task_id, reader)).cost_breakdown.lines


async def spent_on(store: SqlStore, kept: TaskRow, reader: ReadScope) -> object:
    found = await store.get_spending(DayRange(since=NOON.date(), until=NOON.date()), reader)
    assert found.total.calls == sum(line.calls for line in found.lines)
    assert {line.task_id for line in found.lines} == found.titles.keys()
    return [line for line in found.lines if line.task_id == kept.ref.task_id]


async def session_of(store: SqlStore, kept: TaskRow, reader: ReadScope) -> object:
    return [one for one in await store.list_sessions(reader, 0, 100) if one.id == kept.ref.session]


SPECIAL_READS: dict[str, Read] = {
    "get_text": text_of,
    "get_redacted_text": shown_of,
    "get_task": row_of,
    "list_tasks": listed_for,
    "find_task_ids": lambda store, kept, reader: store.find_task_ids(kept.ref.task_id[:12], reader),
    "load_transcript": messages_of,
    "get_leg_outcome": lambda store, kept, reader: store.get_leg_outcome(run_id(kept), 1, reader),
    "list_task_charges": lines_of,
    "get_spending": spent_on,
    "list_sessions": session_of,
    "list_events": happened_to,
    "find_passages": lambda store, kept, reader: store.find_passages(passage_id(kept)[:8], reader),
    "get_passages": lambda store, kept, reader: store.get_passages([passage_id(kept)], reader),
}
EMPTY_HERE = {"list_document_updates"}
"""What these tasks have nothing of."""
WITHOUT_READER = {
    "get_store_id": "the store's own id",
    "get_key_check": "a check of the key",
    "get_run_usage": "amounts of one run, for its own accounting",
    "load_outbox_batch": "the outbox, on its way to memory, where each query says its tenant",
    "count_pending_passages": "a number",
    "list_rejected_passage_ids": "ids that are shown to whoever was shown the task",
    "list_passage_ids_to_delete": "ids of the outbox",
    "list_passage_ids": "ids of the outbox",
    "list_deleted_passage_ids": "ids of the outbox",
    "find_report_link": "for people without a tenant: the caller checks the secret in the link's address",
    "get_newest_event_number": "a number, of the tenant that asks",
    "get_oldest_pending_time": "a moment",
    "list_unsent_tenant_traces": "places of every tenant, for the process that sends their spans",
    "load_task_trace_data": "names its tenant by the place, for the same process",
    "get_usage_by_agent": "amounts, which are added to a task that was shown",
}
"""Reads that name nobody, and why they need not."""
COUNTED = {"count_stored_passages"}
"""Numbers of what the reader owns."""
OF_A_TENANT = {"find_erasure_matches", "list_matching_lines"}
"""Looks for one person in all that a tenant has."""


OF_A_REFERENCE = {"load_run", "load_work", "load_task_news", "get_session_name"}
"""Reads by a reference, whose own scope is the reader."""


def list_public_reads() -> set[str]:
    """Names of the store's methods that read in a transaction, and of three that call such methods."""
    source = {name: inspect.getsource(method) for name, method in inspect.getmembers(SqlStore, inspect.isfunction)}
    marked = {name for name, code in source.items() if re.match(r"\s*@read_transaction\b", code)}
    return {name for name in marked if not name.startswith("_")} | {
        "get_newest_plan",
        "get_session_name",
        "get_store_id",
    }


def make_plain_read(name: str) -> Read | None:
    """A read by a task's or an agent run's ID, whoever wrote it; None if it needs more."""
    parameters = inspect.signature(getattr(SqlStore, name)).parameters.values()
    required = {one.name for one in parameters if one.default is one.empty} - {"self", "connection", "reader"}

    def read(store: SqlStore, kept: TaskRow, reader: ReadScope) -> Awaitable[object]:
        ids = {"task_id": kept.ref.task_id, "run_id": run_id(kept)}
        return getattr(store, name)(**{one: ids[one] for one in required}, reader=reader)

    return read if required in ({"task_id"}, {"run_id"}) else None


NOT_READ = SPECIAL_READS.keys() | WITHOUT_READER.keys() | OF_A_TENANT | COUNTED | OF_A_REFERENCE
READS = SPECIAL_READS | {
    name: plain for name in sorted(list_public_reads() - NOT_READ) if (plain := make_plain_read(name)) is not None
}
"""Every read by a reader. One by an ID alone needs no row of its own."""


def covers(reader: ReadScope, kept: TaskRow) -> bool:
    own = kept.ref.scope.model_dump()
    return isinstance(reader, SystemScope) or reader.model_dump().items() <= own.items()


def covers_session(scope: SessionScope, kept: TaskRow) -> bool:
    return (scope.tenant, scope.session) == (kept.ref.tenant, kept.ref.session)


def readers(tasks: Sequence[TaskRow]) -> list[ReadScope]:
    """All honest ones, and every mixture of one's tenant, another's session and a third's task."""
    own = [one.ref.scope for one in tasks]
    mixed = [TaskScope(tenant=a.tenant, session=b.session, task_id=c.task_id) for a in own for b in own for c in own]
    sessions = [SessionScope(tenant=a.tenant, session=b.session) for a in own for b in own]
    return [*mixed, *sessions, *(TenantScope(tenant=one.tenant) for one in own), TenantScope(tenant=""), SystemScope()]


async def test_every_read_gives_what_the_reader_owns_and_nothing_else(store: SqlStore) -> None:
    tasks = [await kept_task(store, *whose) for whose in WHOSE]
    for name, read in READS.items():
        for kept in tasks:
            for reader in readers(tasks):
                found = await read(store, kept, reader)
                assert bool(found) == (covers(reader, kept) and name not in EMPTY_HERE), (name, kept.ref, reader)


async def test_reads_by_a_reference_give_what_its_scope_owns(store: SqlStore) -> None:
    """A reference that names another's task with one's own tenant or session reads nothing of it."""
    tasks = [await kept_task(store, *whose) for whose in WHOSE]
    scopes = [one for one in readers(tasks) if isinstance(one, TaskScope)]
    for kept in tasks:
        for scope in (one for one in scopes if one.task_id == kept.ref.task_id):
            run = RunRef(store_id=kept.ref.store_id, **scope.model_dump(), step_id=AGENT, role="research")
            (deliverable, notes), news = await store.load_work(run.run_id, scope), await store.load_task_news(scope)
            if covers(scope, kept):
                loaded = await store.load_run(run)
                assert loaded.task.ref == kept.ref
                assert min(len(loaded.transcript.messages), len(loaded.documents)) > 0
            else:
                with pytest.raises(UnknownTask):
                    await store.load_run(run)
            found = (deliverable, notes, news.messages)
            assert [bool(one) for one in found] == [covers(scope, kept)] * len(found), (kept.ref, scope)
            name = await store.get_session_name(SessionScope(tenant=scope.tenant, session=scope.session))
            assert name == next((one.request.session for one in tasks if covers_session(scope, one)), None), scope


async def test_passages_in_memory_are_counted_for_who_owns_them(store: SqlStore) -> None:
    tasks = [await kept_task(store, *whose) for whose in WHOSE]
    for reader in readers(tasks):
        assert await store.count_stored_passages(reader) == 2 * sum(covers(reader, kept) for kept in tasks), reader


async def test_what_is_foreign_is_answered_as_what_is_unknown(store: SqlStore) -> None:
    tasks = [await kept_task(store, *whose) for whose in WHOSE]
    missing = tasks[0].replace(ref=tasks[0].ref.replace(task_id=UNKNOWN))
    foreign = TenantScope(tenant=tasks[2].ref.tenant)
    for name, read in READS.items():
        if name != "get_text":
            assert await read(store, tasks[0], foreign) == await read(store, missing, foreign), name


def test_every_read_of_the_store_names_who_asks() -> None:
    """A read without an owner must be argued for above, by name."""
    assert list_public_reads() == READS.keys() | WITHOUT_READER.keys() | OF_A_TENANT | COUNTED | OF_A_REFERENCE
    for name in READS.keys() | COUNTED:
        assert "reader" in inspect.signature(getattr(SqlStore, name)).parameters, name
    for name in OF_A_TENANT:
        assert "tenant" in inspect.signature(getattr(SqlStore, name)).parameters, name


async def test_a_trace_is_made_of_tasks_of_the_tenant_that_its_place_names(store: SqlStore) -> None:
    kept = await kept_task(store, *WHOSE[0])
    for tenant in {one for one, *_ in WHOSE}:
        place = TraceCursor(tenant=tenant, since=0, sent=0, upto=1_000, tasks=(kept.ref.task_id,))
        found = await store.load_task_trace_data(place, kept.ref.task_id)
        assert (found is not None) == (tenant == kept.ref.tenant)


async def test_a_hash_in_a_text_makes_nobody_its_owner(store: SqlStore) -> None:
    """An attacker has the hash of a foreign report and mentions it: nothing is read, counted or kept by that."""
    victim, thief = [await kept_task(store, *whose) for whose in (WHOSE[2], WHOSE[0])]
    blob = (await store.list_documents(victim.ref.task_id, victim.ref.scope))[0].blob
    await store.add_audit_entry(thief.ref.task_id, RejectedMessage(signal="send_message", reason=blob, at=NOON))
    await store.put_text(f'{{"report": "{blob}"}}', thief.ref.scope)
    with pytest.raises(TextNotFoundError):
        await store.get_text(blob, TenantScope(tenant=thief.ref.tenant))
    assert await store.find_erasure_matches(thief.ref.tenant, ErasureQuery(value="lighthouse")) == ()
    assert await store.list_matching_lines(thief.ref.tenant, ErasureQuery(value="lighthouse")) == ()
    order = ForgetOrder(
        store_id=victim.ref.store_id, tenant=victim.ref.tenant, task_ids=(victim.ref.task_id,), everything=True
    )
    await store.forget_tasks(order)
    with pytest.raises(TextNotFoundError):
        await store.get_text(blob, SystemScope())


GIVEN = {
    "tasks": "UPDATE tasks SET tenant = :tenant, session = :session, request_id = 'taken' WHERE task_id = :victim",
    "runs": "UPDATE runs SET tenant = :tenant, session = :session WHERE task_id = :victim",
    "text_owners": "UPDATE text_owners SET tenant = :tenant, session = :session WHERE task_id = :victim",
    "runs of the thief's task": "UPDATE runs SET tenant = :tenant, session = :session, task_id = :thief "
    "WHERE task_id = :victim",
    "texts of the thief's task": "INSERT INTO text_owners (blob, task_id, tenant, session) "
    "SELECT blob, :thief, :tenant, :session FROM text_owners WHERE task_id = :victim",
    "texts of the thief's task, with a proof": "INSERT INTO text_owners (blob, task_id, tenant, session, proof) "
    "SELECT blob, :thief, :tenant, :session, proof FROM text_owners WHERE task_id = :victim",
    "passages of the thief's run": "UPDATE passages SET task_id = CAST(:thief AS VARCHAR), "
    "run_id = CAST(:thief AS VARCHAR) || '/research-1' WHERE task_id = :victim",
}
"""What somebody writes into the database, without the key, to have what is another's."""
EACH_AND_ALL = [*([one] for one in GIVEN), ["tasks", "runs", "text_owners"]]


async def taken(store: SqlStore, victim: TaskRow, thief: TaskRow) -> list[str]:
    """Reads by which the thief gets what is the victim's."""
    got: list[str] = []
    of_session = SessionScope(tenant=thief.ref.tenant, session=thief.ref.session)
    for name, read in READS.items():
        for reader in (thief.ref.scope, of_session, tenant_of(thief)):
            for of in (victim, thief):
                try:
                    found = await read(store, of, reader)
                except (StoreError, WrongKey) as refused:
                    assert "another program" in str(refused) or "was copied from another place" in str(refused)  # noqa: PT017
                    continue
                if (of is victim and found) or secret(victim) in str(found):
                    got.append(name)
    for look in (store.find_erasure_matches, store.list_matching_lines):
        try:
            got.extend(str(one) for one in await look(thief.ref.tenant, ErasureQuery(value=victim.request.tenant)))
        except (StoreError, WrongKey):
            continue
    return got


def tenant_of(kept: TaskRow) -> TenantScope:
    return TenantScope(tenant=kept.ref.tenant)


@pytest.mark.parametrize("forged", EACH_AND_ALL, ids=" and ".join)
async def test_nobody_without_the_key_gives_away_what_is_anothers(store_url: str, forged: Sequence[str]) -> None:
    async with aclosing(await SqlStore.open(store_url, store_clock, at_rest=SEALING)) as store:
        victim, thief = [await kept_task(store, *whose) for whose in (WHOSE[2], WHOSE[0])]
        whose = {**thief.ref.model_dump(include={"tenant", "session"}), "thief": thief.ref.task_id}
        async with store.database.write() as connection:
            for one in forged:
                await connection.execute(text(GIVEN[one]), whose | {"victim": victim.ref.task_id})
        assert await taken(store, victim, thief) == []


async def test_what_memory_takes_of_documents_and_results_is_proven_too(store_url: str) -> None:
    async with aclosing(await SqlStore.open(store_url, store_clock, at_rest=SEALING)) as store:
        ref = await register_task_with_document(store, "first")
        of_document = await store_document_passage(store, ref)
        of_result = of_document.replace(
            id="00000000-0000-4000-8000-000000000000", run_id=make_results_run_id(ref.task_id)
        )
        await store.commit_result_passages(ref, [of_result])
        assert await store.list_task_passages(ref.task_id, ref.scope) == (of_document, of_result)
        second = await register_task_with_document(store, "second")
        assert await store.begin_document_indexing(second, SHOWN)
        assert await store.commit_document_passages(second, [await make_document_passage(store, second)])
        await store.forget_tasks(
            ForgetOrder(store_id=ref.store_id, tenant=ref.tenant, task_ids=(ref.task_id,), everything=True)
        )
        handed_on = await store.list_task_passages(second.task_id, second.scope)
        assert {one.text for one in handed_on} == {of_document.text}


async def test_owners_of_before_have_no_proof_until_the_store_is_resealed(store_url: str) -> None:
    async with aclosing(await SqlStore.open(store_url, store_clock, at_rest=READING)) as store:
        kept, other = [await kept_task(store, *whose) for whose in (WHOSE[2], WHOSE[0])]
    async with aclosing(await SqlStore.open(store_url, store_clock, at_rest=SEALING)) as store:
        assert await store.get_text(content_hash(secret(kept)), kept.ref.scope) == secret(kept)
        assert (await store.load_transcript(run_id(kept), kept.ref.scope)).messages
    async with aclosing(Database(store_url, at_rest=SEALING)) as database:
        await reencrypt_database(database, store_clock, seals=True)
    async with aclosing(await SqlStore.open(store_url, store_clock, at_rest=SEALING)) as store:
        for name, read in READS.items():
            assert bool(await read(store, kept, kept.ref.scope)) == (name not in EMPTY_HERE), name
        assert await taken(store, kept, other) == []
        async with store.database.write() as connection:
            await connection.exec_driver_sql("UPDATE text_owners SET proof = ''")
        with pytest.raises(StoreError, match=r"text_owners\.proof"):
            await store.get_text(content_hash(secret(kept)), kept.ref.scope)
    async with aclosing(Database(store_url, at_rest=READING)) as database:
        await reencrypt_database(database, store_clock, seals=False)
        async with database.read() as connection:
            assert set((await connection.exec_driver_sql("SELECT proof FROM runs")).scalars()) == {""}


TEXTS = ("one", "two", "three")
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 2), st.sampled_from(TEXTS)),
        st.tuples(st.just("forget"), st.integers(0, 2), st.just("")),
    ),
    max_size=12,
)


@settings(max_examples=15, deadline=None)
@given(steps)
async def test_whatever_is_put_and_forgotten_is_read_by_its_owners_alone(done: list[tuple[str, int, str]]) -> None:
    with TemporaryDirectory() as folder:
        url = f"sqlite+aiosqlite:///{Path(folder)}/w.db"
        async with aclosing(await SqlStore.open(url, store_clock)) as store:
            tasks = [await kept_task(store, *whose) for whose in WHOSE]
            owned = {task.ref.task_id: set[str]() for task in tasks}
            for what, number, said in done:
                ref = tasks[number].ref
                if what == "put":
                    await store.put_text(said, ref.scope)
                    owned[ref.task_id].add(said)
                else:
                    ids = (ref.task_id,)
                    await store.forget_tasks(
                        ForgetOrder(store_id=ref.store_id, tenant=ref.tenant, task_ids=ids, everything=True)
                    )
                    owned[ref.task_id].clear()
            for reader in readers(tasks):
                for one in TEXTS:
                    has = any(covers(reader, task) and one in owned[task.ref.task_id] for task in tasks)
                    try:
                        assert await store.get_text(content_hash(one), reader) == one
                        assert has, (reader, one)
                    except TextNotFoundError:
                        assert not has, (reader, one)
