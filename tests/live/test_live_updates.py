"""What clients send to a task comes as an Update, which answers what became of it: nobody looks for that afterwards."""

import asyncio
from pathlib import Path

import pytest
from pydantic import JsonValue
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowFailureError, WorkflowHandle, WorkflowUpdateStage

from tests.live.test_live_payload_encryption import WITH_KEY, make_client_with_keys
from tests.support.history_payloads import iter_payloads
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
    TaskHandle,
    TaskSubmitter,
    open_activity_deps,
    run_all_workers,
    run_platform,
    start_dev_server,
    wait_for_both_requests,
    wait_until,
)
from tests.support.workflow_history import fetch_events, join_all_strings
from waystation.client import Client
from waystation.client.approvals import UNSEEN_RESULT, get_result_of_each
from waystation.config.settings import Settings
from waystation.context.compaction import TOO_LATE_REASON
from waystation.kernel.errors import BadInput
from waystation.planning.plan import Plan
from waystation.privacy.ports import Redactor
from waystation.runtime.temporal.codec import ENCODING, ENCRYPTED
from waystation.tasks.approvals import APPROVE_BUDGET, DENY_BUDGET, REVIEW_PLAN
from waystation.tasks.signals import (
    EDIT_CONTEXT,
    SEND_MESSAGE,
    UNENCRYPTED_REASON,
    UPDATE_DOCUMENTS,
    AnswerResult,
    UpdateResult,
)
from waystation.tasks.task import ApprovalRequest, RejectedMessage, TaskPhase, TaskProgress
from waystation.workflows.task import TaskWorkflow


async def query_progress(task: TaskHandle) -> TaskProgress:
    return await task.query(TaskWorkflow.progress)


async def test_an_answer_is_told_what_became_of_it_and_counts_once_however_often_it_is_sent(
    server: TemporalClient, tmp_path: Path, redactor: Redactor, remote_settings: Settings
) -> None:
    # What harbours left at its end would answer the other request before it is denied.
    gate = CallGate(ModelCall("harbours", 6))
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel(before=gate)) as counter:
        await counter.submit(under=make_tight_budget_config())
        task = counter.get_task_handle()
        await wait_for_both_requests(task)
        asked: dict[str, JsonValue] = {"request_id": "harbours-1", "tokens": 9_000, "by": "Ada", "note": "go on"}
        first = await counter.tasks.update(task.id, APPROVE_BUDGET, asked, "a1")
        again = await counter.tasks.update(task.id, APPROVE_BUDGET, asked, "a1")
        await task.signal(APPROVE_BUDGET, {**asked, "answer_id": "a1"})
        late = await counter.get_message_client().send(APPROVE_BUDGET, asked)
        wrong = await counter.get_message_client().send(DENY_BUDGET, {"request_id": "tides-1", "finish": "never"})
        denied = await counter.get_message_client().send(DENY_BUDGET, {"request_id": "tides-1"})
        await gate.reached.wait()
        async with await Client.connect(remote_settings) as client:
            approvals = (await client.get_task(task.id, details=True)).approvals
            identity = (await client.get_task(task.id)).approvals
        gate.opened.set()
        ended = await task.result()
        trail = await counter.store.list_audit_entries(task.id, SYSTEM_SCOPE)
    assert first == again == UpdateResult(outcome="approved", reason="go on")
    assert late == UpdateResult(outcome="refused", reason="the request harbours-1 was already approved")
    assert wrong.outcome == "refused"
    assert wrong.reason.startswith("finish: ")
    assert denied.outcome == "denied"
    assert [refused.reason for refused in ended.rejected_messages] == [late.reason, wrong.reason]
    assert [entry.reason for entry in trail if isinstance(entry, RejectedMessage)] == [late.reason, wrong.reason]
    decided = [entry for entry in trail if isinstance(entry, ApprovalRequest) and entry.decision != "pending"]
    assert [(entry.request_id, entry.decision, entry.answer_id == "a1") for entry in decided] == [
        ("harbours-1", "approved", True),
        ("tides-1", "denied", False),
    ]
    assert {one.request_id: len(one.sent_from.identities) for one in approvals if one.sent_from is not None} == {
        one.request_id: 1 for one in identity
    }


