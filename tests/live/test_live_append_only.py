"""Whole tasks, with subagents, several legs, compactions and calls that fail: what was sent is only added to.

Nothing that a model thought is lost to it.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue
from temporalio.client import Client

from tests.support.append_only import PrefixBindingModel, find_prefix_breaks, group_by_agent
from tests.support.conversations import make_filler_text
from tests.support.delegating_model import make_delegate_call
from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import LARGE_WINDOW_CONFIG, SCRIPTED_CALLS, make_task_config, parse_step_id
from tests.support.temporal_platform import make_task_request, run_platform
from waystation.agents.delegation import DelegationConfig
from waystation.context.transcript import Text, ToolUse
from waystation.documents.documents import SourceDocument
from waystation.kernel.errors import ModelUnavailable
from waystation.kernel.usage import Usage
from waystation.models.ports import ModelRequest, ModelResponse
from waystation.privacy.ports import Redactor
from waystation.tasks.task import TaskPhase, make_task_id
from waystation.testing.doubles import make_scripted_response

READS = 24
"""Turns of each researcher before it hands in."""
DOCUMENTS = tuple(
    SourceDocument(name=name, text="\n".join(make_filler_text(60) for _ in range(30)))
    for name in ("pilot.md", "bars.md")
)
WINDOW = 24_000


@dataclass
class TurnCountingModel:
    """Reads and reads; each agent hands in after so many turns. Every fifteenth call fails at first."""

    turns: Counter[str] = field(default_factory=Counter[str])
    calls: int = 0

    async def complete(self, request: ModelRequest) -> ModelResponse:
        self.calls += 1
        if self.calls % 15 == 0:
            raise ModelUnavailable("the connection broke", possibly_billed=True)
        if not request.tools:
            return make_scripted_response(
                Text(text=f"Read so far: {make_filler_text(300)}"), usage=Usage(input=4_000, output=400)
            )
        step = parse_step_id(request)
        self.turns[step] += 1
        name, arguments = self._move(step, self.turns[step], {tool.name for tool in request.tools})
        call = ToolUse(id=f"call-{step}-{self.turns[step]}", name=name, input=arguments)
        return make_scripted_response(call, usage=Usage(input=await self.count_tokens(request), output=50))

    def _move(self, step: str, turn: int, tools: set[str]) -> tuple[str, dict[str, JsonValue]]:
        ending = next(name for name in SCRIPTED_CALLS if name in tools)
        if ending != "submit_findings":
            moves = SCRIPTED_CALLS[ending]
            return moves[min(turn, len(moves)) - 1]
        if step == "harbours" and turn == 3:
            return make_delegate_call("beacons", 30)
        if turn > READS:
            return SCRIPTED_CALLS[ending][-1]
        return "read_document", {"name": DOCUMENTS[turn % 2].name, "first_line": 1 + turn % 20}

    async def count_tokens(self, request: ModelRequest) -> int:
        return sum(len(message.model_dump_json()) for message in request.messages) // 4 + 2_000

    async def aclose(self) -> None:
        """Nothing is open."""


async def test_whole_tasks_only_add_to_what_was_sent_between_two_compactions(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    model = PrefixBindingModel(TurnCountingModel())
    agent = LARGE_WINDOW_CONFIG.replace(
        model="claude-sonnet-5-5",
        window=WINDOW,
        trigger=WINDOW * 3 // 4,
        target=WINDOW * 3 // 8,
        turn_limit=5,
        max_output=4_000,
        delegation=DelegationConfig(max_depth=1, max_concurrent=2),
    )
    under = make_task_config(budget=9_000_000, agent_budget=2_000_000).replace(default=agent)
    task_id = make_task_id(make_task_request())
    async with run_platform(server, tmp_path, redactor, model) as counter:
        await counter.submit(under=under, documents=DOCUMENTS)
        progress = await counter.get_task_handle().result()
        logs = {
            step.id: await counter.store.load_transcript(f"{task_id}/{step.id}", SYSTEM_SCOPE)
            for step in progress.steps
        }
        bill = (await counter.store.list_task_charges(task_id, SYSTEM_SCOPE)).cost_breakdown
    assert progress.phase in {TaskPhase.DONE, TaskPhase.PARTIAL}
    agents = group_by_agent(model.bodies)
    assert {"harbours", "harbours.1", "tides", "weigh", "write"} <= agents.keys()
    broken = {step: len(find_prefix_breaks(bodies)) for step, bodies in agents.items()}
    assert {step: times for step, times in broken.items() if times > len(logs[step].compactions)} == {}
    assert sum(len(log.compactions) for log in logs.values()) >= 2
    assert sum(step.legs for step in progress.steps) > len(progress.steps)
    assert (model.binding.dropped, bill.total.dropped_thinking) == ([], 0)
    assert model.binding.sent_back > 50
