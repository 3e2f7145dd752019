"""A `ChatModel` that spends as much as a call may, and whose agents never submit: only their budget ends them."""

import asyncio
import hashlib
import json
import random
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import ROUND_CEILING

from tests.support.prices import PRICES
from tests.support.task_model import ScriptedCall
from waystation.context.tokens import compute_request_upper_bound
from waystation.context.transcript import ToolUse
from waystation.kernel.amount import Amount
from waystation.kernel.usage import Usage
from waystation.models.ports import ModelRequest, ModelResponse
from waystation.models.profiles import find_price
from waystation.planning.plan import Plan, Step
from waystation.testing.doubles import make_scripted_response

MODEL = "claude-sonnet-5-5"
"""It has a price, so that its spending is also known in dollars."""
MAX_CALL_SECONDS = 0.02
"""Maximum seconds of a call."""


def make_fan_out_plan(researchers: int) -> Plan:
    """Make a plan of this many parallel agents, and one that writes when all are done."""
    steps = tuple(Step(id=f"part-{n + 1}", role="research", title="A part", goal="Read.") for n in range(researchers))
    write = Step(id="write", role="writing", title="Write", goal="Write.", needs=tuple(step.id for step in steps))
    return Plan(steps=(*steps, write))


@dataclass
class BudgetExhaustingModel:
    """Spends each call's worst case; with a seed, anything up to it, of every kind of token."""

    plan: Plan
    together: int
    """The first calls of this many researchers are answered only when all of them are waiting."""
    seed: int | None = None
    spent: Amount = field(default_factory=Amount)
    """Amount that the model used, whatever was booked."""
    spent_by: dict[str, Amount] = field(default_factory=dict[str, Amount])
    """By researcher: the amount that all had spent when its newest call was answered."""
    calls: int = 0
    at_once: int = 0
    most_at_once: int = 0

    def __post_init__(self) -> None:
        self._gate = asyncio.Barrier(self.together)

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Return a tool call that ends nothing; for the planner, the plan."""
        researcher = any(tool.name == "submit_findings" for tool in request.tools)
        chance = self._chance(request)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        if researcher and not any(message.role == "assistant" for message in request.messages):
            await self._gate.wait()
        await asyncio.sleep(chance.uniform(0, MAX_CALL_SECONDS))
        self.at_once -= 1
        usage = self._usage(request, chance)
        self._spend(request.model, usage)
        if researcher:
            self.spent_by[request.messages[0].text] = self.spent
        name, arguments = self._move(request, researcher)
        return make_scripted_response(ToolUse(id=f"c{len(request.messages)}", name=name, input=arguments), usage=usage)

    async def count_tokens(self, request: ModelRequest) -> int:
        """Return as many tokens as the request's bytes allow."""
        tools = json.dumps([tool.model_dump(mode="json") for tool in request.tools])
        return compute_request_upper_bound(request.system, tools, request.messages)

    async def aclose(self) -> None:
        """Do nothing."""

    @property
    def total_spent_at_first_stop(self) -> Amount:
        """Amount that all had spent when the first researcher made its last call."""
        return min(self.spent_by.values(), key=lambda spent: spent.tokens)

    def _move(self, request: ModelRequest, researcher: bool) -> ScriptedCall:
        if request.require_tool == "submit_plan":
            return ("submit_plan", self.plan.model_dump(mode="json"))
        if researcher:
            return ("read_document", {"name": "pilot.md"})
        return ("write_section", {"heading": f"Part {len(request.messages)}", "markdown": "Text."})

    def _chance(self, request: ModelRequest) -> random.Random:
        """Return the generator of this agent and turn: agents run in any order."""
        said = f"{self.seed} {len(request.messages)} {request.messages[0].text}"
        return random.Random(hashlib.sha256(re.sub(r"\W+", " ", said).encode()).digest())

    def _usage(self, request: ModelRequest, chance: random.Random) -> Usage:
        tools = json.dumps([tool.model_dump(mode="json") for tool in request.tools])
        bound = compute_request_upper_bound(request.system, tools, request.messages)
        if self.seed is None:
            return Usage(cache_write=bound, output=request.max_output)
        prompt = chance.randint(0, bound)
        written = chance.randint(0, prompt)
        read = chance.randint(0, prompt - written)
        return Usage(
            input=prompt - written - read,
            cache_write=written,
            cache_read=read,
            output=chance.randint(1, request.max_output),
        )

    def _spend(self, model: str, usage: Usage) -> None:
        price = find_price(model, datetime.now(UTC).date(), PRICES)
        assert price is not None
        cost = price.get_rates(usage.prompt_tokens).compute_cost(usage).to_integral_value(rounding=ROUND_CEILING)
        self.spent += Amount(tokens=usage.fresh, micro_usd=int(cost))
        self.calls += 1
