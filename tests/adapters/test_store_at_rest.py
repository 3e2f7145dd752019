"""Texts that are encrypted in the database, on both: what reads them, and that plain rows stay readable."""

from contextlib import aclosing

import pytest

from tests.adapters.conftest import store_clock
from tests.adapters.test_store_forgetting import everything_in
from tests.readers import ANYONE, TASK_1
from tests.store_contract.values import NOON, TERMS, note, opened_run, passage, question, request, row, summary
from waystation.agents.deliverables import ResearchFindings
from waystation.agents.leg import LegState, TurnLimit
from waystation.budgets.budget import RunUsage
from waystation.context.transcript import Message, build_user_message
from waystation.documents.documents import SourceDocument
from waystation.erasure.removal import ForgetOrder
from waystation.kernel.errors import WrongKey
from waystation.planning.plan import Plan, PlanVersion, Step
from waystation.privacy.keys import AesGcmCipher
from waystation.runtime.sql_store import SqlStore, store_status
from waystation.store.seals import EncryptionConfig
from waystation.tasks.session import SessionKey, SessionState
from waystation.tasks.task import Refusal, TaskRow

SEALING = EncryptionConfig(AesGcmCipher(bytes(range(32)), "rest"), seals=True)
READING = EncryptionConfig(SEALING.cipher)
OTHER = EncryptionConfig(AesGcmCipher(bytes(32), "rest"), seals=True)
NO_KEY = EncryptionConfig()
SAID = "What nobody else is to read"
PLAN = Plan(steps=(Step(id="write", role="writing", title="Write", goal=SAID),))
DOCUMENT = f"{SAID}, with a \x00 in it"
MESSAGE: Message = build_user_message("m", f"\x01{SAID}")
TEXTS = 15
"""Values that `everything_said` writes: one a column, and none of how the task ended."""


async def opened(url: str, at_rest: EncryptionConfig) -> SqlStore:
    return await SqlStore.open(url, store_clock, at_rest=at_rest)


async def everything_said(store: SqlStore, request_id: str) -> TaskRow:
    """Write a text into every column that is sealed."""
    kept = row(request(request_id, question=SAID))
    task_id = kept.ref.task_id
    await store.register(kept, [SourceDocument(name=f"{SAID}.md", text=f"{request_id}: {DOCUMENT}")])
    await store.admit(task_id, SAID)
    await store.save_plan(task_id, PLAN)
    await store.save_revision(task_id, PlanVersion(number=2, plan=PLAN, made_by="revision-1", reason=SAID))
    await store.audit(task_id, Refusal(signal="approve_budget", reason=SAID, at=NOON))
    fence = await opened_run(store, request_id)
    await store.commit_message(fence, 0, MESSAGE)
    told = summary().replace(summary=build_user_message("s", SAID))
    remembered = passage(f"passage of {request_id}", fence.run_id).replace(text=SAID)
    await store.commit_compaction(fence, 1, told, [remembered], None)
    await store.commit_outcome(fence, 1, TurnLimit(standing=LegState(totals=RunUsage())))
    await store.add_note(fence, "task-1", note("n", fence.run_id).replace(text=SAID))
    await store.hand_in(fence, "task-1", ResearchFindings(findings=(), open_questions=(SAID,)))
    session = await store.take_over_session(session_key(request_id))
    answered = session.replace(state=SessionState(answered=(request_id,)))
    assert await store.save_session(session_key(request_id), answered)
    return kept


def session_key(request_id: str) -> SessionKey:
    return SessionKey(tenant="tenant", session=request_id)


