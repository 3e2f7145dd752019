"""A scripted task whose five agents take 20 turns each, to count what such a task costs the Temporal server."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from temporalio.client import Client
from temporalio.client import WorkflowExecutionStatus as Status

from tests.support.delegating_model import SUBMIT_FINDINGS_CALL, DelegatingTaskModel
from tests.support.oversight_model import KEEP_PLAN_CALL, PASS_REVIEW_CALL
from tests.support.task_model import FINDING, QUOTED_SENTENCE, ModelCall, ScriptedCall, make_task_config
from tests.support.temporal_platform import run_platform, wait_until
from tests.support.workflow_history import list_event_kinds
from waystation.context.transcript import ToolUse
from waystation.kernel.usage import Usage
from waystation.models.ports import ModelRequest, ModelResponse
from waystation.planning.plan import Plan, Step
from waystation.runtime.temporal.action_counts import count_temporal_actions
from waystation.tasks.progress import TemporalActionCounts
from waystation.tasks.task import TaskPhase
from waystation.testing.doubles import PlainRedactor, make_scripted_response
from waystation.workflows import task_runtime

AGENT_TURNS = 20
_TOPICS = ("harbours", "tides", "lights")
PLAN = Plan(
    steps=(
        *(Step(id=topic, role="research", title=topic.title(), goal=f"Read about {topic}.") for topic in _TOPICS),
        Step(id="weigh", role="analysis", title="Weigh", goal="Weigh all.", needs=_TOPICS),
        Step(id="write", role="writing", title="Write", goal="Write it down.", needs=("weigh",)),
    )
)
TASK_CONFIG = make_task_config(budget=1_000_000, agent_budget=100_000).replace(
    revisions=1, reviews=1, remembered_characters=2_000_000
)
"""As tasks are configured by default: the plan is revised, the report is reviewed, and documents are indexed."""


def _make_script(*last: ScriptedCall) -> Sequence[Sequence[ScriptedCall]]:
    """Return an agent's calls, turn by turn: it reads, and then makes these calls."""
    read: ScriptedCall = ("read_document", {"name": "pilot.md"})
    return [*[[read]] * (AGENT_TURNS - len(last)), *([call] for call in last)]


_SCRIPTS = {
    **dict.fromkeys(_TOPICS, _make_script(SUBMIT_FINDINGS_CALL)),
    "weigh": _make_script(("submit_analysis", {"conclusions": [FINDING]})),
    "write": _make_script(
        ("write_section", {"heading": "Harbours, tides and lights", "markdown": f"{QUOTED_SENTENCE} [pilot.md:1-1]"}),
        ("submit_report", {"title": "Pilotage", "summary": QUOTED_SENTENCE}),
    ),
}
_ANSWERS: dict[str, ScriptedCall] = {
    "submit_plan": ("submit_plan", PLAN.model_dump(mode="json")),
    "revise_plan": KEEP_PLAN_CALL,
    "review_report": PASS_REVIEW_CALL,
}
"""Calls of agents without a script, by the tool that they are offered."""


@dataclass
class TwentyTurnModel(DelegatingTaskModel):
    """A `ChatModel` that plays a planner, a reviewer, and the five agents of the plan."""

    scripts: Mapping[str, Sequence[Sequence[ScriptedCall]]] = field(default_factory=lambda: _SCRIPTS)

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Return the plan, its revision, the review, or the agent's next call."""
        if (call := next((_ANSWERS[tool.name] for tool in request.tools if tool.name in _ANSWERS), None)) is None:
            return await super().complete(request)
        name, arguments = call
        self.calls.append(ModelCall(name, 1))
        return make_scripted_response(
            ToolUse(id=f"call-{name}", name=name, input=arguments), usage=Usage(input=400, output=50)
        )


@dataclass(frozen=True)
class TwentyTurnTask:
    """What a finished task left on the server."""

    counted: TemporalActionCounts
    """As `waystation cost TASK --actions` counts."""
    kinds: Counter[str]
    """The same actions by the name of their activity or event."""
    turns: Counter[str]
    """Model calls by agent."""


async def run_twenty_turn_task(server: Client, folder: Path, *, slow: bool) -> TwentyTurnTask:
    """Run the task and wait until its documents are indexed.

    Args:
        server: The server.
        folder: For the store and memory.
        slow: Count as if each leg took longer than a minute: then each leg that ends updates the search attributes.
    """
    interval, model = task_runtime.SPENDING_INTERVAL, TwentyTurnModel()
    task_runtime.SPENDING_INTERVAL = timedelta() if slow else interval  # pyright: ignore[reportConstantRedefinition]
    try:
        async with run_platform(server, folder, PlainRedactor({}), model) as submitter:
            await submitter.submit(under=TASK_CONFIG)
            task = submitter.get_task_handle()
            assert (await task.result()).phase is TaskPhase.DONE

            async def is_over() -> bool:
                found = [one.status async for one in server.list_workflows() if task.id in one.id]
                return len(found) > 1 and set(found) == {Status.COMPLETED}

            await wait_until(is_over)
    finally:
        task_runtime.SPENDING_INTERVAL = interval  # pyright: ignore[reportConstantRedefinition]
    counted = await count_temporal_actions(server, task.id)
    assert counted is not None
    return TwentyTurnTask(counted, await _count_kinds(server, task.id), Counter(call.step for call in model.calls))


_EVENTS = {
    "workflow_execution_started": "start of a workflow",
    "child_workflow_execution_started": "start of a child workflow, the second action",
    "upsert_workflow_search_attributes": "update of search attributes",
    "signal_external_workflow_execution_initiated": "signal to the session",
    "workflow_execution_update_accepted": "Update",
    "timer_started": "timer",
}
"""Events that are actions, as the table calls them."""


async def _count_kinds(server: Client, task_id: str) -> Counter[str]:
    """Count the actions in all histories of the task. No activity is tried twice here."""
    kinds = Counter[str]()
    async for one in server.list_workflows():
        if task_id in one.id:
            events = list((await server.get_workflow_handle(one.id, run_id=one.run_id).fetch_history()).events)
            for event, kind in zip(events, list_event_kinds(events), strict=True):
                if event.HasField("activity_task_scheduled_event_attributes"):
                    kinds[kind] += 1
                elif kind in _EVENTS:
                    kinds[_EVENTS[kind]] += 1
    return kinds
