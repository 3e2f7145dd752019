"""Asks a model for one tool call, in an agent run of its own, whose answer may be repaired once."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from pydantic import JsonValue, ValidationError

from waystation.agents.call_ledger import CallKey, CallNotAffordable, MeteredModel, PreparedCall
from waystation.agents.ports import RunRepository
from waystation.agents.redaction import redact_reply
from waystation.agents.stop_reasons import build_kept_blocks, get_next_step, was_cut
from waystation.context.history import build_model_view
from waystation.context.transcript import (
    Block,
    Fence,
    Message,
    ToolUse,
    Transcript,
    build_rejected_call_result,
    build_user_message,
)
from waystation.kernel.amount import Limit
from waystation.kernel.errors import BrokenEndpointError, ModelUnavailable, SpendingLimitReached
from waystation.kernel.refs import RunRef
from waystation.models.ports import CallKind, ModelRequest, ModelResponse, ToolSpec
from waystation.models.profiles import Effort, Price, get_model_profile
from waystation.privacy.policy import TextDestination
from waystation.privacy.ports import Redactor

MAX_REPLY_TOKENS, MIN_REPLY_TOKENS = 4_000, 512
"""Maximum and minimum tokens of an answer without thinking."""
MAX_THINKING_REPLY_TOKENS, MIN_THINKING_REPLY_TOKENS = 32_000, 2_048
"""The same for a model that always thinks, and so cannot be forced to call a tool. Its thinking counts, too: a lower
maximum would cut the answers to large requests, such as reviews of long reports.
"""
MAX_ANSWER_ATTEMPTS = 2

_T = TypeVar("_T")


class UnusableAnswerError(Exception):
    """An answer that cannot be used, with all reasons in words that a model can act on."""

    def __init__(self, *errors: str) -> None:
        super().__init__("; ".join(errors))
        self.errors = errors


class NoAnswerReason(StrEnum):
    """Why there is no answer."""

    TOO_DEAR = "too dear"
    UNUSABLE = "unusable"
    """Even after one repair."""
    NO_REPLY = "no reply"
    """The provider makes no calls because a spending limit is reached, or its endpoint is broken."""


class NoAnswer(NamedTuple):
    """There is no answer."""

    reason: NoAnswerReason
    cause: str = ""
    """Message of the error that prevented it."""

    def format_note(self, notes: Mapping[NoAnswerReason, str]) -> str:
        """Return the note for people."""
        return f"{notes[self.reason]} ({self.cause})" if self.cause else notes[self.reason]


class CallOptions(NamedTuple):
    """Model, limit, prices and effort of a call."""

    model: str
    limit: Limit
    prices: Sequence[Price]
    effort: Effort | None = None
    """None: the provider's default for the model."""


@dataclass(frozen=True)
class StructuredPrompt(Generic[_T]):
    """A prompt that the model must answer by one tool call."""

    run: RunRef
    kind: CallKind
    system: str
    tool: ToolSpec
    build_first_message: Callable[[], Awaitable[str]]
    """Builds the first message, not redacted yet. Called once per run."""
    destination: TextDestination
    parse: Callable[[Mapping[str, JsonValue]], _T]
    """Reads the answer from the call's arguments. Raises ValidationError, UnusableAnswerError."""
    rejection_heading: str
    """Heading above the reasons why an answer cannot be used."""
    answer_tokens: int | None = None
    """Tokens of the longest answer, for which the budget must have room. None: the usual maximum and minimum."""
    keep_whole_part: Callable[[Mapping[str, JsonValue]], dict[str, JsonValue] | None] | None = None
    """Returns what is whole of a call that was cut at the maximum length, or None. Without it, such a call is lost."""


class _ReplyBounds(NamedTuple):
    """Tokens of a reply, including its thinking."""

    maximum: int
    minimum: int


def _compute_reply_bounds(means: CallOptions, answer_tokens: int | None = None) -> _ReplyBounds:
    """Return how long a reply may and must be.

    A forced call excludes thinking, so such models need less. A model that nobody knows is not known to think.
    """
    facts = get_model_profile(means.model)
    if facts.forces_tools or not facts.is_known:
        if answer_tokens is None:
            return _ReplyBounds(MAX_REPLY_TOKENS, MIN_REPLY_TOKENS)
        most = min(answer_tokens, facts.max_output) if facts.is_known else answer_tokens
        return _ReplyBounds(most, most)
    most = min(MAX_THINKING_REPLY_TOKENS, facts.max_output)
    return _ReplyBounds(most, min(MIN_THINKING_REPLY_TOKENS + (answer_tokens or 0), most))


