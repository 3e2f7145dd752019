"""Spans by OpenTelemetry's conventions for generative AI (0.1): IDs, attributes, and conversation content kept apart.

IDs are hashes of the task's own IDs, so that building a span again gives the same one. Attributes hold IDs, numbers and
our own words.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime

from pydantic import JsonValue

from waystation.context.transcript import Charge, Message, ToolResult, ToolUse
from waystation.kernel.value import Value
from waystation.models.profiles import parse_model_name
from waystation.tasks.events import TaskEvent

AttributeValue = str | int | float | bool | tuple[str, ...]

PROVIDERS: Mapping[str, str] = {
    "anthropic": "anthropic",
    "compatible": "anthropic",
    "bedrock": "aws.bedrock",
    "mantle": "aws.bedrock",
    "vertex": "gcp.vertex_ai",
    "foundry": "azure.ai.inference",
    "openai": "openai",
}
"""How the conventions call whoever is spoken to like this, by the kind of endpoint; a plug-in's by its own name."""


class SpanLink(Value):
    """Link to a span that this one continues."""

    trace_id: str
    span_id: str
    reason: str


class SpanEvent(Value):
    """An event at a point in time, before the span or in it."""

    name: str
    at: datetime
    attributes: Mapping[str, AttributeValue] = {}


class TraceSpan(Value):
    """A finished span. IDs are hexadecimal: 32 digits for the trace, 16 for a span."""

    number: int
    """Number of the event that finished it: a reader has everything up to its own position already."""
    name: str
    trace_id: str
    span_id: str
    parent: str = ""
    """ID of a span of the same trace; empty for the first."""
    client: bool = False
    """Whether it is a call of another program."""
    start: datetime
    end: datetime
    attributes: Mapping[str, AttributeValue]
    events: tuple[SpanEvent, ...] = ()
    links: tuple[SpanLink, ...] = ()
    error: str = ""
    """Kind of the error that it ended with."""
    content: Mapping[str, JsonValue] = {}
    """Conversation content by attribute, not redacted: never sent as it is."""


def make_trace_id(task_id: str) -> str:
    """Return the ID of the task's trace."""
    return hashlib.sha256(f"trace\0{task_id}".encode()).hexdigest()[:32]


def make_span_id(task_id: str, *parts: str | int) -> str:
    """Return the ID of a span by the parts that name it in the task; without parts, of the task itself."""
    return hashlib.sha256("\0".join(["span", task_id, *map(str, parts)]).encode()).hexdigest()[:16]


def build_span_events(happened: Sequence[TaskEvent]) -> tuple[SpanEvent, ...]:
    """Build span events in order, from references and our own words."""
    return tuple(
        SpanEvent(
            name="leg taken over" if event.kind == "taken" else event.kind,
            at=event.at,
            attributes={
                "waystation.event": event.number,
                "gen_ai.agent.name": event.agent,
                "waystation.event.reference": event.reference,
                "waystation.event.detail": event.detail,
            },
        )
        for event in sorted(happened, key=lambda event: event.number)
    )


def build_usage_attributes(charge: Charge, model: str) -> dict[str, AttributeValue]:
    """Build the usage attributes of an answered call. The conventions count cache reads and writes as input."""
    usage = charge.usage
    attributes: dict[str, AttributeValue] = {
        "gen_ai.response.model": charge.answered_by or parse_model_name(model).model,
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
        "gen_ai.usage.cache_write.input_tokens": usage.cache_write,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,  # its name before 0.1, which viewers know
    }
    if usage.estimated:
        attributes["waystation.usage.estimated_tokens"] = usage.estimated
    if charge.stop:
        attributes["gen_ai.response.finish_reasons"] = (charge.stop,)
    if charge.cost_micro_usd is not None:
        attributes["waystation.cost_micro_usd"] = charge.cost_micro_usd
    return attributes


def build_budget_attributes(charges: Sequence[Charge], charge: Charge) -> dict[str, AttributeValue]:
    """Build what the run had spent of its budget before and after the charge."""
    before = charges[: charges.index(charge)]
    tokens, micro_usd = sum(one.usage.fresh for one in before), sum(one.cost_micro_usd or 0 for one in before)
    return {
        "waystation.budget.tokens.before": tokens,
        "waystation.budget.tokens.after": tokens + charge.usage.fresh,
        "waystation.budget.micro_usd.before": micro_usd,
        "waystation.budget.micro_usd.after": micro_usd + (charge.cost_micro_usd or 0),
    }


def build_conversation_attributes(messages: Sequence[Message], stop: str) -> dict[str, JsonValue]:
    """Build the new input messages and the reply. Earlier messages are in earlier spans."""
    *earlier, reply = messages
    since = max((place + 1 for place, one in enumerate(earlier) if one.role == "assistant"), default=0)
    return {
        "gen_ai.input.messages": [_message_said(one) for one in earlier[since:]],
        "gen_ai.output.messages": [{**_message_said(reply), "finish_reason": stop}],
    }


def _message_said(message: Message) -> dict[str, JsonValue]:
    """Convert a message to the conventions' form, without thinking and opaque blocks."""
    parts: list[JsonValue] = []
    for block in message.blocks:
        match block.type:
            case "text":
                parts.append({"type": "text", "content": block.text})
            case "tool_use":
                parts.append({"type": "tool_call", "name": block.name, "arguments": dict(block.input)})
            case "tool_result":
                parts.append({"type": "tool_call_response", "response": block.content})
            case _:
                pass
    return {"role": message.role, "parts": parts}


def build_tool_call_attributes(call: ToolUse, result: ToolResult) -> dict[str, JsonValue]:
    """Build the arguments and the result of a tool call."""
    return {"gen_ai.tool.call.arguments": dict(call.input), "gen_ai.tool.call.result": result.content}
