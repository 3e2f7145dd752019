"""Parses an agent's request: its task brief, the calls so far with their results, and what may be hidden."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import JsonValue

from waystation.kernel.patterns import compile_bounded
from waystation.kernel.value import Value
from waystation.models.anthropic.received_requests import MessagesRequest, TextBlock, ToolResultBlock, ToolUseBlock

FINISH_BELOW_TOKENS = 4_000
"""With fewer tokens of budget left, an agent submits what it has."""
NOTHING_NEW = "Nothing new was kept in this part."
"""Text of a summary that follows another one without a note or section in between."""
STALLED = "Nothing new was kept in the last two parts."
"""Text of the next such summary: the window is too small to continue, so the agent submits."""

_PARTS = ("question", "accept", "step", "context", "documents", "needs")
_TITLE = compile_bounded(r'title="(.*)"')
_NEED = compile_bounded(r"^- step (\S+?)(?: \((.*)\))?:", re.MULTILINE)
_DOCUMENT = compile_bounded(r"^- (.+) \([\d,]+ lines?(?:, dated [^()\n]{1,40})?\)$", re.MULTILINE)
_COUNT = compile_bounded(r"\d{1,9}")
_PART = compile_bounded(r"documents (\d{1,9}) to (\d{1,9}) of the list")
_BUDGET = compile_bounded(r"budget left (\d[\d,]{0,29}+) tokens(?P<asks>[^;\n<]{0,300}asks a person for more)?")


class _Tagged(NamedTuple):
    """A part of a task brief."""

    head: str
    """Text of its opening tag besides the name."""
    body: str


class UpstreamStep(Value):
    """An earlier step on whose findings this agent builds."""

    step: str
    title: str


class TaskBrief(Value):
    """The content of the first message."""

    question: str = ""
    goal: str = ""
    title: str = ""
    accept: str = ""
    documents: tuple[str, ...] = ()
    document_count: int = 0
    needs: tuple[UpstreamStep, ...] = ()
    first_document: int = 1
    last_document: int | None = None
    """A subagent keeps to a range of documents; None: all of them."""


class ToolCallRecord(Value):
    """One tool call with its result."""

    name: str
    input: dict[str, JsonValue]
    result: str
    failed: bool = False

    def text(self, key: str) -> str:
        """Return a text argument; empty if it is not a text."""
        value = self.input.get(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str) -> int:
        """Return a number argument; 0 if it is not a number."""
        value = self.input.get(key)
        return value if isinstance(value, int) else 0


class AgentRequestView(Value):
    """An agent's request, parsed."""

    brief: TaskBrief
    opening: str = ""
    """The whole first message."""
    exchanges: tuple[ToolCallRecord, ...] = ()
    after_gap: int = 0
    """Index of the first exchange after the last place where messages may be hidden."""
    gap: bool = False
    """Whether any messages may be hidden."""
    summaries: str = ""
    """Summaries of hidden messages."""
    remaining_tokens: int | None = None
    """Tokens left before a person is asked; None if the budget is not in tokens."""
    may_request_more: bool = False
    """Whether more is requested when the budget is spent."""
    tools: frozenset[str] = frozenset()
    max_tokens: int

    def calls(self, name: str) -> tuple[ToolCallRecord, ...]:
        """Return the visible calls of a tool, oldest first."""
        return tuple(exchange for exchange in self.exchanges if exchange.name == name)

    @property
    def budget_left(self) -> int | None:
        """Tokens left in total. If more can be requested, a small remainder is no reason to hurry."""
        return None if self.may_request_more else self.remaining_tokens

    @property
    def is_stalled(self) -> bool:
        """Whether the last parts between compactions brought nothing."""
        return STALLED in self.summaries

    @property
    def must_finish(self) -> bool:
        """Whether continuing is pointless: hardly any budget left, or no progress."""
        return self.is_stalled or (self.budget_left is not None and self.budget_left < FINISH_BELOW_TOKENS)


