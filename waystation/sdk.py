"""Python SDK for scripts and notebooks: submit tasks, wait for them, answer their requests, read their reports.

`AsyncWaystation` is the implementation; `Waystation` has the same methods and blocks. Both talk to a `waystation
serve`: the one given, or the one that `waystation up` started on this machine. They return plain values that print
well. Amounts are written as in commands (`200k`, `$2.00`); a task is named by its id or the beginning of it.
"""

import asyncio
import secrets
import threading
import weakref
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from datetime import date
from functools import partial, wraps
from getpass import getuser
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar

from pydantic import BaseModel, ValidationError

from waystation.agents.deliverables import ReportLength
from waystation.budgets.budget import BudgetMode
from waystation.client.client import Client
from waystation.client.remote import RemoteClient
from waystation.client.sdk_values import ApprovalFrameRow, Report, TaskFrameRow, ValueRows
from waystation.client.submission import ForkRequest
from waystation.config.settings import Settings
from waystation.context.transcript import Message
from waystation.documents.document_loading import DocumentLoadResult, load_documents
from waystation.kernel.amount import Limit, parse_limit
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput, Unreachable
from waystation.kernel.value import extract_validation_faults
from waystation.runtime.temporal.run_file import read_run_file
from waystation.tasks.details import parse_grant
from waystation.tasks.progress import DayRange
from waystation.tasks.signals import AnswerResult
from waystation.tasks.task import Preset, TaskPhase, TaskRequest, make_own_session_name
from waystation.tasks.view import (
    CostLineView,
    CostView,
    PendingApproval,
    SessionView,
    SpendingLineView,
    SpendingView,
    TaskFilter,
    TaskView,
)

MAX_OUTAGE_SECONDS, RETRY_SECONDS = 60.0, 2.0
_P = ParamSpec("_P")
_R = TypeVar("_R")
_ModelT = TypeVar("_ModelT", bound=BaseModel)


