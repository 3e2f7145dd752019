"""Port for a team's hooks on compactions."""

from typing import Protocol

from waystation.context.compaction import CompactionEvent


class CompactionHook(Protocol):
    """A command or a URL of the team."""

    async def call(self, event: CompactionEvent) -> None:
        """Call the hook once and wait until it has ended.

        Raises:
            HookFailed: It could not be called, did not end in time, or reported a failure. The message names the hook
                and repeats nothing of its output.
        """
        ...
