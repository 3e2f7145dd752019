from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from tests.crew import ROOMY, terms
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
from waystation.tasks.details import denial_text
from waystation.tasks.state import TaskState, progressed, taken_on
from waystation.tasks.task import TaskPhase

BUDGET = 40_000
AMOUNTS = st.lists(st.integers(0, 70_000), max_size=6)
STEP = Step(id="tides", role="research", title="Tides")
REF = RunRef(store_id="s", tenant="t", session="se", task_id="task", step_id="tides", role="research")


def working(limit: Limit | None = None) -> TaskState:
    """One agent with all of its task's budget."""
    limit = limit or Limit(tokens=BUDGET)
    run = AgentRun(run=REF, terms=ROOMY, limit=limit, share=limit)
    account = BudgetAccount(limit=limit).reserve("tides", limit.amount)
    return TaskState(account=account, plan=Plan(steps=(STEP,)), runs={"tides": run})


def orders(*limits: int) -> tuple[SubagentOrder, ...]:
    return tuple(
        SubagentOrder(id=f"tides.{n}", call_id=f"c{n}", role="research", title="", limit=Limit(tokens=limit))
        for n, limit in enumerate(limits, 1)
    )


def delegating(state: TaskState, *limits: int) -> TaskState:
    spent = state.runs["tides"].totals
    ended = SubagentsRequested(standing=LegState(totals=spent), orders=orders(*limits))
    return taken_on(state.with_run(state.runs["tides"].after_leg(ended)), "tides", terms())


def spending(tokens: int) -> RunUsage:
    return RunUsage(usage=Usage(input=tokens), turns=1)


def delivered(state: TaskState, step_id: str, tokens: int) -> TaskState:
    run = state.runs[step_id]
    return state.with_run(run.replace(totals=spending(tokens), phase="delivered"))


def test_ids_of_subagents_tell_their_parent_and_their_depth() -> None:
    nested = make_subagent_id(make_subagent_id("tides", 2), 1)
    assert nested == "tides.2.1"
    assert get_parent_id(nested) == "tides.2"
    assert get_parent_id("tides") is None
    assert [get_delegation_depth(each) for each in ("tides", "tides.2", nested)] == [0, 1, 2]
    assert [can_delegate(each, DelegationConfig(depth=2)) for each in ("tides", "tides.2", nested)] == [
        True,
        True,
        False,
    ]
    assert not can_delegate("tides", None)


def test_a_delegating_agent_waits_for_all_of_its_subagents_and_then_goes_on_with_what_they_left() -> None:
    state = delegating(working(), 10_000, 5_000)
    assert isinstance(state.runs["tides"].next_move(), StartSubagents)
    assert state.runs["tides"].limit == Limit(tokens=BUDGET - 15_000)
    assert {name: held.tokens for name, held in state.account.reserved.items()} == {
        "tides": 25_000,
        "tides.1": 10_000,
        "tides.2": 5_000,
    }
    state = delivered(state, "tides.1", 4_000)
    assert isinstance(state.runs["tides"].next_move(), StartSubagents)
    state = delivered(state, "tides.2", 5_000)
    move = state.runs["tides"].next_move()
    assert isinstance(move, RunLeg)
    assert [back.call_id for back in move.request.handed_back] == ["c1", "c2"]
    assert move.request.limit == Limit(tokens=BUDGET - 9_000)
    assert state.account.spent == Amount(tokens=9_000)
    assert state.account.reserved == {"tides": Amount(tokens=BUDGET - 9_000)}


def test_a_partial_subagent_says_why_it_ended_and_its_task_lacks_something_though_its_parent_is_done() -> None:
    state = delegating(working(), 10_000)
    state = state.with_run(state.runs["tides.1"].finish_partial("a person denied it more"))
    (back,) = state.runs["tides"].handed_back
    assert (back.partial, back.reason) == (True, "a person denied it more")
    ended = delivered(state, "tides", 0)
    assert (ended.runs["tides"].partial, ended.last_phase) == (False, "partial")
    assert state.steps_done == 0
    assert not state.all_done


def test_what_a_subagents_subagent_lacks_its_task_lacks_and_an_agent_that_is_taken_back_begins_anew() -> None:
    state = delegating(working(), 20_000)
    nested = orders(5_000)[0].replace(id="tides.1.1")
    run = state.runs["tides.1"].after_leg(SubagentsRequested(standing=LegState(totals=RunUsage()), orders=(nested,)))
    state = taken_on(state.with_run(run), "tides.1", terms())
    state = state.with_run(state.runs["tides.1.1"].finish_partial("its workflow was ended by somebody"))
    state = delivered(delivered(state, "tides.1", 0), "tides", 0)
    assert [step_id for step_id, run in state.runs.items() if run.lacking] == ["tides", "tides.1"]
    assert state.last_phase == "partial"
    again = state.runs["tides"].reopen_run(Limit(tokens=9_000))
    assert delivered(state.with_run(again), "tides", 0).last_phase == "done"


