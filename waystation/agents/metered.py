"""Calls of a model that leave a trace whatever happens: intent before, charge after, nothing in between forgotten.

Redactions are counted here, too, for every redactor alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from waystation.domain.errors import ModelRejected, ModelUnavailable
from waystation.domain.pricing import cost_micro_usd
from waystation.domain.redaction import Redacted, Scope
from waystation.domain.turn import Charge, Fence, Intent
from waystation.ports import CallKind, ChatModel, Clock, Meter, ModelReply, ModelRequest, Redactor, TranscriptStore


@dataclass(frozen=True)
class CallKey:
    """Names a call within its agent run, without an attempt number: what has this key is paid once."""

    kind: CallKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}-{self.name}"


@dataclass(frozen=True)
class MeteredModel:
    """A model whose every call is announced in the store. The caller commits the charge together with its use."""

    model: ChatModel
    transcripts: TranscriptStore
    clock: Clock
    meter: Meter

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
        except ModelRejected as error:
            self.meter.failed(key.kind, request.model, error)
            await self.transcripts.drop_intent(fence, intent.key)
            raise
        except ModelUnavailable as error:
            self.meter.failed(key.kind, request.model, error)
            if not error.possibly_billed:
                await self.transcripts.drop_intent(fence, intent.key)
            raise
        charge = self._charge(key, request.model, reply)
        # Here and not where the charge is committed: this is what the provider bills, and no attempt passes it twice.
        self.meter.answered(charge)
        return reply, charge

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


@dataclass(frozen=True)
class MeteredRedactor:
    """A redactor whose replacements are counted, again where a text is redacted again."""

    redactor: Redactor
    meter: Meter

    async def redact(self, texts: Sequence[str], scope: Scope, tenant: str) -> tuple[Redacted, ...]:
        """See `Redactor`."""
        results = await self.redactor.redact(texts, scope, tenant)
        self.meter.redacted(scope, sum(len(result.spans) for result in results))
        return results
