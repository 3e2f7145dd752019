"""A small crew of agents for tests of workflows: a `ChatModel` that plays all of them, cheaply and always alike."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

from pydantic import JsonValue

from waystation.agents.leg import AgentConfig
from waystation.budgets.budget import Mode
from waystation.context.transcript import Message, ToolUse
from waystation.kernel.amount import Limit
from waystation.kernel.usage import Usage
from waystation.models.ports import ModelRequest, ModelResponse
from waystation.models.profiles import Price, TokenRates
from waystation.planning.plan import Plan, Step
from waystation.tasks.task import TaskTerms
from waystation.testing import make_scripted_response

CREW_PLAN = Plan(
    steps=(
        Step(id="harbours", role="research", title="Harbours", goal="Read about harbours."),
        Step(id="tides", role="research", title="Tides", goal="Read about tides."),
        Step(id="weigh", role="analysis", title="Weigh", goal="Weigh both.", needs=("harbours", "tides")),
        Step(id="write", role="writing", title="Write", goal="Write it down.", needs=("weigh",)),
    )
)
SAID = "The keeper of the crew wrote this sentence himself."

Move = tuple[str, dict[str, JsonValue]]
NOTE: Move = ("take_note", {"text": SAID, "document": "pilot.md", "first_line": 1, "last_line": 1})
FINDING: JsonValue = {"claim": SAID, "citations": ["[pilot.md:1-1]"]}
MOVES: dict[str, list[Move]] = {
    "submit_plan": [("submit_plan", CREW_PLAN.model_dump(mode="json"))],
    "submit_findings": [
        ("read_document", {"name": "pilot.md"}),
        *[NOTE] * 5,
        ("submit_findings", {"findings": [FINDING]}),
    ],
    "submit_analysis": [("submit_analysis", {"conclusions": [FINDING]})],
    "submit_report": [
        ("write_section", {"heading": "Pilotage", "markdown": f"{SAID} [pilot.md:1-1]"}),
        ("submit_report", {"title": "Pilotage", "summary": SAID}),
    ],
}
"""What an agent does, call by call, by the tool that ends its work."""
PROMPT_TOKENS, REPLY_TOKENS = 400, 50
CALL_TOKENS = PROMPT_TOKENS + REPLY_TOKENS
"""What every call of the crew costs."""
RESEARCH_TOKENS = CALL_TOKENS * len(MOVES["submit_findings"])
WORK_TOKENS = RESEARCH_TOKENS + CALL_TOKENS * sum(map(len, MOVES.values()))
"""What a whole task of the crew costs: two research agents, and one of each other kind."""


class Call(NamedTuple):
    """One call of the model: for which step (`plan` before there are steps), and the agent's how manieth."""

    step: str
    turn: int


class Gate:
    """Holds these calls of the crew until it is opened; a second attempt at one of them passes."""

    def __init__(self, *held: Call) -> None:
        self._held = set(held)
        self.reached = asyncio.Event()
        """A call stands before the gate."""
        self.opened = asyncio.Event()

    async def __call__(self, call: Call) -> None:
        """Wait, if the call is one of those."""
        if call in self._held:
            self._held.remove(call)
            self.reached.set()
            await self.opened.wait()


class Deaf(Gate):
    """Calls that are answered although their activity is to end: as if they had been done before it heard of that."""

    async def __call__(self, call: Call) -> None:
        """See base class."""
        with suppress(asyncio.CancelledError):
            await super().__call__(call)


async def _nothing(call: Call) -> None:
    pass


@dataclass
class Crew:
    """A `ChatModel` that plays all agents with the fewest calls that do the work, each at the same price.

    `before` is awaited ahead of every reply: it may wait, to hold an agent in the middle of a call, or raise.
    """

    before: Callable[[Call], Awaitable[None]] = _nothing
    calls: list[Call] = field(default_factory=list[Call])

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """The next tool call of this agent, told from its tools and its earlier replies."""
        turn = 1 + sum(message.role == "assistant" for message in request.messages)
        call = Call(step_of(request), turn)
        self.calls.append(call)
        await self.before(call)
        moves = next(MOVES[tool.name] for tool in request.tools if tool.name in MOVES)
        name, arguments = moves[turn - 1]
        return make_scripted_response(
            ToolUse(id=f"call-{call.step}-{turn}", name=name, input=arguments),
            usage=Usage(input=PROMPT_TOKENS, output=REPLY_TOKENS),
        )

    async def count_tokens(self, request: ModelRequest) -> int:
        """What every prompt costs."""
        return PROMPT_TOKENS

    async def aclose(self) -> None:
        """Nothing is open."""


def newest(request: ModelRequest) -> Message:
    """The newest message that is not a status."""
    return next(message for message in reversed(request.messages) if not message.is_status)


def step_of(request: ModelRequest) -> str:
    """Whose call it is, from its contract; `plan` where there is none."""
    found = re.search(r'<step id="([^"]+)"', request.messages[0].text)
    return found[1] if found else "plan"


# ------------------------------------------------------------------------------------------------------------ terms

ROOMY = AgentConfig(
    model="crew",
    condense_model="crew",
    window=100_000,
    trigger=75_000,
    target=37_500,
    max_output=200,
    output_floor=REPLY_TOKENS,
    backpressure=False,
)
"""Terms under which no context gets full; a call's worst case is 600 tokens, and it costs 450."""


def terms(budget: int = 50_000, agent_budget: int = 5_000, mode: Mode = Mode.APPROVAL) -> TaskTerms:
    """A task's terms for the crew, its budgets in tokens."""
    return TaskTerms(
        budget=Limit(tokens=budget),
        agent_budget=Limit(tokens=agent_budget),
        mode=mode,
        agent=ROOMY.replace(hard=mode is not Mode.APPROVAL),
        plan_model="crew",
        offline=False,
    )


ONE = Decimal(1)
CREW_PRICE = Price(model="crew", rates=TokenRates(input=ONE, output=ONE, cache_write=ONE, cache_read=ONE))
"""A millionth of a dollar a token, so that budgets in dollars have the same numbers as those in tokens."""


def in_dollars(given: TaskTerms) -> TaskTerms:
    """The same terms with the same numbers, in millionths of a dollar."""
    return given.replace(
        budget=Limit(micro_usd=given.budget.tokens),
        agent_budget=Limit(micro_usd=given.agent_budget.tokens),
        agent=given.agent.replace(prices=(CREW_PRICE,)),
    )


TIGHT_BUDGET = 10_000
SHARE = (TIGHT_BUDGET - CALL_TOKENS) // len(CREW_PLAN.steps)
ASKED = 4_813
"""Tokens that each researcher asks for under `tight`: what its next call lacks, and ten turns like its first five."""


def tight(mode: Mode = Mode.APPROVAL) -> TaskTerms:
    """Terms under which each researcher is out of tokens after five of its seven calls, and its task has no rest.

    Each asks for `ASKED`, which is enough.
    """
    return terms(budget=TIGHT_BUDGET, agent_budget=TIGHT_BUDGET, mode=mode)
