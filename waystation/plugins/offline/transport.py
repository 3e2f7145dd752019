"""The offline model as an HTTP transport, for the SDK's client without a network.

It decides by the offered tools which work a request asks for.
"""

import asyncio
import hashlib
import threading
from collections.abc import AsyncIterator
from typing import TypeVar

import httpx2
from pydantic import JsonValue

from waystation.models.anthropic.received_requests import (
    CountTokensRequest,
    MessagesApiError,
    MessagesRequest,
    TextBlock,
    parse_request,
)
from waystation.models.anthropic.sse import iter_message_events
from waystation.models.profiles import OFFLINE_MODEL
from waystation.plugins.offline.agent_request import parse_agent_request
from waystation.plugins.offline.plan import build_plan_turn, build_review_turn, build_revision_turn
from waystation.plugins.offline.report import build_analysis_turn, build_writing_turn
from waystation.plugins.offline.research import build_research_turn
from waystation.plugins.offline.responses import (
    OfflineResponse,
    PromptCache,
    build_message,
    count_input_tokens,
    fit_to_max_tokens,
)
from waystation.plugins.offline.summary import build_summary_response

WINDOW = 200_000
MAX_OUTPUT = 8_192
WITHOUT_WORK = (
    "No LLM is configured. The built-in model answers only requests of Waystation's agents. "
    "For other requests, configure an LLM."
)

_WORK = {
    "submit_plan": build_plan_turn,
    "revise_plan": build_revision_turn,
    "submit_findings": build_research_turn,
    "submit_analysis": build_analysis_turn,
    "submit_report": build_writing_turn,
    "review_report": build_review_turn,
}
"""The kind of work, by the tool that ends it."""
_CONDENSING, _SNAPSHOT = "You condense", "<state_snapshot>"


def build_offline_response(request: MessagesRequest) -> OfflineResponse:
    """Build the reply; it depends on nothing but the request, and fits into its `max_tokens`.

    Raises:
        MessagesApiError: The request forces a tool for which this model has no work.
    """
    return fit_to_max_tokens(_reply(request), request.max_tokens)


def _reply(request: MessagesRequest) -> OfflineResponse:
    forced = request.forced_tool
    if forced is not None and forced not in _WORK:
        raise MessagesApiError(f"tool_choice.name: the offline model cannot be made to call {forced!r}")
    offered = [forced] if forced else [tool.name for tool in request.tools]
    for name, work in _WORK.items():
        if name in offered:
            return work(parse_agent_request(request))
    told = "\n".join(block.text for block in request.system)
    if _CONDENSING in told:
        prompt = "\n".join(block.text for block in request.messages[-1].content if isinstance(block, TextBlock))
        return build_summary_response(prompt, request.max_tokens, snapshot=_SNAPSHOT in told)
    return OfflineResponse(text=WITHOUT_WORK)


_Request = TypeVar("_Request", bound=CountTokensRequest)
_MODEL: dict[str, JsonValue] = {
    "type": "model",
    "id": OFFLINE_MODEL,
    "display_name": "Waystation offline (extractive, no LLM)",
    "created_at": "2026-11-01T00:00:00Z",
    "lifecycle": "active",
    "max_input_tokens": WINDOW,
    "max_tokens": MAX_OUTPUT,
}


def create_offline_transport() -> httpx2.AsyncBaseTransport:
    """Create a transport for `httpx2.AsyncClient` that answers Messages requests for `OFFLINE_MODEL` in process."""
    return OfflineTransport()


class OfflineTransport(httpx2.AsyncBaseTransport):
    """Answers `/v1/messages`, `/v1/messages/count_tokens` and `/v1/models`. Its only state is the prompt cache.

    Requests are processed in a thread, so that a long conversation does not block the event loop.
    """

    def __init__(self) -> None:
        self._cache = PromptCache()
        self._cache_lock = threading.Lock()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Return the response; requests that the protocol does not allow get its error format."""
        body = await request.aread()
        digest = hashlib.sha256(body).hexdigest()
        request_id = f"req_{digest[:24]}"
        try:
            response = await asyncio.to_thread(self._answer, request.method, request.url.path, body, digest)
        except MessagesApiError as refusal:
            fault: JsonValue = {"type": refusal.kind, "message": str(refusal)}
            error: JsonValue = {"type": "error", "error": fault, "request_id": request_id}
            response = httpx2.Response(refusal.status, json=error)
        response.headers["request-id"] = request_id
        return response

    def _answer(self, method: str, path: str, body: bytes, digest: str) -> httpx2.Response:
        match method, path:
            case "POST", "/v1/messages":
                return self._message(_taken(MessagesRequest, body), digest)
            case "POST", "/v1/messages/count_tokens":
                return httpx2.Response(200, json={"input_tokens": count_input_tokens(_taken(CountTokensRequest, body))})
            case "GET", "/v1/models":
                page = {"data": [_MODEL], "has_more": False, "first_id": OFFLINE_MODEL, "last_id": OFFLINE_MODEL}
                return httpx2.Response(200, json=page)
            case "GET", _ if path == f"/v1/models/{OFFLINE_MODEL}":
                return httpx2.Response(200, json=_MODEL)
            case _:
                raise MessagesApiError(
                    f"the offline model does not serve {method} {path}", status=404, kind="not_found_error"
                )

    def _message(self, request: MessagesRequest, digest: str) -> httpx2.Response:
        if request.max_tokens > MAX_OUTPUT:
            raise MessagesApiError(f"max_tokens: Input should be less than or equal to {MAX_OUTPUT}")
        length = count_input_tokens(request)
        if length + request.max_tokens > WINDOW:
            raise MessagesApiError(f"prompt is too long: {length} tokens > {WINDOW - request.max_tokens} maximum")
        reply = build_offline_response(request)
        with self._cache_lock:
            prompt = self._cache.charge(request)
        whole = build_message(reply, prompt, digest)
        if not request.stream:
            return httpx2.Response(200, json=whole)
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=_stream(whole))


def _taken(kind: type[_Request], body: bytes) -> _Request:
    request = parse_request(kind, body)
    if request.model != OFFLINE_MODEL:
        raise MessagesApiError(f"model: {request.model}", status=404, kind="not_found_error")
    return request


async def _stream(whole: dict[str, JsonValue]) -> AsyncIterator[bytes]:
    for event in iter_message_events(whole):
        yield event
