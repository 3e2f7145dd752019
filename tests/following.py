"""A client that follows tasks by the protocol's extension for them, of which the SDK has no part."""

from collections.abc import Sequence
from typing import Any, Literal

from mcp import Client
from mcp.client import ClaimContext, ClientExtension, ResultClaim
from mcp.types import CallToolResult, Request, Result
from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from waystation.plugins.web.mcp_tasks import EXTENSION


class AnyResult(Result):
    """As it came."""

    model_config = ConfigDict(extra="allow")


class GivenHandle(Result):
    """What comes in the place of a result."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")

    result_type: Literal["task"]
    task_id: str
    status: str
    status_message: str
    created_at: str
    last_updated_at: str
    ttl_ms: None
    poll_interval_ms: int


class Follows(ClientExtension):
    """Declares the extension, and takes handles."""

    identifier = EXTENSION

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """See base class."""
        return (ResultClaim(result_type="task", model=GivenHandle, resolve=_nobody_waits),)


async def _nobody_waits(handle: GivenHandle, ctx: ClaimContext) -> CallToolResult:
    raise AssertionError(handle, ctx)


class AskedOfTask(Request[dict[str, Any], str]):
    """A request of the extension."""

    name_param = "taskId"


async def asked(client: Client, method: str, task: str, **more: Any) -> dict[str, Any]:
    """What the server answers. Raises MCPError."""
    request = AskedOfTask(method=method, params={"taskId": task, **more})
    return (await client.session.send_request(request, AnyResult)).model_extra or {}


async def begun(client: Client, **wanted: Any) -> GivenHandle:
    """A question that was handed over, by its handle."""
    given = await client.session.call_tool("submit_research", wanted, allow_claimed=True)
    assert isinstance(given, GivenHandle), given
    return given
