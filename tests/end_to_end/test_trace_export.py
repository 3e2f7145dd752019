"""Spans of a task with subagents, a pause and a killed platform: each committed turn once, under parents that came."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.end_to_end.messages_server import HoldableMessagesServer, run_server
from tests.end_to_end.scripted_messages_server import ScriptedMessagesServer
from tests.end_to_end.shell import Shell, is_paused, list_pending_requests, wait_until
from tests.end_to_end.survey_documents import QUESTION, write_survey_documents
from tests.end_to_end.test_crash_recovery import kill_everything, run_local_platform
from tests.support.otlp_receiver import OtlpReceiver, ReceivedSpan, run_otlp_receiver
from waystation.plugins.offline.responses import build_call

TITLE, GOAL = "Sandbars", "Look into the sandbars of the northern coast."
DELEGATE = build_call("delegate", role="research", title=TITLE, goal=GOAL, context="They shift.", budget_percent=20)
OTHER = build_call(
    "delegate", role="research", title="Beacons", goal="Look into beacons.", context="Lit.", budget_percent=20
)


@dataclass
class Agents(HoldableMessagesServer, ScriptedMessagesServer):
    """Start two subagents, and think only while they are let."""


def spans_of(receiver: OtlpReceiver) -> Sequence[ReceivedSpan]:
    """Those of tasks, when all that was committed has come: the last is the task's end."""
    wait_until(
        lambda: any(span.name == "task ended" for span in receiver.list_task_spans()), 60, "the span of the task's end"
    )
    return receiver.list_task_spans()


def submitted(shell: Shell, documents: Path) -> str:
    given = (
        "submit",
        QUESTION,
        "--docs",
        str(documents),
        "--budget",
        "100k",
        "--window",
        "11k",
        "--review-plan",
        "--detach",
    )
    return str(shell.run_json(*given)["task_id"])


@pytest.mark.timeout(900)
def test_a_killed_platform_loses_no_span_of_a_committed_turn_and_sends_none_as_another(tmp_path: Path) -> None:
    documents = write_survey_documents(tmp_path / "survey")
    script = {"research-1": [[DELEGATE, OTHER]]}
    with (
        run_otlp_receiver() as receiver,
        run_server(Agents(delay=0.05, holds_after=4, scripts=script)) as server,
        run_local_platform(tmp_path / "home", server, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url) as shell,
    ):
        task = submitted(shell, documents)
        (asked,) = list_pending_requests(shell.wait_for_task(task, is_paused, 240, "the plan"))
        asleep = time.time_ns()
        assert shell.run("approve", task, "--request", asked).returncode == 0
        wait_until(lambda: len(shell.list_paid_turns()) >= 4, 180, "four committed turns")
        kill_everything(shell.home)
        server.goes_on.set()
        assert shell.run("up").returncode == 0
        assert shell.approve_until_over(task) in {"done", "partial"}
        spans = spans_of(receiver)
        turns = Counter((turn.step, f"turn-{turn.turn}") for turn in shell.list_paid_turns())

    chats = [span for span in spans if span.operation == "chat"]
    sent = Counter(
        (str(span.attributes["gen_ai.agent.name"]), str(span.attributes["waystation.call.key"])) for span in chats
    )
    assert {key: count for key, count in sent.items() if key[1].startswith("turn-")} == dict(turns)
    assert set(Counter(span.span_id for span in spans).values()) == {1}
    assert len({span.trace_id for span in spans}) == 1

    ids = {span.span_id for span in spans}
    assert [span.name for span in spans if not span.parent] == ["invoke_workflow task"]
    assert all(span.parent in ids for span in receiver.spans if span.parent)
    assert all(link in ids for span in spans for link in span.links)
    assert not [span.name for span in spans if span.start < asleep < span.end], "no span lasts while people think"

    attempts = {span.name for span in receiver.spans if not span.is_task_span}
    assert attempts >= {"RunActivity:RunResearchAgent", "RunActivity:StoreReport"}, (
        "of attempts before the kill some are lost"
    )
    operations = {span.operation for span in spans}
    assert operations >= {"invoke_workflow", "plan", "invoke_agent", "chat", "execute_tool", "retrieval"}
    assert any(span.name.startswith("invoke_agent research-1.") for span in spans)
    assert any(name == "leg taken over" for span in spans for name, _ in span.events)
    assert any(name == "answered" for span in spans for name, _ in span.events)
    assert any(span.links for span in spans if span.name.startswith("invoke_agent"))

    said = b"\n".join(receiver.raw)
    assert [words for words in texts(documents) if words.encode() in said] == []


def texts(documents: Path) -> set[str]:
    """Words that were said: of the question, of a call, and every line of the documents that is long enough."""
    lines = {line.strip() for path in documents.iterdir() for line in path.read_text(encoding="utf-8").splitlines()}
    return {QUESTION, TITLE, GOAL, *(line for line in lines if len(line) > 12)}
