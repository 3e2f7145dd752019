"""Edits of agents' contexts: what is taken of what people send, and what a run does with it."""

import pytest
from inline_snapshot import snapshot
from pydantic import JsonValue

from tests.support.task_states import (
    NOON,
    REF,
    TASK_CONFIG,
    apply_leg_outcome,
    exhaust_budget,
    finish_agent,
    make_approval_context,
    make_leg_state,
    make_run_usage,
    make_working_state,
    request_budgets,
)
from waystation.agents.agent_run import AgentRun, ApplyContextEdit, FinishRun, RequestBudget, RunLeg
from waystation.agents.compaction_request import EditOutcome
from waystation.agents.leg import ContextFull
from waystation.context.compaction import TOO_LATE_REASON, CompactionOutcome, CompactionStatus, ContextEdit
from waystation.tasks.details import render_task_details
from waystation.tasks.progress import build_task_progress
from waystation.tasks.signals import (
    EDIT,
    SignalContext,
    SignalEffect,
    UpdateResult,
    apply_signal,
    build_update_result,
    find_messages,
)
from waystation.tasks.state import TaskState
from waystation.tasks.task import RejectedMessage, TaskPhase
from waystation.tasks.view import TaskView

PIN: dict[str, JsonValue] = {"action": "pin", "agent": "research-1", "message": "m4", "by": "Ada", "answer_id": "a1"}


def answer(state: TaskState, sent: JsonValue) -> SignalEffect | RejectedMessage:
    return EDIT.evaluate(SignalContext(state, make_approval_context(state), NOON), sent)


def edited(state: TaskState, sent: JsonValue) -> TaskState:
    edit = answer(state, sent)
    assert isinstance(edit, ContextEdit), edit
    return apply_signal(state, edit)


def reason(state: TaskState, sent: JsonValue) -> str:
    refusal = answer(state, sent)
    assert isinstance(refusal, RejectedMessage)
    assert (refusal.signal, refusal.at) == ("edit_context", NOON)
    return refusal.reason


def settled(run: AgentRun, outcome: EditOutcome) -> AgentRun:
    assert run.next_edit is not None
    return run.after_edit(run.next_edit, outcome)


def compaction(status: CompactionStatus, tokens: int) -> CompactionOutcome:
    return CompactionOutcome(
        compaction_id="c1",
        status=status,
        strategy="window",
        tokens_before=10_000,
        tokens_after=4_000,
        covered=5,
        passages=0,
        totals=make_run_usage(tokens),
    )


