"""A scripted task model whose agents delegate; each agent's script is given by the id of its step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from tests.support.task_model import (
    CALL_TOKENS,
    FINDING,
    LARGE_WINDOW_CONFIG,
    PROMPT_TOKENS,
    REPLY_TOKENS,
    TAKE_NOTE_CALL,
    ModelCall,
    ScriptedCall,
    ScriptedTaskModel,
    find_newest_message,
    make_task_config,
    parse_step_id,
)
from waystation.agents.delegation import DelegationConfig
from waystation.context.transcript import ToolResult, ToolUse
from waystation.kernel.usage import Usage
from waystation.models.ports import ModelRequest, ModelResponse
from waystation.tasks.task import StepProgress, TaskConfig, TaskProgress
from waystation.testing.doubles import make_scripted_response

SUBMIT_FINDINGS_CALL: ScriptedCall = ("submit_findings", {"findings": [FINDING]})
SUBAGENT_SCRIPT: Sequence[Sequence[ScriptedCall]] = [
    [("read_document", {"name": "pilot.md"})],
    [TAKE_NOTE_CALL],
    [SUBMIT_FINDINGS_CALL],
]
"""What a subagent does, turn by turn."""
SUBAGENT_TOKENS = CALL_TOKENS * len(SUBAGENT_SCRIPT)


def make_delegate_call(title: str, percent: int = 20, **changes: JsonValue) -> ScriptedCall:
    """Make a call that starts a subagent."""
    given: dict[str, JsonValue] = {
        "role": "research",
        "title": title,
        "goal": f"Look into {title}.",
        "context": f"Secret of {title}: the bar shifts in autumn.",
        "budget_percent": percent,
    }
    return "delegate", given | changes


def make_four_delegate_calls(percent: int = 20) -> list[ScriptedCall]:
    """Make calls for four subagents in one reply."""
    return [make_delegate_call(title, percent) for title in ("beacons", "bars", "buoys", "bells")]


@dataclass
class DelegatingTaskModel(ScriptedTaskModel):
    """A `ScriptedTaskModel` whose agents follow their scripts; a subagent without one follows `SUBAGENT_SCRIPT`."""

    scripts: Mapping[str, Sequence[Sequence[ScriptedCall]]] = field(
        default_factory=dict[str, Sequence[Sequence[ScriptedCall]]]
    )
    heard: dict[ModelCall, ModelRequest] = field(default_factory=dict[ModelCall, ModelRequest])
    """Every request of an agent of the plan, and of subagents."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Return the next reply of this agent."""
        call = ModelCall(parse_step_id(request), 1 + sum(message.role == "assistant" for message in request.messages))
        self.heard[call] = request
        script = self.scripts.get(call.step) or (SUBAGENT_SCRIPT if "." in call.step else None)
        if script is None:
            return await super().complete(request)
        self.calls.append(call)
        await self.before(call)
        uses = [
            ToolUse(id=f"call-{call.step}-{call.turn}-{number}", name=name, input=arguments)
            for number, (name, arguments) in enumerate(script[min(call.turn, len(script)) - 1])
        ]
        return make_scripted_response(*uses, usage=Usage(input=PROMPT_TOKENS, output=REPLY_TOKENS))


def make_delegating_task_config(
    budget: int = 60_000, agent_budget: int = 20_000, bounds: DelegationConfig | None = None
) -> TaskConfig:
    """Make a task configuration under which agents delegate."""
    given = make_task_config(budget=budget, agent_budget=agent_budget)
    return given.replace(
        default=LARGE_WINDOW_CONFIG.replace(delegation=bounds or DelegationConfig(max_depth=2, max_concurrent=4))
    )


def index_steps(progress: TaskProgress) -> dict[str, StepProgress]:
    """Return the steps by id."""
    return {step.id: step for step in progress.steps}


def find_tool_results(crew: DelegatingTaskModel, step: str, turn: int) -> list[ToolResult]:
    """Return the tool results that an agent received before this turn."""
    return list(find_newest_message(crew.heard[ModelCall(step, turn)]).tool_results)
