"""Three levels of budget whose every state is stored and loaded again between two steps, with messages under way."""

from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
)
from pydantic import JsonValue

from tests.support import approval_answers
from tests.support.task_states import NOON, PLAN, REF, TASK_CONFIG
from waystation.agents.leg import AgentFinished, BudgetExhausted, LegOutcome, LegState, OperatorActionRequired
from waystation.budgets.budget import BudgetAccount, RunUsage
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.errors import InsufficientBudgetError
from waystation.kernel.usage import Usage
from waystation.tasks import approvals, session
from waystation.tasks.reallocation import draw_budget
from waystation.tasks.session import (
    ApprovedTaskGrant,
    SessionBudgetAnswer,
    SessionBudgetRequest,
    SessionState,
    TaskSettlement,
)
from waystation.tasks.state import TaskState
from waystation.tasks.task import ApprovalRequest, TaskPhase

TASKS = ("task-1", "task-2", "task-3")
BUDGET, AGENT = Limit(tokens=40_000, micro_usd=80_000), Limit(tokens=8_000, micro_usd=16_000)
LIMITS = st.builds(Limit, tokens=st.integers(80_000, 200_000), micro_usd=st.integers(160_000, 400_000))
AMOUNTS = st.builds(Amount, tokens=st.integers(1, 9_000), micro_usd=st.integers(1, 18_000))
PARTS = st.floats(0, 1)
TIMES = st.integers(1, 3)
ENDS = st.sampled_from(["spent", "spent", "finished", "halted", "crashed"])
SELDOM = st.sampled_from([False, False, False, True])
NOTHING: MultipleResults[str] = multiple()


def totals(spent: Amount) -> RunUsage:
    return RunUsage(usage=Usage(input=spent.tokens), turns=1, cost_micro_usd=spent.micro_usd)


def same(amount: Amount) -> Limit:
    return Limit(tokens=amount.tokens, micro_usd=amount.micro_usd)


class Picked(NamedTuple):
    """An agent of a task, as its task was loaded."""

    task_id: str
    step_id: str
    state: TaskState
    request: ApprovalRequest | None


