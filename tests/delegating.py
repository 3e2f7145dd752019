"""A crew whose members delegate: what each of them does is written down by the id of its step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from tests.crew import (
    CALL_TOKENS,
    FINDING,
    NOTE,
    PROMPT_TOKENS,
    REPLY_TOKENS,
    ROOMY,
    Call,
    Crew,
    Move,
    newest,
    step_of,
    terms,
)
from waystation.agents.delegation import DelegationConfig
from waystation.context.transcript import ToolResult, ToolUse
from waystation.kernel.usage import Usage
from waystation.models.ports import ModelRequest, ModelResponse
from waystation.tasks.task import StepProgress, TaskProgress, TaskTerms
from waystation.testing import make_scripted_response

HAND_IN: Move = ("submit_findings", {"findings": [FINDING]})
SUBAGENT: Sequence[Sequence[Move]] = [[("read_document", {"name": "pilot.md"})], [NOTE], [HAND_IN]]
"""What a subagent does, turn by turn."""
SUBAGENT_TOKENS = CALL_TOKENS * len(SUBAGENT)


def delegate(title: str, percent: int = 20, **changes: JsonValue) -> Move:
    """A call that asks for a subagent."""
    given: dict[str, JsonValue] = {
        "role": "research",
        "title": title,
        "goal": f"Look into {title}.",
        "context": f"Secret of {title}: the bar shifts in autumn.",
        "budget_percent": percent,
    }
    return "delegate", given | changes


def four(percent: int = 20) -> list[Move]:
    """Four subagents in one reply."""
    return [delegate(title, percent) for title in ("beacons", "bars", "buoys", "bells")]


@dataclass
class DelegatingCrew(Crew):
    """As `RunnerPool`, but who has a script follows it; a subagent without one does what `SUBAGENT` says."""

    scripts: Mapping[str, Sequence[Sequence[Move]]] = field(default_factory=dict[str, Sequence[Sequence[Move]]])
    heard: dict[Call, ModelRequest] = field(default_factory=dict[Call, ModelRequest])
    """Every request of an agent of the plan, and of subagents."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """The next reply of this agent."""
        call = Call(step_of(request), 1 + sum(message.role == "assistant" for message in request.messages))
        self.heard[call] = request
        script = self.scripts.get(call.step) or (SUBAGENT if "." in call.step else None)
        if script is None:
            return await super().complete(request)
        self.calls.append(call)
        await self.before(call)
        uses = [
            ToolUse(id=f"call-{call.step}-{call.turn}-{number}", name=name, input=arguments)
            for number, (name, arguments) in enumerate(script[call.turn - 1])
        ]
        return make_scripted_response(*uses, usage=Usage(input=PROMPT_TOKENS, output=REPLY_TOKENS))


def delegating(budget: int = 60_000, agent_budget: int = 20_000, bounds: DelegationConfig | None = None) -> TaskTerms:
    """Terms under which agents delegate."""
    given = terms(budget=budget, agent_budget=agent_budget)
    return given.replace(agent=ROOMY.replace(delegation=bounds or DelegationConfig(depth=2, width=4)))


def steps(progress: TaskProgress) -> dict[str, StepProgress]:
    """By id."""
    return {step.id: step for step in progress.steps}


def results(crew: DelegatingCrew, step: str, turn: int) -> list[ToolResult]:
    """What an agent was told before this turn."""
    return list(newest(crew.heard[Call(step, turn)]).tool_results)
