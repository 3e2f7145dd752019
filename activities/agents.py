"""The agents' activities: one leg each, under the name of its role."""

from temporalio import activity

from activities.failures import reported
from activities.heartbeats import beating, interrupted
from waystation.agents.loop import AgentLoop
from waystation.domain.leg import LegOutcome, LegRequest


class AgentActivities:
    """Legs of agent runs."""

    def __init__(self, loop: AgentLoop) -> None:
        self._loop = loop

    @activity.defn(name="RunResearchAgent")
    async def research(self, request: LegRequest) -> LegOutcome:
        """One leg of a research agent."""
        return await self._leg(request)

    @activity.defn(name="RunAnalysisAgent")
    async def analysis(self, request: LegRequest) -> LegOutcome:
        """One leg of an analysis agent."""
        return await self._leg(request)

    @activity.defn(name="RunWritingAgent")
    async def writing(self, request: LegRequest) -> LegOutcome:
        """One leg of a writing agent."""
        return await self._leg(request)

    async def _leg(self, request: LegRequest) -> LegOutcome:
        async with beating():
            with reported():
                return await self._loop.run(request, interrupted)
