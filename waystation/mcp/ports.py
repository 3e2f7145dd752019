"""The port to tools of tool servers."""

from collections.abc import Collection, Sequence
from typing import Protocol

from pydantic import JsonValue

from waystation.security.untrusted import UntrustedToolResult, UntrustedTools, UntrustedToolSpec


class ToolServers(Protocol):
    """Servers of tools that are not ours."""

    async def list_tools(self, taken: Collection[str] = (), servers: Sequence[str] | None = None) -> UntrustedTools:
        """Return the tools of these servers (`ServerNames`; None for the default ones), under names not in `taken`.

        A server that does not answer is listed as hidden, with the reason; it is asked again some time later. The
        definition of a tool stays the same as long as this process lives.
        """
        ...

    async def call_tool(self, spec: UntrustedToolSpec, arguments: dict[str, JsonValue]) -> UntrustedToolResult:
        """Call the tool once.

        Raises:
            ToolServerFailed: the server could not be reached, ended, took too long or sent too much. Whether the call
                was carried out is unknown. The message repeats nothing that the server sent.
        """
        ...
