"""Turns an agent's open calls of `delegate` into orders for subagents, and finds them again as their assignments."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError

from waystation.agents.tools.delegate import TITLE_CHARACTERS, Delegate, DelegateInput
from waystation.domain.amount import Limit, limit_text
from waystation.domain.delegation import (
    DelegationTerms,
    SubagentOrder,
    may_delegate,
    number_of,
    subagent_id,
)
from waystation.domain.errors import StoreError
from waystation.domain.leg import LegRequest
from waystation.domain.messages import ToolResult, ToolUse, refused_call
from waystation.domain.privacy import Place
from waystation.domain.redaction import cut
from waystation.domain.task import LOWEST_BUDGET, LOWEST_BUDGET_MICRO_USD
from waystation.domain.transcript import Transcript
from waystation.ports import Redactor


@dataclass(frozen=True)
class Asked:
    """What an agent's last reply asks of others."""

    orders: tuple[SubagentOrder, ...] = ()
    refused: Mapping[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    """By id of the call."""


def assignment(of_parent: Transcript, step_id: str) -> DelegateInput:
    """What a subagent was asked for: the arguments of its parent's call. Raises StoreError if there is none."""
    calls = [call for call, _ in _numbered(of_parent)]
    number = number_of(step_id)
    if number > len(calls):
        raise StoreError(f"no call of {Delegate.name} in the transcript asked for {step_id}")
    return DelegateInput.model_validate(calls[number - 1].input)


async def asked_by(
    request: LegRequest, transcript: Transcript, left: Limit, redactor: Redactor, barred: Collection[str]
) -> Asked:
    """The subagents that the last reply asks for and that have not come back, as many as may work at once.

    Those over that wait for the next time: what the first ones leave of the budget is theirs. `barred`: ids of calls
    that may not be carried out. Raises RedactionFailed.
    """
    terms, run = request.terms.delegation, request.run
    if terms is None or not may_delegate(run.step_id, terms):
        return Asked()
    back = {handed.call_id for handed in request.handed_back}
    open_ids = {call.id for call in transcript.messages[-1].tool_uses} - back - set(barred)
    batch = _Batch(terms, left)
    for call, number in _numbered(transcript):
        if call.id in open_ids:
            batch.take(call, subagent_id(run.step_id, number))
    titles = await redactor.redact([order.title for order in batch.orders], Place.TITLE, run.tenant)
    orders = zip(batch.orders, titles, strict=True)
    return Asked(
        orders=tuple(order.model_copy(update={"title": cut(title.text, TITLE_CHARACTERS)}) for order, title in orders),
        refused=batch.refused,
    )


class _Batch:
    """The orders of one time."""

    def __init__(self, terms: DelegationTerms, left: Limit) -> None:
        self._terms, self._left, self._percent = terms, left, 0
        self.orders: list[SubagentOrder] = []
        self.refused: dict[str, ToolResult] = {}

    def take(self, call: ToolUse, step_id: str) -> None:
        """Order it, refuse it, or leave it for the next time."""
        try:
            wanted = DelegateInput.model_validate(call.input)
        except ValidationError:
            return  # the tool itself says what is wrong with the arguments
        percent, most = wanted.budget_percent, self._terms.share
        limit = self._left.percent(percent)
        if percent > most:
            self._refuse(call, f"Subagents may have at most {most} percent of what you have left together.")
        elif not _enough(limit):
            self._refuse(call, f"{limit_text(limit)} are too little for a subagent. Do this part yourself.")
        elif len(self.orders) < self._terms.width and self._percent + percent <= most:
            self._percent += percent
            self.orders.append(
                SubagentOrder(id=step_id, call_id=call.id, role=wanted.role, title=wanted.title, limit=limit)
            )

    def _refuse(self, call: ToolUse, reason: str) -> None:
        self.refused[call.id] = refused_call(call, reason)


def _numbered(transcript: Transcript) -> Iterable[tuple[ToolUse, int]]:
    """All calls of the whole log, also those that were taken back: a number is never used again."""
    calls = (call for message in transcript.messages for call in message.tool_uses if call.name == Delegate.name)
    return ((call, number) for number, call in enumerate(calls, 1))


def _enough(limit: Limit) -> bool:
    return (limit.tokens is None or limit.tokens >= LOWEST_BUDGET) and (
        limit.micro_usd is None or limit.micro_usd >= LOWEST_BUDGET_MICRO_USD
    )
