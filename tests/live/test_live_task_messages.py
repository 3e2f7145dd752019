"""People send a task messages while it works: each agent receives one at its next turn, word for word, once."""

from pathlib import Path

import pytest
from temporalio.client import Client

from tests.support.agent_environment import without_statuses
from tests.support.delegating_model import (
    SUBMIT_FINDINGS_CALL,
    DelegatingTaskModel,
    make_delegate_call,
    make_delegating_task_config,
)
from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import (
    SCRIPTED_PLAN,
    CallGate,
    ModelCall,
    ScriptedTaskModel,
    make_task_config,
    make_tight_budget_config,
)
from tests.support.temporal_platform import (
    TENANT,
    TaskHandle,
    TaskSubmitter,
    run_platform,
    wait_for_both_requests,
    wait_until,
)
from tests.support.workflow_history import fetch_events, join_all_strings
from waystation.agents.task_messages import TaskMessage
from waystation.client.submission import load_task_messages, validate_message_text
from waystation.context.history import build_model_view
from waystation.context.message_rules import find_violations
from waystation.context.transcript import Message
from waystation.kernel.errors import BadInput
from waystation.privacy.ports import Redactor
from waystation.tasks.approvals import APPROVE_BUDGET
from waystation.tasks.signals import SEND_MESSAGE
from waystation.tasks.task import TaskPhase, build_reader_scope
from waystation.workflows.task import TaskWorkflow

WORDS = "Never cite the almanac of 1790:\n  its soundings are wrong."
MORE = "And give depths in metres."
STEPS = [step.id for step in SCRIPTED_PLAN.steps]


async def told(counter: TaskSubmitter, task: TaskHandle, words: str, by: str = "Ada") -> None:
    """As the client does it."""
    before = len((await task.query(TaskWorkflow.progress)).task_messages)
    await task.signal(
        SEND_MESSAGE,
        {
            "message": await counter.store.put_text(
                words, (await counter.store.get_task(task.id, SYSTEM_SCOPE)).ref.scope
            ),
            "by": by,
        },
    )
    await until_kept(task, before + 1)


async def until_kept(task: TaskHandle, count: int) -> None:
    """So many task_messages are in the store: an agent's next turn hears them."""

    async def kept() -> bool:
        task_messages = (await task.query(TaskWorkflow.progress)).task_messages
        return len(task_messages) >= count and all(one.text for one in task_messages)

    await wait_until(kept)


async def heard(counter: TaskSubmitter, agent: str) -> list[Message]:
    """What was said to an agent beside its contract and its results."""
    said = (await counter.store.load_transcript(f"{counter.get_task_handle().id}/{agent}", SYSTEM_SCOPE)).messages
    spoken = [message for message in without_statuses(said[1:]) if message.role == "user"]
    return [message for message in spoken if not message.tool_results]


async def test_every_agent_hears_each_message_once_word_for_word_at_its_next_turn(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    gate = CallGate(ModelCall("harbours", 3), ModelCall("tides", 3))
    crew = ScriptedTaskModel(before=gate)
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=make_task_config())
        task = counter.get_task_handle()
        await gate.reached.wait()
        await told(counter, task, WORDS)
        await task.signal(SEND_MESSAGE, {"text": MORE, "by": "Ben"})
        await until_kept(task, 2)
        gate.opened.set()
        ended = await task.result()
        words = {agent: [message.text for message in await heard(counter, agent)] for agent in STEPS}
        logs = [await counter.store.load_transcript(f"{task.id}/{agent}", SYSTEM_SCOPE) for agent in STEPS]
        shown = await load_task_messages(counter.store, ended, build_reader_scope(TENANT))
        trail = await counter.store.list_audit_entries(task.id, SYSTEM_SCOPE)
        written = join_all_strings(await fetch_events(task))
    assert ended.phase is TaskPhase.DONE
    assert words == {step: [WORDS, MORE] for step in STEPS}
    assert all(find_violations(build_model_view(log)) == () for log in logs)
    assert [(one.text, one.by, set(one.received_by)) for one in shown] == [
        (WORDS, "Ada", set(STEPS)),
        (MORE, "Ben", set(STEPS)),
    ]
    assert [entry for entry in trail if isinstance(entry, TaskMessage)] == list(ended.task_messages)
    assert "almanac" not in written


async def test_an_agent_that_waits_for_money_is_not_woken_and_hears_it_when_it_goes_on(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    crew = ScriptedTaskModel()
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=make_tight_budget_config())
        task = counter.get_task_handle()
        await wait_for_both_requests(task)
        calls = len(crew.calls)
        await told(counter, task, WORDS)
        waiting = await heard(counter, "harbours")
        quiet = len(crew.calls) == calls
        for request in ("harbours-1", "tides-1"):
            await task.signal(APPROVE_BUDGET, {"request_id": request, "tokens": 10_000})
        await task.result()
        after = await heard(counter, "harbours")
    assert quiet
    assert waiting == []
    assert [message.text for message in after] == [WORDS]


async def test_an_agent_that_delegates_hears_it_after_its_subagents_who_hear_it_themselves(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    gate = CallGate(ModelCall("harbours.1", 1))
    crew = DelegatingTaskModel(
        before=gate, scripts={"harbours": [[make_delegate_call("beacons")], [SUBMIT_FINDINGS_CALL]]}
    )
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=make_delegating_task_config())
        await gate.reached.wait()
        await told(counter, counter.get_task_handle(), WORDS)
        gate.opened.set()
        ended = await counter.get_task_handle().result()
        parent, child = await heard(counter, "harbours"), await heard(counter, "harbours.1")
    assert ended.phase is TaskPhase.DONE
    assert [message.text for message in parent] == [WORDS]
    assert [message.text for message in child] == [WORDS]


async def test_what_cannot_be_told_is_refused_where_the_person_sees_it(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    gate = CallGate(ModelCall("harbours", 1))
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel(before=gate)) as counter:
        await counter.submit(under=make_task_config())
        task = counter.get_task_handle()
        await gate.reached.wait()
        long = await counter.store.put_text(
            "word " * 1_000, (await counter.store.get_task(task.id, SYSTEM_SCOPE)).ref.scope
        )
        for sent in ({}, {"text": "  \n"}, {"text": "a", "message": long}, {"message": "0" * 64}, {"message": long}):
            await task.signal(SEND_MESSAGE, sent)

        async def refused() -> bool:
            return len((await task.query(TaskWorkflow.progress)).rejected_messages) == 5

        await wait_until(refused)
        progress = await task.query(TaskWorkflow.progress)
        gate.opened.set()
        ended = await task.result()
        row = await counter.store.get_task(task.id, SYSTEM_SCOPE)
    reasons = " ".join(refusal.reason for refusal in progress.rejected_messages)
    assert progress.task_messages == ()
    assert "give either `text`" in reasons
    assert "`text` is blank" in reasons
    assert "not in the task's store: send it with `waystation message`" in reasons
    assert "the message has 5,000 characters; it may have 4,000" in reasons
    with pytest.raises(BadInput, match=f"{task.id} has ended \\(done\\).*submit --session autumn.*waystation rewind"):
        validate_message_text(row, ended.phase, WORDS)
