"""Activities of agents: one leg each, under the name of the role, and changes of an agent's context."""

from collections.abc import Awaitable, Callable, Mapping

from temporalio import activity

from waystation.activities.activity_errors import heartbeating, is_worker_shutting_down, translating_errors
from waystation.agents.cache_refresh import CacheRefreshOutcome, CacheRefreshRequest
from waystation.agents.cache_warmer import CacheWarmer
from waystation.agents.compaction_request import CompactionRequest, EditOutcome, EditRequest
from waystation.agents.compactor import Compactor
from waystation.agents.leg import LegOutcome, LegRequest
from waystation.agents.loop import AgentLoop
from waystation.agents.ports import Meter
from waystation.context.compaction import CompactionOutcome
from waystation.kernel.roles import AgentActivity
from waystation.tasks.context_editor import ContextEditor


class AgentActivities:
    """Legs of agent runs."""

    def __init__(self, loop: AgentLoop) -> None:
        self._loop = loop

    @activity.defn(name="RunResearchAgent")
    async def run_research_leg(self, request: LegRequest) -> LegOutcome:
        """Run one leg of a research agent."""
        return await self._leg(request)

    @activity.defn(name="RunAnalysisAgent")
    async def run_analysis_leg(self, request: LegRequest) -> LegOutcome:
        """Run one leg of an analysis agent."""
        return await self._leg(request)

    @activity.defn(name="RunWritingAgent")
    async def run_writing_leg(self, request: LegRequest) -> LegOutcome:
        """Run one leg of a writing agent."""
        return await self._leg(request)

    async def _leg(self, request: LegRequest) -> LegOutcome:
        async with heartbeating():
            with translating_errors(gives_up=True):
                return await self._loop.run(request, is_worker_shutting_down)


LEGS: Mapping[AgentActivity, Callable[[AgentActivities, LegRequest], Awaitable[LegOutcome]]] = {
    "RunResearchAgent": AgentActivities.run_research_leg,
    "RunAnalysisAgent": AgentActivities.run_analysis_leg,
    "RunWritingAgent": AgentActivities.run_writing_leg,
}
"""Activity methods by the names used in the table of roles."""

SUMMARISER_ATTEMPTS = 4


class ContextActivities:
    """Compactions, and people's edits of contexts."""

    def __init__(self, condenser: Compactor, meter: Meter) -> None:
        self._condenser, self._meter = condenser, meter

    @activity.defn(name="CompressAndStoreContext")
    async def compress(self, request: CompactionRequest) -> CompactionOutcome:
        """Compact a context: redact, summarise the middle, validate, commit, embed, store in Qdrant."""
        tried = activity.info().attempt > SUMMARISER_ATTEMPTS
        async with heartbeating():
            with translating_errors(gives_up=True):
                outcome = await self._condenser.compact(request.replace(skip_summary=tried))
        self._meter.record_compaction(outcome)
        return outcome

    @activity.defn(name="KeepCacheWarm")
    async def warm_cache(self, request: CacheRefreshRequest) -> CacheRefreshOutcome:
        """Read a waiting agent's cached prefix, so that the provider keeps it."""
        warmer = CacheWarmer(self._condenser.model, self._condenser.deps, self._condenser.clock)
        with translating_errors():
            return await warmer.warm_cache(request)

    @activity.defn(name="EditContext")
    async def edit(self, request: EditRequest) -> EditOutcome:
        """Apply a person's edit between two legs: summarise now, pin, unpin or restore."""
        tried = activity.info().attempt > SUMMARISER_ATTEMPTS
        async with heartbeating():
            with translating_errors(gives_up=True):
                outcome = await ContextEditor(self._condenser).edit(request.replace(skip_summary=tried))
        if outcome.compaction is not None:
            self._meter.record_compaction(outcome.compaction)
        return outcome
