"""The activities that change an agent's context: room made where it is full, and what a person asks for."""

from temporalio import activity

from activities.failures import reported
from activities.heartbeats import beating
from waystation.agents.condenser import Condenser
from waystation.agents.editor import Editor
from waystation.domain.compaction.edit import EditOutcome, EditRequest
from waystation.domain.compaction.outcome import CompactionOutcome
from waystation.domain.compaction.request import CompactionRequest
from waystation.ports import Meter

SUMMARISER_ATTEMPTS = 4


class ContextActivities:
    """Compactions, and people's edits."""

    def __init__(self, condenser: Condenser, meter: Meter) -> None:
        self._condenser, self._meter = condenser, meter

    @activity.defn(name="CompressAndStoreContext")
    async def compress(self, request: CompactionRequest) -> CompactionOutcome:
        """Redact, summarise the middle, check, commit, embed, store in Qdrant."""
        tried = activity.info().attempt > SUMMARISER_ATTEMPTS
        async with beating():
            with reported():
                outcome = await self._condenser.compress(request.model_copy(update={"give_up_summary": tried}))
        self._meter.compacted(outcome)
        return outcome

    @activity.defn(name="EditContext")
    async def edit(self, request: EditRequest) -> EditOutcome:
        """Summarise now, pin, unpin or restore, between two legs."""
        tried = activity.info().attempt > SUMMARISER_ATTEMPTS
        async with beating():
            with reported():
                outcome = await Editor(self._condenser).edit(request.model_copy(update={"give_up_summary": tried}))
        if outcome.compaction is not None:
            self._meter.compacted(outcome.compaction)
        return outcome
