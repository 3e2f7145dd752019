from pathlib import Path

import pytest
from pydantic import JsonValue
from temporalio.client import Client, WorkflowFailureError

from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import (
    CALL_TOKENS,
    PROMPT_TOKENS,
    REQUESTED_TOKENS,
    RESEARCH_TOKENS,
    SCRIPTED_PLAN,
    TIGHT_BUDGET,
    WORK_TOKENS,
    CallGate,
    ModelCall,
    ScriptedTaskModel,
    make_task_config,
    make_tight_budget_config,
    parse_step_id,
)
from tests.support.temporal_platform import TaskHandle, TaskSubmitter, run_platform, start_dev_server, wait_until
from tests.support.workflow_history import fetch_current_details, fetch_events, list_event_kinds
from waystation.kernel.amount import Amount, Limit
from waystation.models.ports import ModelRequest
from waystation.privacy.ports import Redactor
from waystation.tasks.approvals import APPROVE_BUDGET, DENY_BUDGET
from waystation.tasks.task import ApprovalRequest, RejectedMessage, TaskPhase
from waystation.workflows.task import TaskWorkflow

MALFORMED: list[tuple[JsonValue, str]] = [
    ("yes", "the signal: it should have named values, as a JSON object or a TOML table does"),
    (["harbours-1"], "the signal: it should have named values, as a JSON object or a TOML table does"),
    (None, "the signal: it should have named values, as a JSON object or a TOML table does"),
    ({"request_id": "harbours-1", "tokens": "many"}, "tokens: it should be a whole number"),
    ({"request_id": "harbours-1", "tokens": -5}, "tokens: it should be more than 0"),
    ({"request_id": "harbours-1", "tokens": 2.5}, "tokens: it should be a whole number"),
    ({"request_id": 7}, "request_id: it should be text"),
    ({"request_id": "harbours-1", "sure": True}, "an unknown field"),
    ({}, "request_id is missing; open requests: "),
    ({"request_id": "nobody-1"}, "there is no request with this id; open requests: "),
]


async def wait_for_pause(counter: TaskSubmitter) -> TaskHandle:
    """Both researchers have spent their share, and a person is asked."""
    await counter.submit(under=make_tight_budget_config())
    await until_asked(counter.get_task_handle(), 2)
    return counter.get_task_handle()


async def until_asked(task: TaskHandle, requests: int) -> None:
    async def asked() -> bool:
        progress = await task.query(TaskWorkflow.progress)
        return sum(approval.decision == "pending" for approval in progress.approvals) == requests

    await wait_until(asked)


async def refusals_of(task: TaskHandle, count: int) -> tuple[RejectedMessage, ...]:
    async def refused() -> bool:
        return len((await task.query(TaskWorkflow.progress)).rejected_messages) >= count

    await wait_until(refused)
    return (await task.query(TaskWorkflow.progress)).rejected_messages


async def test_a_request_says_where_no_grant_fits_under_the_ceiling_and_other_units_are_refused(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=make_tight_budget_config().replace(ceiling=Limit(tokens=TIGHT_BUDGET + 2)))
        task = counter.get_task_handle()
        await until_asked(task, 2)
        shown = await fetch_current_details(task)
        await task.signal(APPROVE_BUDGET, {"request_id": "harbours-1", "tokens": 1, "usd": 1})
        await task.signal(APPROVE_BUDGET, {"request_id": "harbours-1"})
        refusals = await refusals_of(task, 2)
        for request_id in ("harbours-1", "tides-1"):
            await task.signal(DENY_BUDGET, {"request_id": request_id})
        assert (await task.result()).phase is TaskPhase.PARTIAL
    assert (
        shown.count("ceiling leaves 2 tokens for grants, too little for the agent's next call: deny the request") == 2
    )
    in_dollars, over_ceiling = (refusal.reason for refusal in refusals)
    assert in_dollars.endswith(": give tokens and no dollars")
    assert over_ceiling.endswith(", which leaves 2 tokens for grants")


