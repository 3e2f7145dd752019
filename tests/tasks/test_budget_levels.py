"""Three levels of budget together: a session, its tasks and their agents, in tokens and dollars at once."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.task_states import PLAN, REF, TASK_CONFIG
from waystation.agents.leg import AgentFinished, BudgetExhausted, LegState
from waystation.budgets.budget import BudgetAccount, RunUsage
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.errors import InsufficientBudgetError
from waystation.kernel.usage import Usage
from waystation.tasks import session
from waystation.tasks.reallocation import draw_budget, draw_from_task
from waystation.tasks.session import ApprovedTaskGrant, SessionBudgetRequest, SessionState, TaskSettlement
from waystation.tasks.state import TaskState
from waystation.tasks.task import TaskPhase

TASKS = ("task-1", "task-2", "task-3")
BUDGET = Limit(tokens=40_000, micro_usd=80_000)
AGENT = Limit(tokens=8_000, micro_usd=16_000)
AMOUNTS = st.builds(Amount, tokens=st.integers(1, 9_000), micro_usd=st.integers(1, 18_000))
PARTS = st.floats(0, 1)


def totals(spent: Amount) -> RunUsage:
    return RunUsage(usage=Usage(input=spent.tokens), turns=1, cost_micro_usd=spent.micro_usd)


def part(of: Amount, tokens: float, dollars: float) -> Amount:
    return Amount(tokens=int(of.tokens * tokens), micro_usd=int(of.micro_usd * dollars))


class Levels(RuleBasedStateMachine):
    """Tasks of one session, whose agents never spend more than they may: their limit, as the loop sees to."""

    @initialize(limit=st.builds(Limit, tokens=st.integers(0, 200_000), micro_usd=st.integers(0, 400_000)))
    def opened(self, limit: Limit) -> None:
        self.session = SessionState(account=BudgetAccount(limit=limit))
        self.tasks: dict[str, TaskState] = {}
        self.limit = limit
        """What the session may spend, grants of people included."""
        self.asks = 0

    @rule(task_id=st.sampled_from(TASKS), tokens=PARTS, dollars=PARTS, floor=st.none() | AMOUNTS, least=AMOUNTS)
    def submit(self, task_id: str, tokens: float, dollars: float, floor: Amount | None, least: Amount) -> None:
        if task_id in self.tasks:
            return
        try:
            self.session = session.admit_task(self.session, task_id, BUDGET)
        except InsufficientBudgetError:
            assert not self.session.account.unreserved.can_cover(BUDGET.amount)
            return
        planning = totals(part(BUDGET.divide_by(8).amount, tokens, dollars))
        begun = TaskState(
            account=BudgetAccount(limit=BUDGET), minimum_reserve=floor, minimum_reserves={"writing": least}
        )
        self.tasks[task_id] = begun.with_plan(PLAN, planning, (), AGENT)

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        task_id = data.draw(st.sampled_from(sorted(self.tasks)))
        state = self.tasks[task_id]
        to_come = [step for step in PLAN.steps if step.id not in state.runs and step.id in state.account.reserved]
        if to_come:
            self.tasks[task_id] = state.start_step(data.draw(st.sampled_from(to_come)), REF, TASK_CONFIG)

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), tokens=PARTS, dollars=PARTS)
    def work(self, data: st.DataObject, tokens: float, dollars: float) -> None:
        task_id, step_id = self._pick(data, "running")
        if step_id is None:
            return
        state = self.tasks[task_id]
        run = state.runs[step_id]
        spent = run.totals.spent + part(run.limit.remaining_after(run.totals.spent).amount, tokens, dollars)
        ends = data.draw(st.sampled_from(["finished", "spent"]))
        standing = LegState(totals=totals(spent))
        outcome = (
            AgentFinished(state=standing)
            if ends == "finished"
            else BudgetExhausted(state=standing, needed=data.draw(AMOUNTS))
        )
        self.tasks[task_id] = state.with_run(run.after_leg(outcome))

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def draw(self, data: st.DataObject) -> None:
        task_id, step_id = self._pick(data, "spent")
        if step_id is None:
            return
        before = self.tasks[task_id]
        state = draw_budget(before, step_id)
        if state is None:
            assert draw_from_task(before, step_id) == (before, Amount())
            return
        self.tasks[task_id] = state
        least = before.runs[step_id].limit.amount + before.runs[step_id].needed
        assert least.subtract_clamped(state.runs[step_id].limit.amount).is_zero, "its next call is paid for"

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), times=st.integers(1, 3))
    def ask_the_session(self, data: st.DataObject, times: int) -> None:
        task_id, step_id = self._pick(data, "spent")
        if step_id is None:
            return
        self.asks += 1
        ask = SessionBudgetRequest(
            task_id=task_id, request_id=str(self.asks), amount=self.tasks[task_id].runs[step_id].top_up_amount
        )
        self.session, answer = session.answer_budget_request(self.session, ask)
        assert answer is not None
        for _ in range(times):  # the answer may arrive more than once
            self.tasks[task_id] = self.tasks[task_id].after_session_answer(answer)

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), amount=AMOUNTS)
    def a_person_grants(self, data: st.DataObject, amount: Amount) -> None:
        task_id, step_id = self._pick(data, "spent")
        if step_id is None:
            return
        before = self.session, self.tasks[task_id]
        self.tasks[task_id] = before[1].after_grant(step_id, amount)
        self.session = session.apply_task_grant(before[0], ApprovedTaskGrant(task_id=task_id, amount=amount))
        self.limit = self.limit.increase_by(amount)
        assert self.session.account.limit == before[0].account.limit.increase_by(amount)
        assert self.session.account.reserved[task_id] == before[0].account.reserved[task_id] + amount
        assert self.tasks[task_id].account.limit == before[1].account.limit.increase_by(amount)
        assert self.tasks[task_id].runs[step_id].limit == before[1].runs[step_id].limit.increase_by(amount)

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), times=st.integers(1, 3))
    def end(self, data: st.DataObject, times: int) -> None:
        task_id = data.draw(st.sampled_from(sorted(self.tasks)))
        state = self.tasks[task_id].end_task(TaskPhase.DONE)
        assert state.account.total_reserved.is_zero
        assert state.account.spent == state.totals.spent
        self.tasks[task_id] = state
        for _ in range(times):
            self.session = session.settle_task(self.session, TaskSettlement(task_id=task_id, spent=state.totals.spent))

    def _pick(self, data: st.DataObject, phase: str) -> tuple[str, str | None]:
        task_id = data.draw(st.sampled_from(sorted(self.tasks)))
        state = self.tasks[task_id]
        steps = [
            step_id for step_id, run in state.runs.items() if run.phase == phase and step_id in state.account.reserved
        ]
        return task_id, data.draw(st.sampled_from(steps)) if steps else None

    @invariant()
    def no_level_passes_its_limit(self) -> None:
        assert self.session.account.limit == self.limit
        assert self.limit.can_cover(self.session.account.spent + self.session.account.total_reserved)
        for task_id, state in self.tasks.items():
            held = self.session.account.reserved.get(task_id)
            assert state.account.limit.can_cover(state.account.spent + state.account.total_reserved)
            if held is not None:
                assert Limit(tokens=held.tokens, micro_usd=held.micro_usd) == state.account.limit
            for step_id, reserved in state.account.reserved.items():
                if step_id in state.runs:
                    assert reserved == state.runs[step_id].limit.amount
                else:
                    share = state.get_step_share(step_id)
                    assert share is not None
                    floor = (
                        share.amount if state.minimum_reserve is None else state.minimum_reserve.min_with(share.amount)
                    )
                    assert floor.subtract_clamped(reserved).is_zero
                    assert state.get_minimum_reserve(PLAN.get_step(step_id)).subtract_clamped(reserved).is_zero

    @invariant()
    def everything_spent_anywhere_is_within_the_sessions_limit(self) -> None:
        spent = sum((state.totals.spent for state in self.tasks.values()), Amount())
        assert self.limit.can_cover(spent)


TestLevels = Levels.TestCase


@given(st.permutations(range(32)), st.lists(st.tuples(PARTS, PARTS), min_size=32, max_size=32), st.integers(1, 3))
def test_32_tasks_settle_in_any_order_and_repetition_to_what_they_spent(
    order: list[int], shares: list[tuple[float, float]], times: int
) -> None:
    limit = Limit(tokens=32 * 40_000, micro_usd=32 * 80_000)
    state = SessionState(account=BudgetAccount(limit=limit))
    for number in range(32):
        state = session.admit_task(state, f"task-{number}", BUDGET)
    assert state.account.unreserved == Limit(tokens=0, micro_usd=0)
    spent = [part(BUDGET.amount, tokens, dollars) for tokens, dollars in shares]
    for number in order * times:
        state = session.settle_task(state, TaskSettlement(task_id=f"task-{number}", spent=spent[number]))
    assert state == SessionState(account=BudgetAccount(limit=limit, spent=sum(spent, Amount())))