DONE = EditOutcome(state="done", compaction=compaction(CompactionStatus.COMPRESSED, 29_600))
MALFORMED: dict[str, tuple[JsonValue, str]] = {
    "a bare string": (
        "pin m4",
        snapshot("the signal: it should have named values, as a JSON object or a TOML table does"),
    ),
    "an unknown action": (
        {**PIN, "action": "erase"},
        snapshot("action: it should be 'compact', 'pin', 'unpin', 'restore' or 'rewind'"),
    ),
    "no message": (
        {"action": "pin", "agent": "research-1"},
        snapshot("the signal: the action pin needs `message`"),
    ),
    "a compaction to pin": (
        {**PIN, "compaction": "c1"},
        snapshot("the signal: the action pin takes no `compaction`"),
    ),
    "nothing to restore": (
        {"action": "restore", "agent": "research-1"},
        snapshot("the signal: the action restore needs `compaction`"),
    ),
    "instructions to pin": (
        {**PIN, "instructions": "0" * 64},
        snapshot("the signal: the action pin does not accept `instructions`"),
    ),
    "instructions in words": (
        {"action": "compact", "agent": "research-1", "instructions": "keep the tides"},
        snapshot("instructions: it is too long or too short, or has characters that are not allowed"),
    ),
    "a text as message": (
        {**PIN, "message": "my secret"},
        snapshot(
            "message: give an id such as m4, which `waystation transcript` shows; an id has at most 64 characters: "
            "letters, digits, `-` and `_`"
        ),
    ),
    "an unknown field": ({**PIN, "sure": True}, snapshot("an unknown field")),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_edit_is_refused_without_its_values(name: str) -> None:
    sent, expected = MALFORMED[name]
    assert reason(make_working_state("research-1"), sent) == expected


def test_only_agents_at_work_are_edited() -> None:
    state = finish_agent(make_working_state("research-1", "research-2"), "research-1")
    over = state.replace(phase=TaskPhase.REPORTING)
    refusals = [
        reason(state, PIN),
        reason(state, {**PIN, "agent": "writing"}),
        reason(state, {**PIN, "agent": "nobody"}),
        reason(over, {**PIN, "agent": "research-2"}),
    ]
    assert refusals == snapshot(
        [
            "research-1 has finished: its context can no longer be edited",
            "writing has not started: it has no context yet",
            "there is no agent with this name; running agents: research-2",
            "the task is ending or has ended: its agents' contexts can no longer be edited",
        ]
    )
    refused = apply_signal(state, answer(state, {**PIN, "agent": "nobody"}))
    assert build_update_result(find_messages(refused, "a1")) == UpdateResult(outcome="refused", reason=refusals[2])


def test_edits_are_carried_out_in_their_order_before_anything_else() -> None:
    state = edited(edited(make_working_state("research-1"), PIN), {"action": "compact", "agent": "research-1"})
    run = state.runs["research-1"]
    first = run.get_next_action()
    assert isinstance(first, ApplyContextEdit)
    assert (first.request.edit.id, first.request.edit.message) == ("edit-1", "m4")
    run = settled(run, EditOutcome(state="done"))
    second = run.get_next_action()
    assert isinstance(second, ApplyContextEdit)
    assert (second.request.edit.id, second.request.edit.action) == ("edit-2", "compact")
    assert isinstance(settled(run, EditOutcome(state="refused", reason="no")).get_next_action(), RunLeg)
    assert AgentRun.model_validate_json(run.model_dump_json()) == run


def test_an_edit_of_an_agent_that_waits_for_money_leaves_its_request_and_the_pause_as_they_are() -> None:
    paused = request_budgets(exhaust_budget(make_working_state("research-1"), "research-1"), "research-1")
    state = edited(paused, {"action": "compact", "agent": "research-1"})
    assert (state.phase, state.pending_approvals) == (TaskPhase.PAUSED, paused.pending_approvals)
    after = state.with_run(settled(state.runs["research-1"], DONE))
    run = after.runs["research-1"]
    assert isinstance(run.get_next_action(), RequestBudget)
    assert (after.phase, after.pending_approvals) == (TaskPhase.PAUSED, paused.pending_approvals)
    assert (run.committed_compaction_count, run.totals.spent.tokens) == (1, 29_600)


def test_a_full_context_is_measured_anew_after_an_edit_and_compacted_after_a_refused_one() -> None:
    full = apply_leg_outcome(
        make_working_state("research-1"),
        "research-1",
        ContextFull(state=make_leg_state(9_000), request_tokens=12_000),
    )
    run = edited(full, {"action": "compact", "agent": "research-1"}).runs["research-1"]
    assert isinstance(settled(run, DONE).get_next_action(), RunLeg)
    refused = EditOutcome(state="refused", compaction=compaction(CompactionStatus.FAILED_CHECK, 9_500))
    after = settled(run, refused)
    assert after.phase == "full"
    assert (after.committed_compaction_count, after.totals.spent.tokens) == (0, 9_500)


def test_an_edit_that_the_agents_end_came_before_is_refused() -> None:
    state = finish_agent(edited(make_working_state("research-1"), PIN), "research-1")
    run = state.runs["research-1"]
    assert isinstance(run.get_next_action(), FinishRun)
    (late,) = run.late_edits
    assert (late.state, late.reason) == ("refused", TOO_LATE_REASON)


def test_what_a_summary_cost_is_booked_also_where_its_agent_was_denied_meanwhile() -> None:
    paused = request_budgets(exhaust_budget(make_working_state("research-1"), "research-1"), "research-1")
    state = edited(paused, {"action": "compact", "agent": "research-1"})
    edit = state.runs["research-1"].context_edits[0]
    denied = state.with_run(state.runs["research-1"].finish_partial("denied"))
    booked = denied.with_run(denied.runs["research-1"].after_edit(edit, DONE))
    assert booked.account.spent.tokens - denied.account.spent.tokens == 100
    assert booked.totals.spent.tokens == booked.account.spent.tokens
    assert booked.runs["research-1"].phase == "delivered"


def test_people_see_what_waits_and_what_became_of_it() -> None:
    state = edited(make_working_state("research-1"), {**PIN, "note": "the contract"})
    waiting = build_task_progress(state, REF, TASK_CONFIG, "Why?")
    assert build_update_result(find_messages(state, "a1")) == UpdateResult(outcome="waiting")
    line = "research-1: pin m4 (edit-1), requested by Ada (name not verified) [the contract]: "
    assert f"- {line}waits until the agent's current series of turns ends" in render_task_details(
        TaskView.from_progress(waiting)
    )
    state = state.with_run(settled(state.runs["research-1"], EditOutcome(state="refused", reason="m4 is hidden")))
    then = build_task_progress(state, REF, TASK_CONFIG, "Why?")
    assert build_update_result(find_messages(state, "a1")) == UpdateResult(outcome="refused", reason="m4 is hidden")
    assert then.notes[-1] == f"{line}refused, m4 is hidden"
    assert "waits for" not in render_task_details(TaskView.from_progress(then))
