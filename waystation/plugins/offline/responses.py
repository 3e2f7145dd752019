"""Replies of the offline model, fitted to the maximum output without cutting a tool call, and their usage: four
characters per token, and remembered prompt prefixes that act as the cache.
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence

from pydantic import JsonValue

from waystation.kernel.usage import Usage
from waystation.kernel.value import Value
from waystation.models.anthropic.received_requests import CacheControlMixin, CountTokensRequest, WireBlock
from waystation.models.profiles import OFFLINE_MODEL
from waystation.plugins.offline.language import truncate_at_word

CHARACTERS_A_TOKEN = 4
MIN_CACHED_TOKENS = 256
"""Minimum tokens of a cached prefix."""
MAX_CACHED_PREFIXES = 1_024


def characters_to_tokens(characters: int) -> int:
    """Return the tokens of this many characters, rounded up."""
    return -(-characters // CHARACTERS_A_TOKEN)


def count_input_tokens(request: CountTokensRequest) -> int:
    """Return the tokens of system prompt, tools and messages."""
    return characters_to_tokens(sum(len(text) for text, _ in _parts(request)))


class PromptCache:
    """Remembers the marked prefixes of requests, the `MAX_CACHED_PREFIXES` most recently used. They do not expire."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, None] = OrderedDict()

    def charge(self, request: CountTokensRequest) -> Usage:
        """Return the input of this request by kind, with output 0; its marked prefixes are known from here on."""
        boundaries = _boundaries(request)
        total = boundaries[-1][1]
        marked = [(digest, tokens) for digest, tokens, mark in boundaries if mark and tokens >= MIN_CACHED_TOKENS]
        end = marked[-1][1] if marked else 0
        read = max((tokens for digest, tokens, _ in boundaries if tokens <= end and digest in self._known), default=0)
        for digest, _ in marked:
            self._keep(digest)
        return Usage(input=total - end, cache_write=end - read, cache_read=read, output=0)

    def _keep(self, digest: str) -> None:
        self._known[digest] = None
        self._known.move_to_end(digest)
        while len(self._known) > MAX_CACHED_PREFIXES:
            self._known.popitem(last=False)


def _boundaries(request: CountTokensRequest) -> list[tuple[str, int, bool]]:
    """Return after each part of the prompt the digest and the tokens of everything so far, and whether it ends a
    prefix.
    """
    digest = hashlib.sha256()
    characters = 0
    boundaries: list[tuple[str, int, bool]] = []
    for text, marked in _parts(request):
        digest.update(f"{len(text)}:{text}".encode("utf-8", "surrogatepass"))
        characters += len(text)
        boundaries.append((digest.hexdigest(), characters_to_tokens(characters), marked))
    if request.cache_control is not None:
        boundaries[-1] = (*boundaries[-1][:2], True)
    return boundaries


def _parts(request: CountTokensRequest) -> Iterator[tuple[str, bool]]:
    """Yield the prompt in the order in which it is cached; marks are not part of the text."""
    for tool in request.tools:
        yield _text(tool), tool.cache_control is not None
    for block in request.system:
        yield block.text, block.cache_control is not None
    for message in request.messages:
        for block in message.content:
            yield _block_text(block), block.cache_control is not None


def _block_text(block: WireBlock) -> str:
    return block.text if block.type == "text" else _text(block)


def _text(part: CacheControlMixin) -> str:
    return json.dumps(part.model_dump(mode="json", exclude={"cache_control"}), ensure_ascii=False)


CALL_OVERHEAD = 24
"""Characters counted for a call besides its name and arguments."""


class OfflineToolCall(Value):
    """One tool call."""

    name: str
    input: dict[str, JsonValue]

    @property
    def characters(self) -> int:
        """Length as output, in characters."""
        return len(self.name) + len(json.dumps(self.input, ensure_ascii=False)) + CALL_OVERHEAD


class OfflineResponse(Value):
    """Some text, then calls; either may be missing."""

    text: str = ""
    calls: tuple[OfflineToolCall, ...] = ()
    cut: bool = False
    """Whether the text was cut at the maximum output."""

    @property
    def tokens(self) -> int:
        """Output tokens of the reply, at least 1."""
        return max(1, characters_to_tokens(len(self.text) + sum(call.characters for call in self.calls)))

    @property
    def stop_reason(self) -> str:
        """The stop reason, in the protocol's terms."""
        if self.calls:
            return "tool_use"
        return "max_tokens" if self.cut else "end_turn"


def build_call(tool: str, /, **arguments: JsonValue) -> OfflineToolCall:
    """Build a call of a tool with these arguments."""
    return OfflineToolCall(name=tool, input=arguments)


def build_finding(claim: str, citations: Sequence[str]) -> JsonValue:
    """Build a finding or conclusion as the tools accept it."""
    return {"claim": claim, "citations": [*citations]}


def fit_to_max_tokens(reply: OfflineResponse, max_tokens: int) -> OfflineResponse:
    """Fit the reply into `max_tokens`: without its text, then with fewer calls, then with less in its last call."""
    if reply.tokens <= max_tokens:
        return reply
    if not reply.calls:
        return reply.replace(text=truncate_at_word(reply.text, max_tokens * CHARACTERS_A_TOKEN), cut=True)
    bare = reply.replace(text="")
    while bare.tokens > max_tokens and bare.calls:
        bare = bare.replace(calls=_with_less(bare.calls))
    if bare.calls:
        return bare
    return fit_to_max_tokens(
        OfflineResponse(text="The request's max_tokens is too small for the next tool call.", cut=True), max_tokens
    )


def _with_less(calls: Sequence[OfflineToolCall]) -> tuple[OfflineToolCall, ...]:
    """Drop a call; if there is only one, an item of its longest list or the last line of its longest text."""
    if len(calls) > 1:
        return tuple(calls[:-1])
    smaller = _smaller(calls[0].input)
    return () if smaller is None else (calls[0].replace(input=smaller),)


def _smaller(arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue] | None:
    sizes = {key: len(json.dumps(value)) for key, value in arguments.items() if isinstance(value, list) and value}
    if sizes:
        key = max(sizes, key=lambda name: sizes[name])
        items = arguments[key]
        return {**arguments, key: items[:-1] if isinstance(items, list) else items}
    texts = {key: value for key, value in arguments.items() if isinstance(value, str) and "\n" in value.strip()}
    if not texts:
        return None
    key = max(texts, key=lambda name: len(texts[name]))
    return {**arguments, key: texts[key].rstrip().rpartition("\n")[0].rstrip()}


def build_message(reply: OfflineResponse, prompt: Usage, digest: str) -> dict[str, JsonValue]:
    """Build the protocol's message; the ids are derived from the request's `digest`."""
    content: list[JsonValue] = [{"type": "text", "text": reply.text}] if reply.text else []
    for index, made in enumerate(reply.calls):
        content.append(
            {"type": "tool_use", "id": f"toolu_{digest[:20]}{index}", "name": made.name, "input": made.input}
        )
    return {
        "id": f"msg_{digest[:24]}",
        "type": "message",
        "role": "assistant",
        "model": OFFLINE_MODEL,
        "content": content,
        "stop_reason": reply.stop_reason,
        "stop_sequence": None,
        "usage": {
            "input_tokens": prompt.input,
            "cache_creation_input_tokens": prompt.cache_write,
            "cache_read_input_tokens": prompt.cache_read,
            "output_tokens": reply.tokens,
        },
    }
