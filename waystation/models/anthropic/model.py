"""The client of the Messages API, and web search by the provider's own tool (one bounded call for each search).

Time-outs depend on when an endpoint is silent. Before the first byte of a reply it may be queueing, reading a long
prompt or thinking. After that it streams, and sends pings if it has nothing to say: a stream without even these is
dead.
"""

import time
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files

import httpx2
from anthropic import NOT_GIVEN, AnthropicError, APIConnectionError, APIStatusError, AsyncAnthropic, AsyncStream, omit
from anthropic.lib.streaming import AsyncMessageStream, ParsedMessageStopEvent
from anthropic.types import (
    DiagnosticsParam,
    RawMessageStreamEvent,
    TextBlock,
    WebSearchTool20260318Param,
    WebSearchToolResultBlock,
)
from anthropic.types import Message as WireMessage

from waystation.kernel.errors import InvalidReplyError, ModelAuthenticationError, ModelError, ModelRejected
from waystation.kernel.usage import Usage
from waystation.models.anthropic import wire
from waystation.models.anthropic.platforms import MessagesClient, create_sdk_client
from waystation.models.anthropic.stream_usage import StreamUsageEstimator
from waystation.models.anthropic.wire import parse_usage
from waystation.models.endpoints import ModelEndpoint
from waystation.models.http_errors import (
    COUNT_SECONDS,
    CUT_OFF,
    DEFAULT_TIMEOUTS,
    ModelTimeouts,
    VendorErrorResponse,
    build_no_stream_error,
    build_read_timeout,
    convert_connection_error,
    parse_vendor_error,
    sanitize_token_count,
)
from waystation.models.ports import (
    SEARCH_OUTPUT_TOKENS,
    ModelRequest,
    ModelResponse,
    ReplyObserver,
    WebSearchResponse,
    WebSearchResult,
)
from waystation.models.profiles import get_model_profile
from waystation.security.untrusted import wrap_untrusted
from waystation.security.web_addresses import ANY_DOMAIN, DomainPolicy

_WARMING_KINDS = ("anthropic", "foundry")
"""Kinds of endpoints that document calls without a reply."""
_STREAMS = ("text/event-stream", "application/vnd.amazon.eventstream")


class AnthropicModel:
    """A `ChatModel` behind the Messages API. It always streams, so that no connection is idle during a long reply."""

    def __init__(
        self,
        client: MessagesClient,
        patience: ModelTimeouts = DEFAULT_TIMEOUTS,
        endpoint: ModelEndpoint | None = None,
        no_credentials: tuple[type[Exception], ...] = (),
    ) -> None:
        """Take over the client: its retries are switched off, and `aclose` closes it.

        Args:
            client: the SDK's client.
            patience: time-outs for silence.
            endpoint: what can be done there; None if nothing is known.
            no_credentials: errors by which a vendor's libraries say that they found no credentials.
        """
        self._client = client.with_options(max_retries=0)
        self._timeouts = patience
        self._endpoint = endpoint or ModelEndpoint(url="")
        self._no_credentials = no_credentials
        self._uncounted: set[str] = set()
        """Models whose tokens the endpoint has shown not to count."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Send one request; see `ChatModel`."""
        return await self._complete(request, None)

    async def complete_observed(self, request: ModelRequest, observer: ReplyObserver) -> ModelResponse:
        """Send one request; see `StreamingChatModel`."""
        observer.begin_reply()
        return await self._complete(request, observer)

    async def _complete(self, request: ModelRequest, observer: ReplyObserver | None) -> ModelResponse:
        prompt = wire.build_request_parameters(request, self._endpoint.get_capabilities(request.model))
        # Other endpoints may reject a field that they do not know.
        previous = request.previous_reply if self._endpoint.is_provider else ""
        # Behind another server, any model may go by this name.
        known = self._endpoint.kind != "compatible" and get_model_profile(request.model).is_known
        partial = StreamUsageEstimator(speed_known=known)
        with _reporting(partial, request.max_output), _vendor_errors(self._no_credentials):
            message = await self._streamed(prompt, request.max_output, previous, partial, observer)
            return wire.parse_model_response(message)

    async def warm_cache(self, request: ModelRequest) -> ModelResponse | None:
        """Read the prefix without a reply; see `CacheWarmingModel`.

        The provider rejects `max_tokens: 0` with a stream, a forced tool, or a fixed number of tokens for thinking.
        Without thinking the request would have another prefix.
        """
        capable = self._endpoint.get_capabilities(request.model)
        impossible = isinstance(request.thinking, int) or request.require_tool is not None or request.one_shot
        if impossible or capable.caches is False or self._endpoint.kind not in _WARMING_KINDS:
            return None
        prompt = wire.build_request_parameters(request, capable)
        with _vendor_errors(self._no_credentials):
            read = await self._client.messages.create(max_tokens=0, timeout=build_read_timeout(COUNT_SECONDS), **prompt)
            return wire.parse_model_response(read)

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """Return the provider's count of input tokens; see `ChatModel`.

        An endpoint without one is asked once for each model.
        """
        capable = self._endpoint.get_capabilities(request.model)
        if capable.counts is False or request.model in self._uncounted:
            return None
        prompt = wire.build_request_parameters(request, capable)
        with _vendor_errors(self._no_credentials):
            try:
                answer = await self._client.messages.count_tokens(**prompt, timeout=build_read_timeout(COUNT_SECONDS))
            except APIStatusError as error:
                if not _is_missing(error):
                    raise
            else:
                if (counted := wire.parse_token_count(answer)) is not None:
                    return counted
        self._uncounted.add(request.model)
        return None

    async def aclose(self) -> None:
        """Close the client and its connections."""
        await self._client.close()

    async def _streamed(
        self,
        prompt: wire.PromptParameters,
        max_output: int,
        previous: str,
        partial: StreamUsageEstimator,
        observer: ReplyObserver | None,
    ) -> WireMessage:
        """Return the message as it is at `message_stop`.

        Raises:
            InvalidReplyError: the stream ends before that.
        """
        timeout = build_read_timeout(self._timeouts.get_first_byte_timeout(thinks=wire.is_thinking_enabled(prompt)))
        asked = DiagnosticsParam(previous_message_id=previous) if previous else omit
        raw = await self._client.messages.create(
            max_tokens=max_output, timeout=timeout, stream=True, diagnostics=asked, **prompt
        )
        async with AsyncMessageStream(_WithUsage(raw, partial, observer), output_format=NOT_GIVEN) as stream:
            message: WireMessage | None = None
            async for event in stream:
                if isinstance(event, ParsedMessageStopEvent):
                    message = event.message
                    # No one waits for what may follow, but it is read: generators left halfway are found by the garbage
                    # collector, perhaps in another thread while they run.
                    await stream.close()
            if message is not None:
                return message
            if not (answered := stream.response.headers.get("content-type", "")).startswith(_STREAMS):
                raise build_no_stream_error(answered)
            raise InvalidReplyError(CUT_OFF)


