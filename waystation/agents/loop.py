"""The agent loop: turns of one agent until its leg ends. Two commits a turn, each bound to the attempt's fence."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from waystation.agents.contract import ContractWriter
from waystation.agents.metered import CallKey, MeteredModel, TooDear
from waystation.agents.replies import redacted_reply
from waystation.agents.roles import Desk, prompt
from waystation.agents.tools.box import Toolbox
from waystation.agents.tools.tool import CallSite
from waystation.domain.amount import Limit, limit_text
from waystation.domain.backpressure import delay_seconds
from waystation.domain.budget import RunTotals
from waystation.domain.compaction.apply import with_record
from waystation.domain.compaction.history import current
from waystation.domain.compaction.tokens import Measure, correction, request_tokens
from waystation.domain.compaction.view import view
from waystation.domain.errors import ReplyBlocked, SpendingLimitReached, TextHeldBack
from waystation.domain.leg import (
    AllowanceSpent,
    ContextFull,
    Finished,
    LegOutcome,
    LegRequest,
    ProviderLimit,
    RunRef,
    Standing,
    TurnLimit,
    Yielded,
)
from waystation.domain.messages import Block, Message, Text, ToolResult, ToolUse, platform_text
from waystation.domain.redaction import redaction_notes
from waystation.domain.transcript import Transcript
from waystation.domain.turn import Charge, Fence
from waystation.domain.work import made
from waystation.ports import Clock, ModelReply, ModelRequest, StopReason

LEG_TIME = timedelta(minutes=10)
CUT = {StopReason.MAX_TOKENS, StopReason.CONTEXT_EXCEEDED}
TURN_MESSAGES = 2
"""A reply, and the results of its calls."""
IDLE_REPLIES = 3
"""Replies in a row that call no tool; then what there is gets delivered."""


@dataclass(frozen=True)
class AgentLoop:
    """Carries out legs."""

    model: MeteredModel
    desk: Desk
    contracts: ContractWriter
    clock: Clock
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Waits so many seconds."""

    async def run(self, request: LegRequest, interrupted: Callable[[], bool]) -> LegOutcome:
        """The leg's outcome: the committed one, if there is one already; then no call is made.

        `interrupted` turns true when the worker wants to stop: the leg then yields at the next turn boundary.
        Raises ModelError, StoreError, RedactionFailed; everything committed before stays.
        """
        transcripts, run_id = self.desk.transcripts, request.run.run_id
        await transcripts.open_run(request.run)
        if known := await transcripts.outcome(run_id, request.leg):
            return known  # without a fence: it would be taken away from a later leg
        fence = await transcripts.take_fence(run_id)
        if known := await transcripts.outcome(run_id, request.leg):
            return known  # asked again: it was committed meanwhile, and from here on it cannot be
        attempt = Attempt(
            loop=self,
            request=request,
            fence=fence,
            toolbox=self.desk.toolbox(request.run.role),
            transcript=await transcripts.load(run_id),
            totals=await transcripts.totals(run_id),
            deadline=self.clock() + LEG_TIME,
            scale=request.scale,
        )
        outcome = await self._counted(request.run, await attempt.until_it_ends(interrupted))
        await transcripts.commit_outcome(fence, request.leg, outcome)
        return outcome

    async def _counted(self, run: RunRef, outcome: LegOutcome) -> LegOutcome:
        """With what the agent has handed over so far: a person who is asked for money decides by it."""
        work = self.desk.work
        counts = made(await work.deliverable(run.run_id), await work.notes(run.task_id, run.run_id))
        return outcome.model_copy(update={"standing": outcome.standing.model_copy(update={"made": counts})})