async def test_several_requests_are_answered_in_one_moment_and_each_is_told(
    server: TemporalClient, tmp_path: Path, redactor: Redactor
) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=make_tight_budget_config())
        await wait_for_both_requests(counter.get_task_handle())
        sender = counter.get_message_client()
        denied: dict[str, JsonValue] = {"request_id": "harbours-1", "also": ["gone-1", "tides-1"], "note": "enough"}
        answers = get_result_of_each(await sender.send(DENY_BUDGET, denied), ["harbours-1", "gone-1", "tides-1"])
        invalid: dict[str, JsonValue] = {"request_id": "harbours-1", "also": ["tides-1"], "finish": "never"}
        whole = get_result_of_each(await sender.send(DENY_BUDGET, invalid), ["harbours-1", "tides-1"])
    assert {request_id: answer.outcome for request_id, answer in answers.items()} == {
        "harbours-1": "denied",
        "gone-1": "refused",
        "tides-1": "denied",
    }
    assert answers["tides-1"].reason == "enough"
    assert {answer.outcome for answer in whole.values()} == {"refused"}


async def test_more_messages_at_once_than_the_server_has_under_way_all_have_their_effect(
    server: TemporalClient, tmp_path: Path, redactor: Redactor
) -> None:
    gate = CallGate(ModelCall("harbours", 1))
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel(before=gate)) as counter:
        await counter.submit(under=make_task_config())
        await gate.reached.wait()
        sender = counter.get_message_client()
        sent = [sender.send(SEND_MESSAGE, {"text": f"Sounding {number}.", "by": "Ada"}) for number in range(12)]
        results = await asyncio.gather(*sent)
        missing = await sender.send(SEND_MESSAGE, {"message": "0" * 64})
        unknown = await sender.send(UPDATE_DOCUMENTS, {"documents": "0" * 64})
        told = (await query_progress(counter.get_task_handle())).task_messages
        gate.opened.set()
        await counter.get_task_handle().result()
    assert {result.outcome for result in results} == {"done"}
    assert sorted(one.number for one in told) == list(range(1, 13))
    assert (missing.outcome, "not in the task's store" in missing.reason) == ("refused", True)
    assert (unknown.outcome, "not in the task's store" in unknown.reason) == ("refused", True)


async def test_documents_that_were_given_again_are_told_when_the_task_has_them(
    server: TemporalClient, tmp_path: Path, redactor: Redactor, remote_settings: Settings
) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "pilot.md").write_text("The bar carries three fathoms.\n")
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=make_tight_budget_config())
        task = counter.get_task_handle()
        await wait_for_both_requests(task)
        async with await Client.connect(remote_settings) as client:
            updated = await client.update_documents(task.id, [folder], by="Ada")
            told = await client.send_message(task.id, "Give depths in metres.", "Ada")
        progress = await query_progress(task)
    assert updated.answer == AnswerResult(outcome="done", reason="1 changed")
    assert told.outcome == "done"
    assert (len(progress.document_updates), len(progress.task_messages)) == (1, 1)


async def test_a_message_that_no_worker_reads_waits_for_one_and_counts_once(
    server: TemporalClient, tmp_path: Path, redactor: Redactor
) -> None:
    async with open_activity_deps(tmp_path, redactor, ScriptedTaskModel()) as parts:
        counter = TaskSubmitter(server, parts.store)
        async with run_all_workers(server, parts):
            await counter.submit(under=make_tight_budget_config())
            await wait_for_both_requests(counter.get_task_handle())
        unseen = await counter.get_message_client().send(SEND_MESSAGE, {"text": "Give depths in metres."})
        async with run_all_workers(server, parts):

            async def kept() -> bool:
                return any(one.text for one in (await query_progress(counter.get_task_handle())).task_messages)

            await wait_until(kept)
            for request_id in ("harbours-1", "tides-1"):
                await counter.get_message_client().send(APPROVE_BUDGET, {"request_id": request_id})
            ended = await counter.get_task_handle().result()
    assert unseen.answer == UNSEEN_RESULT
    assert len(ended.task_messages) == 1


async def test_an_edit_is_told_what_it_came_to_also_where_its_task_ends_first(
    server: TemporalClient, tmp_path: Path, redactor: Redactor
) -> None:
    gate = CallGate(ModelCall("write", 1))
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel(before=gate)) as counter:
        await counter.submit(under=make_tight_budget_config())
        task, sender = counter.get_task_handle(), counter.get_message_client()
        await wait_for_both_requests(task)
        pin: dict[str, JsonValue] = {"action": "pin", "agent": "harbours", "message": "m5", "by": "Ada"}
        pinned = await sender.send(EDIT_CONTEXT, pin)
        unknown = await sender.send(EDIT_CONTEXT, {**pin, "message": "m99"})
        for request_id in ("harbours-1", "tides-1"):
            await sender.send(APPROVE_BUDGET, {"request_id": request_id})
        await gate.reached.wait()
        waiting = asyncio.create_task(sender.send(EDIT_CONTEXT, {**pin, "agent": "write", "message": "m1"}))

        async def taken() -> bool:
            return any(edit.state == "waiting" for edit in (await query_progress(task)).context_edits)

        await wait_until(taken)
        gate.opened.set()
        late = await waiting
        await task.result()
    assert pinned.outcome == "done"
    assert (unknown.outcome, "there is no message 'm99'" in unknown.reason) == ("refused", True)
    assert late == UpdateResult(outcome="refused", reason=TOO_LATE_REASON)


