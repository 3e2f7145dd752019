from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from tests.support.task_model import LARGE_WINDOW_CONFIG, make_task_config
from waystation.agents.agent_run import AgentRun, RunLeg, StartSubagents
from waystation.agents.delegation import (
    DelegationConfig,
    SubagentOrder,
    SubagentProgress,
    can_delegate,
    get_delegation_depth,
    get_parent_id,
    make_subagent_id,
)
from waystation.agents.deliverables import WorkCounts
from waystation.agents.leg import LegState, SubagentsRequested
from waystation.budgets.budget import BudgetAccount, RunUsage
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.refs import RunRef
from waystation.kernel.usage import Usage
from waystation.planning.plan import Plan, Step
from waystation.tasks.state import TaskState, apply_subagent_progress, start_subagents
from waystation.tasks.task import TaskPhase
from waystation.tasks.view import format_denial_effect

BUDGET = 40_000
AMOUNTS = st.lists(st.integers(0, 70_000), max_size=6)
STEP = Step(id="tides", role="research", title="Tides")
REF = RunRef(store_id="s", tenant="t", session="se", task_id="task", step_id="tides", role="research")


def make_working_state(limit: Limit | None = None) -> TaskState:
    """One agent with all of its task's budget."""
    limit = limit or Limit(tokens=BUDGET)
    run = AgentRun(run=REF, config=LARGE_WINDOW_CONFIG, limit=limit, initial_limit=limit)
    account = BudgetAccount(limit=limit).reserve("tides", limit.amount)
    return TaskState(account=account, plan=Plan(steps=(STEP,)), runs={"tides": run})


def make_subagent_orders(*limits: int) -> tuple[SubagentOrder, ...]:
    return tuple(
        SubagentOrder(id=f"tides.{n}", call_id=f"c{n}", role="research", title="", limit=Limit(tokens=limit))
        for n, limit in enumerate(limits, 1)
    )


def delegate_work(state: TaskState, *limits: int) -> TaskState:
    spent = state.runs["tides"].totals
    ended = SubagentsRequested(state=LegState(totals=spent), orders=make_subagent_orders(*limits))
    return start_subagents(state.with_run(state.runs["tides"].after_leg(ended)), "tides", make_task_config())


def spending(tokens: int) -> RunUsage:
    return RunUsage(usage=Usage(input=tokens), turns=1)


def deliver_result(state: TaskState, step_id: str, tokens: int) -> TaskState:
    run = state.runs[step_id]
    return state.with_run(run.replace(totals=spending(tokens), phase="delivered"))


def test_ids_of_subagents_tell_their_parent_and_their_depth() -> None:
    nested = make_subagent_id(make_subagent_id("tides", 2), 1)
    assert nested == "tides.2.1"
    assert get_parent_id(nested) == "tides.2"
    assert get_parent_id("tides") is None
    assert [get_delegation_depth(each) for each in ("tides", "tides.2", nested)] == [0, 1, 2]
    assert [can_delegate(each, DelegationConfig(max_depth=2)) for each in ("tides", "tides.2", nested)] == [
        True,
        True,
        False,
    ]
    assert not can_delegate("tides", None)


def test_a_delegating_agent_waits_for_all_of_its_subagents_and_then_goes_on_with_what_they_left() -> None:
    state = delegate_work(make_working_state(), 10_000, 5_000)
    assert isinstance(state.runs["tides"].get_next_action(), StartSubagents)
    assert state.runs["tides"].limit == Limit(tokens=BUDGET - 15_000)
    assert {name: held.tokens for name, held in state.account.reserved.items()} == {
        "tides": 25_000,
        "tides.1": 10_000,
        "tides.2": 5_000,
    }
    state = deliver_result(state, "tides.1", 4_000)
    assert isinstance(state.runs["tides"].get_next_action(), StartSubagents)
    state = deliver_result(state, "tides.2", 5_000)
    move = state.runs["tides"].get_next_action()
    assert isinstance(move, RunLeg)
    assert [back.call_id for back in move.request.subagent_results] == ["c1", "c2"]
    assert move.request.limit == Limit(tokens=BUDGET - 9_000)
    assert state.account.spent == Amount(tokens=9_000)
    assert state.account.reserved == {"tides": Amount(tokens=BUDGET - 9_000)}


def test_a_partial_subagent_says_why_it_ended_and_its_task_lacks_something_though_its_parent_is_done() -> None:
    state = delegate_work(make_working_state(), 10_000)
    state = state.with_run(state.runs["tides.1"].finish_partial("a person denied it more"))
    (back,) = state.runs["tides"].subagent_results
    assert (back.partial, back.reason) == (True, "a person denied it more")
    ended = deliver_result(state, "tides", 0)
    assert (ended.runs["tides"].partial, ended.final_phase) == (False, "partial")
    assert state.delivered_step_count == 0
    assert not state.all_steps_delivered


def test_what_a_subagents_subagent_lacks_its_task_lacks_and_an_agent_that_is_taken_back_begins_anew() -> None:
    state = delegate_work(make_working_state(), 20_000)
    nested = make_subagent_orders(5_000)[0].replace(id="tides.1.1")
    run = state.runs["tides.1"].after_leg(SubagentsRequested(state=LegState(totals=RunUsage()), orders=(nested,)))
    state = start_subagents(state.with_run(run), "tides.1", make_task_config())
    state = state.with_run(state.runs["tides.1.1"].finish_partial("someone ended its workflow"))
    state = deliver_result(deliver_result(state, "tides.1", 0), "tides", 0)
    assert [step_id for step_id, run in state.runs.items() if run.inputs_incomplete] == ["tides", "tides.1"]
    assert state.final_phase == "partial"
    again = state.runs["tides"].reopen_run(Limit(tokens=9_000))
    assert deliver_result(state.with_run(again), "tides", 0).final_phase == "done"


