"""The harness that kills everything: a short run of it holds, and it would say so if something did not."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from benchmarks.chaos.account import StoreAccount, Verdict, judge
from benchmarks.chaos.kills import Moment, Victim, draw_kills
from benchmarks.chaos.model import Call, CallId
from benchmarks.chaos.run import ChaosConfig, run_chaos
from benchmarks.chaos.table import faults, table
from waystation.context.transcript import Message, Text, Transcript, build_user_message
from waystation.kernel.amount import Amount, Limit
from waystation.tasks.view import TaskBudgetView

COMMIT = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
BEFORE, AFTER = COMMIT - timedelta(milliseconds=5), COMMIT + timedelta(milliseconds=5)
AGENT = (0, "research-1")
SEED = 1885
"""Of its five kills one is of both, between a reply and its commit, the others of the server alone, at both moments:
a killed worker is missed for 20 s, so that one has to do here."""
FIRST, SUMMARY = (*AGENT, "turn-1"), (*AGENT, "summary-a1b2")


def said(*ids: str) -> Transcript:
    """A contract, then a reply for each id."""
    replies = (Message(id=name, role="assistant", blocks=(Text(text="Yes."),)) for name in ids)
    return Transcript(run_id="task/research-1", messages=(build_user_message("m1", "Ask."), *replies))


def asked(number: str, at: datetime = BEFORE) -> Call:
    return Call(CallId(*AGENT, "turn", number), at.timestamp())


def one_turn() -> StoreAccount:
    return StoreAccount(charges={FIRST: COMMIT}, transcripts={AGENT: said("m2")})


@pytest.mark.timeout(900)
async def test_five_kills_lose_no_turn_and_pay_none_twice(tmp_path: Path) -> None:
    order = ChaosConfig(kills=5, seed=SEED, tasks=2, home=tmp_path / "home")
    outcome = await run_chaos(order, print)
    assert faults(outcome.verdict) == [], table(order, outcome)
    assert outcome.kills.total() == 5
    assert outcome.verdict.charges > 50
    assert "| **turns lost** | **0** |" in table(order, outcome)


def test_a_task_that_spent_more_than_its_limit_breaks_the_run() -> None:
    budget = TaskBudgetView(limit=Limit(tokens=10), spent=Amount(tokens=11), reserved=Amount())
    verdict = judge(one_turn(), [asked("1")], [], {0: budget})
    assert faults(verdict) == ["over its limit: task 0: spent 11 of 10 tokens"]
    assert verdict.broken


def test_the_same_seed_draws_the_same_kills_and_many_of_them_are_of_every_kind() -> None:
    kills = draw_kills(60, seed=1)
    assert kills == draw_kills(60, seed=1) != draw_kills(60, seed=2)
    assert {(kill.victim, kill.moment) for kill in kills} == {(v, m) for v in Victim for m in Moment}


def test_a_call_that_began_before_the_commit_is_no_repetition_and_one_after_it_is() -> None:
    assert not judge(one_turn(), [asked("1")], []).broken
    verdict = judge(one_turn(), [asked("1"), asked("1", AFTER)], [])
    assert [re.sub(r"CallId.*\)", "it", fault) for fault in verdict.asked_again] == ["it was answered again"]


def test_two_attempts_at_a_turn_are_of_one_turn_whatever_their_requests_say() -> None:
    account, calls = one_turn(), [asked("1", BEFORE - timedelta(seconds=1)), asked("2")]
    assert len(judge(account, calls, []).unexplained) == 1
    account.intents = [(FIRST, BEFORE - timedelta(seconds=1))]
    assert judge(account, calls, []).unexplained == []


def test_a_summary_that_was_announced_after_its_charge_is_a_repetition() -> None:
    account = one_turn()
    account.charges[SUMMARY] = COMMIT
    account.intents = [(SUMMARY, BEFORE)]
    assert judge(account, [], []).asked_again == []
    account.intents = [(SUMMARY, AFTER)]
    assert len(judge(account, [], []).asked_again) == 1


@pytest.mark.parametrize(
    "account",
    [
        StoreAccount(charges={FIRST: COMMIT}, transcripts={AGENT: said()}),
        StoreAccount(charges={}, transcripts={AGENT: said("m2")}),
        StoreAccount(charges={(*AGENT, "turn-2"): COMMIT}, transcripts={AGENT: said("m2")}),
        StoreAccount(charges={FIRST: COMMIT}, transcripts={AGENT: said("m3")}),
    ],
    ids=["no reply", "no charge", "another number", "a message missing"],
)
def test_a_turn_without_its_reply_or_its_charge_is_lost(account: StoreAccount) -> None:
    assert judge(account, [], []).lost


def test_a_reply_that_was_never_committed_needs_an_open_intent() -> None:
    account, calls = one_turn(), [asked("1"), asked("1")]
    assert len(judge(account, calls, []).unexplained) == 1
    account.intents = [(FIRST, BEFORE)]
    assert not judge(account, calls, []).broken


def test_a_charge_needs_a_call_and_the_summaries_of_a_task_are_counted_together() -> None:
    account = one_turn()
    account.charges[SUMMARY] = COMMIT
    assert len(judge(account, [asked("1")], []).unexplained) == 1
    summary = Call(CallId(0, "", "summary", "of these words"), BEFORE.timestamp())
    assert not judge(account, [asked("1"), summary], []).broken


def test_a_task_that_does_not_end_breaks_the_run() -> None:
    verdict: Verdict = judge(one_turn(), [asked("1")], [0])
    assert faults(verdict) == ["not finished: task 0"]
    assert verdict.broken
