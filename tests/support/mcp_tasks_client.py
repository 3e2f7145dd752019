"""An MCP client of the protocol's tasks extension, which the SDK does not support."""

from collections.abc import Sequence
from typing import Any, Literal

from mcp import Client
from mcp.client import ClaimContext, ClientExtension, ResultClaim
from mcp.types import CallToolResult, Request, Result
from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from waystation.plugins.web.mcp_tasks import EXTENSION


class AnyResult(Result):
    """A result as it arrived."""

    model_config = ConfigDict(extra="allow")


class TaskHandleResult(Result):
    """The handle in place of a result."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")

    result_type: Literal["task"]
    task_id: str
    status: str
    status_message: str
    created_at: str
    last_updated_at: str
    ttl_ms: None
    poll_interval_ms: int


class TasksClientExtension(ClientExtension):
    """Declares the extension, and accepts handles."""

    identifier = EXTENSION

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """See base class."""
        return (ResultClaim(result_type="task", model=TaskHandleResult, resolve=_nobody_waits),)


async def _nobody_waits(handle: TaskHandleResult, ctx: ClaimContext) -> CallToolResult:
    raise AssertionError(handle, ctx)


class TaskMethodRequest(Request[dict[str, Any], str]):
    """A request of the extension."""

    name_param = "taskId"


async def call_task_method(client: Client, method: str, task: str, **more: Any) -> dict[str, Any]:
    """Call a method of the extension, and return the server's answer. Raises MCPError."""
    request = TaskMethodRequest(method=method, params={"taskId": task, **more})
    return (await client.session.send_request(request, AnyResult)).model_extra or {}


async def submit_research_task(client: Client, **wanted: Any) -> TaskHandleResult:
    """Submit a question, and return its handle."""
    given = await client.session.call_tool("submit_research", wanted, allow_claimed=True)
    assert isinstance(given, TaskHandleResult), given
    return given
