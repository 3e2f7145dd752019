"""The client of the Messages API: the only module here that talks to a network.

How long it bears silence depends on when it is silent. Before the first byte of a reply an endpoint may be queueing,
reading a long prompt or thinking. After that it streams, and sends pings where it has nothing to say: a stream without
even these is dead.

Web search by the provider's own tool: one bounded call of the Messages API for each search.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from importlib.resources import files
from typing import NamedTuple

import httpx2
from anthropic import NOT_GIVEN, APIStatusError, AsyncAnthropic, AsyncStream, DefaultAsyncHttpxClient
from anthropic.lib.streaming import AsyncMessageStream, ParsedMessageStopEvent
from anthropic.types import Message as WireMessage
from anthropic.types import RawMessageStreamEvent, TextBlock, WebSearchTool20260318Param, WebSearchToolResultBlock

from waystation.adapters.anthropic import wire
from waystation.adapters.anthropic.errors import Silence, UnfitBody, is_missing, vendor_errors
from waystation.adapters.anthropic.wire import usage_of
from waystation.domain.budget import Usage
from waystation.domain.endpoints import ModelEndpoint
from waystation.domain.errors import ModelUnavailable
from waystation.domain.foreign import tagged
from waystation.domain.web import EVERYTHING, SEARCH_OUTPUT_TOKENS, Domains, Searched, WebHit
from waystation.ports import ModelReply, ModelRequest

CONNECT_SECONDS = 10.0
COUNT_SECONDS = 60.0
"""So long a count of tokens may take: nothing is thought about it."""
MOST_REPLY_BYTES = 32_000_000
"""Of one response: the longest reply in the smallest events has about half of it."""
_AS_IT_IS = "identity"
"""A body that is not compressed: how long one becomes that is, nobody knows before it has filled the memory."""
_BEGAN = "waystation_began"


class Patience(NamedTuple):
    """Seconds of silence that are borne."""

    first_byte: float = 180.0
    """Before the first byte of a reply."""
    thinking: float = 600.0
    """The same where the model is asked to think first."""
    stream: float = 90.0
    """Between two pieces of a reply that has begun, pings included."""

    def before(self, prompt: wire.Prompt) -> float:
        """Until the first byte of the reply to this."""
        return self.thinking if wire.thinks(prompt) else self.first_byte


_PATIENCE = Patience()


class AnthropicModel:
    """A `ChatModel` behind the Messages API. It always streams, so that no connection idles through a long reply."""

    def __init__(
        self, client: AsyncAnthropic, patience: Patience = _PATIENCE, endpoint: ModelEndpoint | None = None
    ) -> None:
        """Take over the client: retries are switched off, and `aclose` closes it. `endpoint`: what can be done there;
        None where nothing is known of it.
        """
        self._client = client.with_options(max_retries=0)
        self._patience = patience
        self._endpoint = endpoint or ModelEndpoint(url="")
        self._uncounted: set[str] = set()
        """Models whose tokens the endpoint does not count, as it has shown."""

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Ask once; see `ChatModel`."""
        prompt = wire.request_parameters(request, self._endpoint.of(request.model))
        with vendor_errors():
            return wire.reply(await self._streamed(prompt, request.max_output))

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """The provider's count of the input; see `ChatModel`. An endpoint that has none is asked once for a model."""
        capable = self._endpoint.of(request.model)
        if capable.counts is False or request.model in self._uncounted:
            return None
        prompt = wire.request_parameters(request, capable)
        with vendor_errors():
            try:
                answer = await self._client.messages.count_tokens(**prompt, timeout=_timeout(COUNT_SECONDS))
            except APIStatusError as error:
                if not is_missing(error):
                    raise
            else:
                if (counted := wire.count_of(answer)) is not None:
                    return counted
        self._uncounted.add(request.model)
        return None

    async def aclose(self) -> None:
        """Close the client and its connections."""
        await self._client.close()

    async def _streamed(self, prompt: wire.Prompt, max_output: int) -> WireMessage:
        """The message as it stands at `message_stop`. Raises ModelUnavailable where the stream ends before that."""
        timeout = _timeout(self._patience.before(prompt))
        raw = await self._client.messages.create(max_tokens=max_output, timeout=timeout, stream=True, **prompt)
        async with AsyncMessageStream(_WithUsage(raw), output_format=NOT_GIVEN) as stream:
            message: WireMessage | None = None
            async for event in stream:
                if isinstance(event, ParsedMessageStopEvent):
                    message = event.message
                    # Nobody waits for what may follow. Read on all the same: generators that are left halfway are found
                    # by the garbage collector, perhaps in another thread while they run.
                    await stream.close()
            if message is not None:
                return message
            if not stream.response.headers.get("content-type", "").startswith("text/event-stream"):
                raise ModelUnavailable("the endpoint answered with something else than an event stream; check its URL")
            raise ModelUnavailable("the model's reply was cut off")


