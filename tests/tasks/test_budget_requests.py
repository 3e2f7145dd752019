"""How a task asks people for money, pauses, and takes their answers."""

from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from tests.support.approval_answers import apply_approval, apply_denial
from tests.support.task_states import (
    NOON,
    apply_leg_outcome,
    exhaust_budget,
    finish_agent,
    make_approval_context,
    make_leg_state,
    make_working_state,
    request_budgets,
)
from waystation.agents.agent_run import AgentRun, BudgetForecast
from waystation.agents.deliverables import WorkCounts
from waystation.agents.leg import AgentFinished, BudgetExhausted, LegOutcome, TurnLimitReached
from waystation.kernel.amount import Amount, Limit
from waystation.tasks.state import MAX_SHOWN_REJECTIONS, TaskState
from waystation.tasks.task import ApprovalRequest, RejectedMessage, TaskPhase


def test_a_request_says_what_the_money_is_for_under_an_id_that_a_replay_gives_again() -> None:
    state = exhaust_budget(finish_agent(make_working_state(), "research-2"), "research-1")
    request = state.build_budget_request("research-1", NOON)
    assert request == state.build_budget_request("research-1", NOON)
    assert request == ApprovalRequest(
        request_id="research-1-1",
        agent="research-1",
        requested=Amount(tokens=900 + 3 * 30_000),  # its next call, and ten turns, which are over three shares
        spent=Amount(tokens=29_500, micro_usd=7),
        limit=Limit(tokens=30_000),
        needed=state.runs["research-1"].needed,
        task_spent=Amount(tokens=2_000 + 10_000 + 29_500, micro_usd=21),
        steps_left=3,
        forecast=BudgetForecast(
            turns=1,
            average_turn_cost=Amount(tokens=29_500),
            turns_covered=4,
            cost_to_finish=Amount(tokens=90_900),
            finished_steps=1,
            pending_steps=2,
            reserved_for_pending=Amount(tokens=60_000),
            work_counts=WorkCounts(),
            dependent_steps=("analysis",),
        ),
        requested_at=NOON,
    )


def test_each_request_of_a_step_has_a_number_of_its_own() -> None:
    state = request_budgets(make_working_state(), "research-1", "research-2")
    answer = apply_approval(make_approval_context(state), {"request_id": "research-1-1"}, NOON)
    state = exhaust_budget(state.after_answer(answer).after_grant("research-1", Amount(tokens=30_000)), "research-1")
    assert state.build_budget_request("research-1", NOON).request_id == "research-1-2"
    assert [approval.request_id for approval in state.pending_approvals] == ["research-2-1"]


def test_a_task_is_paused_only_while_every_run_that_is_not_done_waits_for_a_person() -> None:
    state = request_budgets(make_working_state(), "research-1")
    assert state.phase is TaskPhase.WORKING
    state = request_budgets(state, "research-2")
    assert state.phase is TaskPhase.PAUSED
    granted = state.after_answer(apply_approval(make_approval_context(state), {"request_id": "research-1-1"}, NOON))
    assert granted.after_grant("research-1", Amount(tokens=1_000)).phase is TaskPhase.WORKING


def test_a_task_whose_last_running_agent_finishes_is_paused_by_the_one_that_waits() -> None:
    assert finish_agent(request_budgets(make_working_state(), "research-1"), "research-2").phase is TaskPhase.PAUSED


def test_an_agent_that_only_spent_its_budget_does_not_pause_its_task() -> None:
    assert exhaust_budget(exhaust_budget(make_working_state(), "research-1"), "research-2").phase is TaskPhase.WORKING


@given(st.lists(st.sampled_from(["leg", "spent", "finish", "ask", "grant", "deny"]), max_size=25), st.data())
def test_the_account_holds_and_paused_means_that_all_wait(events: list[str], data: st.DataObject) -> None:
    state = make_working_state()
    for event in events:
        open_runs = [run for run in state.runs.values() if run.phase != "delivered"]
        if not open_runs:
            break
        state = happened(state, event, data.draw(st.sampled_from(open_runs)), data)
        assert state.account.limit.can_cover(state.account.spent + state.account.total_reserved)
        waiting = {approval.agent for approval in state.pending_approvals}
        active = {run.run.step_id for run in state.runs.values() if run.phase != "delivered"}
        assert (state.phase is TaskPhase.PAUSED) == (bool(active) and active <= waiting)
    over = state.end_task(TaskPhase.DONE)
    assert over.account.total_reserved.is_zero
    assert over.account.spent == over.totals.spent


def happened(state: TaskState, event: str, run: AgentRun, data: st.DataObject) -> TaskState:
    """The state after the event, if it can happen to this run now."""
    step_id = run.run.step_id
    pending = next((approval for approval in state.pending_approvals if approval.agent == step_id), None)
    if pending is not None and event in {"grant", "deny"}:
        sent: JsonValue = {"request_id": pending.request_id}
        if event == "grant":
            return state.after_answer(apply_approval(make_approval_context(state), sent, NOON)).after_grant(
                step_id, pending.requested
            )
        return state.after_answer(apply_denial(make_approval_context(state), sent, NOON)).after_denial(step_id)
    if pending is None and run.phase == "spent" and event == "ask":
        return state.with_approval_request(state.build_budget_request(step_id, NOON))
    if run.phase == "running" and event in {"leg", "finish", "spent"}:
        tokens = data.draw(st.integers(run.totals.spent.tokens, run.limit.amount.tokens))
        outcomes: dict[str, LegOutcome] = {
            "leg": TurnLimitReached(state=make_leg_state(tokens)),
            "finish": AgentFinished(state=make_leg_state(tokens)),
            "spent": BudgetExhausted(state=make_leg_state(tokens), needed=Amount(tokens=900)),
        }
        return apply_leg_outcome(state, step_id, outcomes[event])
    return state


def test_a_denial_delivers_what_the_agent_has_and_gives_the_rest_back() -> None:
    state = request_budgets(make_working_state(), "research-1")
    state = state.after_answer(apply_denial(make_approval_context(state), {}, NOON)).after_denial("research-1")
    run = state.runs["research-1"]
    assert (run.partial, run.reason, state.cancelled) == (True, "a person denied its budget request", False)
    assert state.account.spent.tokens == 2_000 + 29_500
    assert "research-1" not in state.account.reserved


def test_a_denial_may_end_the_whole_task_and_then_nothing_can_be_answered_any_more() -> None:
    state = request_budgets(make_working_state(), "research-1", "research-2")
    answer = apply_denial(make_approval_context(state), {"request_id": "research-1-1", "finish": "cancel"}, NOON)
    state = state.after_answer(answer).after_denial("research-1")
    assert (state.cancelled, state.is_ending, state.pending_approvals) == (True, True, ())
    assert state.final_phase is TaskPhase.CANCELLED


def test_a_refused_answer_changes_nothing_but_the_list_of_refusals_which_is_bounded() -> None:
    state = request_budgets(make_working_state(), "research-1", "research-2")
    refused = apply_approval(make_approval_context(state), "yes", NOON)
    assert isinstance(refused, RejectedMessage)
    after = state.after_answer(refused)
    assert after == state.replace(rejected_messages=(refused,))
    for number in range(MAX_SHOWN_REJECTIONS + 5):
        after = after.after_answer(RejectedMessage(signal="deny_budget", reason=str(number), at=NOON))
    assert [refusal.reason for refusal in after.rejected_messages] == [
        str(n) for n in range(5, MAX_SHOWN_REJECTIONS + 5)
    ]
