"""Runs of the real loop, the real store and the real condenser on a Messages server that caches by prefix."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import JsonValue

from benchmarks.cache.reader import Reader, documents
from tests.agents.conftest import opened
from tests.agents.office import TASK, Office, never
from waystation.agents.call_ledger import MeteredModel
from waystation.agents.delegation import DelegationConfig, TeammateState
from waystation.agents.leg import AgentConfig, AgentFinished, ContextFull, LegRequest, TurnLimit
from waystation.kernel.amount import Limit
from waystation.kernel.scopes import SystemScope
from waystation.kernel.usage import Usage
from waystation.models.anthropic.messages_server import CacheMissEvent, CachingServer
from waystation.models.anthropic.model import anthropic_model
from waystation.models.ports import ModelResponse

THINKS = timedelta(seconds=20)
"""What each reply takes."""
MODEL, CONDENSER = "claude-sonnet-5-5", "claude-haiku-5-5"
LEG_TURNS = 12
BUDGET = Limit(tokens=5_000_000)


@dataclass(frozen=True)
class Way:
    """How a run goes."""

    name: str
    window: int = 200_000
    pause: timedelta = timedelta()
    """Before the second leg."""
    delegates_later: bool = False
    """From the second leg on the agent has a tool more."""


@dataclass(frozen=True)
class Measured:
    """What the server reported of the agent's requests, as the store charged it."""

    turns: int
    usage: Usage
    breaks: Sequence[CacheMissEvent]
    compactions: int

    @property
    def causes(self) -> Mapping[str, tuple[int, int]]:
        """By what broke the prefix: how often, and how many tokens were not read for it."""
        counted: dict[str, tuple[int, int]] = {}
        for broken in self.breaks:
            times, lost = counted.get(broken.cause, (0, 0))
            counted[broken.cause] = times + 1, lost + broken.lost
        return counted


def terms_of(way: Way) -> AgentConfig:
    trigger = way.window * 3 // 4
    return AgentConfig(
        model=MODEL, condense_model=CONDENSER, window=way.window, trigger=trigger, target=trigger // 2,
        turn_limit=LEG_TURNS, backpressure=False,
    )  # fmt: skip


async def measured(way: Way) -> Measured:
    """One run, from the first turn until the agent hands in."""
    with TemporaryDirectory() as folder:
        async with opened(Path(folder) / "store.db") as office:
            office.terms, office.limit = terms_of(way), BUDGET
            await office.open_task(documents())
            return await _Run(office, way).measured()


class _Run:
    def __init__(self, office: Office, way: Way) -> None:
        self._office, self._way, self._reader = office, way, Reader()
        self._server = CachingServer(self._answer, office.clock)
        model = anthropic_model("key", http_client=self._server.http_client())
        self._model = MeteredModel(model=model, store=office.store, clock=office.clock, meter=office.meter)

    def _answer(self, body: dict[str, JsonValue]) -> ModelResponse:
        self._office.clock.move(THINKS)
        return self._reader.answer(body)

    async def measured(self) -> Measured:
        compactions = await self._legs()
        await self._model.model.aclose()
        (turns,) = [
            line for line in (await self._office.store.payments(TASK, SystemScope())).bill.lines if line.kind == "turn"
        ]
        breaks = [broken for broken in self._server.cache.breaks if broken.model == MODEL]
        return Measured(turns.calls, turns.usage, breaks, compactions)

    async def _legs(self) -> int:
        office, leg, compactions = self._office, 1, 0
        while True:
            outcome = await replace(office.loop, model=self._model).run(self._request(leg), never)
            match outcome:
                case AgentFinished():
                    return compactions
                case TurnLimit():
                    if leg == 1:
                        office.clock.move(self._way.pause)
                case ContextFull(request_tokens=tokens):
                    compactions += 1
                    condenser = replace(office.condenser, model=self._model)
                    await condenser.compress(office.compaction(tokens).replace(known_records=compactions - 1))
                case _:
                    raise AssertionError(outcome)
            leg += 1

    def _request(self, leg: int) -> LegRequest:
        office, terms = self._office, self._office.terms
        if self._way.delegates_later and leg > 1:
            terms = terms.replace(delegation=DelegationConfig())
        team = (TeammateState(id="research-1", state="working"), TeammateState(id="research-2", state=f"leg {leg}"))
        return LegRequest(run=office.run_ref(), leg=leg, limit=office.limit, terms=terms, team=team)
