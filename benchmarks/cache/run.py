"""Runs the real agent loop, store and compactor on a Messages server that caches by prefix."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import JsonValue

from benchmarks.cache.reader import ReaderModel, build_documents
from tests.support.agent_environment import TASK, AgentEnvironment, never_interrupted
from tests.support.agent_fixtures import open_agent_environment
from waystation.agents.cache_refresh import REFRESH_INTERVAL, CacheRefreshRequest, count_worthwhile_refreshes
from waystation.agents.cache_warmer import CacheWarmer
from waystation.agents.call_ledger import MeteredModel
from waystation.agents.delegation import DelegationConfig, TeammateState
from waystation.agents.leg import AgentConfig, AgentFinished, ContextFull, LegRequest, TurnLimitReached
from waystation.kernel.amount import Limit
from waystation.kernel.scopes import SystemScope
from waystation.kernel.usage import Usage
from waystation.models.anthropic.model import create_anthropic_model
from waystation.models.ports import ModelResponse
from waystation.models.prices import load_published_prices
from waystation.models.profiles import TokenRates, filter_prices
from waystation.testing.messages_server import CacheMissEvent, CachingServer

THINKS = timedelta(seconds=20)
"""What each reply takes."""
MODEL, CONDENSER = "claude-sonnet-5-5", "claude-haiku-5-5"
LEG_TURNS = 12
BUDGET = Limit(tokens=5_000_000)


@dataclass(frozen=True)
class RunVariant:
    """How a run goes."""

    name: str
    window: int = 200_000
    pause: timedelta = timedelta()
    """Before the second leg."""
    keeps_warm: bool = False
    """Whether the cached prefix is read during the pause, as while an agent waits for its subagents."""
    delegates_later: bool = False
    """From the second leg on the agent has a tool more."""


@dataclass(frozen=True)
class CacheMeasurement:
    """What the server reported of the agent's requests, as the store charged it."""

    turns: int
    usage: Usage
    breaks: Sequence[CacheMissEvent]
    compactions: int
    refreshes: int
    prefix: int
    """Tokens of the last request before the pause."""
    paid: Sequence[Usage]
    """Usage of every turn and refresh."""

    def compute_dollars(self, rates: TokenRates) -> Decimal:
        """Compute what turns and refreshes cost at these rates."""
        return sum((rates.compute_cost(usage) for usage in self.paid), Decimal(0)) / 1_000_000

    @property
    def causes(self) -> Mapping[str, tuple[int, int]]:
        """By what broke the prefix: how often, and how many tokens were not read for it."""
        counted: dict[str, tuple[int, int]] = {}
        for broken in self.breaks:
            times, lost = counted.get(broken.cause, (0, 0))
            counted[broken.cause] = times + 1, lost + broken.lost
        return counted


def build_agent_config(way: RunVariant) -> AgentConfig:
    trigger = way.window * 3 // 4
    return AgentConfig(
        model=MODEL,
        condense_model=CONDENSER,
        window=way.window,
        trigger=trigger,
        target=trigger // 2,
        turn_limit=LEG_TURNS,
        backpressure=False,
        prices=filter_prices((MODEL,), load_published_prices()),
    )


async def measure_run(way: RunVariant) -> CacheMeasurement:
    """One run, from the first turn until the agent hands in."""
    with TemporaryDirectory() as folder:
        async with open_agent_environment(Path(folder) / "store.db") as env:
            env.terms, env.limit = build_agent_config(way), BUDGET
            await env.open_task(build_documents())
            return await _Run(env, way).measured()


class _Run:
    def __init__(self, env: AgentEnvironment, way: RunVariant) -> None:
        self._office, self._way, self._reader = env, way, ReaderModel()
        self._refreshes = self._prefix = 0
        self._server = CachingServer(self._answer, env.clock)
        model = create_anthropic_model("key", http_client=self._server.build_http_client())
        self._model = MeteredModel(model=model, store=env.store, clock=env.clock, meter=env.meter)

    def _answer(self, body: dict[str, JsonValue]) -> ModelResponse:
        self._office.clock.advance(THINKS)
        return self._reader.answer(body)

    async def measured(self) -> CacheMeasurement:
        compactions = await self._legs()
        await self._model.model.aclose()
        charges = await self._office.store.list_task_charges(TASK, SystemScope())
        (turns,) = [line for line in charges.cost_breakdown.lines if line.kind == "turn"]
        paid = [entry.charge.usage for entry in charges.paid if entry.charge.kind in ("turn", "warm")]
        breaks = [broken for broken in self._server.cache.breaks if broken.model == MODEL]
        return CacheMeasurement(turns.calls, turns.usage, breaks, compactions, self._refreshes, self._prefix, paid)

    async def _wait(self) -> None:
        """Let the pause pass, and read the prefix during it as the workflow does."""
        env, left = self._office, self._way.pause
        totals = await env.store.get_run_usage(env.run_ref().run_id)
        self._prefix = totals.last_prompt_tokens
        most = count_worthwhile_refreshes(env.terms, self._prefix, env.clock().date()) if self._way.keeps_warm else 0
        while left > REFRESH_INTERVAL and self._refreshes < most:
            env.clock.advance(REFRESH_INTERVAL)
            left -= REFRESH_INTERVAL
            self._refreshes += 1
            request = CacheRefreshRequest(
                run=env.run_ref(), config=env.terms, limit=BUDGET, number=self._refreshes, due=env.clock()
            )
            outcome = await CacheWarmer(self._model, env.agent_deps, env.clock).warm_cache(request)
            assert outcome.alive
        env.clock.advance(left)

    async def _legs(self) -> int:
        env, leg, compactions = self._office, 1, 0
        while True:
            outcome = await replace(env.agent_loop, model=self._model).run(self._request(leg), never_interrupted)
            match outcome:
                case AgentFinished():
                    return compactions
                case TurnLimitReached():
                    if leg == 1:
                        await self._wait()
                case ContextFull(request_tokens=tokens):
                    compactions += 1
                    condenser = replace(env.compactor, model=self._model)
                    await condenser.compact(env.make_compaction_request(tokens).replace(known_records=compactions - 1))
                case _:
                    raise AssertionError(outcome)
            leg += 1

    def _request(self, leg: int) -> LegRequest:
        env, terms = self._office, self._office.terms
        if self._way.delegates_later and leg > 1:
            terms = terms.replace(delegation=DelegationConfig())
        team = (TeammateState(id="research-1", state="working"), TeammateState(id="research-2", state=f"leg {leg}"))
        return LegRequest(run=env.run_ref(), leg=leg, limit=env.limit, config=terms, teammates=team)
