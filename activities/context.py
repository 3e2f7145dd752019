"""The activity that makes room in an agent's context."""

from temporalio import activity

from activities.failures import reported
from activities.heartbeats import beating
from waystation.agents.condenser import Condenser
from waystation.domain.compaction.outcome import CompactionOutcome
from waystation.domain.compaction.request import CompactionRequest
from waystation.ports import Meter

SUMMARISER_ATTEMPTS = 4


class ContextActivities:
    """Compaction."""

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
