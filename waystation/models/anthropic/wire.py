"""Pure translation between our requests and replies and those of the Messages API."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NotRequired, TypedDict

from anthropic import transform_schema
from anthropic.types import (
    CacheControlEphemeralParam,
    ContentBlock,
    InputJSONDelta,
    MessageDeltaUsage,
    MessageParam,
    OutputConfigParam,
    RawContentBlockDeltaEvent,
    RawMessageStreamEvent,
    RedactedThinkingBlockParam,
    TextBlockParam,
    ThinkingBlockParam,
    ThinkingConfigParam,
    ToolChoiceParam,
    ToolParam,
    ToolResultBlockParam,
    ToolUseBlockParam,
)
from anthropic.types import Message as WireMessage
from anthropic.types import Usage as WireUsage
from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_core import from_json

from waystation.context.transcript import (
    Block,
    Message,
    OpaqueBlock,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    build_unparsed_arguments,
)
from waystation.kernel.errors import InvalidReplyError, ModelRejected
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.usage import Usage
from waystation.kernel.value import replace_surrogates, sanitize_json_object
from waystation.models.anthropic.received_requests import StrictSchemaCounts
from waystation.models.endpoints import UNKNOWN_CAPABILITIES, ModelCapabilities
from waystation.models.http_errors import CUT_OFF, sanitize_token_count
from waystation.models.ports import ModelRequest, ModelResponse, ReplyDelta, StopReason, ToolSpec
from waystation.models.profiles import ModelProfile, get_model_profile
from waystation.models.profiles import ThinkingSetting as WayOfThinking

CACHE_CONTROL: CacheControlEphemeralParam = {"type": "ephemeral"}
"""Marks the end of a prefix that is cached for five minutes. A request may have four of them."""

THINKING_BETA = "thinking-binding-controls-2026-08-01"
DROP_OUTDATED_THINKING: JsonValue = {
    "type": "adaptive",
    "block_binding": {"prefix_mismatch_behavior": "drop_block"},
}
"""The default of these models, except that the provider drops thinking whose prefix was changed, and reports it.
Otherwise it rejects the whole request. A forced tool and explicit thinking exclude each other.
"""

INTERLEAVED_BETA = "interleaved-thinking-2025-05-14"
"""Models that think within a token budget only do so before their first tool call, unless this beta asks them to think
before each.
"""

_USER_MARKS = 2
"""Marks on the last two user messages. The end of this request is the prefix that the next call reads. The end of the
last request is the prefix that the last call wrote; without a mark the provider only looks twenty blocks back for it,
too few after many parallel calls.
"""

_NAME = compile_bounded(r"\A[a-z]{1,20}(?:_[a-z]{1,20}){0,3}")
"""Form of the protocol's kinds and reasons. An endpoint may have taken anything else from the conversation."""

UserBlockParam = TextBlockParam | ToolResultBlockParam
AssistantBlockParam = TextBlockParam | ThinkingBlockParam | RedactedThinkingBlockParam | ToolUseBlockParam


class PromptParameters(TypedDict):
    """Parameters that a call and the counting of its tokens have in common."""

    model: str
    messages: Sequence[MessageParam]
    system: NotRequired[Sequence[TextBlockParam]]
    tools: NotRequired[Sequence[ToolParam]]
    tool_choice: NotRequired[ToolChoiceParam]
    output_config: NotRequired[OutputConfigParam]
    thinking: NotRequired[ThinkingConfigParam]
    extra_headers: NotRequired[dict[str, str]]
    extra_body: NotRequired[dict[str, JsonValue]]


def build_request_parameters(
    request: ModelRequest, capable: ModelCapabilities = UNKNOWN_CAPABILITIES
) -> PromptParameters:
    """Build the request's parameters except `max_tokens`, as the endpoint accepts them.

    At most four cache marks, in the order in which the provider reads a request: the last tool, the end of the system
    prompt, the end of the last request (the last user message before the newest reply) and the end of this one.

    Raises:
        ModelRejected: a block is in a message of the wrong role.
    """
    facts, marks = _facts(request.model, capable), capable.caches is not False and not request.one_shot
    wire = PromptParameters(model=request.model, messages=_messages(request.messages, marks=marks))
    system = _system(request, facts, marks=marks)
    if system:
        wire["system"] = system
    if request.tools:
        wire["tools"] = _tools(request.tools, marks=marks, strict=capable.strict_tools is True and facts.is_known)
    if request.require_tool is not None:
        wire["tool_choice"] = _tool_choice(facts, request.require_tool)
    if request.effort is not None:
        wire["output_config"] = {"effort": request.effort}
    if request.require_tool is None or not facts.forces_tools:
        _think(wire, facts, request.thinking)
    return wire


