"""Renders a workflow's current details, which the Temporal UI shows as *User Metadata*, when someone looks at them.

Details are in no event of the history, so they need not be rendered at each change.
"""

from typing import Any, Protocol, runtime_checkable

from temporalio import workflow
from temporalio.worker import HandleQueryInput, Interceptor, WorkflowInboundInterceptor, WorkflowInterceptorClassInput

METADATA_QUERY = "__temporal_workflow_metadata"
"""Temporal's own query, which every SDK answers."""


@runtime_checkable
class DetailedWorkflow(Protocol):
    """A workflow whose details follow from its state."""

    def render_details(self) -> str:
        """Return the details as Markdown."""
        ...


class DetailsOnRequest(Interceptor):
    """Adds the details of a `DetailedWorkflow` to the answers to `METADATA_QUERY`."""

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,  # noqa: ARG002  the base class names it
    ) -> type[WorkflowInboundInterceptor] | None:
        """See base class."""
        return _Inbound


class _Inbound(WorkflowInboundInterceptor):
    async def handle_query(self, input: HandleQueryInput) -> Any:
        answer = await super().handle_query(input)
        if input.query == METADATA_QUERY and isinstance(shown := workflow.instance(), DetailedWorkflow):
            answer.current_details = shown.render_details()
        return answer