@dataclass
class Attempt:
    """One attempt at a leg: the transcript as far as it is committed, and the right to add to it."""

    loop: AgentLoop
    request: LegRequest
    fence: Fence
    toolbox: Toolbox
    transcript: Transcript
    totals: RunTotals
    deadline: datetime
    scale: float
    """What the provider counted for the last request, over what was estimated."""
    notices: list[str] = field(default_factory=list[str])

    async def until_it_ends(self, interrupted: Callable[[], bool]) -> LegOutcome:
        """Turn after turn; also until a person has to see to a text that cannot be redacted."""
        try:
            return await self._turns(interrupted)
        except TextHeldBack as held:
            return ProviderLimit(standing=self._standing, reason=str(held))

    async def _turns(self, interrupted: Callable[[], bool]) -> LegOutcome:
        turns_at_start = self.transcript.turns
        if not self._said:
            await self._append(await self.loop.contracts.write(self.request.run, self.transcript.next_id, self.notices))
        while True:
            await self._answer_open_calls()
            ended = self._ended()
            if ended is not None:
                return ended
            if interrupted():
                return Yielded(standing=self._standing)
            turns = self.transcript.turns - turns_at_start
            if turns >= self.request.terms.turn_limit or self.loop.clock() > self.deadline:
                return TurnLimit(standing=self._standing)
            stopped = await self._turn()
            if stopped is not None:
                return stopped

    async def _turn(self) -> LegOutcome | None:
        """One model call and its first commit; None where the leg goes on."""
        terms, shown = self.request.terms, view(self.transcript)
        estimate = request_tokens(self._fixed, shown, self.scale)
        if estimate >= terms.trigger or terms.crowded(len(shown)):
            return ContextFull(standing=self._standing, request_tokens=estimate)
        call = await self.loop.model.fitted(self._call(shown), self._left, terms.output_floor, terms.prices)
        if isinstance(call, TooDear):
            return AllowanceSpent(standing=self._standing, needed=call.needed)
        await self._slow_down()
        key = CallKey("turn", str(self.transcript.turns + 1))
        try:
            reply, charge = await self.loop.model.ask(self.fence, key, call)
        except SpendingLimitReached as limit:
            return ProviderLimit(standing=self._standing, reason=str(limit))
        except ReplyBlocked as blocked:
            self.totals = await self.loop.desk.transcripts.totals(self.request.run.run_id)
            return self._stopped(str(blocked))
        self.scale = correction(request_tokens(self._fixed, shown), reply.usage.prompt)
        return await self._take(reply, charge)

    async def _take(self, reply: ModelReply, charge: Charge) -> LegOutcome | None:
        blocks, redacted = await redacted_reply(_usable(reply), self.loop.desk.redactor, self.request.run.tenant)
        self.notices.extend(redaction_notes(*redacted))
        message = Message(id=self.transcript.next_id, role="assistant", blocks=blocks)
        await self.loop.desk.transcripts.commit_reply(self.fence, self.transcript.version, message, charge)
        self.transcript = self.transcript.with_message(message)
        self.totals = await self.loop.desk.transcripts.totals(self.request.run.run_id)
        if reply.stop is StopReason.REFUSAL:
            return self._stopped("the model refused to go on")
        return None

    async def _answer_open_calls(self) -> None:
        """Second commit of a turn: the results of the calls that the last reply asks for, or a word to go on."""
        last = self._said[-1]
        if last.role == "user":
            return
        if not last.tool_uses:
            word = f"Go on. When you are done, hand in with {' or '.join(sorted(self.toolbox.ending))}."
            await self._append(platform_text(self.transcript.next_id, word))
            return
        results = [await self._answer(call) for call in last.tool_uses]
        await self._append(Message(id=self.transcript.next_id, role="user", blocks=tuple(results)))

    async def _answer(self, call: ToolUse) -> ToolResult:
        """The call's result, and before it is committed what the call does to the conversation."""
        site = self._site(call)
        result = await self.toolbox.run(call, site)
        for record in site.records:
            await self.loop.desk.transcripts.commit_compaction(self.fence, self.transcript.version, record, (), None)
            self.transcript = with_record(self.transcript, record)
        return result

    def _ended(self) -> LegOutcome | None:
        """Whether the agent has handed in. Read from the transcript, so that a retry after a crash sees it too."""
        if self._handed_in:
            return Finished(standing=self._standing)
        most = self.request.terms.history
        if most is not None and len(self._said) + TURN_MESSAGES > most:
            return self._stopped(f"its conversation may have {most:,} messages, and another turn would be over that")
        idle = 0
        for message in reversed(self._said):
            if message.tool_uses or message.tool_results:
                break
            idle += message.role == "assistant"
        if idle >= IDLE_REPLIES:
            return self._stopped(f"the model gave {idle} replies in a row without handing in a result")
        return None

    @property
    def _said(self) -> tuple[Message, ...]:
        """What counts of the conversation, without what was taken back."""
        return current(self.transcript).messages

    @property
    def _handed_in(self) -> bool:
        calls = {call.id: call.name for message in self._said[-2:] for call in message.tool_uses}
        return any(
            not result.is_error and calls.get(result.tool_use_id) in self.toolbox.ending
            for result in self._said[-1].tool_results
        )

    def _call(self, shown: tuple[Message, ...]) -> ModelRequest:
        return ModelRequest(
            model=self.request.terms.model,
            system=self._system,
            messages=shown,
            tools=self.toolbox.specs,
            max_output=self.request.terms.max_output,
            reminder=self._status,
        )

    async def _slow_down(self) -> None:
        """Backpressure: near the end of a budget calls wait, so that a person can look before it is spent."""
        if self.request.terms.backpressure:
            used = max(self.request.task_used, self.request.limit.share_used(self.totals.spent))
            await self.loop.pause(delay_seconds(used))

    async def _append(self, message: Message) -> None:
        await self.loop.desk.transcripts.commit_message(self.fence, self.transcript.version, message)
        self.transcript = self.transcript.with_message(message)

    def _stopped(self, reason: str) -> Finished:
        return Finished(standing=self._standing, partial=True, reason=reason)

    def _site(self, call: ToolUse) -> CallSite:
        return CallSite(
            run=self.request.run,
            fence=self.fence,
            call_id=call.id,
            transcript=self.transcript,
            policy=self.request.terms.policy,
            measure=Measure(fixed=self._fixed, scale=self.scale),
            notices=self.notices,
        )

    @property
    def _standing(self) -> Standing:
        return Standing(totals=self.totals, scale=self.scale, notes=tuple(dict.fromkeys(self.notices)))

    @property
    def _left(self) -> Limit:
        return self.request.limit.after(self.totals.spent)

    @property
    def _status(self) -> str:
        budget = f"; budget left {limit_text(self._left)}" if self.request.terms.hard else ""
        return f"<status>turn {self.transcript.turns + 1}{budget}</status>"

    @cached_property
    def _system(self) -> str:
        return prompt(self.request.run.role)

    @cached_property
    def _fixed(self) -> int:
        return self.loop.desk.fixed_tokens(self.request.run.role)


def _usable(reply: ModelReply) -> tuple[Block, ...]:
    """The reply's blocks, without a tool call that was cut off by a maximum."""
    blocks = reply.blocks
    if reply.stop in CUT and blocks and isinstance(blocks[-1], ToolUse):
        blocks = (
            *blocks[:-1],
            Text(text="(A tool call was cut here: the reply was too long. Hand in less at a time.)"),
        )
    return blocks or (Text(text="(an empty reply)"),)
