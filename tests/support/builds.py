"""Two builds whose workflows issue other commands, tasks that stand in every phase, and what their histories say."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from temporalio import activity, workflow
from temporalio.api.deployment.v1 import WorkerDeploymentVersion
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import DescribeWorkerDeploymentVersionRequest
from temporalio.client import Client
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    StartActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from tests.support.conversations import make_filler_text
from tests.support.delegating_model import SUBMIT_FINDINGS_CALL, DelegatingTaskModel, make_delegate_call
from tests.support.oversight_model import OversightTaskModel, with_oversight
from tests.support.task_model import (
    LARGE_WINDOW_CONFIG,
    SCRIPTED_CALLS,
    TAKE_NOTE_CALL,
    ScriptedCall,
    make_task_config,
    make_tight_budget_config,
    parse_step_id,
)
from tests.support.temporal_platform import run_all_workers, wait_until
from tests.support.tool_approval_platform import make_send_letter_call
from waystation.agents.delegation import DelegationConfig
from waystation.agents.leg import LegRequest
from waystation.config.settings import Settings
from waystation.context.transcript import Text, ToolUse
from waystation.documents.documents import SourceDocument
from waystation.kernel.errors import BadInput, Unreachable
from waystation.kernel.temporal_names import SUBAGENT_WORKFLOW, TASK_WORKFLOW
from waystation.kernel.usage import Usage
from waystation.models.ports import ChatModel, ModelRequest, ModelResponse
from waystation.runtime.temporal.deployment_client import BuildStatus, TemporalDeploymentClient
from waystation.tasks.task import TaskConfig
from waystation.testing.doubles import make_scripted_response
from waystation.workers.activity_deps import ActivityDeps
from waystation.workers.queues import DEV_TIMING, HEARTBEAT_THROTTLE_INTERVAL, WorkerTiming

OLD, NEW = "1.0", "2.0"
LOOK_SECONDS = 0.5
"""Seconds between two looks at many tasks. Each look is work for the server and for the workers."""
TIMING = WorkerTiming(DEV_TIMING.graceful_shutdown_timeout, HEARTBEAT_THROTTLE_INTERVAL)
ALL_QUEUES = ("workflows", "agents", "context")
REGISTERED_QUEUES = 4
"""Queues by type: the queue of workflows has activities, too."""
CHANGED_WORKFLOWS = (TASK_WORKFLOW, SUBAGENT_WORKFLOW)


# -------------------------------------------------------------------------------------------------------- the builds


class ExtraCommandInterceptor(Interceptor):
    """Makes tasks and subagents issue one more command ahead of every activity, as code of another build may."""

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,
    ) -> type[WorkflowInboundInterceptor] | None:
        """See base class."""
        return _Inbound


class _Inbound(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_Outbound(outbound))


class _Outbound(WorkflowOutboundInterceptor):
    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:
        if workflow.info().workflow_type in CHANGED_WORKFLOWS:
            workflow.upsert_memo({"build": NEW})
        return super().start_activity(input)


@asynccontextmanager
async def run_build(
    client: Client,
    parts: ActivityDeps,
    build_id: str,
    *,
    versioning: bool = True,
    interceptors: Sequence[Interceptor] = (),
) -> AsyncGenerator[None]:
    """Run the workers of a build until they poll. The commands of `NEW` differ."""
    # Activities that are held must not take the slots that others need.
    settings = Settings(versioning=versioning, build_id=build_id, contexts_at_once=32)
    changes = [ExtraCommandInterceptor()] if build_id == NEW else []
    interceptors = [*interceptors, *changes]
    async with run_all_workers(client, parts, settings=settings, timing=TIMING, interceptors=interceptors):
        if versioning:

            async def polls() -> bool:
                builds = await list_builds(client)
                polled = any(build.build_id == build_id and build.queues == ALL_QUEUES for build in builds)
                return polled and await count_registered_queues(client, build_id) == REGISTERED_QUEUES

            await wait_until(polls)
        yield


async def count_registered_queues(client: Client, build_id: str) -> int:
    """Return how many queues the server has registered for a build, which takes a moment after the first poll."""
    name = TemporalDeploymentClient(client).name
    request = DescribeWorkerDeploymentVersionRequest(
        namespace=client.namespace,
        deployment_version=WorkerDeploymentVersion(deployment_name=name, build_id=build_id),
    )
    described = await client.workflow_service.describe_worker_deployment_version(request)
    return len(described.worker_deployment_version_info.task_queue_infos)


async def list_builds(client: Client) -> Sequence[BuildStatus]:
    """Return the builds; none while a busy server does not answer, or before a worker has polled."""
    with suppress(Unreachable, BadInput):
        return await TemporalDeploymentClient(client).list_builds()
    return ()


async def fetch_build_id(client: Client, workflow_id: str) -> str:
    """Return the build that the newest run of a workflow is pinned to; empty before its first workflow task."""
    described = await client.get_workflow_handle(workflow_id).describe()
    return described.raw_description.workflow_execution_info.versioning_info.deployment_version.build_id


class BuildTrace(NamedTuple):
    """What the histories of one workflow say, over all of its runs."""

    builds: tuple[str, ...]
    """The builds that ran it, one after the other."""
    failed_workflow_tasks: int
    patches: int


async def trace_builds(client: Client, workflow_id: str) -> BuildTrace:
    """Read all histories of a workflow."""
    builds: list[str] = []
    kinds: Counter[EventType.ValueType] = Counter()
    runs = [execution async for execution in client.list_workflows(f'WorkflowId = "{workflow_id}"')]
    for execution in sorted(runs, key=lambda one: one.start_time):
        history = await client.get_workflow_handle(workflow_id, run_id=execution.run_id).fetch_history()
        for event in history.events:
            kinds[event.event_type] += 1
            if event.HasField("workflow_task_completed_event_attributes"):
                build = event.workflow_task_completed_event_attributes.deployment_version.build_id
                if builds[-1:] != [build]:
                    builds.append(build)
    return BuildTrace(
        tuple(builds),
        kinds[EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED],
        kinds[EventType.EVENT_TYPE_MARKER_RECORDED],
    )


# -------------------------------------------------------------------------------------------------------- the phases


class HoldingInterceptor(Interceptor):
    """Holds an activity of some tasks, with heartbeats, until it is released."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}
        """The activity to hold, by the id of its workflow."""
        self.arrived: set[str] = set()
        """Ids of the workflows whose activity is held."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """See base class."""
        return _Holding(next, self)

    def release(self) -> None:
        """Let all held activities go on."""
        self.held.clear()


class _Holding(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, holder: HoldingInterceptor) -> None:
        super().__init__(next)
        self._holder = holder

    async def execute_activity(self, input: ExecuteActivityInput) -> object:
        info = activity.info()
        workflow_id = info.workflow_id or ""
        while self._holder.held.get(workflow_id) == info.activity_type and _is_late_leg(input):
            self._holder.arrived.add(workflow_id)
            activity.heartbeat()
            await asyncio.sleep(LOOK_SECONDS)
        return await super().execute_activity(input)


def _is_late_leg(input: ExecuteActivityInput) -> bool:
    """Whether it is no leg, or not the first one: of legs, one is held in the middle of an agent's work."""
    order = next(iter(input.args), None)
    return not isinstance(order, LegRequest) or order.leg > 1 or "." in order.run.step_id


