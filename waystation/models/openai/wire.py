"""Pure translation between our requests and replies and those of chat completions.

What the protocol does not support is lost: signed thinking, cache marks, and the error flag of a tool result, which is
expressed in words.
"""

import json
from collections.abc import Iterable, Iterator, Mapping

from pydantic import BaseModel, JsonValue, model_validator

from waystation.context.transcript import Message, Text, ToolResult, ToolUse, build_unparsed_arguments
from waystation.kernel.errors import InvalidReplyError, ModelRejected
from waystation.kernel.usage import Usage
from waystation.kernel.value import replace_surrogates, sanitize_json
from waystation.models.endpoints import UNKNOWN_CAPABILITIES, ModelCapabilities
from waystation.models.http_errors import CUT_OFF, sanitize_token_count
from waystation.models.ports import ModelRequest, ModelResponse, ReplyDelta, StopReason, ToolSpec
from waystation.models.profiles import Effort, get_model_profile

FAILED_CALL = "This call failed: "
_EFFORTS: Mapping[Effort, str] = {"low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "xhigh"}
_STOPS: Mapping[str, StopReason] = {
    "stop": StopReason.END_TURN,
    "tool_calls": StopReason.TOOL_USE,
    "function_call": StopReason.TOOL_USE,
    "length": StopReason.MAX_TOKENS,
    "content_filter": StopReason.REFUSAL,
}
_Object = dict[str, JsonValue]


def build_request_body(
    request: ModelRequest, capable: ModelCapabilities = UNKNOWN_CAPABILITIES, *, of_maker: bool = False
) -> _Object:
    """Build the request, always streamed.

    Args:
        request: the model call.
        capable: what the endpoint can do.
        of_maker: whether it is OpenAI itself, whose newer models only accept one name for the maximum output; many
            servers only know the other.

    Raises:
        ModelRejected: a block is in a message of the wrong role.
    """
    body: _Object = {
        "model": request.model,
        "messages": [*_messages(request, capable)],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens" if of_maker else "max_tokens": request.max_output,
    }
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    if request.require_tool is not None and _forces(request, capable):
        body["tool_choice"] = {"type": "function", "function": {"name": request.require_tool}}
    if request.effort is not None:
        body["reasoning_effort"] = _EFFORTS[request.effort]
    return body


def _forces(request: ModelRequest, capable: ModelCapabilities) -> bool:
    return get_model_profile(request.model).forces_tools if capable.forces_tools is None else capable.forces_tools


def _tool(spec: ToolSpec) -> JsonValue:
    function: JsonValue = {"name": spec.name, "description": spec.description, "parameters": {**spec.input_schema}}
    return {"type": "function", "function": function}


def _messages(request: ModelRequest, capable: ModelCapabilities) -> Iterator[JsonValue]:
    told = [request.system] if request.system else []
    if request.require_tool is not None and not _forces(request, capable):
        told.append(f"Reply with exactly one call of the tool `{request.require_tool}`.")
    if told:
        yield {"role": "system", "content": "\n\n".join(told)}
    for message in request.messages:
        if message.role == "user":
            yield from _of_user(message)
        else:
            yield _of_assistant(message)


def _of_user(message: Message) -> Iterator[JsonValue]:
    """Yield results first, each as its own message: they must follow the calls."""
    texts: list[str] = []
    for block in message.blocks:
        match block:
            case ToolResult():
                content = f"{FAILED_CALL}{block.content}" if block.is_error else block.content
                yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": content}
            case Text():
                texts.append(block.text)
            case _:
                fault = f"the chat completions API takes no block of type {block.type} in a message of the user"
                raise ModelRejected(fault)
    if said := "\n\n".join(filter(None, texts)):
        yield {"role": "user", "content": said}


def _of_assistant(message: Message) -> JsonValue:
    """Drop thinking: only the model that signed it can read it."""
    if message.tool_results:
        raise ModelRejected("the chat completions API takes no block of type tool_result in a message of the assistant")
    said: _Object = {"role": "assistant", "content": message.text}
    if message.tool_uses:
        said["tool_calls"] = [_call(call) for call in message.tool_uses]
    return said


def _call(call: ToolUse) -> JsonValue:
    arguments = json.dumps(call.input, ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


class _Piece(BaseModel):
    """Part of a reply. A null means the same as a missing field."""

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, read: JsonValue) -> JsonValue:
        return {name: value for name, value in read.items() if value is not None} if isinstance(read, dict) else read


class _Function(_Piece):
    name: str | None = None
    arguments: str | None = None


class _CallPiece(_Piece):
    index: int | None = None
    id: str | None = None
    function: _Function = _Function()


class _Delta(_Piece):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_CallPiece] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    """The same under its other name: servers use one, the other or both."""
    reasoning_details: JsonValue = None

    @property
    def thinks(self) -> bool:
        """Whether it shows thinking, or that there was some."""
        return bool(self.reasoning or self.reasoning_content or self.reasoning_details)