def parse_task_brief(text: str) -> TaskBrief:
    """Parse a task brief; absent parts stay empty."""
    found = {name: part for name in _PARTS if (part := _tagged(text, name))}
    body = {name: part.body.strip() for name, part in found.items()}
    title = _TITLE.search(found["step"].head) if "step" in found else None
    count = _COUNT.search(found["documents"].head) if "documents" in found else None
    return TaskBrief(
        question=body.get("question", ""),
        goal=body.get("step", ""),
        title=title.group(1) if title else "",
        accept=body.get("accept", ""),
        documents=tuple(_DOCUMENT.findall(body.get("documents", ""))),
        document_count=int(count.group()) if count else 0,
        **_part(body.get("context", "")),
        needs=tuple(UpstreamStep(step=step, title=name or step) for step, name in _NEED.findall(body.get("needs", ""))),
    )


def _tagged(text: str, name: str) -> _Tagged | None:
    """Return the first part of this name: its opening tag ends its line, and the next closing tag ends it."""
    opening = f"<{name}"
    at = text.find(opening)
    while at >= 0 and (line_end := text.find("\n", at)) >= 0:
        if text[line_end - 1] == ">":
            body, closing, _ = text[line_end + 1 :].partition(f"</{name}>")
            return _Tagged(text[at + len(opening) : line_end - 1], body) if closing else None
        # Another tag that opens on this line does not end it either.
        at = text.find(opening, line_end)
    return None


def _is_status(text: str) -> bool:
    said = text.strip()
    return said.startswith("<status>") and said.endswith("</status>")


def format_document_range(first: int, last: int) -> str:
    """Format the range of documents of a subagent, as it is told."""
    return f"Keep to the documents {first} to {last} of the list."


def _part(context: str) -> dict[str, int]:
    found = _PART.search(context)
    return {"first_document": int(found[1]), "last_document": int(found[2])} if found else {}


def parse_agent_request(request: MessagesRequest) -> AgentRequestView:
    """Parse the request as an agent sees it."""
    blocks = [block for message in request.messages for block in message.content]
    first = blocks[0].text if isinstance(blocks[0], TextBlock) else ""
    exchanges: list[ToolCallRecord] = []
    calls: dict[str, ToolUseBlock] = {}
    summaries: list[str] = []
    after_gap, gap = 0, False
    for block in _told(request)[1:]:
        match block:
            case ToolUseBlock():
                calls[block.id] = block
            case ToolResultBlock():
                exchanges.append(_exchange(calls[block.tool_use_id], block))
            case _ if not _is_status(block.text):
                # Any other user text may replace hidden messages: a summary, or a marker.
                after_gap, gap = len(exchanges), True
                summaries.append(block.text)
            case _:
                pass
    statuses = [block.text for block in blocks if isinstance(block, TextBlock) and _is_status(block.text)]
    budget = _BUDGET.search(statuses[-1]) if statuses else None
    return AgentRequestView(
        brief=parse_task_brief(first),
        opening=first,
        exchanges=tuple(exchanges),
        after_gap=after_gap,
        gap=gap,
        summaries="\n".join(summaries),
        remaining_tokens=int(budget.group(1).replace(",", "")) if budget else None,
        may_request_more=budget is not None and budget["asks"] is not None,
        tools=frozenset(tool.name for tool in request.tools),
        max_tokens=request.max_tokens,
    )


def _told(request: MessagesRequest) -> Sequence[TextBlock | ToolUseBlock | ToolResultBlock]:
    """Return the user's texts, the calls and the results, in order."""
    return [
        block
        for message in request.messages
        for block in message.content
        if isinstance(block, ToolUseBlock | ToolResultBlock)
        or (isinstance(block, TextBlock) and message.role == "user")
    ]


def _exchange(made: ToolUseBlock, result: ToolResultBlock) -> ToolCallRecord:
    return ToolCallRecord(name=made.name, input=made.input, result=result.content, failed=result.is_error)