class Phase(NamedTuple):
    """How a task comes to stand in a phase."""

    config: TaskConfig
    held: str = ""
    """Activity in which it is held; empty: it waits for a person."""
    subagent: str = ""
    """Id of the subagent whose activity is held; empty: an activity of the task."""


def _with_model(name: str, given: TaskConfig | None = None) -> TaskConfig:
    config = given or make_task_config()
    return config.replace(default=config.default.replace(model=name, condense_model=name), plan_model=name)


WINDOW = 12_000
LONG, LETTER, DELEGATE = "long", "letter", "delegate"
DELEGATING = make_task_config(budget=60_000, agent_budget=20_000).replace(
    default=LARGE_WINDOW_CONFIG.replace(delegation=DelegationConfig(max_depth=1, max_concurrent=2))
)
LARGE = make_task_config(budget=9_000_000, agent_budget=2_000_000).replace(
    default=LARGE_WINDOW_CONFIG.replace(
        window=WINDOW, trigger=WINDOW * 3 // 4, target=WINDOW * 3 // 8, max_output=1_000, turn_limit=3
    )
)
SHORT_LEGS = make_task_config().replace(default=LARGE_WINDOW_CONFIG.replace(turn_limit=2))
PHASES: Mapping[str, Phase] = {
    "planning": Phase(make_task_config(), "PlanTask"),
    "plan approval": Phase(make_task_config().replace(review_plan=True)),
    "leg": Phase(SHORT_LEGS, "RunResearchAgent"),
    "subagent": Phase(_with_model(DELEGATE, DELEGATING), "RunResearchAgent", "harbours.1"),
    "compaction": Phase(_with_model(LONG, LARGE), "CompressAndStoreContext"),
    "budget": Phase(make_tight_budget_config()),
    "tool call": Phase(_with_model(LETTER, DELEGATING)),
    "revision": Phase(with_oversight(revisions=1, reviews=0), "RevisePlan"),
    "review": Phase(with_oversight(revisions=0, reviews=1), "ReviewReport"),
    "report": Phase(make_task_config(), "StoreReport"),
}
DOCUMENTS = (
    SourceDocument(
        name="pilot.md", text="\n".join(["Keep the white beacon to starboard.", *[make_filler_text(60)] * 30])
    ),
)


