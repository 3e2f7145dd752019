"""Requests of the Messages protocol as a server receives them: their shape, and the rules for a valid request."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, TypeAdapter, ValidationError

from waystation.context.transcript import RedactedThinking, Text, Thinking, ToolResult, ToolUse
from waystation.kernel.value import Value

MAX_CACHE_MARKS = 4
MAX_STRICT_TOOLS, MAX_OPTIONAL_PARAMETERS, MAX_UNION_PARAMETERS = 20, 24, 16
"""Maximum numbers in all strict tools of a request together: of the tools; of parameters that `required` does not list;
of parameters with `anyOf` or a list of types. The API refuses a request with more.

Source: "Schema complexity limits" in https://platform.claude.com/docs/en/build-with-claude/structured-outputs, in
copies of 2026. The API also refuses schemas whose compiled grammar is too large, a limit without a published number.
"""
STRICT_KEYWORDS = frozenset(
    {"type", "properties", "required", "additionalProperties", "items", "minItems", "enum", "const", "anyOf", "allOf"}
    | {"$ref", "$defs", "definitions", "default", "format", "description", "title"}
)
"""Keywords that the schema of a strict tool may have, by the same page. Lengths and bounds are not among them.
The API also takes simple patterns; the SDK moves all patterns into descriptions, so that none is sent.
"""
UNIONS = frozenset({"anyOf", "oneOf", "allOf"})
"""Keywords that a tool's schema must not have at its top level."""


class MessagesApiError(Exception):
    """A response in the protocol's error form: HTTP status, error type, message.

    Messages carry no conversation text.
    """

    def __init__(self, message: str, status: int = 400, kind: str = "invalid_request_error") -> None:
        super().__init__(message)
        self.status, self.kind = status, kind


class CacheControl(Value):
    """Marks a prompt prefix up to here as cacheable."""

    type: Literal["ephemeral"]


class CacheControlMixin(Value):
    """Any part of a prompt that can end a cached prefix."""

    cache_control: CacheControl | None = None


def _joined(content: JsonValue) -> JsonValue:
    """Return content as one string: the protocol also allows a list of text blocks."""
    if not isinstance(content, list):
        return content
    return "\n".join(block.text for block in _TEXT_BLOCKS.validate_python(content, extra="ignore"))


def _as_blocks(content: JsonValue) -> JsonValue:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _worded(text: str) -> str:
    if not text.strip():
        raise ValueError("text content blocks must contain non-whitespace text")
    return text


class TextBlock(Text, CacheControlMixin):
    """A text block on the wire."""

    text: Annotated[str, AfterValidator(_worded)]


class ThinkingBlock(Thinking, CacheControlMixin):
    """A thinking block on the wire."""


class RedactedThinkingBlock(RedactedThinking, CacheControlMixin):
    """An encrypted thinking block on the wire."""


class ToolUseBlock(ToolUse, CacheControlMixin):
    """A tool call on the wire."""


class ToolResultBlock(ToolResult, CacheControlMixin):
    """A tool result on the wire. The protocol also allows a list of text blocks, which are joined into one string."""

    content: Annotated[str, BeforeValidator(_joined)] = ""


_TEXT_BLOCKS = TypeAdapter(list[TextBlock])

WireBlock = Annotated[
    TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock | ToolResultBlock, Field(discriminator="type")
]


class WireMessage(Value):
    """One message on the wire."""

    role: Literal["user", "assistant"]
    content: Annotated[tuple[WireBlock, ...], BeforeValidator(_as_blocks)] = Field(min_length=1)

    @property
    def calls(self) -> tuple[ToolUseBlock, ...]:
        """The tool calls of this message."""
        return tuple(block for block in self.content if isinstance(block, ToolUseBlock))

    @property
    def results(self) -> tuple[ToolResultBlock, ...]:
        """The tool results of this message."""
        return tuple(block for block in self.content if isinstance(block, ToolResultBlock))


class WireTool(CacheControlMixin):
    """A tool offered to the model."""

    name: str
    description: str = ""
    input_schema: dict[str, JsonValue]
    strict: bool = False


