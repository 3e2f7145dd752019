"""What the release before budgets in dollars wrote still loads, and means the same: its amounts are bare tokens."""

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import JsonValue

from waystation.domain.agent_run import AgentRun, AskMoney, RunLeg
from waystation.domain.amount import Amount, Limit
from waystation.domain.approvals import Circumstances, approve
from waystation.domain.budget import Account
from waystation.domain.compaction.outcome import CompactionRequest
from waystation.domain.continuation import TaskStart
from waystation.domain.leg import LegRequest
from waystation.domain.models import PRICES
from waystation.domain.session import Admitted, Ask, Raised, SessionAnswer, SessionStart, SessionState, Settlement
from waystation.domain.task import Approval, TaskPhase, TaskProgress
from waystation.domain.task_state import TaskState

HISTORIES = Path(__file__).parents[1] / "replay" / "histories" / "0.1.0"
NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
TASK = "task-9e06b6ea0bf21c33"
SHARE = 3_096


def payloads(name: str) -> list[str]:
    """Every payload of a recorded history, as JSON, in order."""
    return list(_payloads(json.loads((HISTORIES / f"{name}.json").read_text(encoding="utf-8"))))


def _payloads(part: JsonValue) -> Iterator[str]:
    if isinstance(part, dict):
        written = part.get("data")
        if isinstance(written, str) and "metadata" in part:
            yield base64.b64decode(written).decode()
        else:
            for value in part.values():
                yield from _payloads(value)
    elif isinstance(part, list):
        for value in part:
            yield from _payloads(value)


def recorded(name: str, *keys: str) -> str:
    """The first payload that is an object with exactly these keys, whatever their order."""
    for written in payloads(name):
        read: JsonValue = json.loads(written)
        if isinstance(read, dict) and set(read) == set(keys):
            return written
    raise AssertionError(f"nothing recorded has exactly {keys}")


def test_a_task_that_was_started_has_the_same_terms() -> None:
    start = TaskStart.model_validate_json(recorded("task", "ref", "terms", "title", "search_attributes", "state"))
    terms = start.terms
    assert (terms.budget, terms.agent_budget) == (Limit(tokens=13_000), Limit(tokens=13_000))
    assert terms.ceiling.unlimited
    assert terms.agent.prices == PRICES
    assert all(terms.agent_of(role) == terms.agent for role in ("research", "analysis", "writing"))
    assert (terms.models, terms.agent.effort, terms.agent.thinking) == ({}, None, None)


def test_what_was_admitted_has_the_same_budget() -> None:
    written = recorded("session", "ref", "terms", "title", "documents", "finished", "search_attributes")
    assert Admitted.model_validate_json(written).terms.budget == Limit(tokens=13_000)


def test_a_leg_and_a_compaction_that_were_scheduled_have_the_same_limits() -> None:
    leg = LegRequest.model_validate_json(recorded("task", "run", "leg", "limit", "terms", "scale"))
    assert (leg.limit, leg.task_used, leg.terms.prices) == (Limit(tokens=SHARE), 0.0, PRICES)
    compaction = CompactionRequest.model_validate_json(
        recorded("task", "run", "terms", "limit", "request_tokens", "known_records", "give_up_summary")
    )
    assert compaction.limit == Limit(tokens=2 * SHARE)


def test_messages_between_a_task_and_its_session_mean_the_same() -> None:
    ask = recorded("task", "task_id", "ask_id", "tokens")
    assert Ask.model_validate_json(ask).amount == Amount(tokens=SHARE)
    assert SessionAnswer.model_validate_json(recorded("task", "ask_id", "tokens")).amount == Amount()
    assert Raised.model_validate_json(recorded("task", "task_id", "tokens")).amount == Amount(tokens=SHARE)
    assert Settlement.model_validate_json(recorded("task", "task_id", "spent")).spent == Amount(tokens=17_571)


def test_a_session_that_was_started_without_a_limit_has_none() -> None:
    start = SessionStart.model_validate_json(recorded("session", "store_id", "tenant", "session", "state"))
    assert start.state == SessionState()


def test_a_session_carried_through_continue_as_new_holds_and_has_spent_the_same() -> None:
    written = {
        "account": {"limit": 100_000, "spent": 17_571, "reserved": {TASK: 13_000}},
        "open_tasks": [TASK],
        "answered": ["a"],
    }
    assert SessionState.model_validate_json(json.dumps(written)) == SessionState(
        account=Account(
            limit=Limit(tokens=100_000), spent=Amount(tokens=17_571), reserved={TASK: Amount(tokens=13_000)}
        ),
        open_tasks=(TASK,),
        answered=("a",),
    )


