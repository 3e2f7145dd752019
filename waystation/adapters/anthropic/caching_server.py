"""A Messages server in process that caches prompts as the provider does, to measure what that saves."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

import httpx2
from pydantic import JsonValue, TypeAdapter

from waystation.adapters.anthropic.prefix_cache import BYTES_PER_TOKEN, PrefixCache
from waystation.adapters.anthropic.scripted_server import message_of, streamed
from waystation.domain.budget import Usage
from waystation.ports import ModelReply

_BODY: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])


@dataclass
class CachingServer:
    """Answers each request with what `answer` says to its body, and reports what of the input came from the cache."""

    answer: Callable[[dict[str, JsonValue]], ModelReply]
    """Its usage is replaced, but for the output."""
    now: Callable[[], datetime]
    cache: PrefixCache = field(default_factory=PrefixCache)
    usages: list[Usage] = field(default_factory=list[Usage])
    """Of every reply, oldest first."""

    def http_client(self) -> httpx2.AsyncClient:
        """A client whose every request comes here."""
        return httpx2.AsyncClient(transport=httpx2.MockTransport(self._respond))

    def _respond(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("/count_tokens"):
            return httpx2.Response(200, json={"input_tokens": len(request.content) // BYTES_PER_TOKEN})
        body = _BODY.validate_json(request.content)
        reply = self.answer(body)
        usage = self.cache.charge(body, self.now()) + Usage(output=reply.usage.output)
        self.usages.append(usage)
        return streamed(message_of(reply.model_copy(update={"usage": usage})))
