"""People change the context of an agent that waits for money; then it is paid and finishes."""

from dataclasses import dataclass, field
from pathlib import Path

from temporalio.client import Client

from tests.support.conversations import make_filler_text
from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import (
    CALL_TOKENS,
    REPLY_TOKENS,
    SCRIPTED_PLAN,
    CallGate,
    ModelCall,
    ScriptedTaskModel,
    make_task_config,
    make_tight_budget_config,
)
from tests.support.temporal_platform import (
    DOCUMENTS,
    TaskHandle,
    TaskSubmitter,
    run_platform,
    start_dev_server,
    wait_for_both_requests,
    wait_until,
)
from tests.support.workflow_history import fetch_current_details
from waystation.context.compaction import TOO_LATE_REASON, CompactionStatus, ContextEdit
from waystation.context.history import build_model_view
from waystation.context.message_rules import find_violations
from waystation.context.transcript import Text
from waystation.documents.documents import SourceDocument
from waystation.models.ports import ModelRequest, ModelResponse
from waystation.privacy.ports import Redactor
from waystation.tasks.approvals import APPROVE_BUDGET, DENY_BUDGET
from waystation.tasks.signals import EDIT_CONTEXT
from waystation.tasks.task import TaskConfig, TaskPhase, TaskProgress
from waystation.testing.doubles import make_scripted_response
from waystation.workflows.task import TaskWorkflow

SUMMARY_PROMPT = 50
"""Tokens of a request for a summary; the crew's other prompts have 400."""
LEFT = 400
"""Tokens that each researcher has left when it pauses: too few for a turn, enough for a summary."""
WISH = "Keep what the tide tables say about Ada Lovelace."
LONG = (SourceDocument(name="pilot.md", text=f"{DOCUMENTS[0].text}{make_filler_text(1_500)}\n"),)


