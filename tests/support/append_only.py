"""Checks that, between two compactions, each request of an agent extends the previous one."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pydantic import JsonValue

from tests.support.strict_server import BODY, Body
from waystation.context.transcript import Thinking
from waystation.models.anthropic.wire import build_request_parameters
from waystation.models.ports import ChatModel, ModelRequest, ModelResponse
from waystation.testing.messages_server import PrefixBinding

_STEP = re.compile(r'<step id=\\"([^"\\]+)\\"')


def flatten_request(body: Body) -> list[str]:
    """Return a request in the order in which the provider reads it, without cache marks: tools, system prompt,
    blocks.
    """
    return [json.dumps(part, sort_keys=True) for part in _flat(body)]


def _flat(body: Body) -> Iterator[JsonValue]:
    for name in ("tools", "system"):
        for part in _objects(body.get(name)):
            yield [name, _unmarked(part)]
    for message in _objects(body["messages"]):
        for block in _objects(message["content"]):
            yield [message["role"], _unmarked(block)]


def _objects(listed: JsonValue) -> Sequence[Body]:
    return [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []


def _unmarked(part: Mapping[str, JsonValue]) -> JsonValue:
    return {name: value for name, value in part.items() if name != "cache_control"}


def find_prefix_breaks(bodies: Sequence[Body]) -> list[int]:
    """Return the numbers (from 1) of an agent's requests that do not extend the one before, byte for byte."""
    sent = [flatten_request(body) for body in bodies]
    return [number for number, (before, now) in enumerate(pairwise(sent), 2) if now[: len(before)] != before]


def group_by_agent(bodies: Sequence[Body]) -> dict[str, list[Body]]:
    """Group the requests of agents by the step that their task brief names."""
    found: dict[str, list[Body]] = {}
    for body in bodies:
        if (step := _STEP.search(json.dumps(body["messages"]))) and body.get("tool_choice") is None and "tools" in body:
            found.setdefault(step[1], []).append(body)
    return found


@dataclass
class PrefixBindingModel:
    """A model that thinks before each reply, behind a provider that binds thinking to its prefix."""

    model: ChatModel
    binding: PrefixBinding = field(default_factory=PrefixBinding)
    bodies: list[Body] = field(default_factory=list[Body])
    """Bodies of all requests for a reply, oldest first."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """See `ChatModel`."""
        body = BODY.validate_python(build_request_parameters(request))
        self.bodies.append(body)
        dropped = len(self.binding.find_dropped_thinking(body))
        reply = await self.model.complete(request)
        thought = Thinking(thinking=f"Thought {len(self.bodies)}.", signature="")
        reply = reply.replace(blocks=(thought, *reply.blocks))
        return self.binding.sign_reply(reply, body).replace(dropped_thinking=dropped)

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """See `ChatModel`."""
        return await self.model.count_tokens(request)

    async def aclose(self) -> None:
        """See `ChatModel`."""
        await self.model.aclose()
