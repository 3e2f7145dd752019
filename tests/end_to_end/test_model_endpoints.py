"""A task under a narrow, hard budget at endpoints that leave things out: it ends, and its bill is honest."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from tests.end_to_end.messages_server import ChatWithGaps, ServerWithGaps, run_server
from tests.end_to_end.survey_documents import write_survey_documents
from tests.support.temporal_platform import start_dev_server
from waystation.budgets.budget import BudgetMode
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.documents.document_loading import load_documents
from waystation.kernel.amount import Limit
from waystation.models.endpoints import EndpointKind
from waystation.tasks.task import TaskPhase, TaskRequest
from waystation.testing.messages_server import EndpointGap, build_error_response
from waystation.workers.wiring import run_configured_workers

GAPS: tuple[EndpointGap, ...] = ("no count", "no usage", "no cache fields", "another model")
AT_ONCE = 2
"""Agents that work side by side in this task."""
REQUEST = TaskRequest(
    question="How deep is harbour Nordvik 2-3 at low water?",
    request_id="narrow",
    budget=Limit(tokens=90_000),
    agent_budget=Limit(tokens=22_000),
    mode=BudgetMode.HARD,
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("gaps", [(), *((gap,) for gap in GAPS), GAPS], ids=["none", *GAPS, "all at once"])
async def test_a_task_under_a_narrow_hard_budget_ends_with_a_report_and_an_honest_bill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gaps: tuple[EndpointGap, ...]
) -> None:
    documents = load_documents([write_survey_documents(tmp_path / "survey")]).documents
    with run_server(ServerWithGaps(0.0, gaps=frozenset(gaps))) as model:
        settings = Settings.model_validate(
            {"home": tmp_path / "home", "anthropic_api_key": "a-key-for-tests", "anthropic_base_url": model.url}
        )
        async with start_dev_server() as server:
            monkeypatch.setenv("TEMPORAL_ADDRESS", server.service_client.config.target_host)
            async with run_configured_workers(settings), await Client.connect(settings) as client:
                task_id = (await client.submit(REQUEST, documents)).task_id
                seen = [view async for view in client.watch(task_id)][-1]
                report, bill = await client.get_report(task_id), await client.get_bill(task_id)
    assert seen.phase in {TaskPhase.DONE, TaskPhase.PARTIAL}, seen.notes
    ended = [step for step in seen.steps if step.state == "partial"]
    assert all(step.reason.startswith("its next call may cost ") for step in ended), "nothing but its budget stops one"
    assert {step.state for step in seen.steps} <= {"done", "partial"}
    used = bill.total.usage
    assert 0 < used.fresh == seen.budget.spent.tokens <= 90_000
    assert seen.budget.limit == Limit(tokens=90_000)
    assert seen.possibly_billed.tokens == 0 == len(bill.possibly_billed)
    assert used.estimated == (used.total if "no usage" in gaps else 0)
    assert ("which is an upper bound" in report) == ("no usage" in gaps)
    answered = {name for line in bill.lines for name in line.answered_by}
    assert answered == ({"another-model"} if "another model" in gaps else set[str]())
    assert ("the replies name another-model" in report) == bool(answered)
    if "no usage" in gaps or "no cache fields" in gaps:
        assert used.cache_read == 0
    if "no count" in gaps:
        models = {line.model for line in bill.lines}
        assert model.counts <= AT_ONCE * len(models), "asked again only while another agent asked for the first time"


@dataclass
class DyingServer(ServerWithGaps):
    """Answers so many turns, breaks off in the middle of the next, and is overloaded from then on."""

    turns: int = 3
    broken: bool = False

    def reply(self, path: str, headers: dict[str, str], body: bytes) -> httpx2.Response:
        return build_error_response(529, "overloaded_error") if self.broken else super().reply(path, headers, body)

    def send(self, write: Callable[[bytes], object], reply: bytes) -> None:
        if self.broken or len(self.answered) <= self.turns:
            return super().send(write, reply)
        self.broken = True
        write(reply[: len(reply) // 2])
        raise ConnectionResetError


@dataclass
class DyingChat(DyingServer, ChatWithGaps):
    """The same behind chat completions."""


FALLS_BACK = {"fallback": ["spare::harbour-1"]}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("dying", "kind", "changes"),
    [
        (DyingServer, "compatible", {"endpoint": "first"}),
        (DyingChat, "openai", {"endpoint": "spare", "roles": {"research": {"endpoint": "first", "model": "qwen3"}}}),
    ],
    ids=["of all models", "of one role, by chat completions"],
)
async def test_an_endpoint_that_dies_in_the_middle_of_a_task_is_taken_over_from_and_the_bill_says_by_whom(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dying: Callable[[float], DyingServer],
    kind: EndpointKind,
    changes: dict[str, object],
) -> None:
    documents = load_documents([write_survey_documents(tmp_path / "survey")]).documents
    with run_server(dying(0.0)) as first, run_server(ServerWithGaps(0.0)) as spare:
        url = f"{first.url}/v1" if kind == "openai" else first.url
        tables = {
            "first": {"kind": kind, "base_url": url, **FALLS_BACK},
            "spare": {"kind": "compatible", "base_url": spare.url},
        }
        settings = Settings.model_validate({"home": tmp_path / "home", "endpoints": tables, **changes})
        request = REQUEST.replace(budget=Limit(tokens=1_000_000), agent_budget=Limit(tokens=160_000))
        async with start_dev_server() as server:
            monkeypatch.setenv("TEMPORAL_ADDRESS", server.service_client.config.target_host)
            async with run_configured_workers(settings), await Client.connect(settings) as client:
                task_id = (await client.submit(request, documents)).task_id
                seen = [view async for view in client.watch(task_id)][-1]
                bill = await client.get_bill(task_id)
                agents = dict.fromkeys(line.agent for line in bill.lines if line.kind == "turn")
                transcripts = [await client.get_transcript(task_id, agent) for agent in agents]
    assert first.broken
    # Another call may have been under way when one broke off.
    assert first.turns < len(first.answered), "some calls were answered before"
    assert seen.phase is TaskPhase.DONE, seen.notes
    models = {line.model for line in bill.lines}
    assert "spare::harbour-1" in models
    assert any(model.startswith("first::") for model in models)
    said = {message.fallback_model for transcript in transcripts for message in transcript.messages}
    assert said == {"", "spare::harbour-1"}
    assert 0 < seen.possibly_billed.tokens < 160_000, "the reply that broke off, once"
    assert len(bill.possibly_billed) == 1
    assert bill.total.usage.fresh + seen.possibly_billed.tokens == seen.budget.spent.tokens <= 1_000_000


@dataclass
class OverloadedServer(ServerWithGaps):
    """Answers so many turns, then refuses each turn the first time that it is asked for, and bills nothing then."""

    turns: int = 3
    refusals: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    asked_again: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """Turns that were refused, and came back."""

    def reply(self, path: str, headers: dict[str, str], body: bytes) -> httpx2.Response:
        asking = None if path.endswith("count_tokens") else self.find_turn(body)
        if asking is None or len(self.answered) < self.turns:
            return super().reply(path, headers, body)
        if asking in self.refusals:
            self.asked_again.append(asking)
            return super().reply(path, headers, body)
        self.refusals.append(asking)
        return build_error_response(529, "overloaded_error")


@pytest.mark.timeout(300)
async def test_a_call_that_was_refused_goes_on_to_the_next_endpoint_at_once_and_never_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "waystation.workers.models.REST_SECONDS", 0.0
    )  # so that whatever is tried again would come to the first
    documents = load_documents([write_survey_documents(tmp_path / "survey")]).documents
    with run_server(OverloadedServer(0.0)) as first, run_server(ServerWithGaps(0.0)) as spare:
        tables = {
            "first": {"kind": "compatible", "base_url": first.url, **FALLS_BACK},
            "spare": {"kind": "compatible", "base_url": spare.url},
        }
        settings = Settings.model_validate({"home": tmp_path / "home", "endpoints": tables, "endpoint": "first"})
        request = REQUEST.replace(budget=Limit(tokens=1_000_000), agent_budget=Limit(tokens=160_000))
        async with start_dev_server() as server:
            monkeypatch.setenv("TEMPORAL_ADDRESS", server.service_client.config.target_host)
            async with run_configured_workers(settings), await Client.connect(settings) as client:
                task_id = (await client.submit(request, documents)).task_id
                seen = [view async for view in client.watch(task_id)][-1]
                bill = await client.get_bill(task_id)
    assert seen.phase is TaskPhase.DONE, seen.notes
    assert first.refusals
    assert first.asked_again == []
    assert len(spare.answered) == len(first.refusals)
    turns = {line.model: line.calls for line in bill.lines if line.kind == "turn"}
    assert "spare::harbour-1" in turns
    assert seen.possibly_billed.tokens == 0 == len(bill.possibly_billed)
