"""The agent loop: turns of one agent until its leg ends. Two commits a turn, each bound to the attempt's fence: what
the next call sends with the call's intent, then the reply with its charge.

What an agent's model is sent at a turn.

Answers the calls that an agent's last reply asks for.

Which calls of an agent's reply wait for a person, and which are not carried out: before any call of it is.
"""

import asyncio
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

from waystation.agents.action_approvals import (
    MAX_OPEN_QUESTIONS,
    ActionDecision,
    ActionQuestion,
    build_action_question,
    compute_call_digest,
)
from waystation.agents.agent_status import AgentStatus
from waystation.agents.call_ledger import CallKey, CallNotAffordable, MeteredModel, PreparedCall
from waystation.agents.deliverables import count_work
from waystation.agents.leg import (
    AgentFinished,
    ApprovalRequired,
    BudgetExhausted,
    ContextFull,
    Interrupted,
    LegOutcome,
    LegRequest,
    OperatorActionRequired,
    SubagentsRequested,
    TurnLimitReached,
)
from waystation.agents.leg_attempt import LegAttempt, receive_news
from waystation.agents.partial_reply_publisher import PartialReplyPublisher
from waystation.agents.person_questions import NO_ONE_ANSWERS, extract_person_question
from waystation.agents.prompt_sections import (
    StatusMessage,
    extract_assignment,
    find_recent_failures,
    round_limit_down,
    round_up_to_step,
    with_status,
)
from waystation.agents.redaction import build_task_redactor, redact_reply
from waystation.agents.roles import AgentDeps
from waystation.agents.stop_reasons import (
    MAX_REFUSALS,
    build_kept_blocks,
    describe_refusals,
    get_next_step,
    get_refusal_category,
)
from waystation.agents.task_brief import BriefBuilder, PromptSpace
from waystation.agents.tools.delegate import extract_subagent_orders
from waystation.budgets.budget import CallCostBound, compute_delay_seconds
from waystation.context.tokens import compute_correction_factor, estimate_request_tokens
from waystation.context.transcript import (
    Block,
    Charge,
    Fence,
    Message,
    RedactedThinking,
    Thinking,
    ToolResult,
    ToolUse,
    build_platform_message,
    build_rejected_call_result,
    build_status_message,
)
from waystation.kernel.amount import Amount
from waystation.kernel.clock import Clock
from waystation.kernel.errors import (
    BrokenEndpointError,
    ContentFilterError,
    ModelError,
    ModelUnavailable,
    RedactionBlockedError,
    RedactionFailed,
    SpendingLimitReached,
)
from waystation.kernel.refs import RunRef
from waystation.models.ports import ModelRequest, ModelResponse, StopReason
from waystation.models.profiles import find_worst_rates
from waystation.privacy.policy import TextDestination, build_redaction_notes


async def prepare_next_call(
    attempt: LegAttempt, shown: tuple[Message, ...], model: MeteredModel
) -> PreparedCall | CallNotAffordable:
    """The next call, with the view of the conversation, and behind it a status where there is something new to say: the
    caller commits that with the call's intent. Raises as `MeteredModel.fitted` does.

    The caller commits the status before the call. If the call does not fit the budget, the status is shortened first.
    What is then missing depends neither on what is left nor on other agents' progress: an agent that is granted just
    that goes on, with a status that says so. Raises as `MeteredModel.prepare_call` does.
    """
    terms, reminder, message_id = attempt.request.config, _reminder(attempt, model), attempt.transcript.next_status_id
    counted = attempt.get_counted_prompt(shown)

    fallback = model.find_fallback(terms.model, attempt.remaining_limit, terms.prices) if attempt.refusals else None

    async def fitted(messages: tuple[Message, ...]) -> PreparedCall | CallNotAffordable:
        request = _request(attempt, messages)
        if fallback is not None:
            request = request.convert_for_model(fallback).replace(model=fallback)
        return await model.prepare_call(request, attempt.remaining_limit, terms.min_reply_tokens, terms.prices, counted)

    call = await fitted(with_status(shown, message_id, reminder.text(terms.window)))
    if not isinstance(call, CallNotAffordable):
        return call
    call = await fitted((*shown, build_status_message(message_id, reminder.with_widest_amounts.shortest_text)))
    return (
        call
        if isinstance(call, CallNotAffordable)
        else call.with_messages(with_status(shown, message_id, reminder.shortest_text))
    )


