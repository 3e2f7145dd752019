"""Crashes, retries and rival attempts: a committed turn is never paid again, and only the newest attempt writes."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

from tests.support.agent_environment import (
    AGENT_CONFIG,
    TASK,
    AgentEnvironment,
    make_tool_use,
    never_interrupted,
    without_statuses,
)
from tests.support.scopes import SYSTEM_SCOPE
from tests.support.store_values import make_intent
from waystation.agents.call_ledger import IMMEDIATE_RETRIES, MAX_UNANSWERED_CALLS, RETRY_DELAY_SECONDS
from waystation.agents.leg import (
    AgentFinished,
    BudgetExhausted,
    LegOutcome,
    LegRequest,
    LegState,
    OperatorActionRequired,
    TurnLimitReached,
)
from waystation.budgets.budget import RunUsage
from waystation.context.transcript import Fence
from waystation.documents.documents import Document, DocumentMatch
from waystation.kernel.amount import Limit
from waystation.kernel.errors import (
    BrokenEndpointError,
    ContentFilterError,
    ModelRejected,
    ModelUnavailable,
    StaleFenceError,
)
from waystation.kernel.refs import RunRef
from waystation.kernel.scopes import TaskScope
from waystation.models.ports import ModelRequest, ModelResponse
from waystation.runtime.sql_store import SqlStore
from waystation.testing.doubles import ScriptedModel, make_scripted_response

RUN_ID = f"{TASK}/research-1"
SUBMIT = make_scripted_response(make_tool_use("submit_findings", "c9", findings=[]))
SEARCH = make_scripted_response(
    make_tool_use("take_note", "c1", text="Kept.", document="harbour.md", first_line=1, last_line=1),
    make_tool_use("search_documents", "c2", query="harbour"),
)


CUT = ModelUnavailable("the stream was cut", possibly_billed=True)


class Crash(Exception):
    pass


class CrashingSearch:
    async def search(
        self,
        task: TaskScope,
        query: str,
        limit: int,
        among: range | None = None,
        documents: tuple[Document, ...] | None = None,
    ) -> tuple[DocumentMatch, ...]:
        raise Crash


class Rivalled(ScriptedModel):
    """While it answers, something else happens."""

    def __init__(self, script: Sequence[ModelResponse], meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__(script)
        self._meanwhile = meanwhile

    async def complete(self, request: ModelRequest) -> ModelResponse:
        await self._meanwhile()
        return await super().complete(request)


async def crashed_leg(env: AgentEnvironment, model: ScriptedModel) -> None:
    """A first attempt that dies in the second tool of its first turn."""
    env.model = model
    loop = replace(env.agent_loop, deps=replace(env.agent_deps, search=CrashingSearch()))
    with pytest.raises(Crash):
        await loop.run(LegRequest(run=env.run_ref(), leg=1, limit=env.limit, config=env.terms), never_interrupted)


async def test_reply_and_charge_are_committed_before_any_tool_runs(env: AgentEnvironment) -> None:
    await crashed_leg(env, ScriptedModel([SEARCH]))
    totals = await env.store.get_run_usage(RUN_ID)
    assert (totals.turns, totals.usage, totals.possibly_billed) == (1, SEARCH.usage, 0)
    assert (await env.load_transcript()).messages[-1].tool_uses


async def test_the_next_attempt_makes_no_call_for_the_committed_turn_and_keeps_one_note(
    env: AgentEnvironment,
) -> None:
    await crashed_leg(env, ScriptedModel([SEARCH]))
    second = ScriptedModel([SUBMIT])
    outcome = await env.run_leg(second)
    assert isinstance(outcome, AgentFinished)
    assert second.calls == 1
    assert outcome.state.totals.turns == 2
    assert len(await env.store.list_notes(TASK, SYSTEM_SCOPE, RUN_ID)) == 1
    assert len((await env.load_messages())[2].tool_results) == 2


async def test_a_leg_whose_outcome_was_committed_makes_no_call_and_gives_that_outcome(
    env: AgentEnvironment,
) -> None:
    first = await env.run_leg(ScriptedModel([SEARCH, SUBMIT]))
    again = ScriptedModel([])
    assert await env.run_leg(again) == first
    assert again.calls == 0


async def test_a_late_attempt_at_a_leg_that_is_over_takes_the_run_away_from_nobody(env: AgentEnvironment) -> None:
    env.terms = AGENT_CONFIG.replace(turn_limit=1)
    await env.run_leg(ScriptedModel([SEARCH]))
    late = ScriptedModel([])

    async def late_attempt() -> LegOutcome:
        request = LegRequest(run=env.run_ref(), leg=1, limit=env.limit, config=env.terms)
        loop = replace(env.agent_loop, model=replace(env.metered_model, model=late))
        return await loop.run(request, never_interrupted)

    assert isinstance(await env.run_leg(Rivalled([SUBMIT], late_attempt), 2), AgentFinished)
    assert late.calls == 0


class StoreWithRival(SqlStore):
    """Another attempt ends the leg in the moment before this one takes the run over."""

    async def start_leg(self, run: RunRef, leg: int) -> Fence | LegOutcome:
        rival = await super().start_leg(run, leg)
        assert isinstance(rival, Fence)
        await self.commit_outcome(rival, 1, TurnLimitReached(state=LegState(totals=RunUsage(turns=7))))
        return await super().start_leg(run, leg)


async def test_an_outcome_that_is_committed_while_an_attempt_begins_is_still_seen(env: AgentEnvironment) -> None:
    env.store = StoreWithRival(env.store.database, env.clock, env.store_id)
    model = ScriptedModel([])
    outcome = await env.run_leg(model)
    assert isinstance(outcome, TurnLimitReached)
    assert (outcome.state.totals.turns, model.calls) == (7, 0)


async def test_an_attempt_that_was_taken_over_writes_nothing_more(env: AgentEnvironment) -> None:
    async def take_over() -> None:
        await env.store.acquire_fence(RUN_ID)

    zombie = Rivalled([SEARCH, SUBMIT], take_over)
    with pytest.raises(StaleFenceError):
        await env.run_leg(zombie)
    assert [message.role for message in await env.load_messages()] == ["user"]
    assert await env.store.list_notes(TASK, SYSTEM_SCOPE, RUN_ID) == ()
    assert await env.store.get_leg_outcome(RUN_ID, 1, SYSTEM_SCOPE) is None
    totals = await env.store.get_run_usage(RUN_ID)
    assert totals.turns == 0
    assert totals.possibly_billed > 0


async def test_an_attempt_that_was_taken_over_between_two_turns_makes_no_further_call(
    env: AgentEnvironment,
) -> None:
    class TakingOver(CrashingSearch):
        async def search(
            self,
            task: TaskScope,
            query: str,
            limit: int,
            among: range | None = None,
            documents: tuple[Document, ...] | None = None,
        ) -> tuple[DocumentMatch, ...]:
            await env.store.acquire_fence(RUN_ID)
            return ()

    env.model = ScriptedModel([SEARCH, SUBMIT])
    loop = replace(env.agent_loop, deps=replace(env.agent_deps, search=TakingOver()))
    with pytest.raises(StaleFenceError):
        await loop.run(LegRequest(run=env.run_ref(), leg=1, limit=env.limit, config=AGENT_CONFIG), never_interrupted)
    assert env.model.calls == 1


async def test_a_cut_stream_leaves_its_intent_open_and_counted(env: AgentEnvironment) -> None:
    with pytest.raises(ModelUnavailable):
        await env.run_leg(ScriptedModel([ModelUnavailable("the stream was cut", possibly_billed=True)]))
    once = (await env.store.get_run_usage(RUN_ID)).possibly_billed
    assert once > 4_000
    with pytest.raises(ModelUnavailable):
        await env.run_leg(ScriptedModel([ModelUnavailable("the stream was cut", possibly_billed=True)]))
    outcome = await env.run_leg(ScriptedModel([SUBMIT]))
    twice = outcome.state.totals.possibly_billed
    assert 2 * once <= twice <= 2 * once + 400  # there is less left, and another status says so
    assert outcome.state.totals.spent.tokens == twice + SUBMIT.usage.fresh


@pytest.mark.parametrize(
    "refused",
    [ModelUnavailable("rate limit", retry_after=3, possibly_billed=False), ModelRejected("no such model")],
    ids=["rate limit", "rejected"],
)
async def test_a_call_that_was_certainly_refused_leaves_no_trace(
    env: AgentEnvironment, refused: ModelUnavailable | ModelRejected
) -> None:
    with pytest.raises(type(refused)):
        await env.run_leg(ScriptedModel([refused]))
    assert await env.store.get_run_usage(RUN_ID) == RunUsage(cost_micro_usd=0)


async def test_a_blocked_reply_ends_the_run_partial_and_counts_as_possibly_billed(env: AgentEnvironment) -> None:
    outcome = await env.run_leg(ScriptedModel([SEARCH, ContentFilterError("the filter blocked the reply")]))
    assert isinstance(outcome, AgentFinished)
    assert (outcome.partial, outcome.reason) == (True, "the filter blocked the reply")
    assert outcome.state.totals.possibly_billed > 4_000
    silent = ScriptedModel([])
    assert await env.run_leg(silent) == outcome
    assert silent.calls == 0


async def test_a_budget_that_an_unanswered_call_used_up_lets_the_next_attempt_make_none(
    env: AgentEnvironment,
) -> None:
    with pytest.raises(ModelUnavailable):
        await env.run_leg(ScriptedModel([ModelUnavailable("the stream was cut", possibly_billed=True)]))
    env.limit = Limit(tokens=(await env.store.get_run_usage(RUN_ID)).possibly_billed)
    silent = ScriptedModel([])
    assert isinstance(await env.run_leg(silent), BudgetExhausted)
    assert silent.calls == 0


async def test_the_last_of_so_many_calls_in_a_row_without_a_reply_halts_the_run_with_the_cause(
    env: AgentEnvironment,
) -> None:
    env.limit = Limit(tokens=200_000)
    for attempt in range(1, MAX_UNANSWERED_CALLS):
        with pytest.raises(ModelUnavailable) as failed:
            await env.run_leg(ScriptedModel([CUT]))
        assert failed.value.retry_after == (None if attempt <= IMMEDIATE_RETRIES else RETRY_DELAY_SECONDS)
    outcome = await env.run_leg(ScriptedModel([CUT]))
    assert isinstance(outcome, OperatorActionRequired)
    assert outcome.reason == (
        "5 model calls in a row got no usable reply, and all of them may have been billed; the last one: the stream "
        "was cut"
    )
    held = (await env.store.get_run_usage(RUN_ID)).possibly_billed
    assert outcome.state.totals.possibly_billed == held > MAX_UNANSWERED_CALLS * 4_000
    again = await env.run_leg(ScriptedModel([CUT]), 2)
    assert isinstance(again, OperatorActionRequired)
    assert isinstance(await env.run_leg(ScriptedModel([SUBMIT]), 3), AgentFinished)


async def test_calls_of_killed_workers_count_and_a_reply_between_begins_the_count_anew(
    env: AgentEnvironment,
) -> None:
    await env.store.open_run(env.run_ref())
    fence = await env.store.acquire_fence(RUN_ID)
    for _ in range(MAX_UNANSWERED_CALLS - 1):
        await env.store.record_and_count_intents(fence, make_intent("turn-1"))
    with pytest.raises(ModelUnavailable):
        await env.run_leg(ScriptedModel([SEARCH, CUT]))
    for _ in range(MAX_UNANSWERED_CALLS - 2):
        await env.store.record_and_count_intents(await env.store.acquire_fence(RUN_ID), make_intent("turn-2"))
    assert isinstance(await env.run_leg(ScriptedModel([CUT])), OperatorActionRequired)


async def test_what_was_certainly_not_billed_is_waited_for_however_often_it_happens(
    env: AgentEnvironment,
) -> None:
    away = ModelUnavailable("overloaded", possibly_billed=False)
    for _ in range(2 * MAX_UNANSWERED_CALLS):
        with pytest.raises(ModelUnavailable) as failed:
            await env.run_leg(ScriptedModel([away]))
        assert failed.value.retry_after is None


async def test_a_page_in_the_place_of_a_reply_halts_the_run_at_once_and_holds_nothing(
    env: AgentEnvironment,
) -> None:
    outcome = await env.run_leg(ScriptedModel([BrokenEndpointError("a page")]))
    assert isinstance(outcome, OperatorActionRequired)
    assert (outcome.reason, outcome.state.totals.possibly_billed) == ("a page", 0)


class Uncounting(ScriptedModel):
    """It counts no tokens: connections to it break."""

    async def count_tokens(self, request: ModelRequest) -> int:
        raise CUT


async def test_a_call_without_a_reply_that_spent_the_budget_ends_the_leg_and_says_why(
    env: AgentEnvironment,
) -> None:
    with pytest.raises(ModelUnavailable):
        await env.run_leg(ScriptedModel([CUT]))
    env.limit = Limit(tokens=2 * (await env.store.get_run_usage(RUN_ID)).possibly_billed + 600)
    model = Uncounting([CUT])
    outcome = await env.run_leg(model)
    assert isinstance(outcome, BudgetExhausted)
    assert (outcome.unanswered, model.calls) == ("the stream was cut", 1)
    assert outcome.needed.tokens > 0
    assert outcome.state.totals.possibly_billed > 4_000


async def test_what_happened_before_a_failed_call_is_kept(env: AgentEnvironment) -> None:
    with pytest.raises(ModelUnavailable):
        await env.run_leg(ScriptedModel([SEARCH, ModelUnavailable("overloaded", possibly_billed=False)]))
    last = ScriptedModel([SUBMIT])
    assert isinstance(await env.run_leg(last), AgentFinished)
    assert (last.calls, len(without_statuses(last.requests[0].messages))) == (1, 3)
