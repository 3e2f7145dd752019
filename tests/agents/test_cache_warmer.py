"""Reads of a waiting agent's cached prefix: what they send and cost, and when an agent lets its prefix go."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal

import pytest

from tests.support.agent_environment import NOON, AgentEnvironment, make_tool_use, never_interrupted
from tests.support.conversations import make_filler_text
from tests.support.prices import PRICES
from tests.support.scopes import SYSTEM_SCOPE
from tests.support.strict_server import Body, StrictServer
from waystation.agents.cache_refresh import (
    MAX_REFRESH_DELAY,
    REFRESH_INTERVAL,
    CacheRefreshOutcome,
    CacheRefreshRequest,
    count_worthwhile_refreshes,
)
from waystation.agents.cache_warmer import CacheWarmer
from waystation.agents.call_ledger import MeteredModel
from waystation.agents.delegation import DelegationConfig
from waystation.agents.leg import LegRequest, SubagentsRequested
from waystation.context.transcript import Charge, Thinking
from waystation.documents.documents import SourceDocument
from waystation.kernel.amount import Limit
from waystation.kernel.usage import Usage
from waystation.models.anthropic.model import create_anthropic_model
from waystation.models.endpoints import ModelEndpoint
from waystation.models.ports import ChatModel, ModelResponse
from waystation.models.profiles import Price, TokenRates
from waystation.testing.doubles import ScriptedModel, make_scripted_response
from waystation.testing.messages_server import CachingServer

LONG = SourceDocument(name="long.md", text=make_filler_text(6_000))
READ = make_tool_use("read_document", "c1", name="harbour.md")
DELEGATE = make_tool_use("delegate", "c2", title="Look it up", goal="Find out why it silted up.", role="research")
DAY = NOON.date()


class Waiting:
    """An agent that waits for a subagent."""

    def __init__(self, env: AgentEnvironment) -> None:
        self.env = env
        env.terms = env.terms.replace(delegation=DelegationConfig())
        env.limit = Limit(tokens=400_000, micro_usd=5_000_000)
        self._replies = iter(
            [
                make_scripted_response(Thinking(thinking="Hm.", signature=""), READ),
                make_scripted_response(Thinking(thinking="Who?", signature=""), DELEGATE),
            ]
        )

    def answer(self, _: Body) -> ModelResponse:
        return next(self._replies)

    def meter(self, model: ChatModel) -> MeteredModel:
        return MeteredModel(model=model, store=self.env.store, clock=self.env.clock, meter=self.env.meter)

    async def delegate(self, model: ChatModel) -> None:
        request = LegRequest(run=self.env.run_ref(), leg=1, limit=self.env.limit, config=self.env.terms)
        outcome = await replace(self.env.agent_loop, model=self.meter(model)).run(request, never_interrupted)
        assert isinstance(outcome, SubagentsRequested)

    async def refresh(self, model: ChatModel, number: int = 1, late: timedelta = timedelta()) -> CacheRefreshOutcome:
        env = self.env
        request = CacheRefreshRequest(
            run=env.run_ref(), config=env.terms, limit=env.limit, number=number, due=env.clock() - late
        )
        return await CacheWarmer(self.meter(model), env.agent_deps, env.clock).warm_cache(request)

    async def load_charges(self) -> Sequence[Charge]:
        listed = await self.env.store.list_task_charges(self.env.task_id, SYSTEM_SCOPE)
        return [entry.charge for entry in listed.paid]


async def test_a_refresh_repeats_the_last_request_without_a_reply(env: AgentEnvironment) -> None:
    waiting = Waiting(env)
    server = StrictServer(waiting.answer)
    model = create_anthropic_model("key", "http://model.test", server.http_client())
    await waiting.delegate(model)
    outcome = await waiting.refresh(model)
    assert (outcome.alive, server.refusals) == (True, [])
    (sent,) = server.warmed
    last = server.bodies[-1]
    assert sent.pop("max_tokens") == 0
    assert "stream" not in sent
    assert sent == {name: value for name, value in last.items() if name not in ("max_tokens", "stream")}


async def test_refreshes_keep_the_prefix_for_as_long_as_they_come_and_are_charged_as_their_own_kind(
    env: AgentEnvironment,
) -> None:
    waiting = Waiting(env)
    server = CachingServer(waiting.answer, env.clock)
    model = create_anthropic_model("key", http_client=server.build_http_client())
    await waiting.delegate(model)
    written = server.usages[-1].prompt_tokens
    outcomes: list[CacheRefreshOutcome] = []
    for number in range(1, 6):
        env.clock.advance(REFRESH_INTERVAL)
        outcomes.append(await waiting.refresh(model, number))
    assert all(outcome.alive for outcome in outcomes)
    outcome = outcomes[-1]
    read = Usage(cache_read=written)
    warm = [charge for charge in await waiting.load_charges() if charge.kind == "warm"]
    assert [(charge.key, charge.usage) for charge in warm] == [(f"warm-2-{number}", read) for number in range(1, 6)]
    assert all(charge.cost_micro_usd for charge in warm)
    assert outcome.totals == await env.store.get_run_usage(env.run_ref().run_id)
    assert outcome.totals.turns == 2
    env.clock.advance(timedelta(minutes=6))
    late = await waiting.refresh(model, 6)
    assert not late.alive, "a prefix that has expired was written again: it is let go"
    assert late.totals.usage.cache_write > outcome.totals.usage.cache_write


@pytest.mark.parametrize("case", ["too late", "no budget", "another endpoint", "no such call", "counted thinking"])
async def test_where_a_refresh_is_not_possible_nothing_is_sent_and_nothing_charged(
    env: AgentEnvironment, case: str
) -> None:
    waiting = Waiting(env)
    server = StrictServer(waiting.answer)
    model = create_anthropic_model("key", "http://model.test", server.http_client())
    await waiting.delegate(model)
    before = await env.store.get_run_usage(env.run_ref().run_id)
    late = MAX_REFRESH_DELAY if case == "too late" else timedelta()
    other: ChatModel = model
    match case:
        case "no budget":
            env.limit = Limit(tokens=before.spent.tokens + 10, micro_usd=5_000_000)
        case "another endpoint":
            place = ModelEndpoint(url="http://model.test", kind="compatible")
            other = create_anthropic_model("key", "http://model.test", server.http_client(), endpoint=place)
        case "no such call":
            other = ScriptedModel([])
        case "counted thinking":
            env.terms = env.terms.replace(thinking=2_048)
        case _:
            pass
    assert await waiting.refresh(other, late=late) == CacheRefreshOutcome(totals=before, alive=False)
    assert (server.warmed, server.refusals) == ([], [])


def _price(read: str, write: str) -> Price:
    rates = TokenRates(input=Decimal(2), output=Decimal(10), cache_write=Decimal(write), cache_read=Decimal(read))
    return Price(model="claude-sonnet-5-5", rates=rates)


@pytest.mark.parametrize(
    ("price", "prompt", "most"),
    [
        (_price("0.10", "2.50"), 60_000, 24),
        (_price("0.20", "2.50"), 60_000, 11),
        (_price("0.10", "2.50"), 4_000, 0),
        (_price("2.50", "2.50"), 60_000, 0),
        (_price("0", "2.50"), 60_000, 0),
        (None, 60_000, 0),
    ],
    ids=["a read for 1/25", "a read for 2/25", "a short prefix", "no discount", "free reads", "no price"],
)
def test_the_prices_say_how_often_a_prefix_is_worth_a_read(
    env: AgentEnvironment, price: Price | None, prompt: int, most: int
) -> None:
    config = env.terms.replace(prices=(price,) if price else ())
    assert count_worthwhile_refreshes(config, prompt, DAY) == most
    if price is not None and most:
        rates = price.rates
        assert most * rates.cache_read <= rates.cache_write - rates.cache_read < (most + 1) * rates.cache_read
    assert count_worthwhile_refreshes(config.replace(thinking=2_048), prompt, date.max) == 0


def test_the_prices_of_the_tests_have_the_models_of_the_tests(env: AgentEnvironment) -> None:
    assert count_worthwhile_refreshes(env.terms.replace(prices=PRICES), 60_000, DAY) > 0