def _request(attempt: LegAttempt, messages: tuple[Message, ...]) -> ModelRequest:
    terms = attempt.request.config
    return ModelRequest(
        model=terms.model,
        system=attempt.system_prompt,
        messages=messages,
        tools=attempt.toolbox.visible_specs,
        max_output=terms.max_output,
        effort=terms.effort,
        thinking=terms.thinking,
        previous_reply=attempt.previous_reply,
    )


def _reminder(attempt: LegAttempt, model: MeteredModel) -> StatusMessage:
    request = attempt.request
    return StatusMessage(
        step_id=request.run.step_id,
        remaining=round_limit_down(attempt.remaining_limit.increase_by(request.available_from_task)),
        final=request.config.hard_budget,
        submit_below=_least_for_a_call(attempt, model.clock().date()),
        teammates=request.teammates,
        failures=find_recent_failures(attempt.effective_messages),
    )


def _least_for_a_call(attempt: LegAttempt, day: date) -> Amount:
    """Return the maximum cost of the next call with the shortest reply, rounded up, in the units of the limit.

    It follows the last counted prompt, so between compactions it only grows, and only in steps.
    """
    terms, prompt = attempt.request.config, attempt.totals.last_prompt_tokens
    if not prompt:
        return Amount()
    wide = prompt * 5 // 4
    bound = CallCostBound(input_tokens=wide, rates=find_worst_rates(terms.model, wide, day, terms.prices))
    least = attempt.remaining_limit.restrict_to_limited_units(bound.compute_worst_case(terms.min_reply_tokens))
    return Amount(tokens=round_up_to_step(least.tokens), micro_usd=round_up_to_step(least.micro_usd))


CONTINUE_WITHOUT_IT = "Go on without this call, and say in your result what is missing without it."
QUESTION_NOT_REDACTABLE = (
    f"A person has to approve this call, but the question to the person could not be redacted, so the call was not "
    f"carried out. {CONTINUE_WITHOUT_IT}"
)
NO_APPROVER = (
    f"A person has to approve this call, but this task asks no one, so the call was not carried out. "
    f"{CONTINUE_WITHOUT_IT}"
)
EXPIRED = (
    f"A person was asked about this call, but no one answered in time, so the call was not carried out. "
    f"{CONTINUE_WITHOUT_IT}"
)
DENIED = "A person refused this call, so it was not carried out."


