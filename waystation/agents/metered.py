"""Calls of a model that leave a trace whatever happens: intent before, charge after, nothing in between forgotten."""

from dataclasses import dataclass
from typing import Literal

from waystation.domain.errors import ModelRejected, ModelUnavailable
from waystation.domain.pricing import cost_micro_usd
from waystation.domain.turn import Charge, Fence, Intent
from waystation.ports import ChatModel, Clock, ModelReply, ModelRequest, TranscriptStore


@dataclass(frozen=True)
class CallKey:
    """Names a call within its agent run, without an attempt number: what has this key is paid once."""

    kind: Literal["turn", "summary", "plan"]
    name: str

    def __str__(self) -> str:
        return f"{self.kind}-{self.name}"


@dataclass(frozen=True)
class MeteredModel:
    """A model whose every call is announced in the store. The caller commits the charge together with its use."""

    model: ChatModel
    transcripts: TranscriptStore
    clock: Clock

    async def ask(
        self, fence: Fence, key: CallKey, request: ModelRequest, worst_case: int
    ) -> tuple[ModelReply, Charge]:
        """Ask once.

        An intent stays behind where the call may have been billed without a reply (crash, cancellation, cut stream);
        where the provider certainly refused, it is taken back. Raises ModelUnavailable, ModelRejected, FenceLost.
        """
        intent = Intent(key=str(key), model=request.model, worst_case=worst_case, at=self.clock())
        await self.transcripts.record_intent(fence, intent)
        try:
            reply = await self.model.complete(request)
        except ModelRejected:
            await self.transcripts.drop_intent(fence, intent.key)
            raise
        except ModelUnavailable as error:
            if not error.possibly_billed:
                await self.transcripts.drop_intent(fence, intent.key)
            raise
        return reply, self._charge(key, request.model, reply)

    def _charge(self, key: CallKey, model: str, reply: ModelReply) -> Charge:
        now = self.clock()
        return Charge(
            key=str(key),
            kind=key.kind,
            model=model,
            usage=reply.usage,
            cost_micro_usd=cost_micro_usd(model, reply.usage, now.date()),
            at=now,
        )
