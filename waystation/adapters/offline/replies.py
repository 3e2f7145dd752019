"""Replies: what the model says and calls, made to fit the reply's maximum without ever cutting a tool call."""

import json
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from waystation.adapters.offline.language import shortened
from waystation.adapters.offline.usage import CHARACTERS_A_TOKEN, tokens_of
from waystation.adapters.offline.wire import OFFLINE_MODEL
from waystation.domain.budget import Usage
from waystation.domain.value import Value

CALL_OVERHEAD = 24
"""Characters counted for a call besides its name and arguments."""


class Call(Value):
    """One tool call."""

    name: str
    input: dict[str, JsonValue]

    @property
    def characters(self) -> int:
        """Length, as the output is counted."""
        return len(self.name) + len(json.dumps(self.input, ensure_ascii=False)) + CALL_OVERHEAD


class Reply(Value):
    """Some text, then calls; either may be missing."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    cut: bool = False
    """The text ends early because the reply's maximum was reached."""

    @property
    def tokens(self) -> int:
        """Output tokens of the reply, 1 at least."""
        return max(1, tokens_of(len(self.text) + sum(call.characters for call in self.calls)))

    @property
    def stop_reason(self) -> str:
        """As the protocol names it."""
        if self.calls:
            return "tool_use"
        return "max_tokens" if self.cut else "end_turn"


def call(tool: str, /, **arguments: JsonValue) -> Call:
    """One call of a tool with these arguments."""
    return Call(name=tool, input=arguments)


def finding(claim: str, citations: Sequence[str]) -> JsonValue:
    """A finding or conclusion as the tools take it."""
    return {"claim": claim, "citations": [*citations]}


def fitted(reply: Reply, max_tokens: int) -> Reply:
    """The reply within `max_tokens`: without its text, then with fewer calls, then with less in its last call."""
    if reply.tokens <= max_tokens:
        return reply
    if not reply.calls:
        return reply.model_copy(update={"text": shortened(reply.text, max_tokens * CHARACTERS_A_TOKEN), "cut": True})
    bare = reply.model_copy(update={"text": ""})
    while bare.tokens > max_tokens and bare.calls:
        bare = bare.model_copy(update={"calls": _with_less(bare.calls)})
    if bare.calls:
        return bare
    return fitted(Reply(text="The reply's maximum is too small for the next tool call.", cut=True), max_tokens)


def _with_less(calls: Sequence[Call]) -> tuple[Call, ...]:
    """One call less; of a single call, one item less in its longest list or the last line less of its longest text."""
    if len(calls) > 1:
        return tuple(calls[:-1])
    smaller = _smaller(calls[0].input)
    return () if smaller is None else (calls[0].model_copy(update={"input": smaller}),)


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


def message(reply: Reply, prompt: Usage, digest: str) -> dict[str, JsonValue]:
    """The reply as the protocol's message; `digest` of the request makes the ids."""
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
