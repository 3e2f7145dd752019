"""A Messages server in process, for tests: it says what its script says, through the real client and its streams."""

import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import islice

import httpx2
from pydantic import JsonValue, TypeAdapter

from waystation.adapters.anthropic.sse import Event, error_event, events
from waystation.ports import ModelReply

Answer = httpx2.Response | httpx2.TransportError
"""One item of a script: a response, or what the connection does instead."""

BYTES_PER_TOKEN = 4
REQUEST_ID = "req_scripted"

_BODY: TypeAdapter[Event] = TypeAdapter(dict[str, JsonValue])


class ScriptedServer:
    """Answers `POST /v1/messages` from its script, in order, and counts tokens as a quarter of the bytes."""

    def __init__(self, script: Sequence[Answer]) -> None:
        self._script = iter(script)
        self.requests: list[httpx2.Request] = []
        """Every request, oldest first."""

    @property
    def bodies(self) -> list[Event]:
        """What the requests for a reply carried, oldest first."""
        return [_BODY.validate_json(request.content) for request in self.requests if not _counts(request)]

    def http_client(self) -> httpx2.AsyncClient:
        """A client whose every request comes here."""
        return httpx2.AsyncClient(transport=httpx2.MockTransport(self._answer))

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        if _counts(request):
            return httpx2.Response(200, json={"input_tokens": len(request.content) // BYTES_PER_TOKEN})
        answer = next(self._script, None)
        if answer is None:
            return refused(400, "invalid_request_error", "the script has no more answers")
        if isinstance(answer, httpx2.TransportError):
            raise answer
        return answer


def message_of(reply: ModelReply) -> Event:
    """A reply as the Messages API would send it unstreamed."""
    return {
        "id": "msg_scripted",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": [block.model_dump(mode="json") for block in reply.blocks],
        "stop_reason": reply.stop.value,
        "stop_sequence": None,
        "usage": {
            "input_tokens": reply.usage.input,
            "cache_creation_input_tokens": reply.usage.cache_write,
            "cache_read_input_tokens": reply.usage.cache_read,
            "output_tokens": reply.usage.output,
        },
    }


def streamed(message: Mapping[str, JsonValue]) -> httpx2.Response:
    """The whole message as an event stream."""
    return _stream(events(message))


def failed_midstream(message: Mapping[str, JsonValue], kind: str, words: str = "", after: int = 2) -> httpx2.Response:
    """A stream that ends with an error of this kind after so many events."""
    return _stream([*islice(events(message), after), error_event(kind, words, REQUEST_ID)])


def cut(message: Mapping[str, JsonValue], after: int = 2) -> httpx2.Response:
    """A stream that ends as if it were whole after so many events."""
    return _stream(islice(events(message), after))


def dropped(message: Mapping[str, JsonValue], after: int = 2) -> httpx2.Response:
    """A stream whose connection breaks after so many events."""
    return _stream(islice(events(message), after), breaks=True)


def refused(status: int, kind: str, words: str = "", headers: Mapping[str, str] | None = None) -> httpx2.Response:
    """An error response; `words` is the provider's message."""
    body = {"type": "error", "error": {"type": kind, "message": words}, "request_id": REQUEST_ID}
    sent = {"content-type": "application/json", "request-id": REQUEST_ID, **(headers or {})}
    return httpx2.Response(status, headers=sent, content=json.dumps(body))


def page(content_type: str, body: str) -> httpx2.Response:
    """What something that is no Messages server answers."""
    return httpx2.Response(200, headers={"content-type": content_type}, content=body)


def _stream(parts: Iterable[bytes], *, breaks: bool = False) -> httpx2.Response:
    async def sent() -> AsyncIterator[bytes]:
        for part in parts:
            yield part
        if breaks:
            raise httpx2.ReadError("the connection broke")

    headers = {"content-type": "text/event-stream; charset=utf-8", "request-id": REQUEST_ID}
    return httpx2.Response(200, headers=headers, content=sent())


def _counts(request: httpx2.Request) -> bool:
    return request.url.path.endswith("/count_tokens")
