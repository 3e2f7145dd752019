"""What is called before and after each compaction of this worker's agents."""

from dataclasses import dataclass

from waystation.domain.compaction.hook import CompactionEvent
from waystation.domain.errors import HookFailed
from waystation.ports import CompactionHook


@dataclass(frozen=True)
class CompactionHooks:
    """The hooks of a worker. Those that fail are reported."""

    before: CompactionHook | None = None
    after: CompactionHook | None = None
    blocks: bool = False
    """Whether a compaction is not made where the hook before it fails."""

    async def call(self, event: CompactionEvent) -> str | None:
        """Call the hook that the event is for; how it failed, in one sentence, or None."""
        hook = self.before if event.event == "before" else self.after
        if hook is None:
            return None
        try:
            await hook.call(event)
        except HookFailed as failed:
            return f"A hook failed: {failed}."
        return None


NO_HOOKS = CompactionHooks()
