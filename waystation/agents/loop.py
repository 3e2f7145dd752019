"""The agent loop: turns of one agent until its leg ends. Two commits a turn, each bound to the attempt's fence."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from waystation.agents.asking import affordable
from waystation.agents.attempt import Attempt
from waystation.agents.contract import ContractWriter
from waystation.agents.contract_text import Room
from waystation.agents.document_news import hear_of_documents
from waystation.agents.hearing import hear
from waystation.agents.metered import CallKey, MeteredModel, TooDear
from waystation.agents.open_calls import answer_open_calls
from waystation.agents.replies import redacted_reply
from waystation.agents.roles import Desk
from waystation.domain.backpressure import delay_seconds
from waystation.domain.compaction.tokens import correction, request_tokens
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
    TurnLimit,
    Yielded,
)
from waystation.domain.messages import Block, Message, Text, ToolUse
from waystation.domain.redaction import redaction_notes
from waystation.domain.step_progress import Doing
from waystation.domain.turn import Charge
from waystation.domain.work import made
from waystation.ports import Clock, ModelReply, StopReason

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
        if known := await transcripts.outcome(run_id, request.leg, request.run.reader):
            return known  # without a fence: it would be taken away from a later leg
        fence = await transcripts.take_fence(run_id)
        if known := await transcripts.outcome(run_id, request.leg, request.run.reader):
            return known  # asked again: it was committed meanwhile, and from here on it cannot be
        transcript = await transcripts.load(run_id, request.run.reader)
        attempt = Attempt(
            desk=self.desk,
            request=request,
            fence=fence,
            toolbox=await self.desk.toolbox_of(request.run, request.terms, transcript),
            transcript=transcript,
            totals=await transcripts.totals(run_id),
            scale=request.scale,
        )
        turns = Turns(self, attempt, deadline=self.clock() + LEG_TIME)
        outcome = await self._counted(request.run, await turns.until_it_ends(interrupted))
        await transcripts.commit_outcome(fence, request.leg, outcome)
        return outcome

    async def _counted(self, run: RunRef, outcome: LegOutcome) -> LegOutcome:
        """With what the agent has handed over so far: a person who is asked for money decides by it."""
        work = self.desk.work
        counts = made(
            await work.deliverable(run.run_id, run.reader), await work.notes(run.task_id, run.reader, run.run_id)
        )
        return outcome.model_copy(update={"standing": outcome.standing.model_copy(update={"made": counts})})


@dataclass
class Turns:
    """The turns of one attempt at a leg."""

    loop: AgentLoop
    at: Attempt
    deadline: datetime

    async def until_it_ends(self, interrupted: Callable[[], bool]) -> LegOutcome:
        """Turn after turn; also until a person has to see to a text that cannot be redacted."""
        try:
            return await self._turns(interrupted)
        except TextHeldBack as held:
            return ProviderLimit(standing=self.at.standing, reason=str(held))

    async def _turns(self, interrupted: Callable[[], bool]) -> LegOutcome:
        at, turns_at_start = self.at, self.at.transcript.turns
        if not at.said:
            room = Room(window=at.request.terms.window, fixed=at.fixed)
            await at.append(await self.loop.contracts.write(at.request.run, at.transcript.next_id, at.notices, room))
        while True:
            ended = await answer_open_calls(at, self._calling) or self._ended()
            if ended is not None:
                return ended
            if interrupted():
                return Yielded(standing=at.standing)
            await hear(at)
            await hear_of_documents(at)
            turns = at.transcript.turns - turns_at_start
            if turns >= at.request.terms.turn_limit or self.loop.clock() > self.deadline:
                return TurnLimit(standing=at.standing)
            stopped = await self._turn()
            if stopped is not None:
                return stopped

    def _calling(self, tool: str) -> None:
        """Whoever asks what goes on is told which tool is called."""
        agent, turn = self.at.request.run.step_id, self.at.transcript.turns
        self.loop.model.tell(Doing(agent=agent, what="tool", turn=turn, tool=tool, since=self.loop.clock()))

    async def _turn(self) -> LegOutcome | None:
        """One model call and its first commit; None where the leg goes on."""
        at, terms = self.at, self.at.request.terms
        shown = view(at.transcript)
        estimate = request_tokens(at.fixed, shown, at.scale)
        if estimate >= terms.trigger or terms.crowded(len(shown)):
            return ContextFull(standing=at.standing, request_tokens=estimate)
        call = await affordable(at, shown, self.loop.model)
        if isinstance(call, TooDear):
            return AllowanceSpent(standing=at.standing, needed=call.needed)
        await self._slow_down()
        key = CallKey("turn", str(at.transcript.turns + 1))
        try:
            reply, charge = await self.loop.model.ask(at.fence, key, call)
        except SpendingLimitReached as limit:
            return ProviderLimit(standing=at.standing, reason=str(limit))
        except ReplyBlocked as blocked:
            await at.recount()
            return at.stopped(str(blocked))
        at.scale = correction(request_tokens(at.fixed, shown), reply.usage.prompt)
        return await self._take(reply, charge)

    async def _take(self, reply: ModelReply, charge: Charge) -> LegOutcome | None:
        at = self.at
        blocks, redacted = await redacted_reply(_usable(reply), at.desk.redactor, at.request.run.tenant)
        at.notices.extend(redaction_notes(*redacted))
        await at.take(Message(id=at.transcript.next_id, role="assistant", blocks=blocks), charge)
        return at.stopped("the model refused to go on") if reply.stop is StopReason.REFUSAL else None

    def _ended(self) -> LegOutcome | None:
        """Whether the agent has handed in. Read from the transcript, so that a retry after a crash sees it too."""
        at, said = self.at, self.at.said
        if _handed_in(said, at.toolbox.ending):
            return Finished(standing=at.standing)
        most = at.request.terms.history
        if most is not None and len(said) + TURN_MESSAGES > most:
            return at.stopped(f"its conversation may have {most:,} messages, and another turn would be over that")
        if (idle := _idle_replies(said)) >= IDLE_REPLIES:
            return at.stopped(f"the model gave {idle} replies in a row without handing in a result")
        return None

    async def _slow_down(self) -> None:
        """Backpressure: near the end of a budget calls wait, so that a person can look before it is spent."""
        request = self.at.request
        if request.terms.backpressure:
            used = max(request.task_used, request.limit.share_used(self.at.totals.spent))
            await self.loop.pause(delay_seconds(used))


def _handed_in(said: Sequence[Message], ending: frozenset[str]) -> bool:
    calls = {call.id: call.name for message in said[-2:] for call in message.tool_uses}
    return any(not result.is_error and calls.get(result.tool_use_id) in ending for result in said[-1].tool_results)


def _idle_replies(said: Sequence[Message]) -> int:
    """How many replies at the end call no tool."""
    idle = 0
    for message in reversed(said):
        if message.tool_uses or message.tool_results:
            break
        idle += message.role == "assistant"
    return idle


def _usable(reply: ModelReply) -> tuple[Block, ...]:
    """The reply's blocks, without a tool call that was cut off by a maximum."""
    blocks = reply.blocks
    if reply.stop in CUT and blocks and isinstance(blocks[-1], ToolUse):
        blocks = (
            *blocks[:-1],
            Text(text="(A tool call was cut here: the reply was too long. Hand in less at a time.)"),
        )
    return blocks or (Text(text="(an empty reply)"),)
