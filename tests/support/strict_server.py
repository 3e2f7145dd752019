"""A Messages server for tests that rejects what the API documents as an error, and recognises the thinking that it
signed.

Shape, order and pairs are checked as the offline model checks them; here are the checks that need more than one
request, and those that depend on the model's name.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

import httpx2
from anthropic.types.beta.message_create_params import MessageCreateParamsStreaming
from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from waystation.kernel.usage import Usage
from waystation.models.anthropic.received_requests import (
    CountTokensRequest,
    MessagesRequest,
    RedactedThinkingBlock,
    ThinkingBlock,
    ThinkingChoice,
    find_request_errors,
    merge_same_role_messages,
)
from waystation.models.anthropic.wire import THINKING_BETA, build_request_parameters
from waystation.models.ports import (
    ChatModel,
    FallbackChatModel,
    ModelRequest,
    ModelResponse,
    ReplyObserver,
    complete_with_observer,
)
from waystation.models.profiles import MIN_THINKING_TOKENS
from waystation.testing.messages_server import (
    BYTES_PER_TOKEN,
    PrefixBinding,
    build_error_response,
    build_message_body,
    build_stream_response,
    build_warm_response,
    hash_thinking,
)

Body = dict[str, JsonValue]
BODY: TypeAdapter[Body] = TypeAdapter(Body)
PREFIX_BINDING_MODELS = ("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5")
"""Models that sign thinking over everything before it."""
MODELS_WITHOUT_FORCED_TOOLS = ("claude-opus-5-5", "claude-sonnet-5-5")
MODELS_WITHOUT_THINKING_BUDGET = (*PREFIX_BINDING_MODELS, "claude-opus-5", "claude-opus-4-8", "claude-opus-4-7")
"""Models that reject `budget_tokens`."""
REQUEST_FIELDS = frozenset(MessageCreateParamsStreaming.__annotations__) - {"betas"}
"""Fields of a request's body, as the SDK declares them; `betas` is a header on the wire."""


class StrictRequest(MessagesRequest):
    """A request without a limit on the reply's length. With `max_tokens: 0` it has no reply."""

    max_tokens: int = Field(ge=0)


def find_refusal(body: Body, beta: str = "") -> str:
    """Return the API's error for this request; empty if it is valid."""
    try:
        request = StrictRequest.model_validate(body, extra="ignore")
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"
    faults = chain(
        find_unknown_fields(body),
        find_protocol_errors(request),
        _find_warming_errors(request, body),
        _find_model_errors(request, body, beta),
        _find_signature_errors(request, body),
    )
    return next(faults, "")


def find_unknown_fields(body: Body) -> Iterator[str]:
    """Yield a fault for each field that the API does not have."""
    for name in sorted(body.keys() - REQUEST_FIELDS):
        yield f"{name}: extra inputs are not permitted"


def find_protocol_errors(request: CountTokensRequest) -> Iterator[str]:
    """Yield all documented protocol errors of a request whose parts have the right shape, including thinking."""
    yield from find_request_errors(request)
    yield from _thinking_faults(request)


def _thinking_faults(request: CountTokensRequest) -> Iterator[str]:
    if request.forces_any_tool and request.thinking is not None and request.thinking.type != "disabled":
        yield "thinking may not be enabled when tool_choice forces tool use"
    if request.thinking is not None:
        yield from _budget_faults(request.thinking, request)
    for index, message in enumerate(request.messages):
        if message.role == "assistant" and isinstance(message.content[-1], ThinkingBlock | RedactedThinkingBlock):
            yield f"messages.{index}: the final block in an assistant message cannot be thinking"
    if request.thinking is None or request.thinking.type != "enabled":
        return
    last = next(
        (message for message in reversed([*merge_same_role_messages(request.messages)]) if message.role == "assistant"),
        None,
    )
    if last is not None and last.calls and not isinstance(last.content[0], ThinkingBlock | RedactedThinkingBlock):
        yield "messages: expected thinking or redacted_thinking: the reply whose calls are open must begin with it"


def _budget_faults(thinking: ThinkingChoice, request: CountTokensRequest) -> Iterator[str]:
    longest = request.max_tokens if isinstance(request, MessagesRequest) else None
    match thinking.type, thinking.budget_tokens:
        case "enabled", None:
            yield "thinking.budget_tokens: field required"
        case "enabled", int(tokens):
            if tokens < MIN_THINKING_TOKENS or (longest is not None and tokens >= longest):
                yield f"thinking.budget_tokens: it must be {MIN_THINKING_TOKENS:,} or more, and less than max_tokens"
        case _, int():
            yield "thinking.budget_tokens: extra inputs are not permitted"
        case _:
            pass


def _find_model_errors(request: StrictRequest, body: Body, beta: str) -> Iterator[str]:
    asked = request.thinking
    if request.forces_any_tool and request.model in MODELS_WITHOUT_FORCED_TOOLS:
        yield "tool_choice: this model takes auto and none only"
    if asked is not None and asked.type == "enabled" and request.model in MODELS_WITHOUT_THINKING_BUDGET:
        yield "thinking.budget_tokens: this model thinks adaptively"
    if _binding(body) and (THINKING_BETA not in beta or request.model not in PREFIX_BINDING_MODELS):
        yield "thinking.block_binding: extra inputs are not permitted"