def test_a_task_whose_agent_waits_for_a_subagent_that_waits_for_a_person_is_paused() -> None:
    state = delegate_work(make_working_state(), 10_000)
    spent = state.runs["tides.1"].replace(phase="spent", needed=Amount(tokens=1))
    state = state.with_run(spent)
    asked = state.build_budget_request("tides.1", datetime(2026, 1, 1, tzinfo=UTC))
    assert state.with_approval_request(asked).phase != "paused", "it is still planning"
    assert state.replace(phase=TaskPhase.WORKING).with_approval_request(asked).phase == "paused"


def test_news_of_a_subagent_count_at_once_and_change_nothing_of_one_that_has_ended() -> None:
    state = delegate_work(make_working_state(), 10_000)
    news = SubagentProgress(id="tides.1", totals=spending(3_000), leg=2, work_counts=WorkCounts(notes=1))
    assert apply_subagent_progress(state, news).totals.spent == Amount(tokens=3_000)
    ended = deliver_result(state, "tides.1", 4_000)
    assert apply_subagent_progress(ended, news) == ended
    for stranger in ("tides", "nobody.1"):
        assert apply_subagent_progress(state, news.replace(id=stranger)) == state


def test_a_subagents_window_is_that_of_its_role_whatever_its_budget() -> None:
    state = delegate_work(make_working_state(), 20_000, 9_000)
    assert [state.runs[f"tides.{n}"].config.window for n in (1, 2)] == [100_000, 100_000]
    terms = state.runs["tides.1"].config
    assert (terms.trigger, terms.target) == (75_000, 37_500)


def test_a_subagent_works_as_its_role_does_and_thinks_within_its_own_budget() -> None:
    writer = LARGE_WINDOW_CONFIG.replace(
        model="scribe", effort="low", thinking=8_000, max_output=8_200, min_reply_tokens=8_050
    )
    under = make_task_config().replace(by_role={"writing": writer})
    ordered = [order.replace(role="writing") for order in make_subagent_orders(20_000, 3_000)]
    ended = SubagentsRequested(
        state=LegState(totals=RunUsage()), orders=(*ordered, *make_subagent_orders(0, 0, 9_000)[2:])
    )
    state = start_subagents(
        make_working_state().with_run(make_working_state().runs["tides"].after_leg(ended)), "tides", under
    )
    first, second, third = (state.runs[f"tides.{n}"].config for n in (1, 2, 3))
    assert (first.model, first.effort, first.window) == ("scribe", "low", 100_000)
    assert (first.thinking, first.max_output, first.min_reply_tokens) == (5_000, 5_200, 5_050)
    assert (second.thinking, second.min_reply_tokens) == (1_024, 1_074)
    assert (third.model, third.effort, third.thinking) == (LARGE_WINDOW_CONFIG.model, None, None)


@given(AMOUNTS, AMOUNTS, st.integers(0, 9_000))
def test_whatever_is_carved_and_spent_the_account_adds_up(limits: list[int], spent: list[int], own: int) -> None:
    """No fan-out makes money: as long as nobody overspends, the limit holds; and everything spent is booked once."""
    state = make_working_state().with_run(make_working_state().runs["tides"].replace(totals=spending(own)))
    given_away: list[int] = []
    for limit in limits:  # as the leg does: of what is left
        given_away.append(min(limit, max(0, BUDGET - own - sum(given_away))))
    state = delegate_work(state, *given_away)
    assert state.account.total_reserved == Amount(tokens=BUDGET)
    used = [min(amount, limit) for amount, limit in zip(spent + [0] * 6, given_away, strict=False)]
    for number, amount in enumerate(used, 1):
        state = deliver_result(state, f"tides.{number}", amount)
        assert state.account.limit.can_cover(state.account.spent + state.account.total_reserved)
    assert state.runs["tides"].limit == Limit(tokens=BUDGET - sum(used))
    state = deliver_result(state, "tides", own)
    assert state.account.spent == Amount(tokens=own + sum(used))
    assert state.account.total_reserved == Amount()


@given(st.integers(0, 10**9), st.integers(1, 100))
def test_a_carved_limit_never_passes_what_is_left(left: int, percent: int) -> None:
    carve = Limit(tokens=left).compute_percent(percent)
    assert carve.micro_usd is None
    assert carve.tokens is not None
    assert 0 <= carve.tokens <= left


def test_what_a_denied_subagent_has_goes_to_its_parent() -> None:
    state = delegate_work(make_working_state(), 10_000)
    spent = state.runs["tides.1"].replace(phase="spent", needed=Amount(tokens=1), work_counts=WorkCounts(notes=2))
    asked = state.with_run(spent).build_budget_request("tides.1", datetime(2026, 1, 1, tzinfo=UTC))
    assert asked.forecast is not None
    assert format_denial_effect(asked.forecast, asked.agent) == (
        "tides.1 returns 2 notes to tides, which continues with this result; the report is partial"
    )
