"""The client of chat completions.

The vendor's SDK is not used: it would add a second HTTP client and four more packages for one call of one path, whose
stream is read here in a dozen lines.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from pydantic import ValidationError

from waystation.kernel.errors import InvalidReplyError
from waystation.models.endpoints import OPENAI_URL, ModelEndpoint
from waystation.models.http_errors import (
    DEFAULT_TIMEOUTS,
    ModelTimeouts,
    VendorErrorBody,
    VendorErrorResponse,
    build_no_stream_error,
    build_read_timeout,
    convert_connection_error,
    install_stream_watchdog,
    parse_vendor_error,
)
from waystation.models.openai import wire
from waystation.models.ports import ModelRequest, ModelResponse, ReplyObserver

_END = "[DONE]"
_REQUEST_ID = "x-request-id"


class OpenAIModel:
    """A `ChatModel` behind chat completions. It always streams, so that no connection is idle during a long reply."""

    def __init__(self, client: httpx2.AsyncClient, url: str, endpoint: ModelEndpoint, patience: ModelTimeouts) -> None:
        """Take over the client, which `aclose` closes. `url` is what `/chat/completions` is appended to."""
        self._client, self._url = client, f"{url.rstrip('/')}/chat/completions"
        self._endpoint, self._patience = endpoint, patience

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Send one request; see `ChatModel`."""
        return await self._complete(request, None)

    async def complete_observed(self, request: ModelRequest, observer: ReplyObserver) -> ModelResponse:
        """Send one request; see `StreamingChatModel`."""
        observer.begin_reply()
        return await self._complete(request, observer)

    async def _complete(self, request: ModelRequest, observer: ReplyObserver | None) -> ModelResponse:
        of_maker = self._url.startswith(OPENAI_URL)
        body = wire.build_request_body(request, self._endpoint.get_capabilities(request.model), of_maker=of_maker)
        timeout = build_read_timeout(self._patience.get_first_byte_timeout(thinks=request.effort is not None))
        reply = wire.ChatStreamAccumulator(has_thinking=request.effort is not None)
        async with _errors(), self._client.stream("POST", self._url, json=body, timeout=timeout) as response:
            if not response.is_success:
                raise _refusal(response, parse_vendor_error(await response.aread())).model_error
            if not (answered := response.headers.get("content-type", "")).startswith("text/event-stream"):
                raise build_no_stream_error(answered)
            async for data in _events(response):
                chunk = wire.ChatChunk.model_validate_json(data)
                if chunk.error is not None:
                    raise _refusal(response, parse_vendor_error(data)).model_error
                reply.add_chunk(chunk)
                if observer is not None:
                    for delta in wire.iter_reply_deltas(chunk):
                        observer.receive_delta(delta)
        return reply.build_response()

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """See `ChatModel`: the protocol cannot count tokens."""
        del request

    async def aclose(self) -> None:
        """Close the client and its connections."""
        await self._client.aclose()


def create_openai_model(
    key: str | None,
    url: str = OPENAI_URL,
    http_client: httpx2.AsyncClient | None = None,
    patience: ModelTimeouts = DEFAULT_TIMEOUTS,
    endpoint: ModelEndpoint | None = None,
) -> OpenAIModel:
    """Create a model behind `url`; without a key none is sent."""
    client = install_stream_watchdog(http_client or httpx2.AsyncClient(), patience.stream)
    if key:
        client.headers["authorization"] = f"Bearer {key}"
    return OpenAIModel(client, url, endpoint or ModelEndpoint(url=url, kind="openai"), patience)


async def _events(response: httpx2.Response) -> AsyncIterator[str]:
    """Yield what follows `data:`, up to the end mark of the protocol.

    The rest is read although no one needs it: generators that are left halfway are found by the garbage collector.
    """
    ended = False
    async for line in response.aiter_lines():
        data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
        ended = ended or data == _END
        if data and not ended:
            yield data


def _refusal(response: httpx2.Response, fault: VendorErrorBody) -> VendorErrorResponse:
    request = response.headers.get(_REQUEST_ID, "")
    return VendorErrorResponse(response.status_code, fault.error_kind, fault.description, request, response.headers)


@asynccontextmanager
async def _errors() -> AsyncGenerator[None]:
    """Convert every error of the HTTP client, and everything unreadable, to a ModelError."""
    try:
        yield
    except httpx2.HTTPError as error:
        raise convert_connection_error(error) from None
    except ValidationError as error:
        fields = ", ".join(sorted({".".join(map(str, line["loc"])) for line in error.errors()})) or "not JSON"
        raise InvalidReplyError(f"a piece of the model's reply has missing or malformed fields ({fields})") from None