class ToolChoice(Value):
    """Whether the reply must call a tool, and which."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None


class ThinkingChoice(Value):
    """Whether and how the model is asked to think."""

    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: int | None = None


class CountTokensRequest(CacheControlMixin):
    """A request to count input tokens."""

    model: str
    system: Annotated[tuple[TextBlock, ...], BeforeValidator(_as_blocks)] = ()
    messages: tuple[WireMessage, ...] = Field(min_length=1)
    tools: tuple[WireTool, ...] = ()
    tool_choice: ToolChoice | None = None
    thinking: ThinkingChoice | None = None

    @property
    def forces_any_tool(self) -> bool:
        """Whether the reply must call some tool."""
        return self.tool_choice is not None and self.tool_choice.type in ("any", "tool")

    @property
    def forced_tool(self) -> str | None:
        """The one tool that the reply must call."""
        return self.tool_choice.name if self.tool_choice is not None else None


class MessagesRequest(CountTokensRequest):
    """A model call."""

    max_tokens: int = Field(ge=1)
    stream: bool = False


_Request = TypeVar("_Request", bound=CountTokensRequest)


def parse_request(kind: type[_Request], body: bytes) -> _Request:
    """Parse the body of a model call or of a token count.

    Raises:
        MessagesApiError: the request is not valid.
    """
    try:
        request = kind.model_validate_json(body, extra="ignore")
    except ValidationError as error:
        raise _refusal(error) from None
    for fault in find_request_errors(request):
        raise MessagesApiError(fault)
    return request


def _refusal(error: ValidationError) -> MessagesApiError:
    fault = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in fault["loc"])
    return MessagesApiError(f"{place}: {fault['msg']}" if place else fault["msg"])


def find_request_errors(request: CountTokensRequest) -> Iterator[str]:
    """Yield the documented protocol errors of a request with the right shape, except those about thinking."""
    yield from _message_faults(request)
    yield from _tool_faults(request)


def _message_faults(request: CountTokensRequest) -> Iterator[str]:
    if request.messages[0].role != "user":
        yield "messages: first message must use the user role"
    if request.messages[-1].role != "user":
        yield "messages: this model takes no prefill: the conversation must end with a user message"
    ids = [call.id for message in request.messages for call in message.calls]
    if len(ids) != len(set(ids)):
        yield "messages: `tool_use` ids must be unique"
    open_calls: list[str] = []
    for index, message in enumerate(merge_same_role_messages(request.messages)):
        yield from _pairing_faults(index, message, open_calls)
        open_calls = [call.id for call in message.calls]


def _pairing_faults(index: int, message: WireMessage, open_calls: list[str]) -> Iterator[str]:
    """Yield what is wrong with the tool results in a message that follows a message with these calls."""
    answered = [result.tool_use_id for result in message.results]
    for call_id in open_calls:
        if call_id not in answered:
            yield (
                f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: {call_id}"
            )
    for call_id in answered:
        if call_id not in open_calls or answered.count(call_id) > 1:
            yield f"messages.{index}: unexpected `tool_use_id` found in `tool_result` blocks: {call_id}"
    if message.role == "assistant" and answered:
        yield f"messages.{index}: `tool_result` blocks can only be in user messages"
    if message.role == "user" and message.calls:
        yield f"messages.{index}: `tool_use` blocks can only be in assistant messages"
    if any(not isinstance(block, ToolResultBlock) for block in message.content[: len(answered)]):
        yield f"messages.{index}: `tool_result` blocks must come before other content"


def merge_same_role_messages(messages: tuple[WireMessage, ...]) -> Iterator[WireMessage]:
    """Merge consecutive messages of one role into one, as the protocol does."""
    current = messages[0]
    for message in messages[1:]:
        if message.role == current.role:
            current = current.replace(content=(*current.content, *message.content))
        else:
            yield current
            current = message
    yield current


def _tool_faults(request: CountTokensRequest) -> Iterator[str]:
    names = [tool.name for tool in request.tools]
    if len(names) != len(set(names)):
        yield "tools: tool names must be unique"
    if request.forced_tool is not None and request.forced_tool not in names:
        yield f"tool_choice.name: there is no tool {request.forced_tool!r}"
    blocks = [block for message in request.messages for block in message.content]
    for index, tool in enumerate(request.tools):
        if tool.input_schema.get("type") != "object" or UNIONS & tool.input_schema.keys():
            place = f"tools.{index}.input_schema"
            yield f"{place}: it must be an object, without a union (anyOf, oneOf, allOf) at the top level"
    yield from _strict_faults([tool for tool in request.tools if tool.strict])
    marked = sum(part.cache_control is not None for part in (request, *request.system, *request.tools, *blocks))
    if marked > MAX_CACHE_MARKS:
        yield f"a maximum of {MAX_CACHE_MARKS} blocks with cache_control may be provided, found {marked}"


def _strict_faults(tools: Sequence[WireTool]) -> Iterator[str]:
    """Yield what is wrong with the schemas of strict tools."""
    if len(tools) > MAX_STRICT_TOOLS:
        yield f"tools: a maximum of {MAX_STRICT_TOOLS} strict tools may be provided"
    schemas = [(tool.name, schema) for tool in tools for schema in iter_schemas(tool.input_schema)]
    for name, schema in schemas:
        if unknown := sorted(schema.keys() - STRICT_KEYWORDS):
            yield f"tools.{name}.input_schema: not supported in strict tools: {', '.join(unknown)}"
        if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
            yield f"tools.{name}.input_schema: additionalProperties must be false in strict tools"
        if schema.get("minItems", 0) not in {0, 1}:
            yield f"tools.{name}.input_schema: minItems must be 0 or 1 in strict tools"
    total = sum((StrictSchemaCounts.from_schema(tool.input_schema) for tool in tools), StrictSchemaCounts())
    if not total.replace(tools=0).fits:
        yield (
            f"tools: {total.optional_parameters} optional parameters and {total.unions} parameters with unions are "
            "too many for strict tools"
        )


class StrictSchemaCounts(Value):
    """What counts against the limits of strict tools."""

    tools: int = 0
    optional_parameters: int = 0
    unions: int = 0

    def __add__(self, other: "StrictSchemaCounts") -> "StrictSchemaCounts":
        """Return the sum."""
        return StrictSchemaCounts(
            tools=self.tools + other.tools,
            optional_parameters=self.optional_parameters + other.optional_parameters,
            unions=self.unions + other.unions,
        )

    @property
    def fits(self) -> bool:
        """Whether the API takes strict tools of these counts in one request."""
        return (
            self.tools <= MAX_STRICT_TOOLS
            and self.optional_parameters <= MAX_OPTIONAL_PARAMETERS
            and self.unions <= MAX_UNION_PARAMETERS
        )

    @classmethod
    def from_schema(cls, schema: dict[str, JsonValue]) -> "StrictSchemaCounts":
        """Count what one strict tool with this schema adds."""
        schemas = list(iter_schemas(schema))
        return cls(
            tools=1,
            optional_parameters=sum(len(_properties(one).keys() - set(_required(one))) for one in schemas),
            unions=sum("anyOf" in one or isinstance(one.get("type"), list) for one in schemas),
        )


def iter_schemas(schema: dict[str, JsonValue]) -> Iterator[dict[str, JsonValue]]:
    """Yield a schema and all schemas in it. Strict schemas are not recursive."""
    yield schema
    definitions = schema.get("$defs")
    nested: list[JsonValue] = [*_properties(schema).values(), schema.get("items")]
    nested += definitions.values() if isinstance(definitions, dict) else []
    for union in ("anyOf", "allOf"):
        members = schema.get(union)
        nested += members if isinstance(members, list) else []
    for inner in nested:
        if isinstance(inner, dict):
            yield from iter_schemas(inner)


def _properties(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def _required(schema: dict[str, JsonValue]) -> Iterator[str]:
    required = schema.get("required")
    return (name for name in (required if isinstance(required, list) else ()) if isinstance(name, str))