@dataclass(frozen=True)
class StructuredCaller:
    """Asks models for structured answers. The transcript holds every answer, so that a retry asks nothing twice."""

    model: MeteredModel
    store: RunRepository
    redactor: Redactor

    async def request_answer(self, matter: StructuredPrompt[_T], means: CallOptions) -> _T | NoAnswer:
        """Return the model's answer. Raises ModelError, StoreError, RedactionFailed."""
        fence, _ = await self.store.take_over(matter.run)
        transcript = await self._begun(matter, fence)
        while True:
            last = transcript.messages[-1]
            if last.role == "assistant":
                try:
                    return _read(matter, last)
                except UnusableAnswerError as unusable:
                    if transcript.turn_count >= MAX_ANSWER_ATTEMPTS:
                        return NoAnswer(NoAnswerReason.UNUSABLE)
                    complaint = _complaint(matter.rejection_heading, last, unusable.errors, transcript.next_message_id)
                    transcript = await self._appended(transcript, fence, complaint)
            else:
                asked = await self._asked(matter, transcript, fence, means)
                if isinstance(asked, NoAnswer):
                    return asked
                transcript = asked

    async def is_affordable(self, matter: StructuredPrompt[_T], means: CallOptions) -> bool:
        """Return whether the budget covers the first call. Raises as `request_answer` does."""
        first = build_user_message("m1", await self.render_first_message(matter))
        left = means.limit.remaining_after((await self.store.get_run_usage(matter.run.run_id)).spent)
        request, least = _build_request(matter, (first,), means)
        return not isinstance(await self.model.prepare_call(request, left, least, means.prices), CallNotAffordable)

    async def render_first_message(self, matter: StructuredPrompt[_T]) -> str:
        """Return the first message as the model gets it. Raises StoreError, RedactionFailed."""
        (redacted,) = await self.redactor.redact(
            [await matter.build_first_message()], matter.destination, matter.run.tenant
        )
        return redacted.text

    async def _begun(self, matter: StructuredPrompt[_T], fence: Fence) -> Transcript:
        transcript = await self.store.load_transcript(matter.run.run_id, matter.run.scope)
        if transcript.messages:
            return transcript
        first = build_user_message(transcript.next_message_id, await self.render_first_message(matter))
        return await self._appended(transcript, fence, first)

    async def _asked(
        self, matter: StructuredPrompt[_T], transcript: Transcript, fence: Fence, means: CallOptions
    ) -> Transcript | NoAnswer:
        """Make one model call.

        Returns:
            NoAnswer if its worst case does not fit, or if it brings no reply and another attempt must wait for a person
            or does not fit.

        Raises:
            ModelError: The call failed and may be retried.
        """
        request, least = _build_request(matter, build_model_view(transcript), means)
        call = await self._fitted(request, fence, means, least)
        if isinstance(call, CallNotAffordable):
            return NoAnswer(NoAnswerReason.TOO_DEAR)
        try:
            reply, charge = await self.model.run_call(fence, CallKey(matter.kind, str(transcript.turn_count + 1)), call)
        except (SpendingLimitReached, BrokenEndpointError) as stopped:
            return NoAnswer(NoAnswerReason.NO_REPLY, str(stopped))
        except ModelUnavailable as failed:
            if failed.possibly_billed and isinstance(
                await self._fitted(request, fence, means, least), CallNotAffordable
            ):
                return NoAnswer(NoAnswerReason.NO_REPLY, str(failed))
            raise
        blocks, _ = await redact_reply(_build_kept_blocks(matter, reply), self.redactor, matter.run.tenant)
        message = transcript.build_reply(blocks, reply.called_model)
        await self.store.commit_reply(fence, transcript.version, message, charge)
        return transcript.with_message(message)

    async def _fitted(
        self, request: ModelRequest, fence: Fence, means: CallOptions, least: int
    ) -> PreparedCall | CallNotAffordable:
        left = means.limit.remaining_after((await self.store.get_run_usage(fence.run_id)).spent)
        return await self.model.prepare_call(request, left, least, means.prices)

    async def _appended(self, transcript: Transcript, fence: Fence, message: Message) -> Transcript:
        await self.store.commit_message(fence, transcript.version, message)
        return transcript.with_message(message)


def _build_request(
    matter: StructuredPrompt[_T], messages: tuple[Message, ...], means: CallOptions
) -> tuple[ModelRequest, int]:
    """Return the request, and the minimum tokens of its reply."""
    bounds = _compute_reply_bounds(means, matter.answer_tokens)
    request = ModelRequest(
        model=means.model,
        system=matter.system,
        messages=messages,
        tools=(matter.tool,),
        max_output=bounds.maximum,
        effort=means.effort,
        require_tool=matter.tool.name,
        one_shot=True,
    )
    return request, bounds.minimum


def _build_kept_blocks(matter: StructuredPrompt[_T], reply: ModelResponse) -> tuple[Block, ...]:
    """Return what of a reply stays in the transcript, with the whole part of a call that was cut."""
    last = reply.blocks[-1] if reply.blocks else None
    if matter.keep_whole_part is not None and isinstance(last, ToolUse) and get_next_step(reply) == "shorten":
        whole = matter.keep_whole_part(last.input) if last.name == matter.tool.name else None
        if whole is not None:
            return *reply.blocks[:-1], last.replace(input=whole)
    return build_kept_blocks(reply)


def _read(matter: StructuredPrompt[_T], message: Message) -> _T:
    calls = [call for call in message.tool_uses if call.name == matter.tool.name]
    if not calls and was_cut(message):
        raise UnusableAnswerError(
            f"the reply was cut at its maximum length: call {matter.tool.name} now, with what you have decided so far"
        )
    if not calls:
        raise UnusableAnswerError(f"answer with one call of {matter.tool.name}")
    try:
        return matter.parse(calls[0].input)
    except ValidationError as error:
        raise UnusableAnswerError(
            *(": ".join(filter(None, (".".join(map(str, fault["loc"])), fault["msg"]))) for fault in error.errors())
        ) from None


def _complaint(refusal: str, message: Message, errors: Sequence[str], message_id: str) -> Message:
    text = f"{refusal}:\n" + "\n".join(f"- {error}" for error in errors) + "\nSubmit a corrected one."
    results = tuple(build_rejected_call_result(call, text) for call in message.tool_uses)
    if results:
        return Message(id=message_id, role="user", blocks=results)
    return build_user_message(message_id, text)