@dataclass(frozen=True)
class CallPermissions:
    """Which calls of a reply wait for a person, and the results of rejected calls."""

    questions: tuple[ActionQuestion, ...] = ()
    rejected: Mapping[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    """By ID of the call."""


async def resolve_call_permissions(attempt: LegAttempt, reply: Message) -> CallPermissions:
    """Resolve which calls of an unanswered reply wait for approval or are rejected, by the decisions so far.

    Raises RedactionFailed.
    """
    decisions = {decision.digest: decision for decision in attempt.request.decisions}
    refused: dict[str, ToolResult] = {}
    asking: list[tuple[ToolUse, str]] = []
    for call in reply.tool_uses:
        decision = decisions.get(compute_call_digest(reply.id, call, attempt.toolbox.get_definition_digest(call)))
        ctx = attempt.build_tool_context(call)
        if decision is None and (question := attempt.toolbox.build_approval_question(call, ctx)) is not None:
            asking.append((call, question))
        elif decision is not None and not decision.allowed:
            refused[call.id] = build_rejected_call_result(call, await _words(attempt, decision))
    if attempt.request.config.hard_budget:
        refused |= {call.id: build_rejected_call_result(call, NO_APPROVER) for call, _ in asking}
        attempt.notes.extend(
            f"The tool {call.name} was not called: the call needs approval, and a task in mode soft or hard asks no one"
            for call, _ in asking
        )
        return CallPermissions(rejected=refused)
    # A call that waits for a later question may not run: questions are built until there is one, or none is left.
    questions: list[ActionQuestion] = []
    while asking and not questions:
        batch, asking = asking[:MAX_OPEN_QUESTIONS], asking[MAX_OPEN_QUESTIONS:]
        for call, question in await _questions(attempt, reply.id, batch):
            if question is None:
                refused[call.id] = build_rejected_call_result(call, QUESTION_NOT_REDACTABLE)
            else:
                questions.append(question)
    return CallPermissions(tuple(questions), refused)


async def _questions(
    attempt: LegAttempt, message_id: str, asking: Sequence[tuple[ToolUse, str]]
) -> list[tuple[ToolUse, ActionQuestion | None]]:
    """Return each call's question, or None if it could not be redacted: no one can approve what they cannot read."""
    words = [question for _, question in asking]
    redacted = await attempt.deps.redactor.redact(words, TextDestination.QUESTION, attempt.request.run.tenant)
    return [
        (
            call,
            None
            if shown.redaction_failed
            else build_action_question(message_id, call, shown, attempt.toolbox.get_definition_digest(call)),
        )
        for (call, _), shown in zip(asking, redacted, strict=True)
    ]


async def _words(attempt: LegAttempt, decision: ActionDecision) -> str:
    if decision.expired:
        return EXPIRED
    if not decision.note:
        return f"{DENIED} {CONTINUE_WITHOUT_IT}"
    (note,) = await attempt.deps.redactor.redact(
        [decision.note], TextDestination.TOOL_RESULT, attempt.request.run.tenant
    )
    return f"{DENIED} The person says: {note.text}\n{CONTINUE_WITHOUT_IT}"


async def run_open_tool_calls(attempt: LegAttempt, calling: Callable[[str], None]) -> LegOutcome | None:
    """Say the results of the last reply's calls, or a word to go on. None: the leg goes on. `calling` is told the name
    of each tool before it is called.

    People decide first, then subagents work: all results of a reply are one message.

    Args:
        attempt: The attempt at the leg.
        calling: Receives the name of each tool before it is called.

    Returns:
        The outcome if the leg ends here, else None.
    """
    last = attempt.effective_messages[-1]
    if last.role == "user" or last.refusal:
        return None
    if not last.tool_uses:
        attempt.add(build_platform_message(attempt.transcript.next_message_id, _answer_idle_reply(attempt, last)))
        return None
    permitted = await resolve_call_permissions(attempt, last)
    if permitted.questions:
        return ApprovalRequired(state=attempt.leg_state, questions=permitted.questions)
    barred = {call.id for call in last.tool_uses if attempt.toolbox.find_refusal_reason(call) is not None}
    asked = await extract_subagent_orders(
        attempt.request,
        attempt.transcript,
        attempt.remaining_limit,
        build_task_redactor(attempt.deps.redactor, attempt.documents),
        barred,
    )
    if asked.orders:
        return SubagentsRequested(state=attempt.leg_state, orders=asked.orders)
    refused = {**asked.rejected, **permitted.rejected}
    results = [refused.get(call.id) or await _answer(attempt, call, calling) for call in last.tool_uses]
    attempt.add(Message(id=attempt.transcript.next_message_id, role="user", blocks=tuple(results)))
    if not all(call.id in refused or attempt.toolbox.is_repeatable(call) for call in last.tool_uses):
        # Such a call is not made again after a crash, and it may have cost something: a search is charged to the run.
        await attempt.commit_messages()
        await attempt.reload_usage()
    return None


def _answer_idle_reply(attempt: LegAttempt, reply: Message) -> str:
    """Return the answer to a reply without a tool call."""
    submit = f"When you are done, submit with {' or '.join(sorted(attempt.toolbox.ending_tool_names))}."
    if extract_person_question(reply, extract_assignment(attempt.transcript)):
        return f"{NO_ONE_ANSWERS} {submit}"
    return f"Go on. {submit}"


async def _answer(attempt: LegAttempt, call: ToolUse, calling: Callable[[str], None]) -> ToolResult:
    """Run a call; commit what it does to the conversation before its result is committed."""
    site = attempt.build_tool_context(call)
    if call.name in {spec.name for spec in attempt.toolbox.visible_specs}:  # any other name was made up by the model
        calling(call.name)
    result = await attempt.toolbox.run(call, site)
    for record in site.records:
        await attempt.commit_record(record)
    return result


MAX_LEG_DURATION = timedelta(minutes=10)
_TURN_MESSAGES = 2
"""A reply, and the results of its calls."""
MAX_IDLE_REPLIES = 3
"""Maximum number of consecutive replies without a call of a known tool; then what exists is delivered."""


@dataclass(frozen=True)
class AgentLoop:
    """Runs legs."""

    model: MeteredModel
    deps: AgentDeps
    briefs: BriefBuilder
    clock: Clock
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Waits for a number of seconds."""

    async def run(self, request: LegRequest, interrupted: Callable[[], bool]) -> LegOutcome:
        """Run a leg and return its outcome; if one is already committed, return it without any call.

        Everything committed before an error stays.

        Args:
            request: The leg.
            interrupted: Returns true when the worker wants to stop: the leg then yields at the next turn boundary.

        Raises:
            ModelError: A model call failed.
            StoreError: The store does not answer.
            RedactionFailed: A text could not be redacted.
        """
        started = await self.deps.store.start_leg(request.run, request.leg)
        if not isinstance(started, Fence):
            return started
        loaded = await self.deps.store.load_run(request.run)
        toolbox = await self.deps.build_agent_toolbox(request.run, request.config, loaded.transcript, loaded)
        attempt = LegAttempt(
            deps=self.deps,
            request=request,
            fence=started,
            toolbox=toolbox,
            notes=list(toolbox.notes),
            transcript=loaded.transcript,
            totals=loaded.totals,
            token_ratio=request.token_ratio,
            documents=loaded.documents,
        )
        turns = TurnRunner(self, attempt, deadline=self.clock() + MAX_LEG_DURATION)
        outcome = await self._counted(request.run, await turns.run_turns(interrupted))
        await attempt.commit_outcome(outcome)
        return outcome

    async def _counted(self, run: RunRef, outcome: LegOutcome) -> LegOutcome:
        """Add counts of what the agent has submitted: a person who is asked for budget decides by them."""
        counts = count_work(*await self.deps.store.load_work(run.run_id, run.scope))
        return outcome.replace(state=outcome.state.replace(work_counts=counts))


@dataclass
class TurnRunner:
    """The turns of one attempt at a leg."""

    loop: AgentLoop
    attempt: LegAttempt
    deadline: datetime

    async def run_turns(self, interrupted: Callable[[], bool]) -> LegOutcome:
        """Run turns until the leg ends, or until a person has to act on a text that cannot be redacted."""
        try:
            return await self._turns(interrupted)
        except RedactionBlockedError as held:
            return OperatorActionRequired(state=self.attempt.leg_state, reason=str(held))
        except (ModelError, RedactionFailed):
            await self.attempt.commit_messages()
            raise

    async def _turns(self, interrupted: Callable[[], bool]) -> LegOutcome:
        at, turns_at_start = self.attempt, self.attempt.transcript.turn_count
        if not at.effective_messages:
            terms = at.request.config
            room = PromptSpace(window=terms.window, fixed_tokens=at.fixed_tokens, trigger=terms.trigger)
            at.add(await self.loop.briefs.build_message(at.request.run, at.transcript.next_message_id, at.notes, room))
        while True:
            ended = await run_open_tool_calls(at, self._calling) or self._ended()
            if ended is not None:
                return ended
            if interrupted():
                return Interrupted(state=at.leg_state)
            await receive_news(at)
            turns = at.transcript.turn_count - turns_at_start
            if turns >= at.request.config.turn_limit or self.loop.clock() > self.deadline:
                return TurnLimitReached(state=at.leg_state)
            stopped = await self._turn()
            if stopped is not None:
                return stopped

    def _calling(self, tool: str) -> None:
        """Report which tool is being called."""
        agent, turn = self.attempt.request.run.step_id, self.attempt.transcript.turn_count
        self.loop.model.report_status(
            AgentStatus(agent=agent, what="tool", turn=turn, tool=tool, since=self.loop.clock())
        )

    async def _turn(self) -> LegOutcome | None:
        """Make one model call with its two commits. Return None if the leg goes on."""
        at, terms = self.attempt, self.attempt.request.config
        estimate = estimate_request_tokens(at.fixed_tokens, shown := at.model_view, at.token_ratio)
        if estimate >= terms.trigger or terms.has_too_many_messages(len(shown)):
            return ContextFull(state=at.leg_state, request_tokens=estimate)
        if await at.commit_prompt_prefix():
            shown = at.model_view
        call = await prepare_next_call(at, shown, self.loop.model)
        if isinstance(call, CallNotAffordable):
            return BudgetExhausted(state=at.leg_state, needed=call.needed)
        for status in call.request.messages[len(shown) :]:
            at.add(status)
        await self._slow_down()
        key = CallKey("turn", str(at.transcript.turn_count + 1))
        watched = PartialReplyPublisher(at.deps.store, at.deps.redactor, at.request.run, at.fence, self.loop.clock)
        try:
            async with watched.publishing() as observer:
                reply, charge = await self.loop.model.run_call(at.fence, key, call, at.commit_messages, observer)
        except (SpendingLimitReached, BrokenEndpointError) as stopped:
            await at.reload_usage()
            resets_at = stopped.resets_at if isinstance(stopped, SpendingLimitReached) else None
            return OperatorActionRequired(state=at.leg_state, reason=str(stopped), resets_at=resets_at)
        except ModelUnavailable as failed:
            if (spent := await self._spent_by(failed)) is None:
                raise
            return spent
        except ContentFilterError as blocked:
            await at.reload_usage()
            return at.make_partial_outcome(str(blocked))
        at.previous_reply = reply.id
        at.token_ratio = compute_correction_factor(
            estimate_request_tokens(at.fixed_tokens, call.request.messages), reply.usage.reported_prompt_tokens
        )
        if call.request.model != terms.model:
            reply = reply.replace(called_model=reply.called_model or call.request.model)
        return await self._take(reply, charge)

    async def _spent_by(self, failed: ModelUnavailable) -> BudgetExhausted | None:
        """Return the leg's end if a call without a reply may have been billed and no further call fits."""
        if not failed.possibly_billed:
            return None
        await self.attempt.reload_usage()
        again = await prepare_next_call(self.attempt, self.attempt.model_view, self.loop.model)
        if not isinstance(again, CallNotAffordable):
            return None
        return BudgetExhausted(state=self.attempt.leg_state, needed=again.needed, unanswered=str(failed))

    async def _take(self, reply: ModelResponse, charge: Charge) -> LegOutcome | None:
        at, refusal = self.attempt, get_refusal_category(reply)
        blocks, redacted = await redact_reply(build_kept_blocks(reply), at.deps.redactor, at.request.run.tenant)
        at.notes.extend(build_redaction_notes(*redacted))
        message = at.transcript.build_reply(blocks, reply.called_model, refusal)
        await at.commit_reply(_with_valid_thinking(message, reply.blocks), charge)
        if refusal:
            turn = at.transcript.turn_count
            at.notes.append(f"{charge.model} declined to answer in turn {turn} (category: {refusal})")
        elif reply.stop is StopReason.UNKNOWN:
            at.notes.append(f"{charge.model} ended a reply with an unknown stop reason: {charge.stop}")
        if get_next_step(reply) != "compact":
            return None
        estimate = estimate_request_tokens(at.fixed_tokens, at.model_view, at.token_ratio)
        return ContextFull(state=at.leg_state, request_tokens=estimate, window_exceeded=True)

    def _ended(self) -> LegOutcome | None:
        """Return the outcome if the agent has submitted.

        Read from the transcript, so that a retry after a crash sees it too.
        """
        at, said = self.attempt, self.attempt.effective_messages
        if _handed_in(said, at.toolbox.ending_tool_names):
            return AgentFinished(state=at.leg_state)
        if len(at.refusals) >= MAX_REFUSALS:
            return at.make_partial_outcome(describe_refusals(at.refusals, at.request.run.role))
        most = at.request.config.max_messages
        if most is not None and sum(not message.is_status for message in said) + _TURN_MESSAGES > most:
            return at.make_partial_outcome(
                f"its conversation may have at most {most:,} messages, and another turn would exceed this limit"
            )
        if (idle := _idle_replies(said, at.toolbox.specs_by_name)) >= MAX_IDLE_REPLIES:
            return at.make_partial_outcome(f"the model gave {idle} replies in a row that called no available tool")
        return None

    async def _slow_down(self) -> None:
        """Delay calls near the end of a budget (backpressure), so that a person can look before it is spent."""
        request = self.attempt.request
        if request.config.backpressure:
            used = max(request.task_spent_share, request.limit.compute_used_share(self.attempt.totals.spent))
            if (delay := compute_delay_seconds(used)) > 0:
                await self.attempt.commit_messages()
            await self.loop.sleep(delay)


def _handed_in(messages: Sequence[Message], ending: frozenset[str]) -> bool:
    calls = {call.id: call.name for message in messages[-2:] for call in message.tool_uses}
    return any(not result.is_error and calls.get(result.tool_use_id) in ending for result in messages[-1].tool_results)


def _idle_replies(messages: Sequence[Message], known: Container[str]) -> int:
    """Return the number of trailing replies that call no known tool.

    A tool that was called successfully counts as known, even if its server is away now.
    """
    idle, failed = 0, set[str]()
    for message in reversed(messages):
        failed |= {result.tool_use_id for result in message.tool_results if result.is_error}
        if any(call.name in known or call.id not in failed for call in message.tool_uses):
            break
        idle += message.role == "assistant" and not message.refusal
    return idle


def _with_valid_thinking(message: Message, said: Sequence[Block]) -> Message:
    """Drop thinking that follows a changed block of the reply: a redacted secret, or a call under another ID.

    Thinking is signed over what the model said, so the provider would drop it.
    """
    changed = next(
        (place for place, (own, its) in enumerate(zip(message.blocks, said, strict=False)) if own != its), None
    )
    if changed is None:
        return message
    left = tuple(block for block in message.blocks[changed:] if not isinstance(block, Thinking | RedactedThinking))
    return message.replace(blocks=message.blocks[:changed] + left)