class _WithUsage(AsyncStream[RawMessageStreamEvent]):
    """A stream in which every event that can carry usage does, even if it is zero, and whose tool arguments are JSON
    objects.
    """

    def __init__(
        self,
        raw: AsyncStream[RawMessageStreamEvent],
        partial: StreamUsageEstimator,
        observer: ReplyObserver | None = None,
    ) -> None:
        self._raw, self.response, self._partial, self._reply_observer = raw, raw.response, partial, observer

    async def __aiter__(self) -> AsyncIterator[RawMessageStreamEvent]:
        """Yield the events, each recorded before it is passed on."""
        arguments = wire.ArgumentsAccumulator()
        async for event in self._raw:
            told = wire.with_usage(event)
            self._partial.add_event(told, time.monotonic())
            if self._reply_observer is not None and (delta := wire.parse_reply_delta(told)) is not None:
                self._reply_observer.receive_delta(delta)
            for whole in arguments.add_event(told):
                yield whole

    async def close(self) -> None:
        """Close the response."""
        await self._raw.close()


@contextmanager
def _reporting(partial: StreamUsageEstimator, max_output: int) -> Generator[None]:
    """Add to our errors the usage that the stream had reported before."""
    try:
        yield
    except ModelError as error:
        if (reported := partial.estimate_max_usage(time.monotonic(), max_output)) is not None:
            error.reported_usage = reported
        raise


def create_anthropic_model(
    api_key: str,
    base_url: str | None = None,
    http_client: httpx2.AsyncClient | None = None,
    patience: ModelTimeouts = DEFAULT_TIMEOUTS,
    endpoint: ModelEndpoint | None = None,
) -> AnthropicModel:
    """Create a model behind `base_url` (by default the provider's public API)."""
    return AnthropicModel(create_sdk_client(api_key, base_url, http_client, patience), patience, endpoint)


class AnthropicSearch:
    """A `WebSearch` by the tool `web_search` of the Messages API."""

    def __init__(self, client: AsyncAnthropic, model: str, domains: DomainPolicy) -> None:
        """Take over the client: its retries are switched off, and `aclose` closes it."""
        self._client = client.with_options(max_retries=0)
        self._model = model
        self._domains = domains

    @property
    def model(self) -> str:
        """See `WebSearch`."""
        return self._model

    async def search(self, query: str, limit: int) -> WebSearchResponse:
        """See `WebSearch`. Denied domains are not searched, and only the allowed ones if any are listed."""
        with _vendor_errors():
            answer = await self._client.messages.create(
                model=self._model,
                max_tokens=SEARCH_OUTPUT_TOKENS,
                system=files("waystation.models.anthropic").joinpath("search.md").read_text(encoding="utf-8"),
                messages=[{"role": "user", "content": wrap_untrusted("query", query)}],
                tools=[_tool(self._domains)],
            )
            return _searched(answer, limit)

    async def aclose(self) -> None:
        """Close the client and its connections."""
        await self._client.close()


