"""All tool servers of a config file, as one `ToolServers`."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import chain
from time import monotonic

from mcp import Client, MCPError
from mcp.types import CallToolRequest, CallToolRequestParams, CallToolResult, Tool
from pydantic import JsonValue

from waystation.adapters.mcp.config import Server
from waystation.adapters.mcp.expansion import without_secrets
from waystation.adapters.mcp.keeper import TOO_LONG
from waystation.adapters.mcp.offered import MOST_TOOLS, offered
from waystation.adapters.mcp.places import MESSAGE_BYTES, TOO_LONG_WORDS
from waystation.adapters.mcp.results import as_result, as_said
from waystation.adapters.mcp.session import Session
from waystation.domain.errors import ToolServerFailed
from waystation.domain.foreign_tools import (
    ForeignName,
    ForeignResult,
    ForeignTools,
    ForeignToolSpec,
    HiddenTool,
    model_names,
)

AGAIN_S = 60.0
"""A server that did not tell its tools is asked again after this."""


@dataclass(frozen=True)
class _Listing:
    specs: Sequence[ForeignToolSpec] = ()
    hidden: Sequence[HiddenTool] = ()
    good_until: float = field(default=float("inf"))
    """On the monotonic clock, in seconds."""
    told_on: int = 0
    """Which of the server's connections it was told on."""


class McpServers:
    """A `ToolServers`. Connections belong to the event loop that first used them; close it there."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self._sessions = {server.name: Session(server) for server in servers}
        self._listings: dict[str, _Listing] = {}
        self._listing = asyncio.Lock()

    async def tools(self, taken: Collection[str] = ()) -> ForeignTools:
        """See `ToolServers`. Servers are asked side by side."""
        async with self._listing:
            listings = await asyncio.gather(*(self._listed(session) for session in self._sessions.values()))
        specs = list(chain.from_iterable(listing.specs for listing in listings))
        names = model_names([ForeignName(spec.server, spec.tool) for spec in specs], taken)
        return ForeignTools(
            tools=tuple(spec.model_copy(update={"name": names[ForeignName(spec.server, spec.tool)]}) for spec in specs),
            hidden=tuple(chain.from_iterable(listing.hidden for listing in listings)),
        )

    async def call(self, spec: ForeignToolSpec, arguments: dict[str, JsonValue]) -> ForeignResult:
        """See `ToolServers`."""
        session = self._sessions.get(spec.server)
        if session is None:
            raise ToolServerFailed(f"the tool server {spec.server} is not in the config file any more")
        server = session.server
        try:
            async with session.call(server.timeout_s) as client:
                await self._require_same(session, client, spec)
                return as_result(await _called(client, spec.tool, arguments), server.secrets)
        except MCPError as error:
            if error.code == TOO_LONG or TOO_LONG_WORDS in error.message:
                words = f"The result was left out: it has more than {MESSAGE_BYTES:,} bytes. Ask for less."
            else:
                words = without_secrets(error.message, server.secrets)
            return as_said(words, is_error=True)

    async def _require_same(self, session: Session, client: Client, spec: ForeignToolSpec) -> None:
        """A server that was started anew has its tools looked at before one is called. Raises ToolServerFailed."""
        server = session.server
        if self._listings.get(server.name, _Listing()).told_on != session.opened:
            specs, hidden = offered(server, await _all_tools(client))
            self._listings[server.name] = _Listing(specs, hidden, told_on=session.opened)
        now = next((one for one in self._listings[server.name].specs if one.tool == spec.tool), None)
        if now is None or not now.same_as(spec):
            raise ToolServerFailed(
                f"the tool {spec.tool} of the tool server {server.name} is another one since the server began anew"
            )

    async def aclose(self) -> None:
        """End the servers that were started here, and close all connections."""
        await asyncio.gather(*(session.aclose() for session in self._sessions.values()))

    async def _listed(self, session: Session) -> _Listing:
        server = session.server
        known = self._listings.get(server.name)
        if known is None or known.good_until < monotonic() or known.told_on != session.opened:
            known = self._listings[server.name] = await _listing(session)
        return known


async def _called(client: Client, tool: str, arguments: dict[str, JsonValue]) -> CallToolResult:
    """Without `Client.call_tool`: it checks a result by the server's own schema, whose patterns could run for ever."""
    request = CallToolRequest(params=CallToolRequestParams(name=tool, arguments=arguments))
    return await client.session.send_request(request, CallToolResult)


async def _listing(session: Session) -> _Listing:
    server = session.server
    try:
        async with session.call(server.timeout_s) as client:
            specs, hidden = offered(server, await _all_tools(client))
            return _Listing(specs, hidden, told_on=session.opened)
    except ToolServerFailed as failure:
        reason = str(failure)
    except MCPError:
        reason = f"the tool server {server.name} does not tell its tools"
    return _Listing(
        (), (HiddenTool(server=server.name, tool="", reason=reason),), monotonic() + AGAIN_S, session.opened
    )


async def _all_tools(client: Client) -> list[Tool]:
    """Page by page, until there are more than are taken: some servers never end."""
    page = await client.list_tools()
    found = list(page.tools)
    while page.next_cursor is not None and page.tools and len(found) <= MOST_TOOLS:
        page = await client.list_tools(cursor=page.next_cursor)
        found.extend(page.tools)
    return found
