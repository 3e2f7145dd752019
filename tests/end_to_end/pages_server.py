"""The pages in this process, over a store that is real and a server of Temporal that is not there: a client of tests
says what waits and takes what is handed in, so that a browser meets every state within seconds.
"""

import asyncio
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from socket import create_server

from tests.attacks.test_attacks_web_pages import SITE
from waystation.client import Client
from waystation.client.approvals import load_stored_task
from waystation.client.erasure import ForgetResult
from waystation.client.schedules import ScheduleClient
from waystation.config.settings import Settings
from waystation.documents.documents import SourceDocument
from waystation.erasure.erasure import ForgetCounts
from waystation.kernel.amount import Amount, parse_bounded_limit
from waystation.kernel.errors import BadInput, InvalidFieldError, StartUnknownError, Unreachable
from waystation.planning.plan import PLANNING_ID, Plan
from waystation.plugins.web.access import AccessPolicy
from waystation.plugins.web.app import ServerDeps, SiteServer, create_app
from waystation.runtime.temporal.schedule_client import TemporalScheduleClient
from waystation.tasks.approvals import AnswerAuthor
from waystation.tasks.schedules import ScheduledRunInput, ScheduleTiming, ScheduleView
from waystation.tasks.signals import AnswerResult
from waystation.tasks.task import ApprovalRequest, TaskPhase, TaskProgress, TaskRequest, TaskRow
from waystation.tasks.view import (
    ApprovalView,
    PendingApproval,
    RejectedMessageView,
    SubmittedTask,
    TaskFilter,
    TaskView,
)

NO_TIME = timedelta()
NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)
MAX_GRANT = parse_bounded_limit("50k", Amount(tokens=1)).amount


def make_budget_request(number: int) -> ApprovalRequest:
    """A request for money."""
    amount = Amount(tokens=5_000 * number)
    return ApprovalRequest(request_id=f"writing-{number}", agent="writing", requested=amount, requested_at=NOON)


def make_plan_request() -> ApprovalRequest:
    """A plan that waits for approval."""
    return ApprovalRequest(request_id="plan-1", agent=PLANNING_ID, requested=Amount(), steps_left=4, requested_at=NOON)


class StubSchedules(TemporalScheduleClient):
    """Schedules of a server that is not there."""

    def __init__(self) -> None:
        self.kept: dict[str, ScheduleView] = {}
        self.timings: dict[str, ScheduleTiming] = {}

    async def create(self, start: ScheduledRunInput, timing: ScheduleTiming) -> None:
        """See base class: times with a letter cannot be read."""
        schedule_id = start.order.session_ref.task_id
        if schedule_id in self.kept:
            raise InvalidFieldError("name", "a schedule with this name exists already")
        if any(sign.isalpha() for sign in timing.cron):
            raise InvalidFieldError("cron", f"the times {timing.cron!r} cannot be used")
        self.kept[schedule_id] = ScheduleView(
            schedule_id=schedule_id, order=start.order, paused=True, next_run=NOON + timedelta(days=7)
        )
        self.timings[schedule_id] = timing

    async def pause(self, schedule_id: str, note: str) -> None:
        """See base class."""
        self.kept[schedule_id] = (await self.get_schedule(schedule_id)).replace(paused=True, note=note)

    async def resume(self, schedule_id: str, note: str) -> None:
        """See base class."""
        self.kept[schedule_id] = (await self.get_schedule(schedule_id)).replace(paused=False, note=note)

    async def run(self, schedule_id: str) -> bool:
        """See base class."""
        await self.get_schedule(schedule_id)
        return True

    async def remove(self, schedule_id: str) -> None:
        """See base class."""
        del self.kept[schedule_id]

    async def get_schedule(self, schedule_id: str) -> ScheduleView:
        """See base class."""
        if schedule_id not in self.kept:
            raise BadInput("there is no schedule with this name")
        return self.kept[schedule_id]

    async def list_schedule_ids(self, beginning: str) -> tuple[str, ...]:
        """See base class."""
        return tuple(self.kept)