class Stored(RuleBasedStateMachine):
    """A session and its tasks, of which only JSON is left between two steps, as after a crash.

    Messages to and from a session arrive in any order and, where a task or a session could send them again, again. A
    grant arrives once and before its task's settlement: so Temporal delivers what one workflow sends another.
    """

    asks, answers, settlements = Bundle("asks"), Bundle("answers"), Bundle("settlements")

    @initialize(limit=LIMITS)
    def opened(self, limit: Limit) -> None:
        self.session = SessionState(account=BudgetAccount(limit=limit))
        self.tasks: dict[str, TaskState] = {}
        self.limit = limit
        """What the session may spend, grants of people included."""
        self.paid: dict[str, dict[str, Amount]] = {}
        """By task and step, what calls have cost, as the store has it: whether the task knows of it or not."""
        self.given: dict[str, Amount] = {}
        """By task: what its session has given and it has not received."""
        self.over: set[str] = set()
        self.asked = 0
        self.heard: set[str] = set()
        """Ids of the asks that the session has answered."""
        for task_id in TASKS:
            self.submit(task_id, 0.5, 0.5)

    def keep(self, task_id: str, state: TaskState) -> None:
        """Only what was stored is there from now on."""
        self.tasks[task_id] = TaskState.model_validate_json(state.model_dump_json())

    def keep_session(self, state: SessionState) -> None:
        self.session = SessionState.model_validate_json(state.model_dump_json())

    def running(self) -> dict[str, TaskState]:
        return {task_id: state for task_id, state in self.tasks.items() if task_id not in self.over}

    def pick(self, data: st.DataObject, phase: str, *, asked: bool | None = None) -> Picked | None:
        """An agent of a running task in this phase: one that a person is asked for, one that none is, or any."""
        found: list[Picked] = []
        for task_id, state in self.running().items():
            waiting = {request.agent: request for request in state.pending_approvals}
            found += [
                Picked(task_id, step_id, state, waiting.get(step_id))
                for step_id, run in state.runs.items()
                if run.phase == phase and asked in {None, step_id in waiting}
            ]
        return data.draw(st.sampled_from(found)) if found else None

    @rule(task_id=st.sampled_from(TASKS), tokens=PARTS, money=PARTS)
    def submit(self, task_id: str, tokens: float, money: float) -> None:
        if task_id in self.tasks:
            return
        try:
            self.keep_session(session.admit_task(self.session, task_id, BUDGET))
        except InsufficientBudgetError:
            assert not self.session.account.unreserved.can_cover(BUDGET.amount)
            return
        most = BUDGET.divide_by(10)
        planning = Amount(tokens=int((most.tokens or 0) * tokens), micro_usd=int((most.micro_usd or 0) * money))
        state = TaskState(account=BudgetAccount(limit=BUDGET)).with_plan(PLAN, totals(planning), (), AGENT)
        for step in PLAN.steps:
            state = state.start_step(step, REF.replace(task_id=task_id), TASK_CONFIG)
        self.paid[task_id] = {"plan": planning} | {step.id: Amount() for step in PLAN.steps}
        self.given[task_id] = Amount()
        self.keep(task_id, state)

    @rule(data=st.data(), parts=st.tuples(PARTS, PARTS), needed=AMOUNTS, end=ENDS)
    def work(self, data: st.DataObject, parts: tuple[float, float], needed: Amount, end: str) -> None:
        """A leg: it may end, run out, meet the provider's limit, or crash before its task hears of what was paid."""
        picked = self.pick(data, "running")
        if picked is None:
            return
        task_id, step_id, state, _ = picked
        before = self.paid[task_id][step_id]
        left = state.runs[step_id].limit.remaining_after(before).amount
        spent = before + Amount(tokens=int(left.tokens * parts[0]), micro_usd=int(left.micro_usd * parts[1]))
        self.paid[task_id][step_id] = spent
        standing = LegState(totals=totals(spent))
        ends: dict[str, LegOutcome] = {
            "spent": BudgetExhausted(state=standing, needed=needed),
            "finished": AgentFinished(state=standing),
            "halted": OperatorActionRequired(state=standing, reason="no credit"),
        }
        if end in ends:
            self.keep(task_id, state.with_run(state.runs[step_id].after_leg(ends[end])))

    @rule(data=st.data())
    def draw(self, data: st.DataObject) -> None:
        picked = self.pick(data, "spent")
        if picked is None:
            return
        task_id, step_id, before, _ = picked
        if (helped := draw_budget(before, step_id)) is not None:
            self.keep(task_id, helped)

    @rule(target=asks, data=st.data())
    def ask(self, data: st.DataObject) -> str | MultipleResults[str]:
        picked = self.pick(data, "spent")
        if picked is None:
            return NOTHING
        self.asked += 1
        wanted = picked.state.runs[picked.step_id].top_up_amount
        return SessionBudgetRequest(task_id=picked.task_id, request_id=str(self.asked), amount=wanted).model_dump_json()

    @rule(target=answers, sent=asks)
    def session_hears_an_ask(self, sent: str) -> str | MultipleResults[str]:
        """Also again, and after its task is over: nothing is given for the second time."""
        ask, before = SessionBudgetRequest.model_validate_json(sent), self.session
        after, answer = session.answer_budget_request(before, ask)
        self.keep_session(after)
        if ask.request_id in self.heard:
            assert (answer, after) == (None, before)
            return NOTHING
        self.heard.add(ask.request_id)
        assert answer is not None
        if ask.task_id in self.over and ask.task_id not in before.account.reserved:
            assert answer.amount.is_zero
        self.given[ask.task_id] += answer.amount
        return f"{ask.task_id} {answer.model_dump_json()}"

    @rule(sent=answers, times=TIMES)
    def task_hears_an_answer(self, sent: str, times: int) -> None:
        task_id, _, text = sent.partition(" ")
        answer = SessionBudgetAnswer.model_validate_json(text)
        if task_id in self.over:
            return
        if answer.request_id not in self.tasks[task_id].answered_session_requests:
            self.given[task_id] = self.given[task_id].subtract_clamped(answer.amount)
        for _ in range(times):
            self.keep(task_id, self.tasks[task_id].after_session_answer(answer))

    @rule(data=st.data())
    def ask_a_person(self, data: st.DataObject) -> None:
        if picked := self.pick(data, "spent", asked=False):
            self.keep(
                picked.task_id,
                picked.state.with_approval_request(picked.state.build_budget_request(picked.step_id, NOON)),
            )

    @rule(data=st.data(), amount=AMOUNTS, times=TIMES)
    def approve(self, data: st.DataObject, amount: Amount, times: int) -> None:
        """However often it is sent: the money is given once, and the others are refused."""
        picked = self.pick(data, "spent", asked=True)
        if picked is None or picked.request is None:
            return
        task_id, step_id = picked.task_id, picked.step_id
        usd = f"{amount.micro_usd / 1_000_000:.6f}"
        sent: JsonValue = {"request_id": picked.request.request_id, "tokens": amount.tokens, "usd": usd}
        for number in range(times):
            state = self.tasks[task_id]
            answer = approval_answers.apply_approval(self._standing(state), sent, NOON)
            assert isinstance(answer, ApprovalRequest) is (number == 0)
            state = state.after_answer(answer)
            self.keep(
                task_id, state.after_grant(step_id, answer.granted) if isinstance(answer, ApprovalRequest) else state
            )
        before, after = picked.state.runs[step_id], self.tasks[task_id].runs[step_id]
        assert (after.limit, after.phase) == (before.limit.increase_by(amount), "running")
        self.limit = self.limit.increase_by(amount)
        self.keep_session(session.apply_task_grant(self.session, ApprovedTaskGrant(task_id=task_id, amount=amount)))

    @rule(data=st.data(), times=TIMES)
    def deny(self, data: st.DataObject, times: int) -> None:
        picked = self.pick(data, "spent", asked=True)
        if picked is None or picked.request is None:
            return
        sent: JsonValue = {"request_id": picked.request.request_id}
        for number in range(times):
            state = self.tasks[picked.task_id]
            answer = approval_answers.apply_denial(self._standing(state), sent, NOON)
            assert isinstance(answer, ApprovalRequest) is (number == 0)
            state = state.after_answer(answer)
            self.keep(
                picked.task_id, state.after_denial(picked.step_id) if isinstance(answer, ApprovalRequest) else state
            )
        self._takes_no_more(picked)

    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        if (picked := self.pick(data, "spent", asked=True)) and picked.request:
            self.keep(picked.task_id, picked.state.after_expiry(picked.request, NOON))
            self._takes_no_more(picked)

    def _takes_no_more(self, picked: Picked) -> None:
        """A late approval is refused, and a late grant changes nothing."""
        state, request = self.tasks[picked.task_id], picked.request
        assert request is not None
        late = approval_answers.apply_approval(self._standing(state), {"request_id": request.request_id}, NOON)
        assert not isinstance(late, ApprovalRequest)
        assert state.after_grant(picked.step_id, request.requested) == state

    def _standing(self, state: TaskState) -> approvals.ApprovalContext:
        return approvals.ApprovalContext(approvals=state.approvals, limit=state.account.limit, ending=state.is_ending)

    @rule(target=settlements, task_id=st.sampled_from(TASKS), sure=SELDOM)
    def end(self, task_id: str, sure: bool) -> str | MultipleResults[str]:
        """As `TaskFinalizer` does it: the store says what each agent spent."""
        if not sure or task_id not in self.running():
            return NOTHING
        state = self.tasks[task_id]
        for step_id, run in state.runs.items():
            if run.phase != "delivered":
                state = state.with_run(
                    run.with_settled_usage(totals(self.paid[task_id][step_id])).finish_partial("over")
                )
        state = state.end_task(TaskPhase.DONE)
        assert state.account.total_reserved.is_zero
        assert state.account.spent == state.totals.spent == self._spent(task_id)
        self.keep(task_id, state)
        self.over.add(task_id)
        return TaskSettlement(task_id=task_id, spent=state.totals.spent).model_dump_json()

    @rule(target=settlements, task_id=st.sampled_from(TASKS), sure=SELDOM)
    def terminate(self, task_id: str, sure: bool) -> str | MultipleResults[str]:
        """Tells nobody: its session finds it dead, and asks the store."""
        if not sure or task_id not in self.running():
            return NOTHING
        self.over.add(task_id)
        return TaskSettlement(task_id=task_id, spent=self._spent(task_id)).model_dump_json()

    @rule(sent=settlements, times=TIMES)
    def session_hears_an_end(self, sent: str, times: int) -> None:
        for _ in range(times):
            self.keep_session(session.settle_task(self.session, TaskSettlement.model_validate_json(sent)))

    def _spent(self, task_id: str) -> Amount:
        return sum(self.paid[task_id].values(), Amount())

    @invariant()
    def no_level_passes_its_limit(self) -> None:
        account = self.session.account
        assert account.limit == self.limit
        assert self.limit.can_cover(account.spent + account.total_reserved)
        assert account.unreserved == self.limit.remaining_after(account.spent + account.total_reserved)
        for task_id, state in self.tasks.items():
            assert state.account.limit.can_cover(state.account.spent + state.account.total_reserved)
            reserved = state.account.reserved
            assert set(reserved) == {step_id for step_id, run in state.runs.items() if run.phase != "delivered"}
            for step_id, held in reserved.items():
                assert state.runs[step_id].limit == same(held)
                assert state.runs[step_id].limit.can_cover(self.paid[task_id][step_id])

    @invariant()
    def nothing_is_lost_between_a_session_and_its_tasks(self) -> None:
        account = self.session.account
        for task_id, held in account.reserved.items():
            assert same(held) == self.tasks[task_id].account.limit.increase_by(self.given[task_id])
        settled = [task_id for task_id in self.tasks if task_id not in account.reserved]
        assert account.spent == sum(map(self._spent, settled), Amount())
        assert set(self.session.open_tasks) == set(account.reserved)
        assert self.limit.can_cover(sum(map(self._spent, self.paid), Amount()))


TestStored = Stored.TestCase
TestStored.settings = settings(max_examples=40, stateful_step_count=60)
