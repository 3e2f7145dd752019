"""A scripted `ChatModel` for workflow tests that plays all agents of a small task, cheaply and deterministically."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

from pydantic import JsonValue

from waystation.agents.leg import AgentConfig
from waystation.budgets.budget import BudgetMode
from waystation.context.transcript import Message, ToolUse
from waystation.kernel.amount import Limit
from waystation.kernel.usage import Usage
from waystation.models.ports import ModelRequest, ModelResponse
from waystation.models.profiles import Price, TokenRates
from waystation.planning.plan import Plan, Step
from waystation.tasks.task import TaskConfig
from waystation.testing.doubles import make_scripted_response

SCRIPTED_PLAN = Plan(
    steps=(
        Step(id="harbours", role="research", title="Harbours", goal="Read about harbours."),
        Step(id="tides", role="research", title="Tides", goal="Read about tides."),
        Step(id="weigh", role="analysis", title="Weigh", goal="Weigh both.", needs=("harbours", "tides")),
        Step(id="write", role="writing", title="Write", goal="Write it down.", needs=("weigh",)),
    )
)
QUOTED_SENTENCE = "The white beacon is kept to starboard."

ScriptedCall = tuple[str, dict[str, JsonValue]]
TAKE_NOTE_CALL: ScriptedCall = (
    "take_note",
    {"text": QUOTED_SENTENCE, "document": "pilot.md", "first_line": 1, "last_line": 1},
)
FINDING: JsonValue = {"claim": QUOTED_SENTENCE, "citations": ["[pilot.md:1-1]"]}
SCRIPTED_CALLS: dict[str, list[ScriptedCall]] = {
    "submit_plan": [("submit_plan", SCRIPTED_PLAN.model_dump(mode="json"))],
    "submit_findings": [
        ("read_document", {"name": "pilot.md"}),
        *[TAKE_NOTE_CALL] * 5,
        ("submit_findings", {"findings": [FINDING]}),
    ],
    "submit_analysis": [("submit_analysis", {"conclusions": [FINDING]})],
    "submit_report": [
        ("write_section", {"heading": "Pilotage", "markdown": f"{QUOTED_SENTENCE} [pilot.md:1-1]"}),
        ("submit_report", {"title": "Pilotage", "summary": QUOTED_SENTENCE}),
    ],
}
"""An agent's calls in order, by the tool that ends its work."""
PROMPT_TOKENS, REPLY_TOKENS = 400, 50
CALL_TOKENS = PROMPT_TOKENS + REPLY_TOKENS
"""Tokens of every call."""
RESEARCH_TOKENS = CALL_TOKENS * len(SCRIPTED_CALLS["submit_findings"])
WORK_TOKENS = RESEARCH_TOKENS + CALL_TOKENS * sum(map(len, SCRIPTED_CALLS.values()))
"""Tokens of a whole task: two research agents, and one of each other kind."""


class ModelCall(NamedTuple):
    """One call of the model: its step (`plan` before there are steps), and the number of the agent's call."""

    step: str
    turn: int


class CallGate:
    """Holds these calls until it is opened; a second attempt at one of them passes."""

    def __init__(self, *held: ModelCall) -> None:
        self._held = set(held)
        self.reached = asyncio.Event()
        """Set when a call waits at the gate."""
        self.opened = asyncio.Event()

    async def __call__(self, call: ModelCall) -> None:
        """Wait, if the call is one of those."""
        if call in self._held:
            self._held.remove(call)
            self.reached.set()
            await self.opened.wait()


class CancellationIgnoringGate(CallGate):
    """A gate for calls that are answered although their activity is to end: as if they had completed before the
    activity was notified.
    """

    async def __call__(self, call: ModelCall) -> None:
        """See base class."""
        with suppress(asyncio.CancelledError):
            await super().__call__(call)


async def _nothing(call: ModelCall) -> None:
    pass


