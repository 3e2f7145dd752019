"""Where agents get their answers: money, and calls that ask first.

Where an agent that spent its budget gets more: from its parent, task or session, and only then from a person.

Where an agent gets its answer that wants to call a tool which asks first: from a person, by the task's inbox.

How an agent waits for money that a person was asked for: it also goes on with what comes free meanwhile.

How an agent waits for a person's answer: until it comes, its deadline passes, or something comes between.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from activities.sessions import SessionActivities, SessionSignal
from waystation.budgets.budget import Mode
from waystation.kernel.amount import Amount, format_amount
from waystation.kernel.temporal_names import ASK_BUDGET, TASK_FINISHED, TASK_GRANTED
from waystation.kernel.value import Value
from waystation.planning.plan import PLANNING_ID, Revised
from waystation.tasks.approvals import authorised
from waystation.tasks.notices import Event
from waystation.tasks.reallocation import drawn, freed, may_be_handed_back, withdrawn
from waystation.tasks.reviews import agreed, plan_request, proposed
from waystation.tasks.session import Ask, Raised, Settlement
from waystation.tasks.state import TaskState, decided, merged, opened_actions, overtaken
from waystation.tasks.task import Approval
from workflows.board import TaskRuntime, notify_about_request, persist_and_notify, record
from workflows.options import SESSION_ANSWER, SHORT, with_summary


def _never() -> bool:
    return False


async def wait_for_answer(board: TaskRuntime, step_id: str, settled: Callable[[], bool] = _never) -> None:
    """Come back when a person has answered, nobody did until the deadline, the workflow wants its agents back, an edit
    of the agent's context is to be carried out first, or it is settled without a person.

    Several requests of an agent are made in one moment, and have one deadline.
    """
    request = next(iter(_requests(board, step_id)), None)
    deadline = None if request is None or _is_overdue(board, request) else request.answer_by
    left = None if deadline is None else max(deadline - workflow.now(), timedelta())
    try:
        await workflow.wait_condition(
            lambda: settled() or _is_over(board, step_id), timeout=left, timeout_summary="deadline"
        )
    except TimeoutError:
        if not await _expire(board, step_id):
            await workflow.wait_condition(lambda: settled() or _is_over(board, step_id))


def _requests(board: TaskRuntime, step_id: str) -> tuple[Approval, ...]:
    return tuple(asked for asked in board.state.pending if asked.agent == step_id)


def _is_over(board: TaskRuntime, step_id: str) -> bool:
    if step_id == PLANNING_ID:
        return board.stopping or not _requests(board, step_id)
    run = board.run(step_id)
    return run.phase not in {"spent", "asking"} or run.next_edit is not None or board.stopping


async def _expire(board: TaskRuntime, step_id: str) -> bool:
    """The deadline has passed. False where the requests still wait."""
    now, state, requests = workflow.now(), board.state, _requests(board, step_id)
    if not requests:  # answered in the same moment
        return True
    if board.start.terms.unattended.then == "wait":
        board.change(state.replace(notes=merged(state.notes, tuple(map(_overdue, requests)))))
        for request in requests:
            await notify_about_request(board, Event.OVERDUE, request)
        return False
    for request in requests:
        state = _expired(state, request, now)
    board.change(state)
    await record(board, *(_closed(request, now) for request in requests))
    for request in requests:
        await notify_about_request(board, Event.EXPIRED, request)
    return True


def _expired(state: TaskState, request: Approval, now: datetime) -> TaskState:
    if request.about_plan:
        return state.answered(_closed(request, now)).replace(cancelled=state.proposed is None)
    if request.action is None:
        return state.expired(request, now)
    return decided(state.answered(_closed(request, now)), _closed(request, now))


def _closed(request: Approval, now: datetime) -> Approval:
    return request.replace(decision="expired", answered_at=now)


def _is_overdue(board: TaskRuntime, request: Approval) -> bool:
    """Whether it was told before."""
    return _overdue(request) in board.state.notes


def _overdue(request: Approval) -> str:
    return f"{request.request_id} is overdue: nobody answered until its deadline; it still waits."


async def wait_for_money(board: TaskRuntime, step_id: str) -> None:
    """Come back as `wait_for_answer` does, or with money that came free: then nobody has to answer any more."""
    await wait_for_answer(board, step_id, lambda: freed(board.state, step_id) is not None)
    state = freed(board.state, step_id)
    if state is None:
        return
    requests = withdrawn(state, step_id, workflow.now())
    for request in requests:
        state = state.answered(request)
    await persist_and_notify(board, state, Event.WITHDRAWN, *requests)


async def ask_about_plan(board: TaskRuntime, planned: TaskState) -> None:
    """A person is asked before any step of a plan that was just made begins."""
    now = workflow.now()
    request = plan_request(planned, now, board.start.terms.unattended.deadline(now))
    await persist_and_notify(board, planned.asked(request), Event.ASKED, request)


async def request_revision_approval(board: TaskRuntime, made: Revised) -> bool | None:
    """Whether the task works by a revision: where it may cost much, as a person says. None: the task has ended, or the
    workflow shall continue as new, and the request is still open.
    """
    if board.state.proposed is None:
        now, terms = workflow.now(), board.start.terms
        asking = proposed(board.state, made, terms, now, terms.unattended.deadline(now))
        if asking is None:
            return True
        await persist_and_notify(board, asking[0], Event.ASKED, asking[1])
    if not await wait_for_agreement(board) or board.state.cancelled:
        return None
    return agreed(board.state)


async def wait_for_agreement(board: TaskRuntime) -> bool:
    """Come back when the plan is answered, nobody did until the deadline, or the workflow shall continue as new: then
    False, and the request is still open.
    """
    if _requests(board, PLANNING_ID):
        suggested = workflow.info().is_continue_as_new_suggested
        await wait_for_answer(board, PLANNING_ID, suggested)
    return not _requests(board, PLANNING_ID)


class BudgetGate:
    """The budget of one task, seen by its agents."""

    def __init__(self, board: TaskRuntime, session_workflow_id: str) -> None:
        self._board, self._session_id = board, session_workflow_id

    async def wait(self, step_id: str) -> None:
        """Come back when the agent has more or has to deliver what it has, when an edit is to be carried out first, or
        the workflow wants its agents back. It has more also where money comes free while a person is asked.

        No activity runs meanwhile, so that a pause holds no worker slot; a request that is open stays open through
        continue-as-new.
        """
        if not self._is_asked(step_id):
            if not self._board.run(step_id).halted and await self._has_more(step_id):
                return
            await self._ask_person(step_id)
        await wait_for_money(self._board, step_id)

    async def _has_more(self, step_id: str) -> bool:
        """From its task or its session, in mode hard from neither. Also where the agent has ended, or is wanted."""
        if self._mode is Mode.HARD:
            self._stop(step_id)
            return True
        if self._drawn(step_id) or await self._was_handed_back(step_id):
            return True
        await self._ask_session(step_id)
        if self._board.stopping or self._drawn(step_id):
            return True
        return may_be_handed_back(self._board.state, step_id)

    async def _was_handed_back(self, step_id: str) -> bool:
        """From those at work, for whom it waits while they may still leave enough. Also where it is wanted."""
        board = self._board

        def settled() -> bool:
            return drawn(board.state, step_id) is not None or not may_be_handed_back(board.state, step_id)

        if may_be_handed_back(board.state, step_id):
            await workflow.wait_condition(lambda: _is_over(board, step_id) or settled())
            return _is_over(board, step_id) or self._drawn(step_id)
        return False

    async def send_grant_to_session(self, amount: Amount) -> None:
        """A person's grant is new money: the session is raised by as much."""
        await self._signal_session(TASK_GRANTED, Raised(task_id=self._board.start.ref.task_id, amount=amount))

    async def send_settlement_to_session(self) -> None:
        """What the task spent; its session takes back the rest."""
        spent = self._board.state.totals.spent
        await self._signal_session(TASK_FINISHED, Settlement(task_id=self._board.start.ref.task_id, spent=spent))

    def _is_asked(self, step_id: str) -> bool:
        return any(approval.agent == step_id for approval in self._board.state.pending)

    def _drawn(self, step_id: str) -> bool:
        helped = drawn(self._board.state, step_id)
        if helped is None:
            return False
        self._board.change(helped)
        return True

    async def _ask_session(self, step_id: str) -> None:
        state, run = self._board.state, self._board.run(step_id)
        ask_id = f"{step_id}-{state.asks + 1}"
        self._board.change(state.replace(asks=state.asks + 1))
        task_id = self._board.start.ref.task_id
        ask = Ask(task_id=task_id, ask_id=f"{task_id}/{ask_id}", amount=run.wanted)
        if not await self._signal_session(ASK_BUDGET, ask):
            return
        try:
            await workflow.wait_condition(
                lambda: ask.ask_id in self._board.state.answered_asks,
                timeout=SESSION_ANSWER,
                timeout_summary="the session answers",
            )
        except TimeoutError:
            workflow.logger.warning("the session did not answer an ask for budget; a late answer still counts")

    async def _ask_person(self, step_id: str) -> None:
        if self._mode is not Mode.APPROVAL:
            return self._stop(step_id)
        board, terms, now = self._board, self._board.start.terms, workflow.now()
        request = board.state.request_for(step_id, now, terms.unattended.deadline(now), terms.ceiling)
        granted = authorised(board.standing, request, terms.unattended.top_up, now)
        if granted is not None:
            board.change(board.state.asked(granted).granted(step_id, granted.granted))
            await record(board, granted)
            await self.send_grant_to_session(granted.granted)
            return
        await persist_and_notify(board, board.state.asked(request), Event.ASKED, request)

    def _stop(self, step_id: str) -> None:
        """Nobody is asked: the agent delivers what it has."""
        run = self._board.run(step_id)
        short = f"its next call may cost {format_amount(run.needed)} more than it has left"
        reason = run.halted or f"{short}, and the mode is {self._mode}"
        self._board.change(self._board.state.with_run(run.finish_partial(reason)))

    @property
    def _mode(self) -> Mode:
        return self._board.start.terms.mode

    async def _signal_session(self, name: str, message: Value) -> bool:
        """False: the session is gone, and does not need to know. What raises or asks for budget starts it again."""
        session = workflow.get_external_workflow_handle(self._session_id)
        try:
            await session.signal(name, message)
        except ApplicationError:
            if name == TASK_FINISHED:
                # The next execution of the session finds out; one that was made for this task has ended for good.
                workflow.logger.warning("the session of this task is gone")
                return False
            signal = SessionSignal(ref=self._board.start.ref, name=name, message=message.model_dump(mode="json"))
            summary = f"start the session, which is gone, for {name}"
            await workflow.execute_activity_method(SessionActivities.signal, signal, **with_summary(SHORT, summary))
        return True


async def ask_person(board: TaskRuntime, step_id: str) -> None:
    """Come back when each of the agent's calls is decided on, an edit is to be carried out first, or the workflow wants
    its agents back.

    No activity runs meanwhile; requests that are open stay open through continue-as-new.
    """
    now, state = workflow.now(), board.state
    requests = opened_actions(state, step_id, now, board.start.terms.unattended.deadline(now))
    if requests:
        for request in requests:
            state = state.asked(request)
        await persist_and_notify(board, state, Event.ASKED, *requests)
    await wait_for_answer(board, step_id)


async def take_back_requests(board: TaskRuntime, step_id: str) -> None:
    """Close the requests for calls that an edit took back."""
    requests = overtaken(board.state, step_id, workflow.now())
    if not requests:
        return
    state = board.state
    for request in requests:
        state = state.answered(request)
    board.change(state)
    await record(board, *requests)
