"""Several installations in one Temporal namespace: queues, workflow ids and schedule ids of each have its prefix.

All other code uses names without the prefix. A client plugin adds it to what is sent to the server, and workers inherit
the plugin from their client. Names that the server returns have the prefix; adding it again changes nothing.
"""

from dataclasses import replace
from typing import Any, ClassVar

from temporalio import workflow
from temporalio.client import (
    ActivityHandle,
    BackfillScheduleInput,
    CancelWorkflowInput,
    Client,
    CountWorkflowsInput,
    CreateScheduleInput,
    DeleteScheduleInput,
    DescribeScheduleInput,
    DescribeWorkflowInput,
    FetchWorkflowHistoryEventsInput,
    ListWorkflowsInput,
    OutboundInterceptor,
    PauseScheduleInput,
    QueryWorkflowInput,
    ScheduleActionStartWorkflow,
    ScheduleDescription,
    ScheduleHandle,
    SignalWorkflowInput,
    StartActivityInput,
    StartWorkflowInput,
    StartWorkflowUpdateInput,
    StartWorkflowUpdateWithStartInput,
    TerminateWorkflowInput,
    TriggerScheduleInput,
    UnpauseScheduleInput,
    WorkflowExecutionAsyncIterator,
    WorkflowExecutionCount,
    WorkflowExecutionDescription,
    WorkflowHandle,
    WorkflowHistoryEventAsyncIterator,
    WorkflowUpdateHandle,
)
from temporalio.client import Interceptor as ClientInterceptor
from temporalio.converter import DataConverter, default
from temporalio.plugin import SimplePlugin
from temporalio.worker import Interceptor as WorkerInterceptor
from temporalio.worker import (
    SignalExternalWorkflowInput,
    StartChildWorkflowInput,
    WorkerConfig,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)
from temporalio.worker import StartActivityInput as WorkflowStartsActivityInput

from waystation.kernel.temporal_names import WORKFLOWS_QUEUE, add_installation_prefix
from waystation.runtime.temporal.codec import EncryptionCodec


class InstallationPlugin(SimplePlugin):
    """Gives a client, and the workers that are made with it, the prefix of their installation.

    Also needed for an empty prefix: lists of workflows then leave out those of other installations in the namespace.
    """

    def __init__(self, prefix: str) -> None:
        """Build the plugin. `prefix` ends with a dot, or is empty."""
        super().__init__(  # pyright: ignore[reportUnknownMemberType]: a bare generic
            "waystation.installation",
            data_converter=self._sealing_for_prefixed_ids,
            interceptors=[_ClientPrefix(prefix), _WorkflowPrefix(prefix)],
        )
        self.prefix = prefix

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """See base class."""
        config = super().configure_worker(config)
        config["task_queue"] = add_installation_prefix(self.prefix, config["task_queue"])  # pyright: ignore[reportTypedDictNotRequiredAccess]: a worker always has one
        return config

    def _sealing_for_prefixed_ids(self, converter: DataConverter | None) -> DataConverter:
        """Return the converter that binds payloads to the id on the server, also if a handle was made with the
        unprefixed id.
        """
        converter = converter or default()
        codec = converter.payload_codec
        if not isinstance(codec, EncryptionCodec):
            return converter
        return replace(converter, payload_codec=codec.with_installation_prefix(self.prefix))


def get_client_installation_prefix(client: Client) -> str:
    """Return the prefix of the client's installation."""
    plugins = client.config().get("plugins", ())
    return next((plugin.prefix for plugin in plugins if isinstance(plugin, InstallationPlugin)), "")


def to_server_id(client: Client, name: str) -> str:
    """Return a workflow id or queue with the prefix of the client's installation, for calls that no interceptor
    sees.
    """
    return add_installation_prefix(get_client_installation_prefix(client), name)


class _ClientPrefix(ClientInterceptor):
    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return _ClientCalls(next, self._prefix)