def _find_warming_errors(request: StrictRequest, body: Body) -> Iterator[str]:
    """Yield what a request without a reply may not have: each implies output."""
    if request.max_tokens > 0:
        return
    if request.stream:
        yield "stream: it may not be set with max_tokens 0"
    if request.thinking is not None and request.thinking.type == "enabled":
        yield "thinking: it may not be enabled with max_tokens 0"
    if request.forces_any_tool:
        yield "tool_choice: it may not force a tool with max_tokens 0"
    output = body.get("output_config")
    if isinstance(output, dict) and output.get("format") is not None:
        yield "output_config.format: it may not be set with max_tokens 0"


def _binding(body: Body) -> bool:
    thinking = body.get("thinking")
    return isinstance(thinking, dict) and "block_binding" in thinking


def _find_signature_errors(request: StrictRequest, body: Body) -> Iterator[str]:
    """Yield thinking that this server did not sign, or that does not follow its signed prefix if that matters."""
    for index, message in enumerate(request.messages):
        for block in message.content if message.role == "assistant" else ():
            if isinstance(block, ThinkingBlock) and block.signature.partition(".")[0] != hash_thinking(block.thinking):
                yield f"messages.{index}: invalid signature: thinking blocks cannot be modified"
    if request.model in PREFIX_BINDING_MODELS and not _binding(body):
        for path, fits in PrefixBinding().iter_thinking_blocks(body):
            if not fits:
                yield f"{path}: what stands before this thinking block is not what it was signed behind"


@dataclass
class StrictServer:
    """Answers each valid request with `answer(body)`, and signs it.

    Thinking that does not match its prefix is dropped, and the reply says so.
    """

    answer: Callable[[Body], ModelResponse]
    answered: int = 0
    refusals: list[str] = field(default_factory=list[str])
    binding: PrefixBinding = field(default_factory=PrefixBinding)
    """Counts the thinking of models that bind it."""
    bodies: list[Body] = field(default_factory=list[Body])
    """Bodies of all answered requests for a reply, oldest first."""
    warmed: list[Body] = field(default_factory=list[Body])
    """Bodies of all requests without a reply, oldest first."""

    def http_client(self) -> httpx2.AsyncClient:
        """Return an HTTP client whose every request reaches this server."""
        return httpx2.AsyncClient(transport=httpx2.MockTransport(self.respond))

    def respond(self, request: httpx2.Request) -> httpx2.Response:
        """Return the reply, or the error."""
        counts, body = request.url.path.endswith("/count_tokens"), BODY.validate_json(request.content)
        asked: Mapping[str, JsonValue] = {"max_tokens": 1_000_000, **body} if counts else body
        if words := find_refusal({**asked}, request.headers.get("anthropic-beta", "")):
            self.refusals.append(words)
            return build_error_response(400, "invalid_request_error", words)
        if counts:
            return httpx2.Response(200, json={"input_tokens": len(request.content) // BYTES_PER_TOKEN})
        if body["max_tokens"] == 0:
            self.warmed.append(body)
            return build_warm_response(body, Usage(cache_read=len(request.content) // BYTES_PER_TOKEN))
        self.answered += 1
        self.bodies.append(body)
        dropped = self.binding.find_dropped_thinking(body) if body["model"] in PREFIX_BINDING_MODELS else []
        whole = build_message_body(self.binding.sign_reply(self.answer(body), body))
        return build_stream_response({**whole, "input_transformations": dropped} if dropped else whole)


@dataclass
class RequestCheckingModel:
    """Checks every request to a model as the API would. Signatures are the script's, and are not checked."""

    model: ChatModel

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """See `ChatModel`. Raises AssertionError for what the API would reject: no test intends that."""
        self._check(request)
        return await self.model.complete(request)

    async def complete_observed(self, request: ModelRequest, observer: ReplyObserver) -> ModelResponse:
        """See `StreamingChatModel`. Raises as `complete` does."""
        self._check(request)
        return await complete_with_observer(self.model, request, observer)

    def _check(self, request: ModelRequest) -> None:
        parameters = {**build_request_parameters(request), "max_tokens": request.max_output}
        headers, extra = parameters.pop("extra_headers", {}), parameters.pop("extra_body", {})
        body = BODY.validate_python({**parameters, **BODY.validate_python(extra)})
        whole = StrictRequest.model_validate(body, extra="ignore")
        faults = [
            *find_unknown_fields(body),
            *find_protocol_errors(whole),
            *_find_model_errors(whole, body, str(headers)),
        ]
        assert faults == []

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """See `ChatModel`."""
        return await self.model.count_tokens(request)

    async def aclose(self) -> None:
        """See `ChatModel`."""
        await self.model.aclose()


@dataclass
class RequestCheckingFallbackModel(RequestCheckingModel):
    """The same for a model with fallbacks."""

    others: FallbackChatModel

    def list_fallbacks(self, model: str) -> tuple[str, ...]:
        """See `FallbackChatModel`."""
        return self.others.list_fallbacks(model)


def check_requests(model: ChatModel) -> ChatModel:
    """Return the model with every request checked."""
    return (
        RequestCheckingFallbackModel(model, model)
        if isinstance(model, FallbackChatModel)
        else RequestCheckingModel(model)
    )