async def require_everything(store: SqlStore, kept: TaskRow, request_id: str) -> None:
    """What was written is read again, to the letter."""
    task_id, run_id = kept.ref.task_id, f"task-1/{request_id}"
    found = await store.task(task_id, ANYONE)
    assert (found.request, found.terms, found.title) == (kept.request, TERMS, SAID)
    assert await store.plan(task_id, ANYONE) == PLAN
    assert [version.reason for version in await store.plan_versions(task_id, ANYONE)] == ["", SAID]
    (document,) = await store.documents(task_id, ANYONE)
    assert (document.name, await store.get_text(document.blob, ANYONE)) == (f"{SAID}.md", f"{request_id}: {DOCUMENT}")
    assert [
        entry.reason for entry in await store.list_audit_entries(task_id, ANYONE) if isinstance(entry, Refusal)
    ] == [SAID]
    assert (await store.load(run_id, ANYONE)).messages == (MESSAGE,)
    assert [record.model_dump()["summary"]["id"] for record in (await store.load(run_id, ANYONE)).records] == ["s"]
    assert SAID in {waiting.text for waiting in await store.waiting(10, run_id)}
    assert [one.text for one in await store.notes("task-1", ANYONE, run_id)] == [SAID]
    assert await store.get_deliverable(run_id, ANYONE) == ResearchFindings(findings=(), open_questions=(SAID,))
    assert await store.outcome(run_id, 1, ANYONE) is not None
    assert (await store.take_over_session(session_key(request_id))).state.answered == (request_id,)


async def test_every_text_is_read_again_and_none_lies_in_the_database(store_url: str) -> None:
    async with aclosing(await opened(store_url, SEALING)) as store:
        kept = await everything_said(store, "first")
        assert SAID not in await everything_in(store)
        await require_everything(store, kept, "first")
    status = await store_status(store_url)
    assert (status.encrypted, status.plain) == (TEXTS, 0)


async def test_plain_rows_and_encrypted_ones_live_side_by_side(store_url: str) -> None:
    async with aclosing(await opened(store_url, READING)) as store:
        before = await everything_said(store, "before")
    async with aclosing(await opened(store_url, SEALING)) as store:
        after = await everything_said(store, "after")
    status = await store_status(store_url)
    assert (status.encrypted, status.plain) == (TEXTS, TEXTS)
    for at_rest in (SEALING, READING):
        async with aclosing(await opened(store_url, at_rest)) as store:
            await require_everything(store, before, "before")
            await require_everything(store, after, "after")


@pytest.mark.parametrize(
    ("at_rest", "reason"),
    [(NO_KEY, "the key is not here"), (OTHER, "it was encrypted with another key")],
    ids=["no key", "another key"],
)
async def test_without_its_key_an_encrypted_text_is_refused_and_a_plain_one_is_read(
    store_url: str, at_rest: EncryptionConfig, reason: str
) -> None:
    async with aclosing(await opened(store_url, READING)) as store:
        plain = await store.put_text("plain", TASK_1)
    async with aclosing(await opened(store_url, SEALING)) as store:
        sealed = await store.put_text(SAID, TASK_1)
    async with aclosing(await opened(store_url, at_rest)) as store:
        assert await store.get_text(plain, ANYONE) == "plain"
        with pytest.raises(WrongKey, match=reason) as no:
            await store.get_text(sealed, ANYONE)
    assert "set WAYSTATION_KEY" in str(no.value)


async def test_a_text_that_was_moved_to_another_column_does_not_open(store_url: str) -> None:
    async with aclosing(await opened(store_url, SEALING)) as store:
        kept = await everything_said(store, "first")
        async with store.database.write() as connection:
            await connection.exec_driver_sql("UPDATE tasks SET title = plan")
        with pytest.raises(WrongKey, match="belongs elsewhere"):
            await store.task(kept.ref.task_id, ANYONE)


async def test_encrypted_tasks_are_forgotten_too(store_url: str) -> None:
    async with aclosing(await opened(store_url, SEALING)) as store:
        ref = (await everything_said(store, "first")).ref
        store_id = await store.store_id()
        order = ForgetOrder(store_id=store_id, tenant=ref.tenant, task_ids=(ref.task_id,), everything=True)
        forgotten = await store.forget(order)
        assert (forgotten.tasks, forgotten.documents, forgotten.texts, forgotten.audits) == (1, 1, 1, 1)
        assert (await store.task(ref.task_id, ANYONE)).title == "(forgotten)"


async def test_the_first_message_of_a_transcript_may_begin_like_something_encrypted(store_url: str) -> None:
    async with aclosing(await opened(store_url, NO_KEY)) as store:
        kept = row(request("first"))
        await store.register(kept, [])
        await store.admit(kept.ref.task_id, "\x01 title\x00")
        assert (await store.task(kept.ref.task_id, ANYONE)).title == "\ufffd title\ufffd"
        fence = await opened_run(store)
        await store.commit_message(fence, 0, question(1))
        assert len((await store.load(fence.run_id, ANYONE)).messages) == 1
