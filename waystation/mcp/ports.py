"""The port to tools that others offer."""

from collections.abc import Collection, Sequence
from typing import Protocol

from pydantic import JsonValue

from waystation.security.untrusted import UntrustedToolResult, UntrustedTools, UntrustedToolSpec


class ToolServers(Protocol):
    """Servers of tools that are not ours."""

    async def list_tools(self, taken: Collection[str] = (), servers: Sequence[str] | None = None) -> UntrustedTools:
        """What these servers offer (`ServerNames`; None: the usual ones), under names that are not among `taken`.

        A server that does not answer is among what is hidden, with the reason; it is asked again some time later. What
        a server has offered once stays as it was for as long as this process lives.
        """
        ...

    async def call_tool(self, spec: UntrustedToolSpec, arguments: dict[str, JsonValue]) -> UntrustedToolResult:
        """One call, made once.

        Raises:
            ToolServerFailed: the server could not be reached, ended, took too long or sent too much. Whether the call
                was carried out is not known. The message repeats nothing that the server said.
        """
        ...
