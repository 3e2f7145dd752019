"""Texts that are encrypted in the database, on both: what reads them, and that plain rows stay readable."""

from contextlib import aclosing

import pytest

from tests.erasure.test_removal_repository import dump_all_tables
from tests.support.scopes import SYSTEM_SCOPE, TASK_1_SCOPE
from tests.support.store_fixtures import store_clock
from tests.support.store_values import (
    NOON,
    TASK_CONFIG,
    make_note,
    make_passage,
    make_question,
    make_summary,
    make_task_request,
    make_task_row,
    open_run,
)
from waystation.agents.deliverables import ResearchFindings
from waystation.agents.leg import LegState, TurnLimitReached
from waystation.budgets.budget import RunUsage
from waystation.context.transcript import Message, build_user_message
from waystation.documents.documents import SourceDocument
from waystation.erasure.erasure import ForgetOrder
from waystation.kernel.errors import WrongKey
from waystation.planning.plan import Plan, PlanVersion, Step
from waystation.privacy.keys import AesGcmCipher
from waystation.runtime.sql_store import SqlStore, load_store_status
from waystation.store.encryption import EncryptionConfig
from waystation.tasks.session import SessionKey, SessionState
from waystation.tasks.task import RejectedMessage, TaskRow

SEALING = EncryptionConfig(AesGcmCipher(bytes(range(32)), "rest"), seals=True)
READING = EncryptionConfig(SEALING.cipher)
OTHER = EncryptionConfig(AesGcmCipher(bytes(32), "rest"), seals=True)
NO_KEY = EncryptionConfig()
SAID = "What nobody else is to read"
PLAN = Plan(steps=(Step(id="write", role="writing", title="Write", goal=SAID),))
DOCUMENT = f"{SAID}, with a \x00 in it"
MESSAGE: Message = build_user_message("m", f"\x01{SAID}")
TEXTS = 15
"""Values that `write_every_encrypted_column` writes: one a column, and none of how the task ended."""


async def open_encrypted_store(url: str, at_rest: EncryptionConfig) -> SqlStore:
    return await SqlStore.open(url, store_clock, at_rest=at_rest)


async def write_every_encrypted_column(store: SqlStore, request_id: str) -> TaskRow:
    """Write a text into every column that is sealed."""
    kept = make_task_row(make_task_request(request_id, question=SAID))
    task_id = kept.ref.task_id
    await store.register_task(kept, [SourceDocument(name=f"{SAID}.md", text=f"{request_id}: {DOCUMENT}")])
    await store.save_task_title(task_id, SAID)
    await store.save_plan(task_id, PLAN)
    await store.save_plan_version(task_id, PlanVersion(number=2, plan=PLAN, made_by="revision-1", reason=SAID))
    await store.add_audit_entry(task_id, RejectedMessage(signal="approve_budget", reason=SAID, at=NOON))
    fence = await open_run(store, request_id)
    await store.commit_message(fence, 0, MESSAGE)
    told = make_summary().replace(summary=build_user_message("s", SAID))
    remembered = make_passage(f"passage of {request_id}", fence.run_id).replace(text=SAID)
    await store.commit_compaction(fence, 1, told, [remembered], None)
    await store.commit_outcome(fence, 1, TurnLimitReached(standing=LegState(totals=RunUsage())))
    await store.add_note(fence, "task-1", make_note("n", fence.run_id).replace(text=SAID))
    await store.commit_deliverable(fence, "task-1", ResearchFindings(findings=(), open_questions=(SAID,)))
    session = await store.take_over_session(session_key(request_id))
    answered = session.replace(state=SessionState(answered=(request_id,)))
    assert await store.save_session(session_key(request_id), answered)
    return kept


def session_key(request_id: str) -> SessionKey:
    return SessionKey(tenant="tenant", session=request_id)


