"""What the provider may answer instead of a reply, through its real client, and what becomes of the task."""

from collections import Counter as Tally
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import format_datetime
from pathlib import Path

import httpx2
import pytest
from temporalio.client import Client

from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import (
    PROMPT_TOKENS,
    REPLY_TOKENS,
    SCRIPTED_CALLS,
    WORK_TOKENS,
    ModelCall,
    ScriptedTaskModel,
    make_task_config,
    parse_step_id,
)
from tests.support.temporal_platform import TaskSubmitter, run_platform, wait_until
from waystation.agents.call_ledger import MAX_UNANSWERED_CALLS
from waystation.budgets.budget import BudgetMode
from waystation.kernel.amount import Amount
from waystation.kernel.clock import utc_now
from waystation.models.anthropic.model import create_anthropic_model
from waystation.models.ports import ModelRequest, ModelResponse, StopReason
from waystation.privacy.ports import Redactor
from waystation.tasks.approvals import APPROVE_BUDGET
from waystation.tasks.task import TaskConfig, TaskPhase, TaskProgress
from waystation.testing.doubles import make_scripted_response
from waystation.testing.messages_server import (
    EndpointGap,
    ScriptedAnswer,
    ScriptedServer,
    build_dropped_stream,
    build_error_response,
    build_failing_stream,
    build_message_body,
    build_response_with_gaps,
    build_stream_response,
    build_truncated_stream,
)
from waystation.workflows.task import TaskWorkflow

SOON = {"retry-after-ms": "10"}
TEN_HOURS = 36_000
FILTERED = "Output blocked by content filtering policy"
HALF = build_message_body(make_scripted_response())


def roomy() -> TaskConfig:
    """So that the worst cases of unanswered calls stop nobody."""
    return make_task_config(budget=2_000_000, agent_budget=400_000)


