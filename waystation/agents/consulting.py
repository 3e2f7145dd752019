"""Asking a model what one call of a tool answers: an agent run of its own, whose answer it may repair once."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from pydantic import JsonValue, ValidationError

from waystation.agents.metered import CallKey, MeteredModel, TooDear
from waystation.agents.replies import redacted_reply
from waystation.domain.amount import Limit
from waystation.domain.compaction.view import view
from waystation.domain.leg import RunRef
from waystation.domain.messages import Message, refused_call, user_text
from waystation.domain.pricing import Price
from waystation.domain.privacy import Place
from waystation.domain.transcript import Transcript
from waystation.domain.turn import Fence
from waystation.ports import CallKind, ModelRequest, Redactor, ToolSpec, TranscriptStore

MAX_REPLY = 2_000
REPLY_FLOOR = 512
TRIES = 2

T = TypeVar("T")


class Unusable(Exception):
    """An answer that cannot be used: every reason why, in words that a model can act on."""

    def __init__(self, *errors: str) -> None:
        super().__init__("; ".join(errors))
        self.errors = errors


class NoAnswer(StrEnum):
    """Why there is none."""

    TOO_DEAR = "too dear"
    UNUSABLE = "unusable"
    """Also after one repair."""


class Means(NamedTuple):
    """With which model, for how much."""

    model: str
    limit: Limit
    prices: Sequence[Price]


@dataclass(frozen=True)
class Matter(Generic[T]):
    """What a model is asked."""

    run: RunRef
    kind: CallKind
    system: str
    tool: ToolSpec
    opening: Callable[[], Awaitable[str]]
    """The first message, not redacted yet. Written once for a run."""
    place: Place
    read: Callable[[Mapping[str, JsonValue]], T]
    """The answer in a call's arguments. Raises ValidationError, Unusable."""
    refusal: str
    """Over the reasons why an answer cannot be used."""


@dataclass(frozen=True)
class Consultant:
    """Asks. The transcript holds every answer, so that a retry asks nothing twice."""

    model: MeteredModel
    transcripts: TranscriptStore
    redactor: Redactor

    async def answer(self, matter: Matter[T], means: Means) -> T | NoAnswer:
        """The model's answer. Raises ModelError, StoreError, RedactionFailed."""
        await self.transcripts.open_run(matter.run)
        fence = await self.transcripts.take_fence(matter.run.run_id)
        transcript = await self._begun(matter, fence)
        while True:
            last = transcript.messages[-1]
            if last.role == "assistant":
                try:
                    return _read(matter, last)
                except Unusable as unusable:
                    if transcript.turns >= TRIES:
                        return NoAnswer.UNUSABLE
                    complaint = _complaint(matter.refusal, last, unusable.errors, transcript.next_id)
                    transcript = await self._appended(transcript, fence, complaint)
            else:
                asked = await self._asked(matter, transcript, fence, means)
                if asked is None:
                    return NoAnswer.TOO_DEAR
                transcript = asked

    async def _begun(self, matter: Matter[T], fence: Fence) -> Transcript:
        transcript = await self.transcripts.load(matter.run.run_id, matter.run.reader)
        if transcript.messages:
            return transcript
        (redacted,) = await self.redactor.redact([await matter.opening()], matter.place, matter.run.tenant)
        return await self._appended(transcript, fence, user_text(transcript.next_id, redacted.text))

    async def _asked(self, matter: Matter[T], transcript: Transcript, fence: Fence, means: Means) -> Transcript | None:
        """One call of the model; None where its worst case does not fit."""
        request = ModelRequest(
            model=means.model,
            system=matter.system,
            messages=view(transcript),
            tools=(matter.tool,),
            max_output=MAX_REPLY,
            require_tool=matter.tool.name,
        )
        left = means.limit.after((await self.transcripts.totals(transcript.run_id)).spent)
        call = await self.model.fitted(request, left, REPLY_FLOOR, means.prices)
        if isinstance(call, TooDear):
            return None
        reply, charge = await self.model.ask(fence, CallKey(matter.kind, str(transcript.turns + 1)), call)
        blocks, _ = await redacted_reply(reply.blocks, self.redactor, matter.run.tenant)
        message = Message(id=transcript.next_id, role="assistant", blocks=blocks)
        await self.transcripts.commit_reply(fence, transcript.version, message, charge)
        return transcript.with_message(message)

    async def _appended(self, transcript: Transcript, fence: Fence, message: Message) -> Transcript:
        await self.transcripts.commit_message(fence, transcript.version, message)
        return transcript.with_message(message)


def _read(matter: Matter[T], message: Message) -> T:
    calls = [call for call in message.tool_uses if call.name == matter.tool.name]
    if not calls:
        raise Unusable(f"answer with one call of {matter.tool.name}")
    try:
        return matter.read(calls[0].input)
    except ValidationError as error:
        raise Unusable(*(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())) from None


def _complaint(refusal: str, message: Message, errors: Sequence[str], message_id: str) -> Message:
    text = f"{refusal}:\n" + "\n".join(f"- {error}" for error in errors) + "\nHand in a corrected one."
    results = tuple(refused_call(call, text) for call in message.tool_uses)
    if results:
        return Message(id=message_id, role="user", blocks=results)
    return user_text(message_id, text)
