"""The port to tools that others offer."""

from collections.abc import Collection
from typing import Protocol

from pydantic import JsonValue

from waystation.domain.foreign_tools import ForeignResult, ForeignTools, ForeignToolSpec


class ToolServers(Protocol):
    """Servers of tools that are not ours."""

    async def tools(self, taken: Collection[str] = ()) -> ForeignTools:
        """What they offer, under names that are not among `taken`.

        A server that does not answer is among what is hidden, with the reason; it is asked again some time later. What
        a server has offered once stays as it was for as long as this process lives.
        """
        ...

    async def call(self, spec: ForeignToolSpec, arguments: dict[str, JsonValue]) -> ForeignResult:
        """One call, made once.

        Raises:
            ToolServerFailed: the server could not be reached, ended, took too long or sent too much. Whether the call
                was carried out is not known. The message repeats nothing that the server said.
        """
        ...
