"""Fails a workflow that is about to send a payload which the server would reject.

Without this check the SDK fails the workflow task on every retry: the workflow hangs for good and no one is notified.
None of our payloads should come near the limit (`waystation.kernel.json_chunks`).
"""

from collections.abc import Sequence
from typing import Any, NoReturn

from temporalio import workflow
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    ContinueAsNewInput,
    ExecuteWorkflowInput,
    Interceptor,
    SignalChildWorkflowInput,
    SignalExternalWorkflowInput,
    StartActivityInput,
    StartChildWorkflowInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

MAX_PAYLOAD_BYTES = 1_000_000
"""Half of the server's default limit: encryption adds to the size, and a server may be configured with less."""
TOO_LARGE = "PayloadTooLarge"
"""Type of the application error."""


def _check(what: str, values: Sequence[object]) -> None:
    for payload in workflow.payload_converter().to_payloads(values):
        if (size := payload.ByteSize()) > MAX_PAYLOAD_BYTES:
            raise ApplicationError(
                f"{what} would have {size:,} bytes, but a payload may have at most {MAX_PAYLOAD_BYTES:,}",
                type=TOO_LARGE,
                non_retryable=True,
            )


class PayloadLimit(Interceptor):
    """Checks what workflows send: inputs of activities and children, signals, input of the next run, and results."""

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: ARG002  the base class names it
    ) -> type[WorkflowInboundInterceptor] | None:
        """See base class."""
        return _Inbound


class _Inbound(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_Outbound(outbound))

    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        result = await super().execute_workflow(input)
        _check("the result", [result])
        return result


class _Outbound(WorkflowOutboundInterceptor):
    def continue_as_new(self, input: ContinueAsNewInput) -> NoReturn:
        _check("the input of the next run", input.args)
        super().continue_as_new(input)

    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:
        _check(f"the input of {input.activity}", input.args)
        return super().start_activity(input)

    async def start_child_workflow(self, input: StartChildWorkflowInput) -> workflow.ChildWorkflowHandle[Any, Any]:
        _check(f"the input of {input.workflow}", input.args)
        return await super().start_child_workflow(input)

    async def signal_child_workflow(self, input: SignalChildWorkflowInput) -> None:
        _check(f"the signal {input.signal}", input.args)
        await super().signal_child_workflow(input)

    async def signal_external_workflow(self, input: SignalExternalWorkflowInput) -> None:
        _check(f"the signal {input.signal}", input.args)
        await super().signal_external_workflow(input)