def _facts(model: str, capable: ModelCapabilities) -> ModelProfile:
    """Return the model's profile by its name, overridden by what its endpoint was found to do."""
    facts, forces, binds = get_model_profile(model), capable.forces_tools, capable.binds_thinking
    return facts.replace(
        forces_tools=facts.forces_tools if forces is None else forces,
        binds_thinking=facts.binds_thinking if binds is None else binds,
    )


def is_thinking_enabled(wire: PromptParameters) -> bool:
    """Whether the model is asked to think before it answers."""
    thinking = wire.get("thinking")
    return thinking["type"] != "disabled" if thinking is not None else "thinking" in wire.get("extra_body", {})


def _think(wire: PromptParameters, facts: ModelProfile, thinking: WayOfThinking | None) -> None:
    match thinking:
        case None | "adaptive" if facts.binds_thinking:
            wire["extra_headers"] = {"anthropic-beta": THINKING_BETA}
            wire["extra_body"] = {"thinking": DROP_OUTDATED_THINKING}
        case None:
            pass
        case "adaptive":
            wire["thinking"] = {"type": "adaptive"}
        case "off":
            wire["thinking"] = {"type": "disabled"}
        case int():
            wire["extra_headers"] = {"anthropic-beta": INTERLEAVED_BETA}
            wire["thinking"] = {"type": "enabled", "budget_tokens": thinking}


def parse_model_response(message: WireMessage) -> ModelResponse:
    """Parse the final message of a stream that ended properly.

    With the stop reason `max_tokens` the last tool call may have lost the end of its input.

    Raises:
        InvalidReplyError: there is no stop reason, a field is missing or malformed, two calls have one id, or a kind of
            block is unknown to this version. Dropping a block would make the next request differ from what the model
            said. The reply is billed by then, which ModelRejected would deny.
    """
    try:
        blocks = tuple(_block(block) for block in message.content)
        calls = [block.id for block in blocks if isinstance(block, ToolUse)]
        if len(set(calls)) < len(calls):
            raise InvalidReplyError("the model's reply has two tool calls with the same id")
        stop, detail = _stop(message)
        return ModelResponse(
            blocks=blocks,
            stop=stop,
            stop_detail=detail,
            usage=parse_usage(message),
            model=message.model,
            id=_id(message),
            dropped_thinking=_dropped_thinking(message),
            cache_miss=_cache_miss(message),
        )
    except ValidationError as error:
        fields = ", ".join(sorted({".".join(str(part) for part in line["loc"]) for line in error.errors()}))
        raise InvalidReplyError(f"the model's reply has missing or malformed fields ({fields})") from None


_TRANSFORMATIONS = TypeAdapter(list[dict[str, JsonValue]])


def _dropped_thinking(message: WireMessage) -> int:
    """Return how many blocks the provider reports as dropped from the request.

    The SDK keeps the field without knowing it.
    """
    told: object = getattr(message, "input_transformations", None)
    try:
        found = _TRANSFORMATIONS.validate_python(told or [])
    except ValidationError:
        return 0
    return sum(one.get("type") == "thinking_dropped" for one in found)


def _cache_miss(message: WireMessage) -> str:
    """Return why the provider could not read what the last call wrote into its cache; empty if it does not say so."""
    reason: object = getattr(getattr(message, "diagnostics", None), "cache_miss_reason", None)
    kind: object = getattr(reason, "type", None)
    return kind if isinstance(kind, str) and _NAME.fullmatch(kind) else ""


def _id(message: WireMessage) -> str:
    told: object = getattr(message, "id", None)
    return told if isinstance(told, str) else ""


def parse_usage(message: WireMessage) -> Usage:
    """Return tokens by kind, 0 if the endpoint reports none. Searches are not included."""
    used: object = getattr(message, "usage", None)
    return Usage(
        input=_reported(used, "input_tokens"),
        cache_write=_reported(used, "cache_creation_input_tokens"),
        cache_read=_reported(used, "cache_read_input_tokens"),
        output=_reported(used, "output_tokens"),
    )


