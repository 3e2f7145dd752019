"""Asks a model for the summary of a redacted middle, redacts it again, and has it checked by code."""

from collections.abc import Sequence
from dataclasses import dataclass

from waystation.agents.metered import CallKey, MeteredModel, TooDear
from waystation.agents.roles import prompt
from waystation.domain.compaction.constraints import user_constraints
from waystation.domain.compaction.gate import Accepted, Rejected, check_summary
from waystation.domain.compaction.ladder import Summarise
from waystation.domain.compaction.request import CompactionRequest
from waystation.domain.compaction.summary import is_summary
from waystation.domain.errors import ModelRejected
from waystation.domain.messages import Message, Text, user_text
from waystation.domain.passages import render, tool_names
from waystation.domain.redaction import Scope
from waystation.domain.turn import Charge, Fence
from waystation.domain.value import Value
from waystation.ports import ModelRequest, Redactor, StopReason

HEADROOM = 2
"""A reply may have this many times the tokens that were asked for: models do not count exactly."""
REPLY_FLOOR = 128


class Middle(Value):
    """The messages that are to be hidden, with everything private replaced."""

    messages: tuple[Message, ...]
    """As the view has them. Not to be shown to summariser or memory."""
    texts: dict[str, str]
    """Redacted rendering by message id."""
    constraints: tuple[str, ...]
    """What the user demanded in them, redacted."""

    @property
    def text(self) -> str:
        """All of it, as the summariser reads it."""
        return "\n".join(self.texts[message.id] for message in self.messages if self.texts[message.id])

    @classmethod
    async def redacted(
        cls, messages: Sequence[Message], shown: Sequence[Message], redactor: Redactor, tenant: str
    ) -> tuple["Middle", int]:
        """The middle, and how many spans were replaced. Raises RedactionFailed: then nothing goes anywhere."""
        names = tool_names(shown)
        spoken = [message for message in messages if message.role == "user" and message.text]
        rendered = [message.text if is_summary(message) else render(message, names) for message in messages]
        redacted = await redactor.redact([*rendered, *(message.text for message in spoken)], Scope.MEMORY, tenant)
        texts = redacted[: len(messages)]
        said = tuple(
            message.model_copy(update={"blocks": (Text(text=item.text),)})
            for message, item in zip(spoken, redacted[len(messages) :], strict=True)
        )
        middle = cls(
            messages=tuple(messages),
            texts={message.id: item.text for message, item in zip(messages, texts, strict=True)},
            constraints=user_constraints(said),
        )
        return middle, sum(len(item.spans) for item in texts)


class SummaryResult(Value):
    """What came of asking. No verdict: no summary was to be had."""

    verdict: Accepted | Rejected | None
    charge: Charge | None
    redactions: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Summariser:
    """The model that condenses, charged to the agent run that needs it."""

    model: MeteredModel
    redactor: Redactor

    async def summarise(
        self, request: CompactionRequest, fence: Fence, rung: Summarise, middle: Middle
    ) -> SummaryResult:
        """Ask once. Raises ModelUnavailable, RedactionFailed, FenceLost."""
        low, high = rung.summary_tokens
        ask = ModelRequest(
            model=request.terms.condense_model,
            system=prompt("condense"),
            messages=(user_text("m1", _question(middle.text, low, high)),),
            max_output=high * HEADROOM,
        )
        left = request.limit.after((await self.model.transcripts.totals(request.run.run_id)).spent)
        call = await self.model.fitted(ask, left, REPLY_FLOOR, request.terms.prices)
        if isinstance(call, TooDear):
            note = "The budget did not allow a summary; the oldest part was hidden without one."
            return SummaryResult(verdict=None, charge=None, notes=(note,))
        key = CallKey("summary", rung.compaction_id)
        try:
            reply, charge = await self.model.ask(fence, key, call)
        except ModelRejected as error:
            return SummaryResult(verdict=None, charge=None, notes=(f"The summariser failed: {error}",))
        said = () if reply.stop is StopReason.REFUSAL else reply.blocks
        text = "\n".join(block.text for block in said if isinstance(block, Text))
        (redacted,) = await self.redactor.redact([text], Scope.MEMORY, request.run.tenant)
        verdict = check_summary(redacted.text, middle.text, rung.middle_tokens, middle.constraints, high)
        return SummaryResult(verdict=verdict, charge=charge, redactions=len(redacted.spans))


def _question(conversation: str, low: int, high: int) -> str:
    return (
        f"Summarise this conversation in {low} to {high} tokens.\n"
        f"<conversation>\n{conversation}\n</conversation>\n"
        "Give the summary and nothing else."
    )