@dataclass
class ScriptedTaskModel:
    """A `ChatModel` that plays all agents with the fewest calls that do the work, each at the same price.

    `before` is awaited ahead of every reply: it may wait, to hold an agent in the middle of a call, or raise.
    """

    before: Callable[[ModelCall], Awaitable[None]] = _nothing
    calls: list[ModelCall] = field(default_factory=list[ModelCall])

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Return the next tool call of this agent, derived from its tools and its earlier replies."""
        turn = 1 + sum(message.role == "assistant" for message in request.messages)
        call = ModelCall(parse_step_id(request), turn)
        self.calls.append(call)
        await self.before(call)
        moves = next(SCRIPTED_CALLS[tool.name] for tool in request.tools if tool.name in SCRIPTED_CALLS)
        name, arguments = moves[min(turn, len(moves)) - 1]  # again, if it was rejected
        return make_scripted_response(
            ToolUse(id=f"call-{call.step}-{turn}", name=name, input=arguments),
            usage=Usage(input=PROMPT_TOKENS, output=REPLY_TOKENS),
        )

    async def count_tokens(self, request: ModelRequest) -> int:
        """Return the tokens of every prompt."""
        return PROMPT_TOKENS

    async def aclose(self) -> None:
        """Do nothing."""


def find_newest_message(request: ModelRequest) -> Message:
    """Return the newest message that is not a status."""
    return next(message for message in reversed(request.messages) if not message.is_status)


def parse_step_id(request: ModelRequest) -> str:
    """Return the step of the calling agent, from its task brief; `plan` if there is none."""
    found = re.search(r'<step id="([^"]+)"', request.messages[0].text)
    return found[1] if found else "plan"


# ---------------------------------------------------------------------------------------------------- configuration

LARGE_WINDOW_CONFIG = AgentConfig(
    model="crew",
    condense_model="crew",
    window=100_000,
    trigger=75_000,
    target=37_500,
    max_output=200,
    min_reply_tokens=REPLY_TOKENS,
    backpressure=False,
)
"""Configuration under which no context gets full; a call's worst case is 600 tokens, and it costs 450."""


def make_task_config(
    budget: int = 50_000, agent_budget: int = 5_000, mode: BudgetMode = BudgetMode.APPROVAL
) -> TaskConfig:
    """Make a task's configuration for the scripted model, with budgets in tokens."""
    return TaskConfig(
        budget=Limit(tokens=budget),
        agent_budget=Limit(tokens=agent_budget),
        mode=mode,
        default=LARGE_WINDOW_CONFIG.replace(hard_budget=mode is not BudgetMode.APPROVAL),
        plan_model="crew",
        offline=False,
    )


ONE = Decimal(1)
SCRIPTED_MODEL_PRICE = Price(model="crew", rates=TokenRates(input=ONE, output=ONE, cache_write=ONE, cache_read=ONE))
"""One micro-USD per token, so that budgets in dollars have the same numbers as those in tokens."""


def to_dollar_config(given: TaskConfig) -> TaskConfig:
    """Return the configuration with the same numbers, in micro-USD."""
    return given.replace(
        budget=Limit(micro_usd=given.budget.tokens),
        agent_budget=Limit(micro_usd=given.agent_budget.tokens),
        default=given.default.replace(prices=(SCRIPTED_MODEL_PRICE,)),
    )


TIGHT_BUDGET = 10_000
STEP_SHARE_TOKENS = (TIGHT_BUDGET - CALL_TOKENS) // len(SCRIPTED_PLAN.steps)
REQUESTED_TOKENS = 4_813
"""Tokens that each researcher requests under `make_tight_budget_config`: what its next call lacks, and ten turns like
its first five.
"""


def make_tight_budget_config(mode: BudgetMode = BudgetMode.APPROVAL) -> TaskConfig:
    """Make a configuration under which each researcher runs out of tokens after five of its seven calls, and its task
    has none left.

    Each requests `REQUESTED_TOKENS`, which is enough.
    """
    return make_task_config(budget=TIGHT_BUDGET, agent_budget=TIGHT_BUDGET, mode=mode)