def with_usage(event: RawMessageStreamEvent) -> RawMessageStreamEvent:
    """Return the event with zeros if the endpoint reports no usage: the SDK adds up fields without looking for them."""
    if event.type == "message_start":
        used = getattr(event.message, "usage", None)
        event.message.usage = WireUsage(input_tokens=0, output_tokens=0) if used is None else used
    elif event.type == "message_delta":
        used = getattr(event, "usage", None)
        event.usage = MessageDeltaUsage(output_tokens=0) if used is None else used
        event.usage.output_tokens = _reported(used, "output_tokens")
    return event


def parse_reply_delta(event: RawMessageStreamEvent) -> ReplyDelta | None:
    """Return what the event adds to the reply, for an observer; None if it adds nothing that is passed on."""
    if event.type == "content_block_delta":
        return _delta_of(event.delta)
    return _delta_of(event.content_block) if event.type == "content_block_start" else None


def _delta_of(part: object) -> ReplyDelta | None:
    """Read a delta, or the beginning of a block. The SDK validates nothing that it receives."""
    match getattr(part, "type", None):
        case "text" | "text_delta":
            kind, added = "text", getattr(part, "text", None)
        case "thinking" | "thinking_delta":
            kind, added = "thinking", getattr(part, "thinking", None)
        case "tool_use":
            return ReplyDelta("tool_call")
        case _:
            return None
    return ReplyDelta(kind, added) if isinstance(added, str) and added else None


@dataclass
class ArgumentsAccumulator:
    """The arguments of the calls in one stream, each passed on as one event when its block ends.

    The SDK parses what has arrived at each event, and raises at the first character that is not JSON: a reply that was
    paid for would be lost, with all its other calls. Instead, the model gets an error result for this one call.
    """

    _written: dict[int, list[str]] = field(default_factory=dict[int, list[str]])
    """By index of the block: the pieces so far."""

    def add_event(self, event: RawMessageStreamEvent) -> Iterator[RawMessageStreamEvent]:
        """Yield what is passed on after this event. Pieces of arguments wait until their block ends."""
        if event.type == "content_block_delta" and event.delta.type == "input_json_delta":
            self._written.setdefault(event.index, []).append(event.delta.partial_json)
            return
        if event.type == "content_block_stop" and (pieces := self._written.pop(event.index, None)):
            whole = InputJSONDelta(type="input_json_delta", partial_json=_normalise_arguments("".join(pieces)))
            yield RawContentBlockDeltaEvent(type="content_block_delta", index=event.index, delta=whole)
        yield event


def _normalise_arguments(written: str) -> str:
    """Return the arguments as the SDK can read them: as they are, or as those of a call that is not run."""
    try:
        # By the parser that the SDK uses.
        readable = not written.strip() or isinstance(from_json(written), dict)
    except ValueError:
        readable = False
    return written if readable else json.dumps(build_unparsed_arguments(written))


def _reported(used: object, name: str) -> int:
    tokens: object = getattr(used, name, None)
    return sanitize_token_count(tokens)


def parse_token_count(answer: object) -> int | None:
    """Return the number of tokens counted; None if the answer is not a count.

    The SDK validates nothing that it receives, and a web page or a zero would let a call of any size pass.
    """
    counted: object = getattr(answer, "input_tokens", None)
    return sanitize_token_count(counted) or None


def _system(request: ModelRequest, facts: ModelProfile, *, marks: bool) -> list[TextBlockParam]:
    system: list[TextBlockParam] = []
    if request.system:
        system.append({"type": "text", "text": request.system})
        if marks:
            system[-1]["cache_control"] = CACHE_CONTROL
    if request.require_tool is not None and not facts.forces_tools:
        system.append({"type": "text", "text": f"Reply with exactly one call of the tool `{request.require_tool}`."})
    return system


def _tools(specs: Sequence[ToolSpec], *, marks: bool, strict: bool) -> list[ToolParam]:
    """Translate the tools. `strict`: whether the endpoint and the model take strict ones."""
    constrained = select_strict_tools(specs) if strict else frozenset[str]()
    tools = [_tool(spec, strict=spec.name in constrained) for spec in specs]
    if marks:
        tools[-1]["cache_control"] = CACHE_CONTROL
    return tools


def select_strict_tools(specs: Sequence[ToolSpec]) -> frozenset[str]:
    """Return the names of the tools that are sent as strict, within what the API takes in one request.

    Tools are listed in the order of their importance: ours before those of plug-ins and tool servers. A tool that does
    not fit any more is sent without `strict`; our own validation holds for it in any case. The choice depends on the
    tools alone, so that it stays the same for a conversation.
    """
    total, chosen = StrictSchemaCounts(), list[str]()
    for spec in (spec for spec in specs if spec.strict):
        wider = total + StrictSchemaCounts.from_schema(transform_schema({**spec.input_schema}))
        if wider.fits:
            total, chosen = wider, [*chosen, spec.name]
    return frozenset(chosen)