class AsyncWaystation:
    """Asynchronous client for the tasks of one tenant.

    Every method can raise BadInput, UnknownTask and Unreachable.
    """

    def __init__(
        self, server: str | None = None, token: str | None = None, *, settings: Settings | None = None
    ) -> None:
        """Connect to a server.

        Args:
            server: Address of a running `waystation serve`. Default: WAYSTATION_SERVER, or the server that
                `waystation up` started on this machine.
            token: Access token of the server.
            settings: Settings to use instead of those of the environment and the config file.
        """
        self._settings = settings or Settings()
        self._server, self._token = server, token
        self._client: Client | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None and self._loop is asyncio.get_running_loop():
            await self._client.aclose()
        self._client = None

    def _get_client(self) -> Client:
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:  # connections belong to the loop that opened them
            self._loop = loop
            known = self._settings.token
            token = self._token or ("" if known is None else known.get_secret_value())
            self._client = RemoteClient(self._server or self._settings.server or self._find_local_url(), token)
        return self._client

    def _find_local_url(self) -> str:
        run = read_run_file(self._settings.run_file)
        if run is None or not run.pages:
            raise Unreachable(
                "no server runs on this machine: start one with `waystation up`, or give the address and the token of "
                "another one"
            )
        return run.pages

    async def submit(
        self,
        question: str,
        docs: Sequence[Path | str] | Path | str = (),
        *,
        budget: str | None = None,
        session: str | None = None,
        preset: Preset | str | None = None,
        mode: BudgetMode | str | None = None,
        accept: Sequence[str] | str = (),
        instructions: str = "",
        length: ReportLength | None = None,
        servers: Sequence[str] | str | None = None,
        review_plan: bool | None = None,
        request_id: str | None = None,
    ) -> TaskView:
        """Submit a question with files and folders, or with the documents of a session.

        The same `request_id` always finds the same task.
        """
        identity = request_id or secrets.token_hex(8)
        loaded = await asyncio.to_thread(read_documents, docs) if docs else None
        request = _request(
            question=question,
            instructions=instructions,
            length=length,
            accept=_several(accept),
            tenant=self._settings.tenant,
            session=make_own_session_name(identity) if session is None else session,
            request_id=identity,
            budget=None if budget is None else _limit(budget),
            preset=preset,
            mode=mode,
            servers=None if servers is None else _several(servers),
            review_plan=review_plan,
            skipped_items=() if loaded is None else loaded.skipped_items,
        )
        client = self._get_client()
        documents = loaded.documents if loaded is not None else await client.get_session_documents(request.session)
        if not documents:
            raise BadInput("give documents to work on (docs=[…]), or name a session whose newest task has documents")
        return await self.task((await client.submit(request, documents)).task_id)

    async def task(self, task: TaskView | str) -> TaskView:
        """Return a task as it is now."""
        return await self._get_client().get_task(await self._id(task))

    async def tasks(
        self, *, session: str | None = None, phases: Sequence[TaskPhase | str] = (), text: str = "", maximum: int = 50
    ) -> ValueRows[TaskView]:
        """Return the newest tasks, at most `maximum`; with `session`, only tasks of that session.

        With `phases` or `text`, return all tasks that are in one of these phases and have this text in their titles,
        which are the first 120 characters of the questions.
        """
        wanted = _valid(TaskFilter, session=session, phases=_phases(phases), text=text)
        return ValueRows(await self._get_client().list_tasks(wanted, maximum), TaskFrameRow.from_view)

    async def wait(
        self, task: TaskView | str, *, seconds: float | None = None, through_pauses: bool = False
    ) -> TaskView:
        """Wait until a task is over, and return it.

        The method also returns after `seconds`, or when the task pauses for an answer (unless `through_pauses` is
        true); the task is then not over. If the server cannot be reached, the method keeps trying for up to a minute.
        """
        task_id, seen, clock = await self._id(task), None, asyncio.get_running_loop().time
        away_since: float | None = None
        deadline = asyncio.timeout(seconds)
        try:
            async with deadline:
                while True:
                    try:
                        async for view in self._get_client().watch(task_id):
                            seen, away_since = view, None
                            if seen.over or (seen.phase is TaskPhase.PAUSED and not through_pauses):
                                return seen
                    except Unreachable:
                        away_since = away_since or clock()
                        if clock() - away_since > MAX_OUTAGE_SECONDS:
                            raise
                        await asyncio.sleep(RETRY_SECONDS)
        except TimeoutError:
            # One of another cause, such as a connection's, is the caller's.
            if not deadline.expired():
                raise
        return seen or await self.task(task_id)

    async def report(self, task: TaskView | str, version: int | None = None) -> Report:
        """Return the newest report of a task, or the given version of the report."""
        return Report.from_view(await self._get_client().load_report(await self._id(task), version))

    async def bill(self, task: TaskView | str) -> ValueRows[CostLineView]:
        """Return what a task has cost so far, by agent, model and kind of call."""
        return ValueRows(CostView.from_breakdown(await self._get_client().get_bill(await self._id(task))).lines)

    async def transcript(self, task: TaskView | str, agent: str) -> ValueRows[Message]:
        """Return the messages of one agent's transcript."""
        return ValueRows((await self._get_client().get_transcript(await self._id(task), agent)).messages)

    async def approvals(self, task: TaskView | str | None = None) -> ValueRows[PendingApproval]:
        """Return pending approval requests of all tasks, or of one task. The most urgent request comes first."""
        client, meant = self._get_client(), None if task is None else await self._id(task)
        return ValueRows(
            [one for one in await client.list_approvals() if meant in {None, one.task_id}],
            ApprovalFrameRow.from_pending,
        )

    async def approve(
        self,
        asked: PendingApproval | TaskView | str,
        add: str | None = None,
        *,
        by: str | None = None,
        note: str = "",
    ) -> str:
        """Approve a request, or the only pending request of a task.

        Args:
            asked: The request, or its task.
            add: Amount to grant, such as `200k` or `$2.00`. Default: the requested amount.
            by: Name of the person who approves.
            note: Remark that is stored with the approval.

        Returns:
            A sentence that says what the answer did.
        """
        task_id, request_id = await self._asked(asked)
        amount = None if add is None else parse_grant(str(add))
        client = self._get_client()
        answer = await client.approve(task_id, request_id=request_id, amount=amount, by=by or getuser(), note=note)
        return await self._became(task_id, request_id, answer)

    async def deny(
        self,
        asked: PendingApproval | TaskView | str,
        *,
        finish: Literal["partial", "cancel"] = "partial",
        by: str | None = None,
        note: str = "",
    ) -> str:
        """Deny a request, or the only pending request of a task. Returns a sentence that says what the answer did."""
        task_id, request_id = await self._asked(asked)
        client = self._get_client()
        answer = await client.deny(task_id, request_id=request_id, finish=finish, by=by or getuser(), note=note)
        return await self._became(task_id, request_id, answer)

    async def send_message(self, task: TaskView | str, words: str, *, by: str | None = None) -> str:
        """Send the agents of a task a message; each receives it at its next turn."""
        return _told(await self._get_client().send_message(await self._id(task), words, by or getuser()))

    async def deliver(self, task: TaskView | str, *, by: str | None = None, note: str = "") -> str:
        """End a task with a report of what it has.

        Open requests of the task are denied, and running agents are asked to submit their results. The report is
        marked partial. Returns a sentence that says whether the task accepted this.
        """
        result = await self._get_client().deliver(await self._id(task), by=by or getuser(), note=note)
        return _told(result.answer)

    async def cancel(self, task: TaskView | str) -> TaskView:
        """Ask a task to stop. A task that is over stays as it is."""
        task_id = await self._id(task)
        await self._get_client().cancel(task_id)
        return await self.task(task_id)

    async def fork(self, task: TaskView | str, step: str, *, budget: str | None = None) -> TaskView:
        """Start a new task from the finished steps of a task that is over.

        `step` and all steps that depend on it run again.
        """
        limit = None if budget is None else _limit(budget)
        wish = ForkRequest(step=step, request_id=secrets.token_hex(8), budget=limit)
        return await self.task((await self._get_client().fork(await self._id(task), wish)).task_id)

    async def sessions(self) -> ValueRows[SessionView]:
        """Return sessions with the total spending of their tasks. The session with the newest task comes first."""
        return ValueRows(tuple(map(SessionView.from_summary, await self._get_client().list_sessions())))

    async def spending(
        self, since: date | None = None, until: date | None = None, *, session: str | None = None
    ) -> ValueRows[SpendingLineView]:
        """Return spending by day, task, role and model, from `since` to `until` (UTC; default: the last 30 days)."""
        days = DayRange.resolve(since, until, utc_now().date())
        return ValueRows(SpendingView.from_report(await self._get_client().get_spending(days, session), "model").lines)

    async def _id(self, task: TaskView | str) -> str:
        if isinstance(task, TaskView):
            return task.task_id
        if not isinstance(task, str):  # pyright: ignore[reportUnnecessaryIsInstance]: a notebook's cell has no types
            raise BadInput(f"{task!r} does not name a task: give a task, its id, or the first characters of the id")
        return await self._get_client().resolve_task_id(task)

    async def _became(self, task_id: str, request_id: str | None, answer: AnswerResult) -> str:
        """Describe the outcome of an answer.

        A request that has meanwhile become unnecessary is no error. Raises BadInput if another request was refused.
        """
        if answer.outcome == "refused" and request_id is not None:
            asked = (await self._get_client().get_task(task_id)).approvals
            if any(one.request_id == request_id and one.decision == "withdrawn" for one in asked):
                return "withdrawn: the agent continues, so the request no longer needs an answer"
        return _told(answer)

    async def _asked(self, asked: PendingApproval | TaskView | str) -> tuple[str, str | None]:
        if isinstance(asked, PendingApproval):
            return asked.task_id, asked.approval.request_id
        return await self._id(asked), None


