"""A task of which the store has something in every table, for all tests of what becomes of that.

A new table gets its row here. `tests/store/test_stored_tables.py` says which table has none.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from tests.support.store_values import NOON, make_charge, make_intent, make_passage, make_summary
from waystation.agents.deliverables import Note, ResearchFindings
from waystation.agents.leg import LegState, TurnLimitReached
from waystation.agents.partial_replies import PartialReply
from waystation.budgets.budget import RunUsage
from waystation.context.transcript import Fence, Message, Text, Thinking, ToolResult, ToolUse, build_user_message
from waystation.documents.documents import SourceDocument
from waystation.documents.text_repository import SqlSlowTextStore, content_hash
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.refs import RunRef
from waystation.kernel.scopes import SystemScope
from waystation.models.ports import LimitScope
from waystation.models.rate_limits import LeaseRequest
from waystation.planning.plan import Plan, PlanVersion, Step
from waystation.privacy.keys import AesGcmCipher
from waystation.privacy.policy import RedactedText, RedactedTextKey, RedactionLevel, VaultEntry
from waystation.runtime.sql_store import SqlStore
from waystation.security.untrusted import ToolDefinition
from waystation.tasks.report_links import ReportLink, SharedReport
from waystation.tasks.session import SessionKey, SessionState
from waystation.tasks.task import (
    BudgetProgress,
    RejectedMessage,
    TaskMessage,
    TaskPhase,
    TaskProgress,
    TaskRow,
)

AGENT = "research-1"
CALL = "call-1"
"""The tool call that wrote whatever tools write."""
MESSAGES = ("question-1", "answer-1", "result-1")
NEVER_OVER = datetime(2200, 1, 1, tzinfo=UTC)


class StoredTask(NamedTuple):
    """The task, and how its parts are found."""

    row: TaskRow
    run: RunRef
    fence: Fence
    version: int
    """Of the transcript."""
    passage_ids: tuple[str, str]
    """The first says what the test wants said; memory has both."""
    documents: Sequence[SourceDocument]
    long_text: str
    """Content hash of the result that the first message refers to."""
    plan: Plan
    """As planned first, and as revised."""


def make_text_key(tenant: str, text: str) -> RedactedTextKey:
    return RedactedTextKey(
        blob=content_hash(text), tenant=tenant, level=RedactionLevel.IDENTIFIERS, version="everything"
    )


def make_passage_ids(task_id: str) -> tuple[str, str]:
    begin = task_id.removeprefix("task-")[:8]
    return f"{begin}-0000-4000-8000-000000000001", f"{begin}-0000-4000-8000-000000000002"


async def store_whole_task(
    store: SqlStore,
    row: TaskRow,
    said: str,
    *,
    documents: Sequence[SourceDocument] = (),
    remembered: str = "",
    originals: Sequence[str] = (),
) -> StoredTask:
    """Write a row into every table, and these words wherever there are words.

    Args:
        store: The store. The task becomes one of it.
        row: The task as it was submitted.
        said: What is said, noted, remembered, planned and reported. Longer texts begin with what they are.
        documents: Its documents; otherwise one that says so, too. The last one is shown to agents.
        remembered: What the first passage and the heading of the report say instead.
        originals: Placeholders of people whose originals the vault has.
    """
    row = row.replace(ref=row.ref.replace(store_id=await store.get_store_id()))
    documents = documents or [SourceDocument(name="d.md", text=said, file_name=said)]
    await store.register_task(row, documents)
    plan = await _store_decisions(store, row, said)
    run = RunRef(**row.ref.model_dump(), step_id=AGENT, role="research")
    await store.open_run(run)
    fence = await store.acquire_fence(run.run_id)
    long_text = await store.put_text(f"A long result about {said}", row.ref.scope)
    version = await _store_conversation(store, fence, f"{said}, see {long_text}", said)
    first, second = [make_passage(passage_id, run.run_id) for passage_id in make_passage_ids(row.ref.task_id)]
    own = {"task_id": row.ref.task_id, "session": row.ref.session, "tenant": row.ref.tenant}
    passages = [first.model_copy(update={**own, "text": remembered or said}), second.model_copy(update=own)]
    summary = make_summary().replace(covered=MESSAGES[:1], summary=build_user_message("summary-1-message", said))
    await store.commit_compaction(fence, version, summary, passages, None)
    await store.mark_passages_stored([first.id, second.id])
    await _store_work(store, run, fence, said)
    await _store_platform_rows(store, row, documents, said, originals)
    report = await store.put_text(f"# Report: {remembered or said}\n{said}, in {long_text}.", row.ref.scope)
    await store.save_task_progress(row.ref.task_id, make_ended_progress(row, report, said))
    # The end of the task has deleted those rows: a reply that still arrives is stored while someone watches.
    await store.watch_task(row.ref.task_id, NEVER_OVER, row.ref.scope)
    partial = PartialReply(agent=AGENT, kind="text", text=said)
    assert await store.save_partial_reply(fence, row.ref.task_id, partial)
    return StoredTask(row, run, fence, version + 1, (first.id, second.id), documents, long_text, plan)


async def _store_decisions(store: SqlStore, row: TaskRow, said: str) -> Plan:
    task_id = row.ref.task_id
    plan = Plan(steps=(Step(id=AGENT, role="research", title=said, goal=said),))
    await store.save_task_title(task_id, said)
    await store.save_plan(task_id, plan)
    await store.save_plan_version(task_id, PlanVersion(number=2, plan=plan, made_by="revision-1", reason=said))
    await store.add_audit_entry(task_id, RejectedMessage(signal="approve_budget", reason=said, at=NOON))
    message = await store.put_text(f"A message: {said}", row.ref.scope)
    await store.add_audit_entry(task_id, TaskMessage(number=1, text=message, by=said, sent_at=NOON))
    link = ReportLink(
        id=row.ref.task_id[-12:],
        task_id=task_id,
        version=1,
        sources=False,
        made_by=said,
        made_at=NOON,
        expires_at=NOON + timedelta(days=1),
    )
    await store.add_report_link(SharedReport(link=link, tenant=row.request.tenant, digest="digest"))
    await store.store_first_tool_definitions(task_id, [ToolDefinition(server="s", tool="t", parts={"name": "digest"})])
    return plan


async def _store_conversation(store: SqlStore, fence: Fence, asked: str, said: str) -> int:
    question, answer, result = MESSAGES
    blocks = (Thinking(thinking=said, signature="s"), Text(text="Yes."), ToolUse(id=CALL, name="take_note", input={}))
    await store.commit_message(fence, 0, build_user_message(question, asked))
    await store.record_and_count_intents(fence, make_intent("turn-1"))
    await store.commit_reply(fence, 1, Message(id=answer, role="assistant", blocks=blocks), make_charge("turn-1"))
    await store.record_tool_intent(fence, CALL)
    results = (ToolResult(tool_use_id=CALL, content=said),)
    await store.commit_message(fence, 2, Message(id=result, role="user", blocks=results))
    await store.record_and_count_intents(fence, make_intent("turn-2"))
    return 3


async def _store_work(store: SqlStore, run: RunRef, fence: Fence, said: str) -> None:
    """What tools write."""
    note_id = f"{run.run_id}/{CALL}"
    note = Note(id=note_id, run_id=run.run_id, document=f"{said}.md", text=said, first_line=1, last_line=1)
    await store.add_note(fence, run.task_id, note)
    await store.commit_deliverable(fence, run.task_id, ResearchFindings(findings=(), open_questions=(said,)))
    await store.commit_outcome(fence, 1, TurnLimitReached(state=LegState(totals=RunUsage(), notes=(said,))))


async def _store_platform_rows(
    store: SqlStore, row: TaskRow, documents: Sequence[SourceDocument], said: str, originals: Sequence[str]
) -> None:
    """What the platform keeps next to the task: sessions, redacted texts, originals, and how far traces are sent."""
    key = SessionKey(tenant=row.ref.tenant, session=row.ref.session)
    session = await store.take_over_session(key)
    await store.save_session(key, session.replace(state=SessionState(answered=(row.request.request_id,))))
    shown = make_text_key(row.ref.tenant, documents[-1].text)
    await store.save_redacted_text(shown, RedactedText(text=said))
    entries = [
        VaultEntry(type="PERSON", placeholder=one, fingerprint=one, text=f"original of {one}") for one in originals
    ]
    await store.build_vault(AesGcmCipher(bytes(32), "vault")).store_originals(row.ref.tenant, entries, row.ref.session)
    scope = LimitScope(endpoint="https://models.example", account="hash", model="claude")
    await store.build_limit_repository().acquire_lease(scope, LeaseRequest(worker="worker"))
    slow = SqlSlowTextStore(store.database, lambda: NOON, row.ref.store_id, "rules")
    await slow.record_timeout(row.ref.tenant, f"slow text of {row.ref.task_id}")
    await store.acquire_trace_lease("test", timedelta(minutes=1))


def make_ended_progress(row: TaskRow, report: str, title: str) -> TaskProgress:
    nothing = BudgetProgress(limit=Limit(tokens=1), spent=Amount(), reserved=Amount())
    return TaskProgress(
        task_id=row.ref.task_id, phase=TaskPhase.DONE, title=title, model="m", budget=nothing, report=report
    )


async def assert_words_are_read(store: SqlStore, stored: StoredTask, said: str) -> None:
    """What `store_whole_task` wrote is read again, to the letter."""
    row, run_id, task_id, reader = stored.row, stored.run.run_id, stored.row.ref.task_id, SystemScope()
    found = await store.get_task(task_id, reader)
    assert (found.request, found.config, found.title) == (row.request, row.config, said)
    versions = await store.list_plan_versions(task_id, reader)
    assert [version.reason for version in versions] == ["", said]
    assert [version.plan for version in versions] == [stored.plan, stored.plan]
    listed = await store.list_documents(task_id, reader)
    read = [
        SourceDocument(name=one.name, text=await store.get_text(one.blob, reader), file_name=one.file_name)
        for one in listed
    ]
    assert read == [*stored.documents]
    entries = await store.list_audit_entries(task_id, reader)
    assert [one.reason for one in entries if isinstance(one, RejectedMessage)] == [said]
    assert [one.made_by for one in await store.list_report_links(task_id, reader)] == [said]
    transcript = await store.load_transcript(run_id, reader)
    assert tuple(message.id for message in transcript.messages) == MESSAGES
    assert [result.content for message in transcript.messages for result in message.tool_results] == [said]
    assert [record.id for record in transcript.records] == ["summary-1"]
    assert said in {passage.text for passage in await store.list_task_passages(task_id, reader)}
    assert [one.text for one in await store.list_notes(task_id, reader, run_id)] == [said]
    assert await store.get_deliverable(run_id, reader) == ResearchFindings(findings=(), open_questions=(said,))
    assert await store.get_leg_outcome(run_id, 1, reader) is not None
    key = SessionKey(tenant=row.ref.tenant, session=row.ref.session)
    assert (await store.take_over_session(key)).state.answered == (row.request.request_id,)