def _tool(spec: ToolSpec, *, strict: bool) -> ToolParam:
    """Translate a tool. Strict schemas take fewer keywords: the SDK moves the others into descriptions.

    Our own validation holds for them in any case.
    """
    if not strict:
        return {"name": spec.name, "description": spec.description, "input_schema": {**spec.input_schema}}
    schema = transform_schema({**spec.input_schema})
    return {"name": spec.name, "description": spec.description, "input_schema": schema, "strict": True}


def _tool_choice(facts: ModelProfile, tool: str) -> ToolChoiceParam:
    if facts.forces_tools:
        return {"type": "tool", "name": tool, "disable_parallel_tool_use": True}
    return {"type": "auto", "disable_parallel_tool_use": True}


def _messages(messages: Sequence[Message], *, marks: bool) -> list[MessageParam]:
    indices = range(len(messages))
    marked = [index for index in indices if marks and _ends_request(messages, index)][-_USER_MARKS:]
    return [_message(message, mark=index in marked) for index, message in enumerate(messages)]


def _ends_request(messages: Sequence[Message], index: int) -> bool:
    message, following = messages[index], messages[index + 1 : index + 2]
    return message.role == "user" and bool(message.blocks) and all(other.role == "assistant" for other in following)


def _message(message: Message, *, mark: bool) -> MessageParam:
    match message.role:
        case "user":
            content = [_user_block(block) for block in message.blocks]
            if mark:
                content[-1]["cache_control"] = CACHE_CONTROL
            return {"role": "user", "content": content}
        case "assistant":
            return {"role": "assistant", "content": [_assistant_block(block) for block in message.blocks]}


def _user_block(block: Block) -> UserBlockParam:
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case ToolResult():
            return {
                "type": "tool_result",
                "tool_use_id": block.tool_use_id,
                "content": block.content,
                "is_error": block.is_error,
            }
        case Thinking() | RedactedThinking() | ToolUse() | OpaqueBlock():
            raise _misplaced(block, "user")


def _assistant_block(block: Block) -> AssistantBlockParam:
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case Thinking():
            return {"type": "thinking", "thinking": block.thinking, "signature": block.signature}
        case RedactedThinking():
            return {"type": "redacted_thinking", "data": block.data}
        case ToolUse():
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": {**block.input}}
        case ToolResult() | OpaqueBlock():
            raise _misplaced(block, "assistant")


def _misplaced(block: Block, role: Literal["user", "assistant"]) -> ModelRejected:
    return ModelRejected(f"the Messages API takes no block of type {block.type} in a message of the {role}")


def _block(block: ContentBlock) -> Block:
    # An unknown block arrives as the SDK's first kind, with its own `type`: only that field tells what it is.
    match block.type:
        case "text":
            return Text(text=replace_surrogates(block.text))
        case "thinking":
            return Thinking(thinking=block.thinking, signature=block.signature)
        case "redacted_thinking":
            return RedactedThinking(data=block.data)
        case "tool_use":
            # Nothing in a reply was validated: a server may send any JSON as arguments, whole, in the block's start.
            written: object = getattr(block, "input", None)
            unparsed = None if isinstance(written, dict) else build_unparsed_arguments(json.dumps(written))
            call = ToolUse.model_validate({"id": block.id, "name": block.name, "input": unparsed or block.input})
            return call.replace(name=replace_surrogates(call.name), input=sanitize_json_object(call.input))
        case unknown:
            raise InvalidReplyError(f"the model's reply has a block of the unknown type {_named(unknown)}")


def _stop(message: WireMessage) -> tuple[StopReason, str]:
    """Return why the reply ended, and the category of a refusal or the name of an unknown reason."""
    reason: str | None = message.stop_reason
    if reason is None:
        raise InvalidReplyError(CUT_OFF)
    try:
        stop = StopReason(reason)
    except ValueError:
        return StopReason.UNKNOWN, _named(reason)
    category: object = getattr(getattr(message, "stop_details", None), "category", None)
    is_named = stop is StopReason.REFUSAL and isinstance(category, str) and _NAME.fullmatch(category)
    return stop, str(category) if is_named else ""


def _named(kind: object) -> str:
    return kind if isinstance(kind, str) and _NAME.fullmatch(kind) else "(not shown: not a valid name)"
