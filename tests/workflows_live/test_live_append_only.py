"""Whole tasks, with subagents, several legs, compactions and calls that fail: what was sent is only added to.

Nothing that a model thought is lost to it.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue
from temporalio.client import Client

from tests.append_only import Binding, breaks, by_agent
from tests.crew import MOVES, ROOMY, step_of, terms
from tests.delegating import delegate
from tests.readers import ANYONE
from tests.running import at_work, request
from tests.unit.histories import prose
from waystation.agents.delegation import DelegationConfig
from waystation.context.transcript import Text, ToolUse
from waystation.documents.documents import SourceDocument
from waystation.kernel.errors import ModelUnavailable
from waystation.kernel.usage import Usage
from waystation.models.ports import ModelRequest, ModelResponse
from waystation.privacy.ports import Redactor
from waystation.tasks.task import TaskPhase, task_id_of
from waystation.testing import make_scripted_response

READS = 24
"""Turns of each researcher before it hands in."""
DOCUMENTS = tuple(
    SourceDocument(name=name, text="\n".join(prose(60) for _ in range(30))) for name in ("pilot.md", "bars.md")
)
WINDOW = 24_000


@dataclass
class Busy:
    """Reads and reads; each agent hands in after so many turns. Every fifteenth call fails at first."""

    turns: Counter[str] = field(default_factory=Counter[str])
    calls: int = 0

    async def complete(self, request: ModelRequest) -> ModelResponse:
        self.calls += 1
        if self.calls % 15 == 0:
            raise ModelUnavailable("the connection broke", possibly_billed=True)
        if not request.tools:
            return make_scripted_response(Text(text=f"Read so far: {prose(300)}"), usage=Usage(input=4_000, output=400))
        step = step_of(request)
        self.turns[step] += 1
        name, arguments = self._move(step, self.turns[step], {tool.name for tool in request.tools})
        call = ToolUse(id=f"call-{step}-{self.turns[step]}", name=name, input=arguments)
        return make_scripted_response(call, usage=Usage(input=await self.count_tokens(request), output=50))

    def _move(self, step: str, turn: int, tools: set[str]) -> tuple[str, dict[str, JsonValue]]:
        ending = next(name for name in MOVES if name in tools)
        if ending != "submit_findings":
            moves = MOVES[ending]
            return moves[min(turn, len(moves)) - 1]
        if step == "harbours" and turn == 3:
            return delegate("beacons", 30)
        if turn > READS:
            return MOVES[ending][-1]
        return "read_document", {"name": DOCUMENTS[turn % 2].name, "first_line": 1 + turn % 20}

    async def count_tokens(self, request: ModelRequest) -> int:
        return sum(len(message.model_dump_json()) for message in request.messages) // 4 + 2_000

    async def aclose(self) -> None:
        """Nothing is open."""


async def test_whole_tasks_only_add_to_what_was_sent_between_two_compactions(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    model = Binding(Busy())
    agent = ROOMY.replace(
        model="claude-sonnet-5-5",
        window=WINDOW,
        trigger=WINDOW * 3 // 4,
        target=WINDOW * 3 // 8,
        turn_limit=5,
        max_output=4_000,
        delegation=DelegationConfig(depth=1, width=2),
    )
    under = terms(budget=9_000_000, agent_budget=2_000_000).replace(agent=agent)
    task_id = task_id_of(request())
    async with at_work(server, tmp_path, redactor, model) as counter:
        await counter.submit(under=under, documents=DOCUMENTS)
        progress = await counter.task().result()
        logs = {step.id: await counter.store.load(f"{task_id}/{step.id}", ANYONE) for step in progress.steps}
        bill = (await counter.store.payments(task_id, ANYONE)).bill
    assert progress.phase in {TaskPhase.DONE, TaskPhase.PARTIAL}
    agents = by_agent(model.bodies)
    assert {"harbours", "harbours.1", "tides", "weigh", "write"} <= agents.keys()
    broken = {step: len(breaks(bodies)) for step, bodies in agents.items()}
    assert {step: times for step, times in broken.items() if times > len(logs[step].compactions)} == {}
    assert sum(len(log.compactions) for log in logs.values()) >= 2
    assert sum(step.legs for step in progress.steps) > len(progress.steps)
    assert (model.binding.dropped, bill.total.dropped_thinking) == ([], 0)
    assert model.binding.sent_back > 50
