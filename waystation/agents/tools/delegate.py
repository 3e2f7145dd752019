"""The tool that delegates work to a subagent, and the orders and assignments derived from its calls."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import Field, ValidationError

from waystation.agents.delegation import (
    DelegationConfig,
    SubagentOrder,
    SubagentResult,
    can_delegate,
    make_subagent_id,
    parse_subagent_number,
)
from waystation.agents.leg import LegRequest
from waystation.agents.ports import WorkRepository
from waystation.agents.tool_visibility import FIRST, SOON
from waystation.agents.tools.submissions import AgentResultSummary, load_agent_result
from waystation.agents.tools.tool import ToolCallRejectedError, ToolContext, ToolInput, TypedTool
from waystation.budgets.budget import MIN_BUDGET_MICRO_USD, MIN_BUDGET_TOKENS
from waystation.context.transcript import ToolResult, ToolUse, Transcript, build_rejected_call_result
from waystation.documents.citations import parse_citations
from waystation.kernel.amount import Limit, format_limit
from waystation.kernel.errors import StoreError
from waystation.kernel.roles import Role
from waystation.kernel.text import format_count
from waystation.privacy.policy import TextDestination, truncate_title
from waystation.privacy.ports import Redactor
from waystation.security.untrusted import wrap_untrusted

_TITLE_CHARACTERS = 60
_SOURCES = 20


class DelegateInput(ToolInput):
    """Assignment of one subagent."""

    role: Role = Field(description="Nearly always research.")
    title: str = Field(min_length=1, max_length=_TITLE_CHARACTERS, description="A few words, for people.")
    goal: str = Field(
        min_length=1,
        max_length=4_000,
        description="What to find out, where to begin, what other agents do, and when the work is done.",
    )
    context: str = Field(
        default="",
        max_length=8_000,
        description="What else the subagent must know: it sees the task and the documents, not your conversation.",
    )
    budget_percent: int = Field(
        default=20, ge=1, le=100, description="Share of your remaining budget; the unused rest returns."
    )


class DelegateTool(TypedTool[DelegateInput]):
    """Delegates to a subagent. A call ends the leg; the next leg finds the subagent's result."""

    name = "delegate"
    description = (
        "Gives a part of your work to a subagent with its own context. Use it only if your step needs more reading "
        "than about 100 pages and falls into independent parts; several calls in one reply run in parallel. Returns "
        "what the subagent found, with sources. Not for what you can read yourself, or for what other steps do."
    )
    permission = "delegate"
    urgency = {"executing": FIRST, "reflecting": SOON}
    input_model = DelegateInput

    def __init__(self, store: WorkRepository) -> None:
        self._store = store

    async def run(self, arguments: DelegateInput, ctx: ToolContext) -> str:
        """Return the subagent's result, cut to half a page; `expand` shows all of it."""
        back = next((back for back in ctx.subagent_results if back.call_id == ctx.call_id), None)
        if back is None:
            raise ToolCallRejectedError("This subagent was not started. Do this part yourself.")
        handed_in = await load_agent_result(self._store, ctx.run.scope, back.id)
        return render_subagent_result(back, arguments, handed_in, ctx.page_characters // 2)


def render_subagent_result(
    back: SubagentResult, asked: DelegateInput, handed_in: AgentResultSummary, characters: int
) -> str:
    """Render a subagent's result in its tag: open questions first, as many lines as fit."""
    state = "partial" if back.partial else "done"
    found = handed_in.claims
    names = dict.fromkeys(citation.document for line in found for citation in parse_citations(line))
    head = [
        *([f"It ended early: {back.reason}"] if back.reason else []),
        format_count(len(found), "result") + (f" from {', '.join([*names][:_SOURCES])}" if names else ""),
    ]
    attributes = {"id": back.id, "role": asked.role, "title": asked.title, "state": state}
    framed = len(wrap_untrusted("subagent", *head, **attributes))
    shown, rest = _fitting([*handed_in.open_questions, *found], characters - framed)
    more = [f'{rest} more lines are not shown here: expand with id "{back.id}" shows all of them.'] if rest else []
    return wrap_untrusted("subagent", *head, *shown, *more, **attributes)


def _fitting(lines: Sequence[str], characters: int) -> tuple[list[str], int]:
    """Return as many lines as fit, and the number of the others."""
    shown: list[str] = []
    for line in (" ".join(line.split()) for line in lines):
        characters -= len(line) + 1
        if characters < 0:
            break
        shown.append(line)
    return shown, len(lines) - len(shown)


@dataclass(frozen=True)
class DelegationRequest:
    """Subagents that an agent's last reply requests."""

    orders: tuple[SubagentOrder, ...] = ()
    rejected: Mapping[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    """By ID of the call."""


def parse_assignment(of_parent: Transcript, step_id: str) -> DelegateInput:
    """Return a subagent's assignment: the arguments of its parent's call. Raises StoreError if there is none."""
    calls = [call for call, _ in _numbered(of_parent)]
    number = parse_subagent_number(step_id)
    if number > len(calls):
        raise StoreError(f"no call of the tool {DelegateTool.name} in the transcript asked for the subagent {step_id}")
    return DelegateInput.model_validate(calls[number - 1].input)


async def extract_subagent_orders(
    request: LegRequest, transcript: Transcript, remaining: Limit, redactor: Redactor, barred: Collection[str]
) -> DelegationRequest:
    """Build the orders for the subagents that the last reply requests and that have not ended.

    Only as many as may work at once; the others wait for the next batch and its budget.

    Args:
        request: The leg.
        transcript: The agent's conversation.
        remaining: Its remaining budget.
        redactor: Redactor for titles.
        barred: IDs of calls that may not run.

    Raises:
        RedactionFailed: A title could not be redacted.
    """
    terms, run = request.config.delegation, request.run
    if terms is None or not can_delegate(run.step_id, terms):
        return DelegationRequest()
    back = {handed.call_id for handed in request.subagent_results}
    open_ids = {call.id for call in transcript.messages[-1].tool_uses} - back - set(barred)
    batch = _Batch(terms, remaining)
    for call, number in _numbered(transcript):
        if call.id in open_ids:
            batch.add_call(call, make_subagent_id(run.step_id, number))
    titles = await redactor.redact([order.title for order in batch.orders], TextDestination.TITLE, run.tenant)
    orders = zip(batch.orders, titles, strict=True)
    return DelegationRequest(
        orders=tuple(order.replace(title=truncate_title(title.text, _TITLE_CHARACTERS)) for order, title in orders),
        rejected=batch.refused,
    )


class _Batch:
    """Orders that are placed together."""

    def __init__(self, config: DelegationConfig, remaining: Limit) -> None:
        self._terms, self._left, self._percent = config, remaining, 0
        self.orders: list[SubagentOrder] = []
        self.refused: dict[str, ToolResult] = {}

    def add_call(self, call: ToolUse, step_id: str) -> None:
        """Order the subagent, refuse it, or leave it for the next batch."""
        try:
            wanted = DelegateInput.model_validate(call.input)
        except ValidationError:
            return  # the tool itself reports what is wrong with the arguments
        percent, most = wanted.budget_percent, self._terms.budget_percent
        limit = self._left.compute_percent(percent)
        if percent > most:
            self._refuse(call, f"All subagents together may have at most {most} percent of your remaining budget.")
        elif not _enough(limit):
            self._refuse(call, f"{format_limit(limit)} is too little for a subagent. Do this part yourself.")
        elif len(self.orders) < self._terms.max_concurrent and self._percent + percent <= most:
            self._percent += percent
            self.orders.append(
                SubagentOrder(id=step_id, call_id=call.id, role=wanted.role, title=wanted.title, limit=limit)
            )

    def _refuse(self, call: ToolUse, reason: str) -> None:
        self.refused[call.id] = build_rejected_call_result(call, reason)


def _numbered(transcript: Transcript) -> Iterable[tuple[ToolUse, int]]:
    """Number all calls of the log, including rewound ones: a number is never reused."""
    calls = (call for message in transcript.messages for call in message.tool_uses if call.name == DelegateTool.name)
    return ((call, number) for number, call in enumerate(calls, 1))


def _enough(limit: Limit) -> bool:
    return (limit.tokens is None or limit.tokens >= MIN_BUDGET_TOKENS) and (
        limit.micro_usd is None or limit.micro_usd >= MIN_BUDGET_MICRO_USD
    )
