"""The port to a team's hooks at compactions."""

from typing import Protocol

from waystation.context.compaction import CompactionEvent


class CompactionHook(Protocol):
    """A command or an address of the team's."""

    async def call(self, event: CompactionEvent) -> None:
        """Tell it, once, and wait until it has ended.

        Raises:
            HookFailed: it could not be told, did not end in time, or reports a failure. The message names the hook, and
                repeats nothing that it said.
        """
        ...