async def assert_every_column_readable(store: SqlStore, kept: TaskRow, request_id: str) -> None:
    """What was written is read again, to the letter."""
    task_id, run_id = kept.ref.task_id, f"task-1/{request_id}"
    found = await store.get_task(task_id, SYSTEM_SCOPE)
    assert (found.request, found.terms, found.title) == (kept.request, TASK_CONFIG, SAID)
    assert await store.get_newest_plan(task_id, SYSTEM_SCOPE) == PLAN
    assert [version.reason for version in await store.list_plan_versions(task_id, SYSTEM_SCOPE)] == ["", SAID]
    (document,) = await store.list_documents(task_id, SYSTEM_SCOPE)
    assert (document.name, await store.get_text(document.blob, SYSTEM_SCOPE)) == (
        f"{SAID}.md",
        f"{request_id}: {DOCUMENT}",
    )
    assert [
        entry.reason
        for entry in await store.list_audit_entries(task_id, SYSTEM_SCOPE)
        if isinstance(entry, RejectedMessage)
    ] == [SAID]
    assert (await store.load_transcript(run_id, SYSTEM_SCOPE)).messages == (MESSAGE,)
    assert [
        record.model_dump()["summary"]["id"] for record in (await store.load_transcript(run_id, SYSTEM_SCOPE)).records
    ] == ["s"]
    assert SAID in {waiting.text for waiting in await store.list_pending_passages(10, run_id)}
    assert [one.text for one in await store.list_notes("task-1", SYSTEM_SCOPE, run_id)] == [SAID]
    assert await store.get_deliverable(run_id, SYSTEM_SCOPE) == ResearchFindings(findings=(), open_questions=(SAID,))
    assert await store.get_leg_outcome(run_id, 1, SYSTEM_SCOPE) is not None
    assert (await store.take_over_session(session_key(request_id))).state.answered == (request_id,)


async def test_every_text_is_read_again_and_none_lies_in_the_database(store_url: str) -> None:
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        kept = await write_every_encrypted_column(store, "first")
        assert SAID not in await dump_all_tables(store)
        await assert_every_column_readable(store, kept, "first")
    status = await load_store_status(store_url)
    assert (status.encrypted, status.plain) == (TEXTS, 0)


async def test_plain_rows_and_encrypted_ones_live_side_by_side(store_url: str) -> None:
    async with aclosing(await open_encrypted_store(store_url, READING)) as store:
        before = await write_every_encrypted_column(store, "before")
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        after = await write_every_encrypted_column(store, "after")
    status = await load_store_status(store_url)
    assert (status.encrypted, status.plain) == (TEXTS, TEXTS)
    for at_rest in (SEALING, READING):
        async with aclosing(await open_encrypted_store(store_url, at_rest)) as store:
            await assert_every_column_readable(store, before, "before")
            await assert_every_column_readable(store, after, "after")


@pytest.mark.parametrize(
    ("at_rest", "reason"),
    [(NO_KEY, "the key is not here"), (OTHER, "it was encrypted with another key")],
    ids=["no key", "another key"],
)
async def test_without_its_key_an_encrypted_text_is_refused_and_a_plain_one_is_read(
    store_url: str, at_rest: EncryptionConfig, reason: str
) -> None:
    async with aclosing(await open_encrypted_store(store_url, READING)) as store:
        plain = await store.put_text("plain", TASK_1_SCOPE)
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        sealed = await store.put_text(SAID, TASK_1_SCOPE)
    async with aclosing(await open_encrypted_store(store_url, at_rest)) as store:
        assert await store.get_text(plain, SYSTEM_SCOPE) == "plain"
        with pytest.raises(WrongKey, match=reason) as no:
            await store.get_text(sealed, SYSTEM_SCOPE)
    assert "set WAYSTATION_KEY" in str(no.value)


async def test_a_text_that_was_moved_to_another_column_does_not_open(store_url: str) -> None:
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        kept = await write_every_encrypted_column(store, "first")
        async with store.database.write() as connection:
            await connection.exec_driver_sql("UPDATE tasks SET title = plan")
        with pytest.raises(WrongKey, match="belongs elsewhere"):
            await store.get_task(kept.ref.task_id, SYSTEM_SCOPE)


async def test_encrypted_tasks_are_forgotten_too(store_url: str) -> None:
    async with aclosing(await open_encrypted_store(store_url, SEALING)) as store:
        ref = (await write_every_encrypted_column(store, "first")).ref
        store_id = await store.get_store_id()
        order = ForgetOrder(store_id=store_id, tenant=ref.tenant, task_ids=(ref.task_id,), everything=True)
        forgotten = await store.forget_tasks(order)
        assert (forgotten.tasks, forgotten.documents, forgotten.texts, forgotten.audits) == (1, 1, 1, 1)
        assert (await store.get_task(ref.task_id, SYSTEM_SCOPE)).title == "(forgotten)"


async def test_the_first_message_of_a_transcript_may_begin_like_something_encrypted(store_url: str) -> None:
    async with aclosing(await open_encrypted_store(store_url, NO_KEY)) as store:
        kept = make_task_row(make_task_request("first"))
        await store.register_task(kept, [])
        await store.save_task_title(kept.ref.task_id, "\x01 title\x00")
        assert (await store.get_task(kept.ref.task_id, SYSTEM_SCOPE)).title == "\ufffd title\ufffd"
        fence = await open_run(store)
        await store.commit_message(fence, 0, make_question(1))
        assert len((await store.load_transcript(fence.run_id, SYSTEM_SCOPE)).messages) == 1
