"""Where one attempt at a leg stands: the transcript as far as it is committed, and the right to add to it."""

from dataclasses import dataclass, field
from functools import cached_property

from waystation.agents.roles import Desk, prompt
from waystation.agents.tools.box import Toolbox
from waystation.agents.tools.tool import CallSite
from waystation.domain.amount import Limit
from waystation.domain.budget import RunTotals
from waystation.domain.compaction.apply import with_record
from waystation.domain.compaction.history import current
from waystation.domain.compaction.tokens import Measure
from waystation.domain.leg import Finished, LegRequest, Standing
from waystation.domain.messages import Message, ToolUse
from waystation.domain.transcript import Record, Transcript
from waystation.domain.turn import Charge, Fence


@dataclass
class Attempt:
    """Every write is bound to the attempt's fence."""

    desk: Desk
    request: LegRequest
    fence: Fence
    toolbox: Toolbox
    transcript: Transcript
    totals: RunTotals
    scale: float
    """What the provider counted for the last request, over what was estimated."""
    notices: list[str] = field(default_factory=list[str])

    async def append(self, message: Message) -> None:
        """Commit a user message. Raises FenceLost, VersionConflict."""
        await self.desk.transcripts.commit_message(self.fence, self.transcript.version, message)
        self.transcript = self.transcript.with_message(message)

    async def take(self, message: Message, charge: Charge) -> None:
        """Commit a reply with what it cost. Raises FenceLost, VersionConflict."""
        await self.desk.transcripts.commit_reply(self.fence, self.transcript.version, message, charge)
        self.transcript = self.transcript.with_message(message)
        await self.recount()

    async def record(self, record: Record) -> None:
        """Commit what a call does to the conversation. Raises FenceLost, VersionConflict."""
        await self.desk.transcripts.commit_compaction(self.fence, self.transcript.version, record, (), None)
        self.transcript = with_record(self.transcript, record)

    async def recount(self) -> None:
        """What the run has cost by now."""
        self.totals = await self.desk.transcripts.totals(self.request.run.run_id)

    @property
    def said(self) -> tuple[Message, ...]:
        """What counts of the conversation, without what was taken back."""
        return current(self.transcript).messages

    @property
    def standing(self) -> Standing:
        """As the leg's outcome tells it."""
        return Standing(
            totals=self.totals,
            scale=self.scale,
            notes=tuple(dict.fromkeys(self.notices)),
            fixed=self.fixed,
            window=self.request.terms.window,
        )

    @property
    def left(self) -> Limit:
        """Of what the run may spend."""
        return self.request.limit.after(self.totals.spent)

    def stopped(self, reason: str) -> Finished:
        """The leg ends with what there is."""
        return Finished(standing=self.standing, partial=True, reason=reason)

    def site(self, call: ToolUse) -> CallSite:
        """Who makes this call."""
        return CallSite(
            run=self.request.run,
            fence=self.fence,
            call_id=call.id,
            transcript=self.transcript,
            policy=self.request.terms.policy,
            measure=Measure(fixed=self.fixed, scale=self.scale),
            notices=self.notices,
            memory=self.request.terms.memory,
            handed_back=self.request.handed_back,
            limit=self.request.limit,
        )

    @cached_property
    def system(self) -> str:
        """The prompt of the agent's role."""
        return prompt(self.request.run.role)

    @cached_property
    def fixed(self) -> int:
        """Estimated tokens that each of its requests has."""
        return self.toolbox.fixed_tokens(self.system)