def create_anthropic_search(
    api_key: str,
    model: str,
    domains: DomainPolicy,
    base_url: str | None = None,
    http_client: httpx2.AsyncClient | None = None,
    patience: ModelTimeouts = DEFAULT_TIMEOUTS,
) -> AnthropicSearch:
    """Create a search behind `base_url` (by default the provider's public API)."""
    return AnthropicSearch(create_sdk_client(api_key, base_url, http_client, patience), model, domains)


def _tool(domains: DomainPolicy) -> WebSearchTool20260318Param:
    """The provider accepts one list of domains or the other, but not both."""
    tool: WebSearchTool20260318Param = {
        "type": "web_search_20260318",
        "name": "web_search",
        "max_uses": 1,
        "allowed_callers": ["direct"],
    }
    if domains.allow and ANY_DOMAIN not in domains.allow:
        tool["allowed_domains"] = domains.allow
    elif domains.deny:
        tool["blocked_domains"] = domains.deny
    return tool


def _searched(answer: WireMessage, limit: int) -> WebSearchResponse:
    cited = _cited(answer)
    hits: dict[str, WebSearchResult] = {}
    fault = ""
    for block in answer.content:
        if not isinstance(block, WebSearchToolResultBlock):
            continue
        if not isinstance(block.content, Sequence):
            fault = block.content.error_code
            continue
        for found in block.content:
            excerpt = " … ".join(cited.get(found.url, ()))
            hit = WebSearchResult(url=found.url, title=found.title, excerpt=excerpt, age=found.page_age or "")
            hits.setdefault(found.url, hit)
    return WebSearchResponse(
        hits=tuple(hits.values())[:limit], usage=_usage(answer), model=answer.model, fault="" if hits else fault
    )


def _cited(answer: WireMessage) -> dict[str, list[str]]:
    """Return the model's quotations by page: everything else in a result is encrypted."""
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
    made = sum(isinstance(block.content, Sequence) for block in results)  # failed searches are not billed
    searches = sanitize_token_count(counted) or made
    return parse_usage(answer).replace(searches=searches)


_NO_SUCH_CALL = (404, 405, 501)
_UNSUPPORTED = ("not supported", "unsupported", "not implemented", "not available")


@contextmanager
def _vendor_errors(no_credentials: tuple[type[Exception], ...] = ()) -> Generator[None]:
    """Convert every error of the SDK, of its HTTP client, and of credential providers to ours.

    Raises:
        ModelUnavailable: retryable.
        SpendingLimitReached: the provider's account has no money left.
        ModelRejected: not retryable.
        ContentFilterError: not retryable here, but this one may have been billed.
    """
    try:
        yield
    except (AnthropicError, httpx2.HTTPError) as error:
        raise _ours(error) from None
    except no_credentials as error:
        named = type(error).__name__
        raise ModelAuthenticationError(f"this worker has no credentials for the endpoint ({named})") from None
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        # The SDK validates nothing that it receives: a malformed stream surfaces as whatever breaks first.
        raise InvalidReplyError(f"the model's reply could not be read ({type(error).__name__})") from None


def _ours(error: AnthropicError | httpx2.HTTPError) -> ModelError:
    """Convert an error of the SDK or of its HTTP client to ours."""
    match error:
        case APIStatusError():
            return _refusal(error).model_error
        case APIConnectionError() | httpx2.HTTPError():
            return convert_connection_error(error.__cause__ or error)
        case _:
            return ModelRejected(f"the provider's client library cannot make the call ({type(error).__name__})")


def _is_missing(error: APIStatusError) -> bool:
    """Whether the endpoint lacks this call, judged by its status, or by its words if the status says less."""
    words = parse_vendor_error(error.body).description.lower()
    return error.status_code in _NO_SUCH_CALL or (
        error.status_code == 400 and any(sign in words for sign in _UNSUPPORTED)
    )


def _refusal(error: APIStatusError) -> VendorErrorResponse:
    """Nothing in the response was validated: kinds and words may be anything, in any server's shape."""
    fault = parse_vendor_error(error.body)
    kind = error.type if error.status_code < 400 else error.error_code or fault.error_kind
    return VendorErrorResponse(
        error.status_code, str(kind or ""), fault.description, error.request_id or "", error.response.headers
    )
