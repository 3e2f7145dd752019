"""The activities that look over a task's work: its plan after the research, its report before people get it."""

from temporalio import activity

from activities.failures import reported
from activities.heartbeats import beating
from waystation.agents.reviewer import Reviewer
from waystation.agents.reviser import Reviser
from waystation.domain.reviewing import Reviewed, ReviewRequest
from waystation.domain.revising import Revised, RevisionRequest


class OversightActivities:
    """Revisions and reviews."""

    def __init__(self, reviser: Reviser, reviewer: Reviewer) -> None:
        self._reviser, self._reviewer = reviser, reviewer

    @activity.defn(name="RevisePlan")
    async def revise(self, request: RevisionRequest) -> Revised:
        """A plan that can be run, without its goals; or none, where it is kept."""
        async with beating():
            with reported():
                return await self._reviser.revise(request)

    @activity.defn(name="ReviewReport")
    async def review(self, request: ReviewRequest) -> Reviewed:
        """How many faults there are. What they are is in the store, and its writer may know it."""
        async with beating():
            with reported():
                return await self._reviewer.review(request)