async def test_an_edit_that_waits_when_its_task_is_cancelled_is_refused(
    server: TemporalClient, tmp_path: Path, redactor: Redactor
) -> None:
    gate = CallGate(ModelCall("harbours", 2))
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel(before=gate)) as counter:
        await counter.submit(under=make_task_config())
        task, sender = counter.get_task_handle(), counter.get_message_client()
        await gate.reached.wait()
        edit: dict[str, JsonValue] = {"action": "pin", "agent": "harbours", "message": "m1"}
        waiting = asyncio.create_task(sender.send(EDIT_CONTEXT, edit))

        async def taken() -> bool:
            return bool((await query_progress(task)).context_edits)

        await wait_until(taken)
        await task.cancel()
        edited = await waiting
        gate.opened.set()
        with pytest.raises(WorkflowFailureError):
            await task.result()
        with pytest.raises(BadInput, match="is not running: it has ended"):
            await sender.send(SEND_MESSAGE, {"text": "Too late."})
    assert edited == UpdateResult(outcome="refused", reason=TOO_LATE_REASON)


async def test_an_update_by_hand_needs_no_id_and_a_malformed_one_is_refused_like_a_signal(
    server: TemporalClient, tmp_path: Path, redactor: Redactor
) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=make_tight_budget_config())
        task = counter.get_task_handle()
        await wait_for_both_requests(task)
        by_hand: WorkflowHandle[object, object] = server.get_workflow_handle(task.id)
        sent: tuple[list[JsonValue], ...] = ([], ["yes"], [{}, {}], [{"request_id": "harbours-1", "answer_id": 7}])
        results: list[UpdateResult] = [
            await by_hand.execute_update(APPROVE_BUDGET, args=one, result_type=UpdateResult)  # pyright: ignore[reportUnknownMemberType]: an overload has a bare ParamSpec
            for one in sent
        ]
        edit: dict[str, JsonValue] = {"action": "pin", "agent": "harbours", "message": "m5"}
        edited: UpdateResult = await by_hand.execute_update(  # pyright: ignore[reportUnknownMemberType]: as above
            EDIT_CONTEXT, edit, id="x" * 200, result_type=UpdateResult
        )
        refusals = (await query_progress(task)).rejected_messages
    assert {result.outcome for result in results} == {"refused"}
    assert [result.reason for result in results] == [refusal.reason for refusal in refusals]
    assert edited.outcome == "done"


async def test_an_update_that_waits_for_a_leg_is_answered_by_the_run_that_its_task_continues_in(
    tmp_path: Path, redactor: Redactor
) -> None:
    """A steady stream of messages comes all the while: none is lost, none keeps the task from going on.

    Without a cache: every step of the workflow replays all that came before it.
    """
    gate = CallGate(ModelCall("harbours", 2))
    async with (
        start_dev_server("limit.historyCount.suggestContinueAsNew=60", cached=False) as client,
        run_platform(client, tmp_path, redactor, ScriptedTaskModel(before=gate)) as counter,
    ):
        await counter.submit(under=make_tight_budget_config())
        task, sender = counter.get_task_handle(), counter.get_message_client()
        await gate.reached.wait()
        first = (await task.describe()).run_id
        for _ in range(20):
            await sender.send(APPROVE_BUDGET, {"request_id": "nobody"})
        edit: dict[str, JsonValue] = {"action": "pin", "agent": "harbours", "message": "m1"}
        waiting = asyncio.create_task(sender.send(EDIT_CONTEXT, edit))

        async def taken() -> bool:
            return bool((await query_progress(task)).context_edits)

        await wait_until(taken)
        gate.opened.set()
        told: list[AnswerResult] = []

        async def continued() -> bool:
            told.append(await sender.send(SEND_MESSAGE, {"text": f"Sounding {len(told)}."}))
            return (await task.describe()).run_id != first

        await wait_until(continued)
        edited = await waiting
        progress = await wait_for_both_requests(task)
        for request_id in ("harbours-1", "tides-1"):
            await sender.send(APPROVE_BUDGET, {"request_id": request_id})
        ended = await task.result()
        before = join_all_strings(await fetch_events(client.get_workflow_handle(task.id, run_id=first)))
    assert '"outcome":"waiting","reason":"","each":{},"continues":true' in before
    assert edited.outcome == "done"
    assert {answer.outcome for answer in told} == {"done"}
    assert len(ended.task_messages) == len(told)
    assert len(progress.context_edits) == 1
    assert ended.phase is TaskPhase.DONE