class _ClientCalls(OutboundInterceptor):
    """Adds the prefix to every call that names a workflow, a schedule or a task queue."""

    def __init__(self, next: OutboundInterceptor, prefix: str) -> None:
        super().__init__(next)
        self._prefix = prefix

    def _named(self, name: str) -> str:
        return add_installation_prefix(self._prefix, name)

    def _own(self, query: str | None) -> str:
        own = f'TaskQueue = "{self._named(WORKFLOWS_QUEUE)}"'
        return f"({query}) AND {own}" if query else own

    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
        input.id, input.task_queue = self._named(input.id), self._named(input.task_queue)
        return await super().start_workflow(input)

    async def start_update_with_start_workflow(
        self, input: StartWorkflowUpdateWithStartInput
    ) -> WorkflowUpdateHandle[Any]:
        start = input.start_workflow_input
        start.id, start.task_queue = self._named(start.id), self._named(start.task_queue)
        return await super().start_update_with_start_workflow(input)

    async def start_activity(self, input: StartActivityInput) -> ActivityHandle[Any]:
        input.task_queue = self._named(input.task_queue)
        return await super().start_activity(input)

    async def cancel_workflow(self, input: CancelWorkflowInput) -> None:
        input.id = self._named(input.id)
        await super().cancel_workflow(input)

    async def describe_workflow(self, input: DescribeWorkflowInput) -> WorkflowExecutionDescription:
        input.id = self._named(input.id)
        return await super().describe_workflow(input)

    def fetch_workflow_history_events(
        self, input: FetchWorkflowHistoryEventsInput
    ) -> WorkflowHistoryEventAsyncIterator:
        input.id = self._named(input.id)
        return super().fetch_workflow_history_events(input)

    async def query_workflow(self, input: QueryWorkflowInput) -> Any:
        input.id = self._named(input.id)
        return await super().query_workflow(input)

    async def signal_workflow(self, input: SignalWorkflowInput) -> None:
        input.id = self._named(input.id)
        await super().signal_workflow(input)

    async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> WorkflowUpdateHandle[Any]:
        input.id = self._named(input.id)
        return await super().start_workflow_update(input)

    async def terminate_workflow(self, input: TerminateWorkflowInput) -> None:
        input.id = self._named(input.id)
        await super().terminate_workflow(input)

    def list_workflows(self, input: ListWorkflowsInput) -> WorkflowExecutionAsyncIterator:
        input.query = self._own(input.query)
        return super().list_workflows(input)

    async def count_workflows(self, input: CountWorkflowsInput) -> WorkflowExecutionCount:
        input.query = self._own(input.query)
        return await super().count_workflows(input)

    async def create_schedule(self, input: CreateScheduleInput) -> ScheduleHandle:
        action = input.schedule.action
        if isinstance(action, ScheduleActionStartWorkflow):
            action.id, action.task_queue = self._named(action.id), self._named(action.task_queue)
        input.id = self._named(input.id)
        return await super().create_schedule(input)

    async def backfill_schedule(self, input: BackfillScheduleInput) -> None:
        input.id = self._named(input.id)
        await super().backfill_schedule(input)

    async def describe_schedule(self, input: DescribeScheduleInput) -> ScheduleDescription:
        input.id = self._named(input.id)
        return await super().describe_schedule(input)

    async def pause_schedule(self, input: PauseScheduleInput) -> None:
        input.id = self._named(input.id)
        await super().pause_schedule(input)

    async def unpause_schedule(self, input: UnpauseScheduleInput) -> None:
        input.id = self._named(input.id)
        await super().unpause_schedule(input)

    async def trigger_schedule(self, input: TriggerScheduleInput) -> None:
        input.id = self._named(input.id)
        await super().trigger_schedule(input)

    async def delete_schedule(self, input: DeleteScheduleInput) -> None:
        input.id = self._named(input.id)
        await super().delete_schedule(input)


class _WorkflowPrefix(WorkerInterceptor):
    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: ARG002  the base class names it
    ) -> type[WorkflowInboundInterceptor] | None:
        class OfInstallation(_Inbound):
            prefix = self._prefix

        return OfInstallation


class _Inbound(WorkflowInboundInterceptor):
    prefix: ClassVar[str]
    """A class variable because the SDK makes instances from the class alone."""

    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_WorkflowCalls(outbound, self.prefix))


class _WorkflowCalls(WorkflowOutboundInterceptor):
    def __init__(self, next: WorkflowOutboundInterceptor, prefix: str) -> None:
        super().__init__(next)
        self._prefix = prefix

    def start_activity(self, input: WorkflowStartsActivityInput) -> workflow.ActivityHandle[Any]:
        if input.task_queue is not None:
            input.task_queue = add_installation_prefix(self._prefix, input.task_queue)
        return super().start_activity(input)

    async def start_child_workflow(self, input: StartChildWorkflowInput) -> workflow.ChildWorkflowHandle[Any, Any]:
        input.id = add_installation_prefix(self._prefix, input.id)
        return await super().start_child_workflow(input)

    async def signal_external_workflow(self, input: SignalExternalWorkflowInput) -> None:
        input.workflow_id = add_installation_prefix(self._prefix, input.workflow_id)
        await super().signal_external_workflow(input)