class _WithUsage(AsyncStream[RawMessageStreamEvent]):
    """A stream in which every event that has usage to report reports some, be it zero."""

    def __init__(self, raw: AsyncStream[RawMessageStreamEvent]) -> None:
        self._raw, self.response = raw, raw.response

    async def __aiter__(self) -> AsyncIterator[RawMessageStreamEvent]:
        """Its events."""
        async for event in self._raw:
            yield wire.with_usage(event)

    async def close(self) -> None:
        """Close the response."""
        await self._raw.close()


class _Watched(httpx2.AsyncByteStream):
    """The body of a response whose every piece has to come in time, and that ends. Raises Silence, UnfitBody."""

    def __init__(self, request: httpx2.Request, body: httpx2.AsyncByteStream, first: float, later: float) -> None:
        """Seconds that are left for the first piece, and that each later one may take."""
        self._request, self._body, self._first, self._later = request, body, first, later
        self._closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The pieces as they come, until the body ends or is closed."""
        pieces, begun, taken = aiter(self._body), False, 0
        while not self._closed:
            try:
                async with asyncio.timeout(self._later if begun else self._first):
                    piece = await anext(pieces)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise Silence(self._request, begun=begun) from None
            begun, taken = begun or bool(piece), taken + len(piece)
            if taken > MOST_REPLY_BYTES:
                raise UnfitBody(f"the model's reply is longer than {MOST_REPLY_BYTES:,} bytes", request=self._request)
            yield piece

    async def aclose(self) -> None:
        """Close the body."""
        self._closed = True
        await self._body.aclose()


def anthropic_model(
    api_key: str,
    base_url: str | None = None,
    http_client: httpx2.AsyncClient | None = None,
    patience: Patience = _PATIENCE,
    endpoint: ModelEndpoint | None = None,
) -> AnthropicModel:
    """A model behind `base_url` (by default the provider's public API)."""
    return AnthropicModel(sdk_client(api_key, base_url, http_client, patience), patience, endpoint)


def sdk_client(
    api_key: str,
    base_url: str | None = None,
    http_client: httpx2.AsyncClient | None = None,
    patience: Patience = _PATIENCE,
) -> AsyncAnthropic:
    """The SDK's client without traces and logs of content."""
    # At level DEBUG the SDK logs whole requests, whatever level the application meant for itself.
    logging.getLogger("anthropic").setLevel(logging.WARNING)
    return AsyncAnthropic(
        api_key=api_key,
        base_url=base_url,
        http_client=_watching(http_client or DefaultAsyncHttpxClient(), patience.stream),
        default_headers={"accept-encoding": _AS_IT_IS},
        timeout=_timeout(patience.first_byte),
        open_telemetry=False,
    )


def _timeout(seconds: float) -> httpx2.Timeout:
    return httpx2.Timeout(seconds, connect=CONNECT_SECONDS)


def _watching(client: httpx2.AsyncClient, later: float) -> httpx2.AsyncClient:
    """The client with an eye on what it receives: the SDK swallows pings, and its time-outs know one length only.

    It follows no redirect: what is asked goes to the address that was set.
    """

    async def began(request: httpx2.Request) -> None:
        request.extensions[_BEGAN] = asyncio.get_running_loop().time()

    async def watch(response: httpx2.Response) -> None:
        extensions = response.request.extensions
        waited = asyncio.get_running_loop().time() - extensions[_BEGAN]
        if response.headers.get("content-encoding", _AS_IT_IS) != _AS_IT_IS:
            raise UnfitBody("the endpoint compresses its replies, which it was asked not to", request=response.request)
        left = max(extensions["timeout"]["read"] - waited, 0.0)
        if isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _Watched(response.request, response.stream, left, later)

    client.follow_redirects = False
    hooks = client.event_hooks
    client.event_hooks = {
        "request": [*hooks.get("request", ()), began],
        "response": [*hooks.get("response", ()), watch],
    }
    return client


class AnthropicSearch:
    """A `WebSearch` by the tool `web_search` of the Messages API."""

    def __init__(self, client: AsyncAnthropic, model: str, domains: Domains) -> None:
        """Take over the client: retries are switched off, and `aclose` closes it."""
        self._client = client.with_options(max_retries=0)
        self._model = model
        self._domains = domains

    @property
    def model(self) -> str:
        """See `WebSearch`."""
        return self._model

    async def search(self, query: str, limit: int) -> Searched:
        """See `WebSearch`. Denied domains are not found, and only allowed ones where some are listed."""
        with vendor_errors():
            answer = await self._client.messages.create(
                model=self._model,
                max_tokens=SEARCH_OUTPUT_TOKENS,
                system=files("waystation.adapters.anthropic").joinpath("search.md").read_text(encoding="utf-8"),
                messages=[{"role": "user", "content": tagged("query", query)}],
                tools=[_tool(self._domains)],
            )
            return _searched(answer, limit)

    async def aclose(self) -> None:
        """Close the client and its connections."""
        await self._client.close()


def anthropic_search(
    api_key: str,
    model: str,
    domains: Domains,
    base_url: str | None = None,
    http_client: httpx2.AsyncClient | None = None,
    patience: Patience = _PATIENCE,
) -> AnthropicSearch:
    """Search behind `base_url` (by default the provider's public API)."""
    return AnthropicSearch(sdk_client(api_key, base_url, http_client, patience), model, domains)


def _tool(domains: Domains) -> WebSearchTool20260318Param:
    """The provider takes one list of domains or the other, but not both."""
    tool: WebSearchTool20260318Param = {
        "type": "web_search_20260318",
        "name": "web_search",
        "max_uses": 1,
        "allowed_callers": ["direct"],
    }
    if domains.allow and EVERYTHING not in domains.allow:
        tool["allowed_domains"] = domains.allow
    elif domains.deny:
        tool["blocked_domains"] = domains.deny
    return tool


def _searched(answer: WireMessage, limit: int) -> Searched:
    cited = _cited(answer)
    hits: dict[str, WebHit] = {}
    fault = ""
    for block in answer.content:
        if not isinstance(block, WebSearchToolResultBlock):
            continue
        if not isinstance(block.content, Sequence):
            fault = block.content.error_code
            continue
        for found in block.content:
            excerpt = " … ".join(cited.get(found.url, ()))
            hit = WebHit(url=found.url, title=found.title, excerpt=excerpt, age=found.page_age or "")
            hits.setdefault(found.url, hit)
    return Searched(
        hits=tuple(hits.values())[:limit], usage=_usage(answer), model=answer.model, fault="" if hits else fault
    )


def _cited(answer: WireMessage) -> dict[str, list[str]]:
    """What the model quotes, by page: all else of a result is encrypted."""
    cited: dict[str, list[str]] = {}
    for url, words in _citations(answer):
        if words not in cited.setdefault(url, []):
            cited[url].append(words)
    return cited


def _citations(answer: WireMessage) -> Iterator[tuple[str, str]]:
    for block in answer.content:
        for citation in (block.citations or ()) if isinstance(block, TextBlock) else ():
            if citation.type == "web_search_result_location":
                yield citation.url, citation.cited_text


def _usage(answer: WireMessage) -> Usage:
    by_server: object = getattr(getattr(answer, "usage", None), "server_tool_use", None)
    counted: object = getattr(by_server, "web_search_requests", None)
    results = [block for block in answer.content if isinstance(block, WebSearchToolResultBlock)]
    made = sum(isinstance(block.content, Sequence) for block in results)  # those that failed are not billed
    searches = counted if isinstance(counted, int) and 0 < counted <= wire.MOST_TOKENS else made
    return Usage(**usage_of(answer).model_dump(exclude={"searches"}), searches=searches)