async def test_the_same_message_is_the_same_in_the_run_that_its_task_continues_in(
    tmp_path: Path, redactor: Redactor
) -> None:
    words: dict[str, JsonValue] = {"text": "Give depths in metres."}
    async with (
        start_dev_server("limit.historyCount.suggestContinueAsNew=60") as client,
        run_platform(client, tmp_path, redactor, ScriptedTaskModel()) as counter,
    ):
        await counter.submit(under=make_tight_budget_config())
        task = counter.get_task_handle()
        await wait_for_both_requests(task)
        first = (await task.describe()).run_id
        told = await counter.tasks.update(task.id, SEND_MESSAGE, words, "t1")

        async def continued() -> bool:
            await counter.get_message_client().send(APPROVE_BUDGET, {"request_id": "nobody"})
            return (await task.describe()).run_id != first

        await wait_until(continued)
        again = await counter.tasks.update(task.id, SEND_MESSAGE, words, "t1")
        task_messages = (await query_progress(task)).task_messages
    assert told == again == UpdateResult(outcome="done")
    assert len(task_messages) == 1


async def test_a_plan_that_was_edited_is_told_whether_the_task_works_by_it(
    server: TemporalClient, tmp_path: Path, redactor: Redactor
) -> None:
    steps = {step.id: step for step in SCRIPTED_PLAN.steps}
    fewer = (steps["tides"], steps["weigh"].replace(needs=("tides",)), steps["write"])
    circle = (steps["tides"].replace(needs=("write",)), *fewer[1:])
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=make_task_config().replace(review_plan=True))
        task, sender = counter.get_task_handle(), counter.get_message_client()

        async def paused() -> bool:
            return (await query_progress(task)).phase is TaskPhase.PAUSED

        await wait_until(paused)
        scope = (await counter.store.get_task(task.id, SYSTEM_SCOPE)).ref.scope
        wrong, right = [
            await counter.store.put_text(Plan(steps=one).model_dump_json(), scope) for one in (circle, fewer)
        ]
        refused = await sender.send(REVIEW_PLAN, {"plan": wrong})
        taken = await sender.send(REVIEW_PLAN, {"plan": right, "by": "Ada", "note": "shorter"})
        ended = await task.result()
    assert refused.outcome == "refused"
    assert taken == UpdateResult(outcome="approved", reason="shorter")
    assert [step.id for step in ended.steps] == ["tides", "weigh", "write"]


async def test_an_update_under_encryption_shows_the_server_nothing_and_a_plain_one_is_refused(
    server: TemporalClient, tmp_path: Path, redactor: Redactor
) -> None:
    encrypted = await make_client_with_keys(server, WITH_KEY)
    async with run_platform(encrypted, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=make_tight_budget_config())
        task = counter.get_task_handle()
        await wait_for_both_requests(task)
        plain = server.get_workflow_handle(task.id)
        sent: dict[str, JsonValue] = {"request_id": "harbours-1", "answer_id": "a1"}
        await plain.start_update(APPROVE_BUDGET, sent, wait_for_stage=WorkflowUpdateStage.ACCEPTED, id="plain")  # pyright: ignore[reportUnknownMemberType]: an overload has a bare ParamSpec

        async def refused() -> bool:
            return bool((await query_progress(task)).rejected_messages)

        await wait_until(refused)
        before = await query_progress(task)
        answer = await counter.tasks.update(task.id, APPROVE_BUDGET, {**sent, "note": "klabauter"}, "a1")
        history = await fetch_events(server.get_workflow_handle(task.id))
    assert [one.reason for one in before.rejected_messages] == [UNENCRYPTED_REASON]
    assert {one.decision for one in before.approvals} == {"pending"}
    assert answer == UpdateResult(outcome="approved", reason="klabauter")
    updates = [
        event
        for event in history
        if event.HasField("workflow_execution_update_accepted_event_attributes")
        or event.HasField("workflow_execution_update_completed_event_attributes")
    ]
    plain_payloads = [
        payload.data for event in updates for payload in iter_payloads(event) if payload.metadata[ENCODING] != ENCRYPTED
    ]
    assert len(updates) == 4
    assert [b"harbours-1" in data for data in plain_payloads] == [True]