class _Choice(_Piece):
    delta: _Delta = _Delta()
    finish_reason: str | None = None


class _Details(_Piece):
    cached_tokens: int | None = None


class _Used(_Piece):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class ChatChunk(_Piece):
    """One chunk of a reply. Fields that are not used may have any shape."""

    model: str = ""
    choices: list[_Choice] = []
    usage: _Used | None = None
    error: JsonValue = None
    """Set instead of a reply if something broke after the stream had begun."""


class _Call(BaseModel):
    id: str = ""
    name: str = ""
    arguments: str = ""


def iter_reply_deltas(chunk: ChatChunk) -> Iterator[ReplyDelta]:
    """Yield what the chunk adds to the reply, for an observer."""
    for choice in chunk.choices[:1]:
        delta = choice.delta
        if thought := delta.reasoning or delta.reasoning_content:
            yield ReplyDelta("thinking", thought)
        if said := (delta.content or "") + (delta.refusal or ""):
            yield ReplyDelta("text", said)
        if delta.tool_calls:
            yield ReplyDelta("tool_call")


class ChatStreamAccumulator(BaseModel):
    """A reply as far as it has arrived."""

    model: str = ""
    text: str = ""
    calls: list[_Call] = []
    positions: dict[int, int] = {}
    """By index: position of the call that its newest piece belongs to."""
    stop: str | None = None
    usage: _Used | None = None
    has_thinking: bool = False
    """Whether it was asked to think, or shows that it did. The thinking is dropped; only the usage says how much it
    was.
    """

    def add_chunk(self, chunk: ChatChunk) -> None:
        """Add a chunk. Usage comes with the last one, alone after it, or never."""
        self.model = chunk.model or self.model
        self.usage = chunk.usage or self.usage
        for choice in chunk.choices[:1]:
            self.text += (choice.delta.content or "") + (choice.delta.refusal or "")
            self.stop = choice.finish_reason or self.stop
            self.has_thinking = self.has_thinking or choice.delta.thinks
            for piece in choice.delta.tool_calls or ():
                self._take_call(piece)

    def _take_call(self, piece: _CallPiece) -> None:
        """Add a piece of a call, which has the call's index.

        Some servers send whole calls, all with index 0 or without one.
        """
        index = len(self.calls) if piece.index is None else piece.index
        place = self.positions.get(index)
        if place is None or (piece.id and self.calls[place].id and piece.id != self.calls[place].id):
            place = self.positions[index] = len(self.calls)
            self.calls.append(_Call())
        call = self.calls[place]
        call.id = piece.id or call.id
        call.name += piece.function.name or ""
        call.arguments += piece.function.arguments or ""

    def build_response(self) -> ModelResponse:
        """Build the reply after its stream has ended. A call that was cut by the maximum output is left out.

        Raises:
            InvalidReplyError: there is no stop reason, or two calls have one id. The reply is billed by then.
        """
        if self.stop is None:
            raise InvalidReplyError(CUT_OFF)
        stop = _STOPS.get(self.stop, StopReason.UNKNOWN)
        calls = [*self._whole_calls(cut=stop is StopReason.MAX_TOKENS)]
        if len({call.id for call in calls}) < len(calls):
            raise InvalidReplyError("the model's reply has two tool calls with the same id")
        said = (Text(text=replace_surrogates(self.text)),) if self.text.strip() else ()
        if stop in {StopReason.END_TURN, StopReason.TOOL_USE}:
            stop = StopReason.TOOL_USE if calls else StopReason.END_TURN
        usage = _usage(self.usage)
        return ModelResponse(
            blocks=(*said, *calls), stop=stop, usage=usage, model=self.model, hidden_thinking=self.has_thinking
        )

    def _whole_calls(self, *, cut: bool) -> Iterable[ToolUse]:
        for number, call in enumerate(self.calls):
            try:
                given = _arguments(call.arguments)
            except (ValueError, RecursionError):
                if cut and number == len(self.calls) - 1:
                    return
                given = build_unparsed_arguments(replace_surrogates(call.arguments))
            yield ToolUse(id=call.id or f"call_{number}", name=call.name, input=given)


def _arguments(written: str) -> _Object:
    """Parse the arguments of a call.

    Raises:
        ValueError: they are not a JSON object.
    """
    read: JsonValue = json.loads(written or "{}")
    sendable = sanitize_json(read)
    if not isinstance(sendable, dict):
        raise ValueError("no object")
    return sendable


def _usage(used: _Used | None) -> Usage:
    """Return tokens by kind, 0 if none are reported. The cache's tokens are included in the reported prompt."""
    if used is None:
        return Usage()
    prompt, output = sanitize_token_count(used.prompt_tokens), sanitize_token_count(used.completion_tokens)
    cached = used.prompt_tokens_details.cached_tokens if used.prompt_tokens_details else None
    read = min(sanitize_token_count(cached), prompt)
    return Usage(input=prompt - read, cache_read=read, output=output)