async def test_what_one_agent_leaves_of_a_grant_answers_for_another_and_its_request_is_withdrawn(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        task = await wait_for_pause(counter)
        await task.signal(APPROVE_BUDGET, {"request_id": "harbours-1", "tokens": WORK_TOKENS})
        progress = await task.result()
        kept = [
            entry
            for entry in await counter.store.list_audit_entries(task.id, SYSTEM_SCOPE)
            if isinstance(entry, ApprovalRequest)
        ]
    assert progress.phase is TaskPhase.DONE
    decisions = {one.request_id: one.decision for one in progress.approvals}
    assert decisions == {"harbours-1": "approved", "tides-1": "withdrawn"}
    assert progress.budget.limit == Limit(tokens=TIGHT_BUDGET + WORK_TOKENS)
    assert {entry.decision for entry in kept if entry.request_id == "tides-1"} == {"pending", "withdrawn"}


class WideHarbours(ScriptedTaskModel):
    """Calls about harbours but the first may cost more than the budget has."""

    async def count_tokens(self, request: ModelRequest) -> int:
        """A prompt that the provider reads from its cache, which nobody knows before."""
        wide = parse_step_id(request) == "harbours" and any(message.role == "assistant" for message in request.messages)
        return PROMPT_TOKENS * 25 if wide else PROMPT_TOKENS


async def test_nobody_is_asked_while_another_agent_goes_on_although_it_cannot_leave_enough(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    gate = CallGate(ModelCall("tides", 6))
    under = make_task_config(budget=CALL_TOKENS + len(SCRIPTED_PLAN.steps) * RESEARCH_TOKENS)
    under = under.replace(minimum_reserve=Amount(tokens=RESEARCH_TOKENS))
    async with run_platform(server, tmp_path, redactor, WideHarbours(gate)) as counter:
        await counter.submit(under=under)
        task = counter.get_task_handle()

        async def harbours_is_spent() -> bool:
            return (await task.query(TaskWorkflow.progress)).steps[0].legs == 1

        await gate.reached.wait()
        await wait_until(harbours_is_spent)
        assert (await task.query(TaskWorkflow.progress)).approvals == ()
        gate.opened.set()
        await until_asked(task, 1)
        asked = (await task.query(TaskWorkflow.progress)).approvals[0]
        await task.signal(APPROVE_BUDGET, {"request_id": asked.request_id, "tokens": 9 * WORK_TOKENS})
        progress = await task.result()
    assert progress.phase is TaskPhase.DONE
    assert asked.agent == "harbours"
    everything = 2 * CALL_TOKENS + RESEARCH_TOKENS
    assert asked.task_spent.tokens == everything, "planning, one call about harbours, and all about tides"


async def grant_both(task: TaskHandle) -> None:
    for request_id in ("harbours-1", "tides-1"):
        await task.signal(APPROVE_BUDGET, {"request_id": request_id, "by": "Ada"})


async def test_a_malformed_approval_is_refused_where_people_see_it_and_the_task_waits_on(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        task = await wait_for_pause(counter)
        for sent, _ in MALFORMED:
            await task.signal(APPROVE_BUDGET, sent)
        refusals = await refusals_of(task, len(MALFORMED))
        for refusal, (_, reason) in zip(refusals, MALFORMED, strict=True):
            assert refusal.signal == APPROVE_BUDGET
            assert refusal.reason.startswith(reason)
        assert (await task.query(TaskWorkflow.progress)).phase is TaskPhase.PAUSED
        assert "`approve_budget` had no effect: there is no request with this id" in await fetch_current_details(task)
        await grant_both(task)
        progress = await task.result()
        trail = await counter.store.list_audit_entries(task.id, SYSTEM_SCOPE)
        report = await counter.store.get_text(progress.report or "", SYSTEM_SCOPE)
    assert progress.phase is TaskPhase.DONE
    assert progress.budget.spent == Amount(tokens=WORK_TOKENS)
    kept = {(entry.reason, entry.at) for entry in trail if isinstance(entry, RejectedMessage)}
    assert kept == {(refusal.reason, refusal.at) for refusal in refusals}
    assert "had no effect" not in report, "a reader of the report cannot do anything about it"


@pytest.mark.parametrize("signal", [APPROVE_BUDGET, DENY_BUDGET])
async def test_a_signal_without_input_or_with_several_is_refused_like_any_other(
    signal: str, server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        task = await wait_for_pause(counter)
        await task.signal(signal)
        await task.signal(signal, args=[{"request_id": "harbours-1"}, {"request_id": "tides-1"}])
        refusals = await refusals_of(task, 2)
        assert [refusal.signal for refusal in refusals] == [signal, signal]
        await grant_both(task)
        assert (await task.result()).phase is TaskPhase.DONE


async def test_an_answer_counts_once_and_never_after_another(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    gate = CallGate(ModelCall("write", 1))
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel(before=gate)) as counter:
        task = await wait_for_pause(counter)
        await task.signal(APPROVE_BUDGET, {"request_id": "harbours-1", "tokens": 1_500, "by": "Ada"})
        await task.signal(APPROVE_BUDGET, {"request_id": "harbours-1", "tokens": 9_000})
        await task.signal(DENY_BUDGET, {"request_id": "tides-1", "by": "Bo", "note": "enough of tides"})
        await task.signal(APPROVE_BUDGET, {"request_id": "tides-1"})
        await gate.reached.wait()
        await task.signal(APPROVE_BUDGET, {"request_id": "tides-1"})
        await task.signal(DENY_BUDGET, {"request_id": "harbours-1"})
        refusals = await refusals_of(task, 4)
        limit = (await task.query(TaskWorkflow.progress)).budget.limit
        gate.opened.set()
        progress = await task.result()
        trail = await counter.store.list_audit_entries(task.id, SYSTEM_SCOPE)
    assert [refusal.reason for refusal in refusals] == [
        "the request harbours-1 was already approved",
        "the request tides-1 was already denied",
        "the request tides-1 was already denied",
        "the request harbours-1 was already approved",
    ]
    assert limit == Limit(tokens=TIGHT_BUDGET + 1_500)
    assert progress.phase is TaskPhase.PARTIAL
    assert [step.state for step in progress.steps] == ["done", "partial", "done", "done"]
    approvals = [entry for entry in trail if isinstance(entry, ApprovalRequest)]
    decided = {entry.request_id: entry.decision for entry in approvals if entry.decision != "pending"}
    assert decided == {"harbours-1": "approved", "tides-1": "denied"}
    assert sum(isinstance(entry, RejectedMessage) for entry in trail) == 4


async def test_a_denial_that_cancels_ends_the_task_with_a_report(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    gate = CallGate(ModelCall("harbours", 2))
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel(before=gate)) as counter:
        await counter.submit(under=make_tight_budget_config())
        task = counter.get_task_handle()
        await until_asked(task, 1)
        await gate.reached.wait()
        await task.signal(DENY_BUDGET, {"finish": "cancel", "by": "Ada"})
        progress = await task.result()
        report = await counter.store.get_text(progress.report or "", SYSTEM_SCOPE)
        gate.opened.set()
    assert progress.phase is TaskPhase.CANCELLED
    assert [step.state for step in progress.steps] == ["partial", "partial", "skipped", "skipped"]
    assert "the task was cancelled" in report
    assert f"tides asked for {REQUESTED_TOKENS:,} tokens after 5 calls; denied by Ada (name not verified)" in report


async def test_a_task_that_is_ending_takes_no_answers_and_asks_for_nothing_more(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    gate = CallGate(ModelCall("harbours", 2))
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel(before=gate)) as counter:
        await counter.submit(under=make_tight_budget_config())
        task = counter.get_task_handle()
        await until_asked(task, 1)
        await gate.reached.wait()
        await task.cancel()  # the agent in the model call takes seconds to notice

        async def cancelling() -> bool:
            return "activity_task_cancel_requested" in list_event_kinds(await fetch_events(task))

        await wait_until(cancelling)
        await task.signal(APPROVE_BUDGET, {"request_id": "tides-1"})
        (refusal,) = await refusals_of(task, 1)
        progress = await task.query(TaskWorkflow.progress)
        gate.opened.set()  # its leg ends in spite of the cancellation, with its budget spent
        with pytest.raises(WorkflowFailureError):
            await task.result()
        stored = (await counter.store.get_task(task.id, SYSTEM_SCOPE)).progress
    assert refusal.reason == "the task is ending or has ended"
    assert progress.budget.limit == Limit(tokens=TIGHT_BUDGET)
    assert stored is not None
    assert [approval.request_id for approval in stored.approvals] == ["tides-1"]


async def test_a_paused_task_runs_no_activity_and_survives_workers_and_server(
    tmp_path: Path, redactor: Redactor
) -> None:
    crew, database = ScriptedTaskModel(), tmp_path / "temporal.db"
    async with start_dev_server(database=database, cached=False) as client:
        async with run_platform(client, tmp_path, redactor, crew) as counter:
            task = await wait_for_pause(counter)

            async def idle() -> bool:
                return not (await task.describe()).raw_description.pending_activities

            await wait_until(idle)
        async with run_platform(client, tmp_path, redactor, crew) as counter:
            assert (await counter.get_task_handle().query(TaskWorkflow.progress)).phase is TaskPhase.PAUSED
            await task.signal(APPROVE_BUDGET, {"request_id": "tides-1"})
            await until_asked(counter.get_task_handle(), 1)
    async with (
        start_dev_server(database=database, cached=False) as client,
        run_platform(client, tmp_path, redactor, crew) as counter,
    ):
        await counter.get_task_handle().signal(APPROVE_BUDGET, {"request_id": "harbours-1"})
        progress = await counter.get_task_handle().result()
    assert progress.phase is TaskPhase.DONE
    assert progress.budget.spent == Amount(tokens=WORK_TOKENS)
    assert len(crew.calls) == len(set(crew.calls))


async def test_a_request_stays_answerable_when_its_task_continues_as_new(tmp_path: Path, redactor: Redactor) -> None:
    gate = CallGate(ModelCall("harbours", 2))
    crew = ScriptedTaskModel(before=gate)
    async with (
        start_dev_server("limit.historyCount.suggestContinueAsNew=60") as client,
        run_platform(client, tmp_path, redactor, crew) as counter,
    ):
        await counter.submit(under=make_tight_budget_config())
        task = counter.get_task_handle()
        await until_asked(task, 1)
        await gate.reached.wait()
        first = (await task.describe()).run_id
        asked = (await task.query(TaskWorkflow.progress)).approvals
        for _ in range(20):
            await task.signal(APPROVE_BUDGET, "enough?")
        await refusals_of(task, 20)
        gate.opened.set()
        await until_asked(task, 2)

        async def continued() -> bool:
            return (await task.describe()).run_id != first

        await wait_until(continued)
        progress = await task.query(TaskWorkflow.progress)
        assert progress.approvals[0] == asked[0]
        assert len(progress.rejected_messages) == 20
        await grant_both(task)
        progress = await task.result()
    assert progress.phase is TaskPhase.DONE
    assert [approval.granted.tokens for approval in progress.approvals] == [REQUESTED_TOKENS, REQUESTED_TOKENS]
    assert progress.budget.spent == Amount(tokens=WORK_TOKENS)
    assert len(crew.calls) == len(set(crew.calls))