def read_documents(docs: Sequence[Path | str] | Path | str) -> DocumentLoadResult:
    """Read one file or folder, or several. A single string is a path, not a sequence of characters."""
    given = [docs] if isinstance(docs, Path | str) else docs
    try:
        paths = [Path(one).expanduser() for one in given]
    except TypeError:
        raise BadInput("docs must be the path of a file or a folder, or a list of paths") from None
    return load_documents(paths)


def _several(given: Sequence[str] | str) -> Sequence[str]:
    """Return a single string as a sequence of one."""
    return (given,) if isinstance(given, str) else given


def _valid(kind: type[_ModelT], **said: object) -> _ModelT:
    """Build a model. Raises BadInput that lists everything that is wrong."""
    try:
        return kind.model_validate(said)
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, fault.place))}: {fault.words}" for fault in extract_validation_faults(error))
        raise BadInput("; ".join(faults)) from error


_request = partial(_valid, TaskRequest)


def _limit(written: str) -> Limit:
    """Parse a limit as commands do. Raises BadInput."""
    try:
        return parse_limit(str(written))
    except ValueError as error:
        raise BadInput(str(error)) from error


def _phases(given: Sequence[TaskPhase | str] | str) -> frozenset[TaskPhase]:
    """Parse task phases. Raises BadInput."""
    try:
        return frozenset(map(TaskPhase, _several(given)))
    except (TypeError, ValueError):
        raise BadInput(f"unknown phase in {given!r}; the phases are {', '.join(TaskPhase)}") from None