@dataclass
class CompactingTaskModel(ScriptedTaskModel):
    """The crew, with somebody who writes summaries."""

    asked: list[str] = field(default_factory=list[str])
    """What was to be summarised."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        if request.tools:
            return await super().complete(request)
        self.asked.append(request.messages[0].text)
        return make_scripted_response(Text(text=f"The bar carries two fathoms. {make_filler_text(80)}"))

    async def count_tokens(self, request: ModelRequest) -> int:
        return await super().count_tokens(request) if request.tools else SUMMARY_PROMPT


def make_pausing_task_config() -> TaskConfig:
    """Each researcher pauses after five calls, with `LEFT`, and its task has no rest."""
    share = 5 * CALL_TOKENS + LEFT
    under = make_task_config(budget=CALL_TOKENS + len(SCRIPTED_PLAN.steps) * share, agent_budget=share)
    agent = under.default.replace(primers=1, recents=4, min_reply_tokens=REPLY_TOKENS + 10)
    return under.replace(default=agent)


async def query_progress(task: TaskHandle) -> TaskProgress:
    return await task.query(TaskWorkflow.progress)


async def wait_for_edit(task: TaskHandle, **edit: str) -> ContextEdit:
    """What became of an edit of the agent `harbours`."""
    number = len((await query_progress(task)).context_edits)
    await task.signal(EDIT_CONTEXT, {"agent": "harbours", "by": "Ada", **edit})

    async def settled() -> bool:
        edits = (await query_progress(task)).context_edits
        return len(edits) > number and edits[-1].state != "waiting"

    await wait_until(settled)
    return (await query_progress(task)).context_edits[-1]


async def refusal_of(task: TaskHandle, sent: dict[str, str]) -> str:
    number = len((await query_progress(task)).rejected_messages)
    await task.signal(EDIT_CONTEXT, sent)

    async def refused() -> bool:
        return len((await query_progress(task)).rejected_messages) > number

    await wait_until(refused)
    refusal = (await query_progress(task)).rejected_messages[-1]
    assert refusal.signal == EDIT_CONTEXT
    return refusal.reason


async def shown(counter: TaskSubmitter, task: TaskHandle) -> tuple[str, ...]:
    messages = build_model_view(await counter.store.load_transcript(f"{task.id}/harbours", SYSTEM_SCOPE))
    assert find_violations(messages) == ()
    return tuple(message.id for message in messages)


async def test_a_context_is_edited_while_its_agent_waits_for_money_and_the_work_goes_on(
    tmp_path: Path, presidio: Redactor
) -> None:
    """Without a cache: every step of the workflow replays all that came before it."""
    crew = CompactingTaskModel()
    async with start_dev_server(cached=False) as server, run_platform(server, tmp_path, presidio, crew) as counter:
        await counter.submit(under=make_pausing_task_config(), documents=LONG)
        task = counter.get_task_handle()
        await wait_for_both_requests(task)
        before = await shown(counter, task)
        wish = await counter.store.put_text(WISH, (await counter.store.get_task(task.id, SYSTEM_SCOPE)).ref.scope)

        assert (await wait_for_edit(task, action="pin", message="m5")).state == "done"
        compacted = await wait_for_edit(task, action="compact", instructions=wish)
        during = await query_progress(task)
        summarised = await shown(counter, task)
        (made,) = during.compactions
        restored = await wait_for_edit(task, action="restore", compaction=made.compaction_id)
        assert await shown(counter, task) == before
        again = await wait_for_edit(task, action="restore", compaction=made.compaction_id)
        unpinned = await wait_for_edit(task, action="unpin", message="m5")
        assert (await refusal_of(task, {"action": "pin", "agent": "harbours"})).endswith("pin needs `message`")
        assert await refusal_of(task, {"action": "compact", "agent": "weigh"}) == (
            "weigh has not started: it has no context yet"
        )
        waiting = await query_progress(task)
        seen = await fetch_current_details(task)
        for request_id in ("harbours-1", "tides-1"):
            await task.signal(APPROVE_BUDGET, {"request_id": request_id, "by": "Ada"})
        ended = await task.result()
        trail = await counter.store.list_audit_entries(task.id, SYSTEM_SCOPE)

    (asked,) = crew.asked
    assert "<wishes>\nKeep what the tide tables say about" in asked
    assert "Lovelace" not in asked  # redacted before anybody reads it
    assert (made.agent, made.status) == ("harbours", CompactionStatus.COMPRESSED)
    assert (compacted.state, compacted.short_description) == ("done", "compact with instructions")
    assert during.phase is TaskPhase.PAUSED
    assert "m5" in summarised
    assert len(summarised) < len(before)
    assert (restored.state, unpinned.state) == ("done", "done")
    assert again.state == "refused"
    assert again.reason.startswith("no compaction has an id that begins")
    assert waiting.phase is TaskPhase.PAUSED
    assert [approval.request_id for approval in waiting.approvals if approval.decision == "pending"] == [
        approval.request_id for approval in during.approvals
    ]
    assert "harbours: compact with instructions (edit-2), requested by Ada (name not verified): done, compacted" in seen
    assert ended.phase is TaskPhase.DONE
    kept = [(entry.id, entry.state) for entry in trail if isinstance(entry, ContextEdit)]
    states = ["done", "done", "done", "refused", "done"]
    assert kept == [(f"edit-{n}", state) for n, end in enumerate(states, 1) for state in ("waiting", end)]


async def test_an_edit_waits_for_the_end_of_a_leg_and_comes_too_late_for_an_agent_that_delivers(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    gate = CallGate(ModelCall("write", 1))
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel(before=gate)) as counter:
        await counter.submit(under=make_task_config())
        task = counter.get_task_handle()
        await gate.reached.wait()
        delivered = await refusal_of(task, {"action": "pin", "agent": "harbours", "message": "m1"})
        await task.signal(EDIT_CONTEXT, {"action": "pin", "agent": "write", "message": "m1"})

        async def waits() -> bool:
            return any(edit.state == "waiting" for edit in (await query_progress(task)).context_edits)

        await wait_until(waits)
        assert (
            "write: pin m1 (edit-1), requested by an unnamed person: waits until the agent's leg ends"
            in await fetch_current_details(task)
        )
        gate.opened.set()
        ended = await task.result()
        trail = await counter.store.list_audit_entries(task.id, SYSTEM_SCOPE)
        stored = await counter.store.load_transcript(f"{task.id}/write", SYSTEM_SCOPE)
    assert delivered == "harbours has finished: its context can no longer be edited"
    (late,) = ended.context_edits
    assert (late.state, late.reason) == ("refused", TOO_LATE_REASON)
    assert ended.phase is TaskPhase.DONE
    assert [entry.state for entry in trail if isinstance(entry, ContextEdit)] == ["waiting", "refused"]
    assert [record.type for record in stored.records] == ["prompt_prefix"], "nothing was pinned"


async def test_an_agent_that_was_edited_can_still_be_denied(server: Client, tmp_path: Path, redactor: Redactor) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=make_tight_budget_config())
        task = counter.get_task_handle()
        await wait_for_both_requests(task)
        nothing = await wait_for_edit(task, action="compact")
        assert (await wait_for_edit(task, action="pin", message="m99")).reason == (
            "there is no message 'm99' in this conversation; there are: m1 to m11"
        )
        for request_id in ("harbours-1", "tides-1"):
            await task.signal(DENY_BUDGET, {"request_id": request_id, "by": "Ada"})
        ended = await task.result()
    assert nothing.state == "refused"
    assert nothing.reason.startswith("not compacted: a compaction would save too little")
    assert ended.phase is TaskPhase.PARTIAL
    assert [edit.state for edit in ended.context_edits] == ["refused", "refused"]
