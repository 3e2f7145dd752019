"""Two builds whose workflows issue other commands, and what the histories of their tasks say."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from temporalio import workflow
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.worker import (
    Interceptor,
    StartActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from tests.support.temporal_platform import run_all_workers
from waystation.config.settings import Settings
from waystation.kernel.temporal_names import SUBAGENT_WORKFLOW, TASK_WORKFLOW
from waystation.workers.activity_deps import ActivityDeps

OLD, NEW = "1.0", "2.0"
CHANGED_WORKFLOWS = (TASK_WORKFLOW, SUBAGENT_WORKFLOW)


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
    client: Client, parts: ActivityDeps, build_id: str, *, versioning: bool = True
) -> AsyncGenerator[None]:
    """Run the workers of a build. The commands of `NEW` differ."""
    settings = Settings(versioning=versioning, build_id=build_id)
    changes: Sequence[Interceptor] = [ExtraCommandInterceptor()] if build_id == NEW else []
    async with run_all_workers(client, parts, settings=settings, interceptors=changes):
        yield


async def list_build_ids(client: Client, workflow_id: str) -> list[str]:
    """Return the builds that ran the workflow, run by run, each as often as it took over.

    Raises AssertionError for a run with a failed workflow task or a patch.
    """
    found: list[str] = []
    runs = [execution async for execution in client.list_workflows(f'WorkflowId = "{workflow_id}"')]
    for execution in sorted(runs, key=lambda one: one.start_time):
        history = await client.get_workflow_handle(workflow_id, run_id=execution.run_id).fetch_history()
        for event in history.events:
            assert event.event_type != EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED, event
            assert event.event_type != EventType.EVENT_TYPE_MARKER_RECORDED, event
            if event.HasField("workflow_task_completed_event_attributes"):
                version = event.workflow_task_completed_event_attributes.deployment_version.build_id
                if found[-1:] != [version]:
                    found.append(version)
    return found