def test_the_progress_of_a_task_that_ended_shows_the_same_numbers() -> None:
    written = next(
        written for written in payloads("task") if '"phase":"partial"' in written[:200] and '"report":"' in written
    )
    progress = TaskProgress.model_validate_json(written)
    assert progress.phase is TaskPhase.PARTIAL
    assert progress.budget.spent == Amount(tokens=17_571)
    assert [(step.limit.tokens, step.spent.tokens) for step in progress.steps[:2]] == [(9_288, 5_539), (12_384, 6_927)]
    assert all(step.limit.micro_usd is None for step in progress.steps)
    assert progress.approvals
    for approval in progress.approvals:
        assert approval.asked == approval.granted == Amount(tokens=SHARE)


def carried(phase: str, needed: int) -> dict[str, JsonValue]:
    """A task's state as the previous release carried it through continue-as-new: with bare numbers, and no `share`."""
    start: dict[str, dict[str, JsonValue]] = json.loads(
        recorded("task", "ref", "terms", "title", "search_attributes", "state")
    )
    leg: dict[str, JsonValue] = json.loads(recorded("task", "run", "leg", "limit", "terms", "scale"))
    made: dict[str, JsonValue] = json.loads(recorded("task", "plan", "totals", "notes"))
    run: dict[str, JsonValue] = {
        **{"run": leg["run"], "terms": leg["terms"], "limit": SHARE, "share": SHARE, "leg": 2, "phase": phase},
        **{"needed": needed, "totals": {"usage": {"input": 2_900}, "turns": 3, "cost_micro_usd": None}},
    }
    asked: dict[str, JsonValue] = {
        **{"request_id": "research-1-1", "agent": "research-1", "asked_tokens": SHARE, "granted_tokens": 0},
        **{"decision": "pending", "spent": 2_900, "task_spent": 3_516, "limit": SHARE, "needed": needed},
    }
    state: dict[str, JsonValue] = {
        **{"phase": "working", "plan": made["plan"], "planning": made["totals"], "asks": 1},
        "account": {
            "limit": 13_000,
            "spent": 616,
            "reserved": dict.fromkeys(("research-1", "research-2", "analysis", "writing"), SHARE),
        },
        "runs": {"research-1": run},
        "approvals": [asked] if phase == "spent" else [],
    }
    return {**start, "state": state}


def test_a_task_carried_through_continue_as_new_goes_on_with_the_same_budget() -> None:
    start = TaskStart.model_validate_json(json.dumps(carried("running", 0)))
    state = start.state
    assert state is not None
    assert state.account.limit == Limit(tokens=13_000)
    assert state.account.spent == Amount(tokens=616)
    assert all(held == Amount(tokens=SHARE) for held in state.account.reserved.values())
    move = state.runs["research-1"].next_move()
    assert isinstance(move, RunLeg)
    assert (move.request.leg, move.request.limit) == (2, Limit(tokens=SHARE))
    started = state.started(state.plan.step("analysis"), start.ref, start.terms) if state.plan else state
    assert started.runs["analysis"].limit == started.runs["analysis"].share == Limit(tokens=SHARE)


@pytest.mark.parametrize(("needed", "wanted"), [(400, SHARE), (5_000, 5_000)])
def test_an_agent_that_had_spent_its_budget_asks_for_the_same_and_goes_on_when_it_is_granted(
    needed: int, wanted: int
) -> None:
    state = TaskStart.model_validate_json(json.dumps(carried("spent", needed))).state
    assert state is not None
    run = state.runs["research-1"]
    assert run.next_move() == AskMoney(amount=Amount(tokens=wanted))
    standing = Circumstances(approvals=state.approvals, limit=state.account.limit)
    answer = approve(standing, {"by": "Ada"}, NOON)
    assert isinstance(answer, Approval)
    assert answer.granted == Amount(tokens=SHARE)
    granted = state.answered(answer).granted("research-1", answer.granted)
    assert granted.runs["research-1"].limit == Limit(tokens=2 * SHARE)
    assert granted.account.limit == Limit(tokens=13_000 + SHARE)


def test_what_is_loaded_is_carried_on_in_todays_shape_and_means_the_same() -> None:
    state = TaskStart.model_validate_json(json.dumps(carried("spent", 400))).state
    assert state is not None
    assert TaskState.model_validate_json(state.model_dump_json()) == state
    run = state.runs["research-1"]
    assert AgentRun.model_validate_json(run.model_dump_json()) == run