def _told(answer: AnswerResult) -> str:
    """Return a sentence on what became of an answer. Raises BadInput if it was refused."""
    if answer.outcome == "refused":
        raise BadInput(answer.reason)
    return f"{answer.outcome}: {answer.reason}" if answer.reason else answer.outcome


CLOSED_MESSAGE = "this client is closed: make another Waystation()"


class _Loop:
    """An event loop in a thread of its own, so that callers may have a running loop too, as notebooks do."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._turn, name="waystation", daemon=True)
        self._thread.start()

    def _turn(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, _R]) -> _R:
        """Run a coroutine and wait for its result; an interrupt cancels it."""
        going = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return going.result()
        except CancelledError:
            raise BadInput(CLOSED_MESSAGE) from None
        except KeyboardInterrupt:
            going.cancel()
            raise

    def end(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run this last coroutine and stop the loop. Other callers that still wait are notified that it is closed."""

        async def ending() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for other in others:
                other.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await last()

        if threading.current_thread() is not self._thread:  # the garbage collector may run in the loop's own thread
            self.run(ending())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()


def _blocking(
    method: Callable[Concatenate[AsyncWaystation, _P], Coroutine[Any, Any, _R]],
) -> Callable[Concatenate["Waystation", _P], _R]:
    """Return the blocking version of a method, for `Waystation`."""

    @wraps(method)
    def waiting(self: "Waystation", *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return self.run_until_complete(partial(method, self.asynchronous, *args, **kwargs))

    return waiting


class Waystation:
    """The tasks of one tenant, with methods that block: for scripts, notebooks and an interactive prompt."""

    def __init__(
        self, server: str | None = None, token: str | None = None, *, settings: Settings | None = None
    ) -> None:
        """Connect to a server. Arguments as for `AsyncWaystation`."""
        self.asynchronous, self._loop = AsyncWaystation(server, token, settings=settings), _Loop()
        self._end = weakref.finalize(self, self._loop.end, self.asynchronous.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. No method can be called afterwards."""
        self._end()

    def run_until_complete(self, begin: Callable[[], Coroutine[Any, Any, _R]]) -> _R:
        """Run a coroutine and return its result. Raises BadInput if this client is closed."""
        if not self._end.alive:
            raise BadInput(CLOSED_MESSAGE)
        return self._loop.run(begin())

    submit = _blocking(AsyncWaystation.submit)
    task = _blocking(AsyncWaystation.task)
    tasks = _blocking(AsyncWaystation.tasks)
    wait = _blocking(AsyncWaystation.wait)
    report = _blocking(AsyncWaystation.report)
    bill = _blocking(AsyncWaystation.bill)
    transcript = _blocking(AsyncWaystation.transcript)
    approvals = _blocking(AsyncWaystation.approvals)
    approve = _blocking(AsyncWaystation.approve)
    deny = _blocking(AsyncWaystation.deny)
    send_message = _blocking(AsyncWaystation.send_message)
    deliver = _blocking(AsyncWaystation.deliver)
    cancel = _blocking(AsyncWaystation.cancel)
    fork = _blocking(AsyncWaystation.fork)
    sessions = _blocking(AsyncWaystation.sessions)
    spending = _blocking(AsyncWaystation.spending)
