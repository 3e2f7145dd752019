"""Config entries and tool calls for tests with `mcp_sample_server.py`."""

import json
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from pydantic import JsonValue

from waystation.mcp.config import load_servers
from waystation.mcp.servers import LISTING_CACHE_S, McpServers
from waystation.security.untrusted import UntrustedToolResult, UntrustedToolSpec

SCRIPT = Path(__file__).with_name("mcp_sample_server.py")


def make_sample_server_entry(**more: JsonValue) -> JsonValue:
    """Make its entry in a config file."""
    return {"command": sys.executable, "args": [str(SCRIPT)], **more}


def open_servers(
    folder: Path, environment: dict[str, str] | None = None, fresh_s: float = LISTING_CACHE_S, **servers: JsonValue
) -> McpServers:
    """Open the servers of a config file with these entries."""
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return McpServers(load_servers(path, environment or {}), fresh_s)


def find_running_processes(pids: Iterable[int]) -> list[psutil.Process]:
    """Return those of the processes that have not ended. Any may end while it is checked."""
    found: list[psutil.Process] = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


@dataclass
class ToolCaller:
    """Calls tools by their own names."""

    servers: McpServers

    async def find_tool_spec(self, tool: str) -> UntrustedToolSpec:
        """Return the server's specification of a tool."""
        return next(spec for spec in (await self.servers.list_tools()).tools if spec.tool == tool)

    async def call_tool(self, tool: str, **arguments: JsonValue) -> UntrustedToolResult:
        """Call a tool once."""
        return await self.servers.call_tool(await self.find_tool_spec(tool), arguments)
