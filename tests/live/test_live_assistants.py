"""What an assistant's task asks for: who may answer it, by a form or for itself, and within which budget."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp import Client as AssistantClient
from mcp.client import ClientRequestContext
from mcp.types import ElicitRequestFormParams, ElicitRequestParams, ElicitResult, TextContent, TextResourceContents
from temporalio.client import Client as TemporalClient

from tests.attacks.test_attacks_assistants import MAIL, OWN, SECRET, open_assistant_client, store_task
from tests.attacks.test_attacks_web_pages import NO_SERVER
from tests.live.test_live_approvals import wait_for_pause
from tests.support.finished_tasks import make_task_row
from tests.support.task_model import ScriptedTaskModel, make_tight_budget_config
from tests.support.temporal_platform import SESSION, TENANT, TaskSubmitter, run_platform, wait_until
from waystation.client import Client
from waystation.client.store_queries import DEFAULT_TASK_LIMIT
from waystation.config.settings import Settings
from waystation.kernel.amount import Limit
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput, Unreachable
from waystation.plugins.web.assistant_gateway import AssistantGateway, DocumentInput, SubmitResearchRequest
from waystation.plugins.web.mcp import AssistantServer
from waystation.plugins.web.principals import Answers, AssistantPolicy
from waystation.plugins.web.task_page import format_approval_request
from waystation.privacy.ports import Redactor
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.signals import AnswerResult
from waystation.tasks.task import TaskRequest
from waystation.tasks.view import PendingApproval, TaskFilter, list_pending_approvals
from waystation.workers.memory import MemoryReader

PLENTY = Limit(tokens=10_000_000)
NOTE = "go on"


class OfPilots(AssistantPolicy):
    """Of an assistant whose tasks are those of the session in which tests hand theirs in."""

    @property
    def session_name(self) -> str:
        """See base class."""
        return SESSION


class ScriptedFormUser:
    """Answers every form so, and keeps what it said."""

    def __init__(self, action: Literal["accept", "decline"], amount: str = "") -> None:
        self.answer = ElicitResult(
            action=action, content={"amount": amount, "note": NOTE} if action == "accept" else None
        )
        self.read: list[str] = []

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        del context
        assert isinstance(params, ElicitRequestFormParams)
        self.read.append(params.message)
        return self.answer


class AssistantSession:
    """A client of the store and server of a test, for assistants of its session."""

    def __init__(self, client: Client, settings: Settings) -> None:
        self.client = client
        self.settings = settings

    def assistant(self, answers: Answers = "person", budget: Limit = PLENTY) -> AssistantGateway:
        known = AssistantPolicy.from_settings(self.settings).model_dump()
        rights = OfPilots.model_validate({**known, "answers": answers, "budget": budget})
        return AssistantGateway(self.client, self.settings, rights, MemoryReader(self.settings))

    @asynccontextmanager
    async def asking(
        self, assistant: AssistantGateway, person: ScriptedFormUser | None, mode: str = "auto"
    ) -> AsyncGenerator[AssistantClient]:
        async with AssistantClient(AssistantServer(assistant), mode=mode, elicitation_callback=person) as asking:
            yield asking


@asynccontextmanager
async def open_assistant_session(settings: Settings) -> AsyncGenerator[AssistantSession]:
    async with await Client.connect(settings) as client:
        yield AssistantSession(client, settings)


async def call_tool(asking: AssistantClient, tool: str, **arguments: Any) -> tuple[bool, str]:
    """Whether it was done, and the words."""
    done = await asking.call_tool(tool, arguments)
    (content,) = done.content
    assert isinstance(content, TextContent)
    return not done.is_error, content.text


async def start_paused_task(counter: TaskSubmitter, client: Client) -> tuple[str, list[str]]:
    """A task that waits for two answers, and their ids."""
    task = (await wait_for_pause(counter)).id
    progress = await client.get_task(task)
    return task, [one.request_id for one in progress.approvals]


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_person_answers_by_a_form_and_an_assistant_not_for_itself(
    mode: str, server: TemporalClient, tmp_path: Path, redactor: Redactor, remote_settings: Settings
) -> None:
    async with (
        run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter,
        open_assistant_session(remote_settings) as there,
    ):
        task, (first, second) = await start_paused_task(counter, there.client)

        async with there.asking(there.assistant(), None, mode) as asking:
            done, words = await call_tool(asking, "approve", task=task, request_id=first, amount="50k")
            assert not done
            assert f"`waystation approve {task} --request {first}`" in words
            done, words = await call_tool(asking, "approve", task=task)
            assert not done
            assert (
                f"several requests are open: give a request_id. Open requests of {task} (paused): {first}, {second}"
                in words
            )
        async with there.asking(there.assistant("nobody"), ScriptedFormUser("accept"), mode) as asking:
            done, words = await call_tool(asking, "approve", task=task, request_id=first)
            assert (done, "does not allow assistants to approve requests" in words) == (False, True)

        declining = ScriptedFormUser("decline")
        async with there.asking(there.assistant(), declining, mode) as asking:
            done, words = await call_tool(asking, "approve", task=task, request_id=first)
            assert (done, len(declining.read)) == (False, 1)
            assert "the person declined the form, so nothing was granted and the request stays open" in words
            waiting = await asking.call_tool("list_approvals", {})
            assert waiting.structured_content is not None
            assert len(waiting.structured_content["requests"]) == 2

        async with there.asking(there.assistant(), ScriptedFormUser("accept", "6" * 100), mode) as asking:
            done, words = await call_tool(asking, "approve", task=task, request_id=first)
            assert (done, "returned with invalid values: amount:" in words) == (False, True), words

        granting = ScriptedFormUser("accept", "60k")
        async with there.asking(there.assistant(), granting, mode) as asking:
            done, words = await call_tool(asking, "approve", task=task, request_id=first)
            assert done, words
            assert f"in {task}" in granting.read[0]
            # With so much money the other agent may have gone on.
            done, words = await call_tool(asking, "approve", task=task, request_id=second)
            assert done or f"{second} was already withdrawn" in words
            done, words = await call_tool(asking, "wait_for_task", task=task, seconds=60)
            assert f"{task} is done" in words
            done, words = await call_tool(asking, "approve", task=task, request_id=first)
            assert (
                done,
                f"{first} was already approved by assistant (MCP). Open requests of {task} (done)" in words,
            ) == (
                False,
                True,
            )
        answered = (await there.client.get_task(task)).approvals[0]
        assert (answered.decision, answered.granted.tokens) == ("approved", 60_000)
        assert (answered.by, answered.note) == ("assistant (MCP)", NOTE)


class Waits(AssistantGateway):
    """Of its requests, one waits at a time."""

    def __init__(self, there: AssistantSession, first: PendingApproval) -> None:
        own = there.assistant()
        super().__init__(there.client, there.settings, own.policy, MemoryReader(there.settings))
        self.waiting, self.granted = first, list[str]()

    async def find_request(self, task: str, request_id: str | None) -> PendingApproval:
        """See base class."""
        del task, request_id
        return self.waiting

    async def approve(self, one: PendingApproval, written: str, note: str) -> AnswerResult:
        """See base class."""
        del written, note
        self.granted.append(one.approval.request_id)
        return AnswerResult(outcome="approved")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_form_grants_what_it_was_about_and_nothing_that_came_to_wait_meanwhile(
    mode: str, server: TemporalClient, tmp_path: Path, redactor: Redactor, remote_settings: Settings
) -> None:
    async with (
        run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter,
        open_assistant_session(remote_settings) as there,
    ):
        task, _ = await start_paused_task(counter, there.client)
        first, second = list_pending_approvals(await there.client.get_task(task))
        assistant = Waits(there, first)

        class Slow(ScriptedFormUser):
            async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
                assistant.waiting = second
                return await super().__call__(context, params)

        slow = Slow("accept", "60k")
        async with there.asking(assistant, slow, mode) as asking:
            await call_tool(asking, "approve", task=task)
    about = [one.approval.request_id for one in (first, second) if format_approval_request(one) == slow.read[-1]]
    assert assistant.granted == about


async def test_what_is_granted_stays_within_its_budget_and_a_denial_is_always_possible(
    server: TemporalClient, tmp_path: Path, redactor: Redactor, remote_settings: Settings
) -> None:
    async with (
        run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter,
        open_assistant_session(remote_settings) as there,
    ):
        task, (first, second) = await start_paused_task(counter, there.client)
        limit = (await there.client.get_task(task)).budget.limit.tokens or 0
        assert limit == make_tight_budget_config().budget.tokens
        async with there.asking(there.assistant("client", Limit(tokens=limit + 50_000)), None) as asking:
            done, words = await call_tool(asking, "approve", task=task, request_id=first, amount="50001")
            assert (done, "assistant cannot spend" in words) == (False, True)
            for nothing in ("0", "0k", "$0.000000"):
                done, words = await call_tool(asking, "approve", task=task, request_id=first, amount=nothing)
                assert (done, "grants nothing" in words) == (False, True)
            done, words = await call_tool(asking, "deny", task=task, request_id=second)
            assert done, words
            done, words = await call_tool(asking, "approve", task=task, request_id=first, amount="50k", note=NOTE)
            assert done, words
            done, words = await call_tool(asking, "wait_for_task", task=task, seconds=60)
            assert f"{task} is partial" in words


async def test_nothing_is_counted_as_free_while_a_task_cannot_say_what_it_was_granted(
    server: TemporalClient, tmp_path: Path, redactor: Redactor, remote_settings: Settings
) -> None:
    async with open_assistant_session(remote_settings) as there:
        async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
            task, _ = await start_paused_task(counter, there.client)
        wanted = SubmitResearchRequest(
            question="Why?", documents=(DocumentInput(name="a.md", text="A.\n"),), request_id="one"
        )
        with pytest.raises(Unreachable, match=f"the budget of {task} is unknown"):
            await there.assistant().submit(wanted)


async def test_what_waits_is_listed_however_old_its_task_is_and_to_its_own_assistant_alone(
    server: TemporalClient, tmp_path: Path, redactor: Redactor, remote_settings: Settings
) -> None:
    async with (
        run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter,
        open_assistant_session(remote_settings) as there,
    ):
        task, waiting = await start_paused_task(counter, there.client)
        store = await SqlStore.open(remote_settings.database_url, utc_now)
        for number in range(DEFAULT_TASK_LIMIT):
            newer = TaskRequest(question="Why?", tenant=TENANT, session=SESSION, request_id=f"newer-{number}")
            await store.register_task(make_task_row(newer, remote_settings, await store.get_store_id()), ())
        await store.aclose()

        assert {one.approval.request_id for one in await there.assistant().list_requests()} == {*waiting}
        assert task not in {view.task_id for view in await there.assistant().list_tasks()}
        other = AssistantGateway(
            there.client,
            remote_settings,
            AssistantPolicy.from_settings(remote_settings),
            MemoryReader(remote_settings),
        )
        assert await other.list_requests() == ()


async def test_of_two_tasks_that_fit_one_by_one_one_is_begun(
    server: TemporalClient, tmp_path: Path, redactor: Redactor, remote_settings: Settings
) -> None:
    given = SubmitResearchRequest(
        question="How is the bar crossed?",
        documents=(DocumentInput(name="pilot.md", text="Keep the white beacon to starboard.\n"),),
        budget=Limit(tokens=300_000),
        request_id="one",
    )
    paged = remote_settings.replace(page="https://research.example.org")
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()), open_assistant_session(paged) as there:
        wishes = [given, given.replace(request_id="two")]
        halls = [there.assistant(budget=Limit(tokens=500_000)) for _ in wishes]
        found = await asyncio.gather(
            *(hall.submit(wish) for hall, wish in zip(halls, wishes, strict=True)), return_exceptions=True
        )
        # A server that is busy answers later; then it is asked again.
        (refused,) = [one for one in found if isinstance(one, BadInput)]
        assert "assistant cannot spend another 300,000 tokens" in str(refused)
        (begun,) = await there.client.list_tasks(TaskFilter(session=SESSION))
        task = begun.task_id
        again = wishes[1 - found.index(refused)]

        async def handed_in() -> bool:
            with suppress(Unreachable):
                accepted = await halls[0].submit(again)
                assert accepted.page == f"https://research.example.org/tasks/{accepted.task_id}"
                return accepted.task_id == task
            return False

        await wait_until(handed_in)


async def test_a_document_is_read_as_agents_saw_it_and_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    settings = Settings(home=tmp_path / "home", offline=True)
    task = await store_task(settings, OWN, spent=1)
    async with open_assistant_client(settings) as asking:
        (content,) = (await asking.read_resource(f"waystation://tasks/{task}/documents/a.md")).contents
        with pytest.raises(Exception, match=r"has no document '\.\./b\.md' now"):
            await asking.read_resource(f"waystation://tasks/{task}/documents/../b.md")
    assert isinstance(content, TextResourceContents)
    assert content.text.splitlines()[2].startswith(f"{SECRET}, says <EMAIL")
    assert MAIL not in content.text
