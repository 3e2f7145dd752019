"""A session that many submit to at once, that continues as new under them, and that is terminated meanwhile."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from temporalio.envconfig import ClientConfigProfile
from temporalio.worker import Worker

from tests.live.session_doubles import IdleTaskWorkflow
from tests.support.task_model import make_task_config
from tests.support.temporal_platform import WAIT_TIMEOUT_SECONDS, open_store, start_dev_server
from waystation.activities.sessions import SessionActivities
from waystation.budgets.budget import BudgetAccount
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.errors import Busy
from waystation.kernel.refs import TaskRef
from waystation.kernel.temporal_names import CONTEXT_QUEUE, TASK_FINISHED, WORKFLOWS_QUEUE
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.temporal.connect import TemporalTarget
from waystation.runtime.temporal.erasure_client import is_workflow_running
from waystation.runtime.temporal.task_client import TemporalTaskClient
from waystation.tasks.session import (
    AdmissionResult,
    SessionBudgetRequest,
    SessionWorkflowInput,
    SubmissionResult,
    TaskSettlement,
)
from waystation.workers.sandbox import create_sandboxed_runner
from waystation.workflows.session import SessionWorkflow

BUDGET = Amount(tokens=1_000)
LIMIT = Limit(tokens=1_000_000)
SESSION_ID = "session-s"
LONG_IS = ("limit.historyCount.suggestContinueAsNew=80", "limit.historyCount.error=600")
"""Events after which the server suggests to continue as new, and after which it terminates a workflow."""
IN_FLIGHT = 10
"""Updates that the server takes for one workflow at a time, by default."""


@dataclass
class Admissions:
    """The activity that admits, which can be held up."""

    begun: list[str] = field(default_factory=list[str])
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    @activity.defn(name="AdmitTask")
    async def admit(self, ref: TaskRef) -> AdmissionResult:
        self.begun.append(ref.task_id)
        await self.opened.wait()
        given = make_task_config(budget=BUDGET.tokens)
        return AdmissionResult(ref=ref, config=given, title="", documents=0, finished=False, search_attributes=False)


@dataclass(frozen=True)
class Platform:
    """A session whose tasks do nothing, and its clients."""

    client: Client
    store: SqlStore
    admissions: Admissions

    @property
    def session(self) -> WorkflowHandle[SessionWorkflow, None]:
        return self.client.get_workflow_handle_for(SessionWorkflow.run, SESSION_ID)

    def person(self) -> TemporalTaskClient:
        """Another process that talks to the server."""
        address = self.client.service_client.config.target_host
        return TemporalTaskClient(
            self.client, TemporalTarget(profile=ClientConfigProfile(address=address), ui_url=None)
        )

    async def submit(
        self, number: int, person: TemporalTaskClient | None = None, seconds: float = WAIT_TIMEOUT_SECONDS
    ) -> SubmissionResult:
        ref = TaskRef(store_id="store", tenant="t", session="s", task_id=f"task-{number}")
        start = SessionWorkflowInput(**ref.model_dump(exclude={"task_id"}))
        return await (person or self.person()).admit(start, SESSION_ID, ref, timedelta(seconds=seconds))

    async def limit(self) -> None:
        start = SessionWorkflowInput(store_id="store", tenant="t", session="s")
        await self.person().set_session_limit(start, SESSION_ID, LIMIT)

    async def account(self) -> BudgetAccount:
        return await self.session.query(SessionWorkflow.account)


@asynccontextmanager
async def platform(client: Client, folder: Path) -> AsyncGenerator[Platform]:
    async with open_store(folder) as store:
        admissions = Admissions()

        async def runs(workflow_id: str) -> bool:
            return await is_workflow_running(client, workflow_id)

        target = TemporalTarget(
            profile=ClientConfigProfile(address=client.service_client.config.target_host), ui_url=None
        )
        sessions = SessionActivities(runs, store, TemporalTaskClient(client, target).signal_session)
        async with (
            Worker(client, task_queue=CONTEXT_QUEUE, activities=[admissions.admit]),
            Worker(
                client,
                task_queue=WORKFLOWS_QUEUE,
                workflows=[SessionWorkflow, IdleTaskWorkflow],
                activities=[
                    sessions.reconcile_tasks,
                    sessions.take_over_session,
                    sessions.save_session,
                    sessions.store_refusal,
                ],
                workflow_runner=create_sandboxed_runner(),
            ),
        ):
            yield Platform(client, store, admissions)


def holding(*numbers: int) -> BudgetAccount:
    return BudgetAccount(limit=LIMIT, reserved={f"task-{number}": BUDGET for number in numbers})


async def test_under_steady_submits_a_session_continues_as_new_and_forgets_nothing(tmp_path: Path) -> None:
    each, people = 12, 5
    async with start_dev_server(*LONG_IS) as client, platform(client, tmp_path) as at:
        at.admissions.opened.set()
        await at.limit()
        first = (await at.session.describe()).run_id

        async def steadily(person: int) -> list[SubmissionResult]:
            tasks = at.person()
            return [await at.submit(person * each + number, tasks) for number in range(each)]

        admitted = await asyncio.gather(*map(steadily, range(people)))
        assert {admission.state for some in admitted for admission in some} == {"started"}
        assert (await at.session.describe()).run_id != first
        assert await at.account() == holding(*range(each * people))


@pytest.mark.parametrize("long", range(80, 84))
async def test_a_session_whose_history_is_long_when_it_is_idle_takes_the_next_submit(long: int, tmp_path: Path) -> None:
    """The server may say so first with an update, and one that is rejected wakes no workflow."""
    async with (
        start_dev_server(f"limit.historyCount.suggestContinueAsNew={long}") as client,
        platform(client, tmp_path) as at,
    ):
        at.admissions.opened.set()
        await at.limit()
        runs: set[str] = set()
        for number in range(6):
            await at.submit(number, seconds=20)
            runs.add((await at.session.describe()).run_id)
        assert len(runs) > 1
        assert await at.account() == holding(*range(6))


async def test_under_steady_asks_a_session_continues_as_new_and_answers_each_once(tmp_path: Path) -> None:
    each, tasks = 20, 5  # An ask is three events or four: even if one execution takes them all, the server ends none.
    async with start_dev_server(*LONG_IS) as client, platform(client, tmp_path) as at:
        at.admissions.opened.set()
        await at.limit()
        for number in range(tasks):
            await at.submit(number)
        first = (await at.session.describe()).run_id

        async def steadily(number: int) -> None:
            for ask in range(each):
                asked = SessionBudgetRequest(
                    task_id=f"task-{number}", request_id=f"{number}-{ask}", amount=Amount(tokens=1)
                )
                await at.session.signal(SessionWorkflow.ask_budget, asked.model_dump(mode="json"))

        await asyncio.gather(*map(steadily, range(tasks)))
        raised = {f"task-{number}": BUDGET + Amount(tokens=each) for number in range(tasks)}
        async with asyncio.timeout(WAIT_TIMEOUT_SECONDS):
            while await at.account() != BudgetAccount(limit=LIMIT, reserved=raised):
                await asyncio.sleep(0.1)
        assert (await at.session.describe()).run_id != first


async def test_of_fifty_clients_at_once_each_is_admitted_or_told_that_the_session_is_busy(
    server: Client, tmp_path: Path
) -> None:
    async with platform(server, tmp_path) as at:
        at.admissions.opened.set()
        await at.limit()
        answers = await asyncio.gather(*(at.submit(number) for number in range(50)), return_exceptions=True)
        admitted = [number for number, answer in enumerate(answers) if isinstance(answer, SubmissionResult)]
        assert [answer for answer in answers if not isinstance(answer, SubmissionResult | Busy)] == []
        assert len(admitted) >= IN_FLIGHT
        assert await at.account() == holding(*admitted)


async def test_a_client_that_the_server_turns_away_is_told_that_nothing_was_accepted(
    server: Client, tmp_path: Path
) -> None:
    async with platform(server, tmp_path) as at:
        await at.limit()
        held_up = [asyncio.create_task(at.submit(number)) for number in range(IN_FLIGHT)]
        async with asyncio.timeout(WAIT_TIMEOUT_SECONDS):
            while len(at.admissions.begun) < IN_FLIGHT:
                await asyncio.sleep(0.05)
        with pytest.raises(Busy, match=r"^task-99 was not accepted \(.*\) within 1 s\. It is safe to submit"):
            await at.submit(99, seconds=1.0)
        at.admissions.opened.set()
        await asyncio.gather(*held_up)
        assert (await at.submit(99)).state == "started"
        assert await at.account() == holding(*range(IN_FLIGHT), 99)


async def test_a_submit_whose_session_is_terminated_in_between_is_repeated_with_the_next_one(
    server: Client, tmp_path: Path
) -> None:
    async with platform(server, tmp_path) as at:
        await at.limit()
        submitting = asyncio.create_task(at.submit(1))
        async with asyncio.timeout(WAIT_TIMEOUT_SECONDS):
            while not at.admissions.begun:
                await asyncio.sleep(0.05)
        await at.session.terminate()
        at.admissions.opened.set()
        assert (await submitting).state == "started"
        assert await at.account() == holding(1)


async def test_a_session_that_is_set_back_goes_on_from_what_the_store_has(server: Client, tmp_path: Path) -> None:
    async with platform(server, tmp_path) as at:
        at.admissions.opened.set()
        await at.limit()
        await at.submit(1)
        key = SessionWorkflowInput(store_id="store", tenant="t", session="s").key
        newer = await at.store.take_over_session(key)  # as another execution of the session would
        await at.submit(2)
        stored = await at.store.take_over_session(key)
        assert await at.account() == holding(1, 2)
        assert stored.state.account == holding(1, 2)
        assert stored.epoch > newer.epoch + 1


async def test_a_session_for_one_task_ends_with_it_and_its_account_is_kept(server: Client, tmp_path: Path) -> None:
    async with platform(server, tmp_path) as at:
        at.admissions.opened.set()
        ref = TaskRef(store_id="store", tenant="t", session="s", task_id="task-1")
        start = SessionWorkflowInput(**ref.model_dump(exclude={"task_id"}), single_task=True)
        patience = timedelta(seconds=WAIT_TIMEOUT_SECONDS)
        await at.person().admit(start, SESSION_ID, ref, patience)
        await at.session.signal(TASK_FINISHED, TaskSettlement(task_id="task-1", spent=Amount(tokens=300)))
        await at.session.result()
        first = (await at.session.describe()).run_id
        await at.person().admit(start, SESSION_ID, ref.replace(task_id="task-2"), patience)
        account = await at.account()
        assert (await at.session.describe()).run_id != first
        assert account == BudgetAccount(spent=Amount(tokens=300), reserved={"task-2": BUDGET}, limit=Limit())