def test_a_task_whose_agent_waits_for_a_subagent_that_waits_for_a_person_is_paused() -> None:
    state = delegating(working(), 10_000)
    spent = state.runs["tides.1"].replace(phase="spent", needed=Amount(tokens=1))
    state = state.with_run(spent)
    asked = state.request_for("tides.1", datetime(2026, 1, 1, tzinfo=UTC))
    assert state.asked(asked).phase != "paused", "it is still planning"
    assert state.replace(phase=TaskPhase.WORKING).asked(asked).phase == "paused"


def test_news_of_a_subagent_count_at_once_and_change_nothing_of_one_that_has_ended() -> None:
    state = delegating(working(), 10_000)
    news = SubagentProgress(id="tides.1", totals=spending(3_000), leg=2, made=WorkCounts(notes=1))
    assert progressed(state, news).totals.spent == Amount(tokens=3_000)
    ended = delivered(state, "tides.1", 4_000)
    assert progressed(ended, news) == ended
    for stranger in ("tides", "nobody.1"):
        assert progressed(state, news.replace(id=stranger)) == state


def test_a_subagents_window_is_that_of_its_role_whatever_its_budget() -> None:
    state = delegating(working(), 20_000, 9_000)
    assert [state.runs[f"tides.{n}"].terms.window for n in (1, 2)] == [100_000, 100_000]
    terms = state.runs["tides.1"].terms
    assert (terms.trigger, terms.target) == (75_000, 37_500)


def test_a_subagent_works_as_its_role_does_and_thinks_within_its_own_budget() -> None:
    writer = ROOMY.replace(model="scribe", effort="low", thinking=8_000, max_output=8_200, output_floor=8_050)
    under = terms().replace(by_role={"writing": writer})
    ordered = [order.replace(role="writing") for order in orders(20_000, 3_000)]
    ended = SubagentsRequested(standing=LegState(totals=RunUsage()), orders=(*ordered, *orders(0, 0, 9_000)[2:]))
    state = taken_on(working().with_run(working().runs["tides"].after_leg(ended)), "tides", under)
    first, second, third = (state.runs[f"tides.{n}"].terms for n in (1, 2, 3))
    assert (first.model, first.effort, first.window) == ("scribe", "low", 100_000)
    assert (first.thinking, first.max_output, first.output_floor) == (5_000, 5_200, 5_050)
    assert (second.thinking, second.output_floor) == (1_024, 1_074)
    assert (third.model, third.effort, third.thinking) == (ROOMY.model, None, None)


@given(AMOUNTS, AMOUNTS, st.integers(0, 9_000))
def test_whatever_is_carved_and_spent_the_account_adds_up(limits: list[int], spent: list[int], own: int) -> None:
    """No fan-out makes money: as long as nobody overspends, the limit holds; and everything spent is booked once."""
    state = working().with_run(working().runs["tides"].replace(totals=spending(own)))
    given_away: list[int] = []
    for limit in limits:  # as the leg does: of what is left
        given_away.append(min(limit, max(0, BUDGET - own - sum(given_away))))
    state = delegating(state, *given_away)
    assert state.account.held == Amount(tokens=BUDGET)
    used = [min(amount, limit) for amount, limit in zip(spent + [0] * 6, given_away, strict=False)]
    for number, amount in enumerate(used, 1):
        state = delivered(state, f"tides.{number}", amount)
        assert state.account.limit.can_cover(state.account.spent + state.account.held)
    assert state.runs["tides"].limit == Limit(tokens=BUDGET - sum(used))
    state = delivered(state, "tides", own)
    assert state.account.spent == Amount(tokens=own + sum(used))
    assert state.account.held == Amount()


@given(st.integers(0, 10**9), st.integers(1, 100))
def test_a_carved_limit_never_passes_what_is_left(left: int, percent: int) -> None:
    carve = Limit(tokens=left).percent(percent)
    assert carve.micro_usd is None
    assert carve.tokens is not None
    assert 0 <= carve.tokens <= left


def test_what_a_denied_subagent_has_goes_to_its_parent() -> None:
    state = delegating(working(), 10_000)
    spent = state.runs["tides.1"].replace(phase="spent", needed=Amount(tokens=1), made=WorkCounts(notes=2))
    asked = state.with_run(spent).request_for("tides.1", datetime(2026, 1, 1, tzinfo=UTC))
    assert asked.outlook is not None
    assert denial_text(asked.outlook, asked.agent) == (
        "tides.1 hands 2 notes back to tides, which goes on with that, and the task ends partial"
    )
