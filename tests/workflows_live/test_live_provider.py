"""What the provider may answer instead of a reply, through its real client, and what becomes of the task."""

from collections import Counter as Tally
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest
from temporalio.client import Client

from tests.crew import MOVES, PROMPT_TOKENS, REPLY_TOKENS, WORK_TOKENS, Call, Crew, step_of, terms
from tests.readers import ANYONE
from tests.running import Counter, at_work, until
from waystation.agents.call_ledger import MOST_UNANSWERED
from waystation.budgets.budget import Mode
from waystation.kernel.amount import Amount
from waystation.models.anthropic.messages_server import (
    Gap,
    Scripted,
    ScriptedServer,
    build_dropped_stream,
    build_error_response,
    build_failing_stream,
    build_message_body,
    build_response_with_gaps,
    build_stream_response,
    build_truncated_stream,
)
from waystation.models.anthropic.model import anthropic_model
from waystation.models.ports import ModelRequest, ModelResponse, StopReason
from waystation.privacy.ports import Redactor
from waystation.tasks.approvals import APPROVE_BUDGET
from waystation.tasks.task import TaskPhase, TaskProgress, TaskTerms
from waystation.testing import make_scripted_response
from workflows.task import TaskWorkflow

SOON = {"retry-after-ms": "10"}
TEN_HOURS = 36_000
FILTERED = "Output blocked by content filtering policy"
HALF = build_message_body(make_scripted_response())


def roomy() -> TaskTerms:
    """So that the worst cases of unanswered calls stop nobody."""
    return terms(budget=2_000_000, agent_budget=400_000)