@dataclass
class LongReadingModel:
    """Its researchers read until their context is full, twice; its requests have their real size."""

    reads: int = 16
    turns: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Return the next read, or a summary."""
        if not request.tools:
            summary = Text(text=f"Read so far: {make_filler_text(300)}")
            return make_scripted_response(summary, usage=Usage(input=4_000, output=400))
        step = parse_step_id(request)
        # Tasks share the model: the brief, with its question, tells them apart.
        self.turns[request.messages[0].text, step] += 1
        turn = self.turns[request.messages[0].text, step]
        ending = next(name for name in SCRIPTED_CALLS if name in {tool.name for tool in request.tools})
        moves = SCRIPTED_CALLS[ending]
        move: ScriptedCall = moves[min(turn, len(moves)) - 1]
        if ending == "submit_findings":
            read: ScriptedCall = ("read_document", {"name": "pilot.md", "first_line": 1 + turn % 20})
            move = moves[-1] if turn > self.reads else read
        name, arguments = move
        call = ToolUse(id=f"call-{step}-{turn}", name=name, input=arguments)
        return make_scripted_response(call, usage=Usage(input=await self.count_tokens(request), output=50))

    async def count_tokens(self, request: ModelRequest) -> int:
        """Return the request's real size, roughly."""
        return sum(len(message.model_dump_json()) for message in request.messages) // 4 + 2_000

    async def aclose(self) -> None:
        """Do nothing."""


class ModelOfPhases:
    """Plays the agents of each task by the name of its model."""

    def __init__(self) -> None:
        letters = {"harbours": [[TAKE_NOTE_CALL, make_send_letter_call()], [SUBMIT_FINDINGS_CALL]]}
        subagents = {"harbours": [[make_delegate_call("beacons")], [SUBMIT_FINDINGS_CALL]]}
        self._models: Mapping[str, ChatModel] = {
            LONG: LongReadingModel(),
            LETTER: DelegatingTaskModel(scripts=letters),
            DELEGATE: DelegatingTaskModel(scripts=subagents),
        }
        self._other = OversightTaskModel()

    def _select(self, request: ModelRequest) -> ChatModel:
        return self._models.get(request.model, self._other)

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """See `ChatModel`."""
        return await self._select(request).complete(request)

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """See `ChatModel`."""
        return await self._select(request).count_tokens(request)

    async def aclose(self) -> None:
        """Do nothing."""