@dataclass
class Provider:
    """The crew behind the Messages protocol: each call goes through the SDK to a server in this process, which answers
    the first attempts at some of them with something else.
    """

    instead: dict[ModelCall, list[ScriptedAnswer]]
    crew: ScriptedTaskModel = field(default_factory=ScriptedTaskModel)
    asked: Tally[ModelCall] = field(default_factory=Tally[ModelCall])
    """Requests for a reply that reached the server."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """As the SDK brings it."""
        call = ModelCall(parse_step_id(request), 1 + sum(message.role == "assistant" for message in request.messages))
        answers = self.instead.get(call, [])
        answer = (
            answers.pop(0) if answers else build_stream_response(build_message_body(await self.crew.complete(request)))
        )
        server = ScriptedServer([answer])
        model = create_anthropic_model("key", "http://model.test", server.build_http_client())
        try:
            return await model.complete(request)
        finally:
            self.asked[call] += len(server.request_bodies)
            await model.aclose()

    async def count_tokens(self, request: ModelRequest) -> int:
        return await self.crew.count_tokens(request)

    async def aclose(self) -> None:
        """Nothing is open."""


@dataclass
class Endpoint:
    """The crew behind an endpoint that speaks the protocol with gaps."""

    gaps: frozenset[EndpointGap]
    crew: ScriptedTaskModel = field(default_factory=ScriptedTaskModel)
    counts: int = 0
    """Requests for a count that reached it."""

    def __post_init__(self) -> None:
        http_client = httpx2.AsyncClient(transport=httpx2.MockTransport(self._count))
        self._counting = create_anthropic_model("key", "http://model.test", http_client)

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """As the SDK brings it."""
        server = ScriptedServer(
            [build_response_with_gaps(build_message_body(await self.crew.complete(request)), self.gaps)]
        )
        async with aclosing(create_anthropic_model("key", "http://model.test", server.build_http_client())) as model:
            return await model.complete(request)

    async def count_tokens(self, request: ModelRequest) -> int | None:
        return await self._counting.count_tokens(request)

    async def aclose(self) -> None:
        await self._counting.aclose()

    def _count(self, request: httpx2.Request) -> httpx2.Response:
        self.counts += 1
        return (
            build_error_response(404, "not_found_error")
            if "no count" in self.gaps
            else httpx2.Response(200, json=COUNTED)
        )


COUNTED = {"input_tokens": PROMPT_TOKENS}
GAPS: tuple[EndpointGap, ...] = ("no count", "no usage", "no cache fields", "another model")


WHOLE = {TaskPhase.DONE}
BOUNDED = {TaskPhase.DONE, TaskPhase.PARTIAL}
"""What is not counted is held at an upper bound, which may be more than an agent has left."""


@pytest.mark.parametrize(
    ("gaps", "phases"),
    [
        (("no count",), BOUNDED),
        (("no usage",), BOUNDED),
        (("no cache fields",), WHOLE),
        (("another model",), WHOLE),
        (GAPS, BOUNDED),
    ],
    ids=["no count", "no usage", "no cache fields", "another model", "all at once"],
)
async def test_a_task_ends_with_a_report_within_its_budget_at_an_endpoint_with_gaps(
    server: Client, tmp_path: Path, redactor: Redactor, gaps: tuple[EndpointGap, ...], phases: set[TaskPhase]
) -> None:
    endpoint = Endpoint(frozenset(gaps))
    async with run_platform(server, tmp_path, redactor, endpoint) as counter:
        await counter.submit(under=make_task_config(budget=150_000, agent_budget=16_000, mode=BudgetMode.HARD))
        progress = await counter.get_task_handle().result()
        report = await counter.store.get_text(progress.report or "", SYSTEM_SCOPE)
        bill = (await counter.store.list_task_charges(progress.task_id, SYSTEM_SCOPE)).cost_breakdown
    assert progress.phase in phases
    assert all("the mode is hard" in step.reason for step in progress.steps if step.state != "done")
    used = bill.total.usage
    assert 0 < used.fresh == progress.budget.spent.tokens <= 150_000
    assert bill.total.calls == len(endpoint.crew.calls)
    assert used.estimated == (used.total if "no usage" in gaps else 0)
    assert ("which is an upper bound" in report) == ("no usage" in gaps)
    assert all(line.answered_by == (("another-model",) if "another model" in gaps else ()) for line in bill.lines)
    named = "the model crew was requested, but the replies name another-model"
    assert (named in report) == ("another model" in gaps)
    assert progress.totals.possibly_billed == 0
    if "no count" in gaps:
        assert endpoint.counts <= 1, "an endpoint that does not count is not asked again"


async def progress_of(counter: TaskSubmitter) -> TaskProgress:
    return await counter.get_task_handle().query(TaskWorkflow.progress)


async def test_what_another_attempt_cannot_change_is_asked_once_and_the_agent_delivers_what_it_has(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    provider = Provider(
        {
            ModelCall("harbours", 3): [build_error_response(401, "authentication_error")],
            ModelCall("tides", 2): [build_error_response(413, "request_too_large")],
            ModelCall("weigh", 1): [build_error_response(400, "invalid_request_error", "messages: unexpected role")],
            ModelCall("write", 2): [build_error_response(403, "permission_error")],
        }
    )
    failing = tuple(provider.instead)
    async with run_platform(server, tmp_path, redactor, provider) as counter:
        await counter.submit(under=roomy())
        progress = await counter.get_task_handle().result()
        report = await counter.store.get_text(progress.report or "", SYSTEM_SCOPE)
    assert progress.phase is TaskPhase.PARTIAL
    assert [(step.state, step.reason.partition(" (status")[0]) for step in progress.steps] == [
        ("partial", "the API key was not accepted"),
        ("partial", "the request is too large"),
        ("partial", "the request was refused"),
        ("partial", "the API key lacks permission for this request"),
    ]
    assert [provider.asked[call] for call in failing] == [1, 1, 1, 1]
    assert progress.totals.possibly_billed == 0
    assert "harbours ended early: the API key was not accepted" in report


async def test_what_may_pass_is_asked_again_until_it_has_and_every_reply_is_paid_once(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    provider = Provider(
        {
            ModelCall("plan", 1): [build_error_response(503, "api_error", headers=SOON)],
            ModelCall("harbours", 1): [build_error_response(429, "rate_limit_error", headers=SOON)] * 2,
            ModelCall("harbours", 2): [build_error_response(529, "overloaded_error", headers=SOON)],
            ModelCall("harbours", 3): [build_error_response(500, "api_error", headers=SOON)],
            ModelCall("tides", 2): [httpx2.ConnectError("refused")],
            ModelCall("weigh", 1): [build_truncated_stream(HALF)],
            ModelCall("write", 1): [build_failing_stream(HALF, "overloaded_error")],
            ModelCall("write", 2): [build_dropped_stream(HALF)],
        }
    )
    failing = {call: len(answers) for call, answers in provider.instead.items()}
    async with run_platform(server, tmp_path, redactor, provider) as counter:
        await counter.submit(under=roomy())
        progress = await counter.get_task_handle().result()
    assert progress.phase is TaskPhase.DONE
    assert {call: provider.asked[call] for call in failing} == {call: many + 1 for call, many in failing.items()}
    assert all(times == 1 for call, times in provider.asked.items() if call not in failing)
    assert progress.totals.usage.fresh == WORK_TOKENS
    assert len(provider.crew.calls) == len(set(provider.crew.calls))
    unanswered = progress.totals.possibly_billed
    assert progress.budget.spent == Amount(tokens=WORK_TOKENS + unanswered)
    assert unanswered >= 5 * REPLY_TOKENS


async def test_the_delay_that_the_provider_names_is_when_its_call_is_made_again(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    closed = build_error_response(429, "rate_limit_error", headers={"retry-after": str(TEN_HOURS)})
    provider = Provider({ModelCall("plan", 1): [closed]})
    async with run_platform(server, tmp_path, redactor, provider) as counter:
        await counter.submit(under=roomy())

        async def scheduled() -> bool:
            described = (await counter.get_task_handle().describe()).raw_description
            return any(waiting.HasField("next_attempt_schedule_time") for waiting in described.pending_activities)

        await wait_until(scheduled)
        (waiting,) = (await counter.get_task_handle().describe()).raw_description.pending_activities
        await counter.get_task_handle().terminate()
    delay = waiting.next_attempt_schedule_time.seconds - waiting.last_attempt_complete_time.seconds
    assert delay == pytest.approx(TEN_HOURS, abs=1)
    assert provider.asked == {ModelCall("plan", 1): 1}


DECLINED = (
    "the model declined to answer 2 times in a row: rephrase the question, leave out the document that causes this, "
    "choose another model (WAYSTATION_ROLES__RESEARCH__MODEL), or set a fallback for the model's endpoint"
)


async def test_two_refusals_or_a_content_filter_end_the_leg_with_what_it_has(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    provider = Provider(
        {
            ModelCall("harbours", 3): [
                build_stream_response(build_message_body(make_scripted_response(stop=StopReason.REFUSAL)))
                for _ in range(2)
            ],
            ModelCall("tides", 3): [build_failing_stream(HALF, "invalid_request_error", FILTERED)],
            ModelCall("weigh", 1): [build_error_response(400, "invalid_request_error", FILTERED)],
        }
    )
    failing = tuple(provider.instead)
    async with run_platform(server, tmp_path, redactor, provider) as counter:
        await counter.submit(under=roomy())
        progress = await counter.get_task_handle().result()
        report = await counter.store.get_text(progress.report or "", SYSTEM_SCOPE)
    assert progress.phase is TaskPhase.PARTIAL
    assert [(step.state, step.legs, step.reason.partition(" (status")[0]) for step in progress.steps] == [
        ("partial", 1, DECLINED),
        ("partial", 1, "the provider's content filter blocked the reply"),
        ("partial", 1, "the provider's content filter blocked the reply"),
        ("done", 1, ""),
    ]
    assert [provider.asked[call] for call in failing] == [2, 1, 1]
    assert provider.asked[ModelCall("write", len(SCRIPTED_CALLS["submit_report"]))] == 1
    assert progress.totals.possibly_billed >= 2 * REPLY_TOKENS
    assert "tides ended early: the provider's content filter blocked the reply" in report


BROKEN = [build_error_response(500, "api_error", headers=SOON)] * MAX_UNANSWERED_CALLS


async def test_an_endpoint_that_brings_no_reply_pauses_the_task_with_the_cause_and_an_answer_makes_it_go_on(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    provider = Provider({ModelCall("plan", 1): [*BROKEN], ModelCall("research-1", 1): [*BROKEN]})
    async with run_platform(server, tmp_path, redactor, provider) as counter:
        await counter.submit(under=roomy())

        async def paused() -> bool:
            return (await progress_of(counter)).phase is TaskPhase.PAUSED

        await wait_until(paused)
        seen = await progress_of(counter)
        await counter.get_task_handle().signal(APPROVE_BUDGET, {"by": "Ada"})
        progress = await counter.get_task_handle().result()
    assert any("the standard plan is used. (5 model calls in a row" in note for note in seen.notes)
    (asked,) = seen.approvals
    assert "the last one: the provider failed (status 500, api_error" in asked.reason
    assert provider.asked[ModelCall("research-1", 1)] == MAX_UNANSWERED_CALLS + 1
    assert progress.phase is TaskPhase.DONE


async def test_where_nobody_is_asked_a_broken_endpoint_ends_the_step_and_the_report_names_the_cause(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    provider = Provider({ModelCall("weigh", 1): [*BROKEN]})
    async with run_platform(server, tmp_path, redactor, provider) as counter:
        await counter.submit(under=make_task_config(budget=2_000_000, agent_budget=8_000, mode=BudgetMode.HARD))
        progress = await counter.get_task_handle().result()
        report = await counter.store.get_text(progress.report or "", SYSTEM_SCOPE)
    assert progress.phase is TaskPhase.PARTIAL
    (weigh,) = (step for step in progress.steps if step.id == "weigh")
    assert weigh.reason.startswith("5 model calls in a row got no usable reply")
    assert "the last one: the provider failed (status 500, api_error" in report


@pytest.mark.parametrize(
    "answer",
    [
        build_error_response(402, "billing_error"),
        build_error_response(400, "invalid_request_error", "Your credit balance is too low"),
    ],
    ids=["status 402", "no credit"],
)
async def test_a_provider_that_wants_money_pauses_the_task_and_an_answer_makes_that_call_again(
    answer: httpx2.Response, server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    provider = Provider({ModelCall("weigh", 1): [answer]})
    async with run_platform(server, tmp_path, redactor, provider) as counter:
        await counter.submit(under=roomy())

        async def paused() -> bool:
            return (await progress_of(counter)).phase is TaskPhase.PAUSED

        await wait_until(paused)
        (asked,) = (await progress_of(counter)).approvals
        await counter.get_task_handle().signal(APPROVE_BUDGET, {"by": "Ada"})
        progress = await counter.get_task_handle().result()
    assert (asked.agent, asked.requested) == ("weigh", Amount())
    assert "account has no credit" in asked.reason
    assert progress.phase is TaskPhase.DONE
    assert provider.asked[ModelCall("weigh", 1)] == 2
    assert progress.budget.spent == Amount(tokens=WORK_TOKENS)


@pytest.mark.parametrize("mode", [BudgetMode.APPROVAL, BudgetMode.HARD], ids=["someone is asked", "no one is asked"])
async def test_a_task_goes_on_by_itself_when_the_providers_account_is_reset(
    mode: BudgetMode, server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    headers = {"retry-after": "3", "date": format_datetime(utc_now(), usegmt=True)}
    provider = Provider({ModelCall("weigh", 1): [build_error_response(402, "billing_error", headers=headers)]})
    config = make_task_config(budget=2_000_000, agent_budget=400_000, mode=mode).replace(resume_at_reset=True)
    async with run_platform(server, tmp_path, redactor, provider) as counter:
        await counter.submit(under=config)
        progress = await counter.get_task_handle().result()
        timers = [
            event.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta()
            async for event in counter.get_task_handle().fetch_history_events()
            if event.HasField("timer_started_event_attributes")
        ]
    assert progress.phase is TaskPhase.DONE
    assert provider.asked[ModelCall("weigh", 1)] == 2
    decisions = [request.decision for request in progress.approvals]
    assert decisions == (["withdrawn"] if mode is BudgetMode.APPROVAL else [])
    assert any(note.startswith("weigh waits until ") for note in progress.notes)
    assert any(timer <= timedelta(seconds=3) for timer in timers)
    assert progress.budget.spent == Amount(tokens=WORK_TOKENS)