@dataclass
class Provider:
    """The crew behind the Messages protocol: each call goes through the SDK to a server in this process, which answers
    the first attempts at some of them with something else.
    """

    instead: dict[Call, list[Scripted]]
    crew: Crew = field(default_factory=Crew)
    asked: Tally[Call] = field(default_factory=Tally[Call])
    """Requests for a reply that reached the server."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """As the SDK brings it."""
        call = Call(step_of(request), 1 + sum(message.role == "assistant" for message in request.messages))
        answers = self.instead.get(call, [])
        answer = (
            answers.pop(0) if answers else build_stream_response(build_message_body(await self.crew.complete(request)))
        )
        server = ScriptedServer([answer])
        model = anthropic_model("key", "http://model.test", server.http_client())
        try:
            return await model.complete(request)
        finally:
            self.asked[call] += len(server.bodies)
            await model.aclose()

    async def count_tokens(self, request: ModelRequest) -> int:
        return await self.crew.count_tokens(request)

    async def aclose(self) -> None:
        """Nothing is open."""


@dataclass
class Endpoint:
    """The crew behind an endpoint that speaks the protocol with gaps."""

    gaps: frozenset[Gap]
    crew: Crew = field(default_factory=Crew)
    counts: int = 0
    """Requests for a count that reached it."""

    def __post_init__(self) -> None:
        http_client = httpx2.AsyncClient(transport=httpx2.MockTransport(self._count))
        self._counting = anthropic_model("key", "http://model.test", http_client)

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """As the SDK brings it."""
        server = ScriptedServer(
            [build_response_with_gaps(build_message_body(await self.crew.complete(request)), self.gaps)]
        )
        async with aclosing(anthropic_model("key", "http://model.test", server.http_client())) as model:
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
GAPS: tuple[Gap, ...] = ("no count", "no usage", "no cache fields", "another model")


WHOLE, PARTIAL = TaskPhase.DONE, TaskPhase.PARTIAL


@pytest.mark.parametrize(
    ("gaps", "phase"),
    [
        (("no count",), PARTIAL),
        (("no usage",), WHOLE),
        (("no cache fields",), WHOLE),
        (("another model",), WHOLE),
        (GAPS, PARTIAL),
    ],
    ids=["no count", "no usage", "no cache fields", "another model", "all at once"],
)
async def test_a_task_ends_with_a_report_within_its_budget_at_an_endpoint_with_gaps(
    server: Client, tmp_path: Path, redactor: Redactor, gaps: tuple[Gap, ...], phase: TaskPhase
) -> None:
    endpoint = Endpoint(frozenset(gaps))
    async with at_work(server, tmp_path, redactor, endpoint) as counter:
        await counter.submit(under=terms(budget=60_000, agent_budget=8_000, mode=Mode.HARD))
        progress = await counter.task().result()
        report = await counter.store.get_text(progress.report or "", ANYONE)
        bill = (await counter.store.payments(progress.task_id, ANYONE)).bill
    assert progress.phase is phase
    assert all("the mode is hard" in step.reason for step in progress.steps if step.state != "done")
    used = bill.total.usage
    assert 0 < used.fresh == progress.budget.spent.tokens <= 60_000
    assert bill.total.calls == len(endpoint.crew.calls)
    assert used.estimated == (used.total if "no usage" in gaps else 0)
    assert ("Estimated, at most" in report) == ("no usage" in gaps)
    assert all(line.answered_by == (("another-model",) if "another model" in gaps else ()) for line in bill.lines)
    named = "crew was asked for, and answered as another-model"
    assert (named in report) == ("another model" in gaps)
    assert progress.totals.possibly_billed == 0
    if "no count" in gaps:
        assert endpoint.counts == 1


async def progress_of(counter: Counter) -> TaskProgress:
    return await counter.task().query(TaskWorkflow.progress)


async def test_what_another_attempt_cannot_change_is_asked_once_and_the_agent_delivers_what_it_has(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    provider = Provider(
        {
            Call("harbours", 3): [build_error_response(401, "authentication_error")],
            Call("tides", 2): [build_error_response(413, "request_too_large")],
            Call("weigh", 1): [build_error_response(400, "invalid_request_error", "messages: unexpected role")],
            Call("write", 2): [build_error_response(403, "permission_error")],
        }
    )
    failing = tuple(provider.instead)
    async with at_work(server, tmp_path, redactor, provider) as counter:
        await counter.submit(under=roomy())
        progress = await counter.task().result()
        report = await counter.store.get_text(progress.report or "", ANYONE)
    assert progress.phase is TaskPhase.PARTIAL
    assert [(step.state, step.reason.partition(" (status")[0]) for step in progress.steps] == [
        ("partial", "the API key was not accepted"),
        ("partial", "the request is too large"),
        ("partial", "the request was refused"),
        ("partial", "the API key may not do this"),
    ]
    assert [provider.asked[call] for call in failing] == [1, 1, 1, 1]
    assert progress.totals.possibly_billed == 0
    assert "harbours ended partial: the API key was not accepted" in report


async def test_what_may_pass_is_asked_again_until_it_has_and_every_reply_is_paid_once(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    provider = Provider(
        {
            Call("plan", 1): [build_error_response(503, "api_error", headers=SOON)],
            Call("harbours", 1): [build_error_response(429, "rate_limit_error", headers=SOON)] * 2,
            Call("harbours", 2): [build_error_response(529, "overloaded_error", headers=SOON)],
            Call("harbours", 3): [build_error_response(500, "api_error", headers=SOON)],
            Call("tides", 2): [httpx2.ConnectError("refused")],
            Call("weigh", 1): [build_truncated_stream(HALF)],
            Call("write", 1): [build_failing_stream(HALF, "overloaded_error")],
            Call("write", 2): [build_dropped_stream(HALF)],
        }
    )
    failing = {call: len(answers) for call, answers in provider.instead.items()}
    async with at_work(server, tmp_path, redactor, provider) as counter:
        await counter.submit(under=roomy())
        progress = await counter.task().result()
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
    provider = Provider({Call("plan", 1): [closed]})
    async with at_work(server, tmp_path, redactor, provider) as counter:
        await counter.submit(under=roomy())

        async def scheduled() -> bool:
            described = (await counter.task().describe()).raw_description
            return any(waiting.HasField("next_attempt_schedule_time") for waiting in described.pending_activities)

        await until(scheduled)
        (waiting,) = (await counter.task().describe()).raw_description.pending_activities
        await counter.task().terminate()
    delay = waiting.next_attempt_schedule_time.seconds - waiting.last_attempt_complete_time.seconds
    assert delay == pytest.approx(TEN_HOURS, abs=1)
    assert provider.asked == {Call("plan", 1): 1}


async def test_a_refusal_and_a_content_filter_end_the_leg_with_what_there_is_and_are_not_asked_again(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    provider = Provider(
        {
            Call("harbours", 3): [
                build_stream_response(build_message_body(make_scripted_response(stop=StopReason.REFUSAL)))
            ],
            Call("tides", 3): [build_failing_stream(HALF, "invalid_request_error", FILTERED)],
            Call("weigh", 1): [build_error_response(400, "invalid_request_error", FILTERED)],
        }
    )
    failing = tuple(provider.instead)
    async with at_work(server, tmp_path, redactor, provider) as counter:
        await counter.submit(under=roomy())
        progress = await counter.task().result()
        report = await counter.store.get_text(progress.report or "", ANYONE)
    assert progress.phase is TaskPhase.PARTIAL
    assert [(step.state, step.legs, step.reason.partition(" (status")[0]) for step in progress.steps] == [
        ("partial", 1, "the model refused to go on"),
        ("partial", 1, "the provider's content filter blocked the reply"),
        ("partial", 1, "the provider's content filter blocked the reply"),
        ("done", 1, ""),
    ]
    assert [provider.asked[call] for call in failing] == [1, 1, 1]
    assert provider.asked[Call("write", len(MOVES["submit_report"]))] == 1
    assert progress.totals.possibly_billed >= 2 * REPLY_TOKENS
    assert "tides ended partial: the provider's content filter blocked the reply" in report


BROKEN = [build_error_response(500, "api_error", headers=SOON)] * MOST_UNANSWERED


async def test_an_endpoint_that_brings_no_reply_pauses_the_task_with_the_cause_and_an_answer_makes_it_go_on(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    provider = Provider({Call("plan", 1): [*BROKEN], Call("research-1", 1): [*BROKEN]})
    async with at_work(server, tmp_path, redactor, provider) as counter:
        await counter.submit(under=roomy())

        async def paused() -> bool:
            return (await progress_of(counter)).phase is TaskPhase.PAUSED

        await until(paused)
        seen = await progress_of(counter)
        await counter.task().signal(APPROVE_BUDGET, {"by": "Ada"})
        progress = await counter.task().result()
    assert any("the standard plan is used. (5 calls in a row" in note for note in seen.notes)
    (asked,) = seen.approvals
    assert "the last one: the provider failed (status 500, api_error" in asked.reason
    assert provider.asked[Call("research-1", 1)] == MOST_UNANSWERED + 1
    assert progress.phase is TaskPhase.DONE


async def test_where_nobody_is_asked_a_broken_endpoint_ends_the_step_and_the_report_names_the_cause(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    provider = Provider({Call("weigh", 1): [*BROKEN]})
    async with at_work(server, tmp_path, redactor, provider) as counter:
        await counter.submit(under=terms(budget=2_000_000, agent_budget=8_000, mode=Mode.HARD))
        progress = await counter.task().result()
        report = await counter.store.get_text(progress.report or "", ANYONE)
    assert progress.phase is TaskPhase.PARTIAL
    (weigh,) = (step for step in progress.steps if step.id == "weigh")
    assert weigh.reason.startswith("5 calls in a row brought no reply that can be used")
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
    provider = Provider({Call("weigh", 1): [answer]})
    async with at_work(server, tmp_path, redactor, provider) as counter:
        await counter.submit(under=roomy())

        async def paused() -> bool:
            return (await progress_of(counter)).phase is TaskPhase.PAUSED

        await until(paused)
        (asked,) = (await progress_of(counter)).approvals
        await counter.task().signal(APPROVE_BUDGET, {"by": "Ada"})
        progress = await counter.task().result()
    assert (asked.agent, asked.asked) == ("weigh", Amount())
    assert "account has no credit" in asked.reason
    assert progress.phase is TaskPhase.DONE
    assert provider.asked[Call("weigh", 1)] == 2
    assert progress.budget.spent == Amount(tokens=WORK_TOKENS)