class StubTaskClient(Client):
    """Tasks that are at work wait for answers to `requests`, which refuse what is over 50,000 tokens."""

    requests: tuple[ApprovalRequest, ...] = ()
    notes: tuple[str, ...] = ()
    rejected: tuple[RejectedMessageView, ...] = ()
    away = False
    late = False
    """Whether tasks are accepted without an answer in time."""
    taken: TaskRequest | None = None
    given: Sequence[SourceDocument] = ()
    reviewed: Plan | None = None
    stub_schedules: StubSchedules | None = None
    forgotten: tuple[str, bool] | None = None
    granted: Amount | None = None
    """The amount of the newest approval; None: what was requested."""

    async def forget_session(self, session: str, *, everything: bool) -> ForgetResult:
        """See base class: running tasks stay."""
        if any(not one.over for one in await self.list_tasks(TaskFilter(session=session))):
            raise BadInput("a task of it runs: wait until it has ended")
        self.forgotten = session, everything
        return ForgetResult(removed=ForgetCounts(tasks=1, passages=2), remains=("Backups still contain it.",))

    async def get_schedule_client(self) -> ScheduleClient:
        """See base class."""
        if self.away:
            raise Unreachable("no Temporal server answers at 127.0.0.1:9: start one with `waystation up`")
        self.stub_schedules = self.stub_schedules or StubSchedules()
        return ScheduleClient(self._settings, self._store, self.stub_schedules)

    async def submit(
        self, request: TaskRequest | TaskRow, documents: Sequence[SourceDocument], *, start_timeout: timedelta = NO_TIME
    ) -> SubmittedTask:
        """See base class: it is stored, and no more."""
        if self.away:
            raise Unreachable("no Temporal server answers at 127.0.0.1:9: start one with `waystation up`")
        row = request if isinstance(request, TaskRow) else await self.prepare_task(request)
        self.taken, self.given = row.request, documents
        await self._store.register_task(row, documents)
        if self.late:
            raise StartUnknownError(row.ref.task_id, "no answer in 20 s: `waystation status` shows whether workers run")
        return SubmittedTask(task_id=row.ref.task_id, run_id=None, ui_url=None)

    async def rename(self, task_id: str, title: str) -> None:
        """As a worker does that admits it."""
        await self._store.save_task_title(task_id, title)

    async def _look_up(self, row: TaskRow) -> tuple[TaskProgress, TaskView]:
        if row.progress is not None and row.progress.phase.over:
            return await super()._look_up(row)
        progress, view = await load_stored_task(self._store, row, "")
        return progress, self._waiting(view)

    def _waiting(self, view: TaskView) -> TaskView:
        is_open = any(one.decision == "pending" for one in self.requests)
        phase = TaskPhase.PAUSED if is_open else view.phase
        approvals = tuple(map(ApprovalView.from_request, self.requests))
        return view.replace(
            approvals=approvals, phase=phase, remark="", notes=self.notes, rejected_messages=self.rejected
        )

    async def list_approvals(self, session: str | None = None) -> tuple[PendingApproval, ...]:
        """See base class."""
        if self.away:
            raise Unreachable("no Temporal server answers at 127.0.0.1:9: start one with `waystation up`")
        working = [one for one in await self.list_tasks() if not one.phase.over][-1:]
        return tuple(
            PendingApproval(task_id=one.task_id, title=one.title, approval=ApprovalView.from_request(request))
            for one in working
            for request in self.requests
            if request.decision == "pending"
        )

    async def review_plan(
        self, task_id: str, plan: Plan, by: str = "", note: str = "", request_id: str | None = None
    ) -> AnswerResult:
        """See base class: the first one counts."""
        if self.away:
            raise Unreachable("no Temporal server answers at 127.0.0.1:9: start one with `waystation up`")
        if not any(one.decision == "pending" for one in self.requests):
            return AnswerResult(outcome="refused", reason=f"{request_id} is not open")
        self.reviewed = plan
        self.requests = tuple(one.replace(decision="approved", by=by, note=note) for one in self.requests)
        return AnswerResult(outcome="approved", reason="")

    async def approve(
        self,
        task_id: str,
        *,
        request_id: str | None = None,
        amount: Amount | None = None,
        by: AnswerAuthor = "",
        note: str = "",
    ) -> AnswerResult:
        """See base class."""
        if amount is not None and amount.tokens > MAX_GRANT.tokens:
            reason = (
                "the grant would raise the task's budget to 900,000 tokens, over its ceiling of 650,000 tokens, "
                "which leaves 50,000 tokens for grants"
            )
            return AnswerResult(outcome="refused", reason=reason)
        if any(one.request_id == request_id and one.decision != "pending" for one in self.requests):
            return AnswerResult(outcome="refused", reason=f"the request {request_id} was already approved")
        self.granted = amount
        self.requests = tuple(one for one in self.requests if one.request_id != request_id)
        return AnswerResult(outcome="approved", reason="")


class PagesServer:
    """A server that runs in a thread of its own."""

    def __init__(self, settings: Settings, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self._settings, self._port = settings, port
        self._access = AccessPolicy(token="t" * 43, port=port)
        self._ready = threading.Event()
        self._serving: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run)
        self._loop: asyncio.AbstractEventLoop
        self.client: StubTaskClient

    @property
    def sign_in_url(self) -> str:
        """The address that signs a browser in."""
        return f"{self.address}/?token={self._access.token}"

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with await StubTaskClient.connect(self._settings) as self.client:
            app = create_app(SITE, self.client, self._settings.tenant, ServerDeps(self._access))
            with create_server(("127.0.0.1", self._port)) as listener:
                self._serving = asyncio.create_task(SiteServer(app).serve_until_cancelled(listener))
                self._ready.set()
                await asyncio.gather(self._serving, return_exceptions=True)

    def rename_task(self, task_id: str, title: str) -> None:
        """Something happens to a task: it is called otherwise from now on, and an event says that it changed."""
        asyncio.run_coroutine_threadsafe(self.client.rename(task_id, title), self._loop).result(60)

    def start(self) -> None:
        """Until it listens."""
        self._thread.start()
        self._ready.wait(60)

    def stop(self) -> None:
        """And wait until it has ended."""
        if self._serving is not None:
            self._loop.call_soon_threadsafe(self._serving.cancel)
        self._thread.join(60)


@contextmanager
def run_pages_server(settings: Settings, port: int) -> Generator[PagesServer]:
    """A server as long as the block lasts."""
    pages = PagesServer(settings, port)
    pages.start()
    try:
        yield pages
    finally:
        pages.stop()
