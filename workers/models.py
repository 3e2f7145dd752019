"""Routes requests to models: the built-in offline one, the provider's, or those of named endpoints, with fallbacks
between them.
"""

import asyncio
import hashlib
import hmac
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import random

import httpx2

from waystation.config.settings import Settings
from waystation.context.tokens import estimate_request_tokens, estimate_text
from waystation.kernel.errors import (
    BadInput,
    BrokenEndpointError,
    ContentFilterError,
    ModelError,
    ModelNotFoundError,
    ModelRejected,
    ModelUnavailable,
    SpendingLimitReached,
)
from waystation.kernel.imports import pause_gc_for_imports
from waystation.models.endpoints import PROVIDER_KEY, EndpointRegistry, ModelEndpoint, NamedEndpoint
from waystation.models.http_errors import ModelTimeouts, add_model_to_error
from waystation.models.openai.model import create_openai_model
from waystation.models.ports import (
    CacheWarmingModel,
    ChatModel,
    LimitRepository,
    LimitScope,
    ModelRequest,
    ModelResponse,
    ReplyObserver,
    WaitObserver,
    complete_with_observer,
)
from waystation.models.profiles import OFFLINE_MODEL, format_model_name, parse_model_name
from waystation.models.rate_limiter import MAX_QUEUE_SECONDS, CallSize, LimiterContext, RateLimiter
from waystation.plugins.api import ChatModelContext
from waystation.runtime.plugins import build_plugin_registry

_log = logging.getLogger(__name__)

OFFLINE_KIND = "offline"
"""The plug-in with the built-in model."""
REST_SECONDS = 60.0
"""Seconds for which an endpoint that did not answer is skipped if another one can take its calls."""
SHORT_WAIT = 10.0
"""Maximum `Retry-After` in seconds that is waited for instead of asking another endpoint: the prompt cache there is
worth it.
"""


class LazyChatModel:
    """A model whose client is created on its first call, in a thread, since that may load the vendor's SDK.

    A model that is never called may lack its key or its packages.
    """

    def __init__(self, make: Callable[[], ChatModel]) -> None:
        self._make = make
        self._made: ChatModel | None = None
        self._making = asyncio.Lock()

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """See `ChatModel`. Raises ModelRejected if no client can be created."""
        return await (await self._model()).complete(request)

    async def complete_observed(self, request: ModelRequest, observer: ReplyObserver) -> ModelResponse:
        """See `StreamingChatModel`. A model that cannot stream replies all the same."""
        return await complete_with_observer(await self._model(), request, observer)

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """See `ChatModel`."""
        return await (await self._model()).count_tokens(request)

    async def warm_cache(self, request: ModelRequest) -> ModelResponse | None:
        """See `CacheWarmingModel`."""
        model = await self._model()
        return await model.warm_cache(request) if isinstance(model, CacheWarmingModel) else None

    async def aclose(self) -> None:
        """Close the client, if one was created."""
        if self._made is not None:
            await self._made.aclose()

    async def _model(self) -> ChatModel:
        async with self._making:
            if self._made is None:
                try:
                    self._made = await asyncio.to_thread(self._make)
                except BadInput as error:
                    raise ModelRejected(str(error)) from None
            return self._made


class ModelRouter:
    """Sends a request to the endpoint of its model, so that one worker serves offline tasks and others.

    If that endpoint is down, overloaded or over its spending limit, the request goes to a fallback.
    """

    def __init__(
        self,
        offline: ChatModel,
        provider: ChatModel | None,
        named: Mapping[str, ChatModel],
        places: EndpointRegistry,
        keys: Mapping[str, str] | None = None,
        pacing: "RouterLimits | None" = None,
    ) -> None:
        """Build the router.

        Args:
            offline: The built-in model.
            provider: Models of the provider; None without a key.
            named: Models of the named endpoints, by endpoint name.
            places: All endpoints.
            keys: Environment variable of each endpoint's key, by endpoint name; empty name: the provider's.
            pacing: The rate limits; None: calls wait for none.
        """
        self._pacing = pacing
        self._keys = keys or {}
        self._offline, self._provider, self._named, self._places = offline, provider, named, places
        self._rests: dict[str, float] = {}
        """End of each model's rest, by its full name, on the event loop's clock."""

    def list_fallbacks(self, model: str) -> tuple[str, ...]:
        """See `FallbackChatModel`."""
        return self._places.list_fallbacks(model)

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """See `ChatModel` and `_answer`. Waits for no rate limit."""
        return await self._answer(request, self._call)

    async def complete_paced(
        self,
        request: ModelRequest,
        tenant: str,
        observer: WaitObserver,
        reply_observer: ReplyObserver | None = None,
    ) -> ModelResponse:
        """See `PacedChatModel` and `_answer`."""

        async def call(model: str, placed: ModelRequest) -> ModelResponse:
            chat, pacing = self._of(model), self._pacing
            if pacing is None or model == OFFLINE_MODEL:
                return await complete_with_observer(chat, placed, reply_observer)
            scope = pacing.find_scope(model)
            limiter = pacing.limiter.get_scope_limiter(scope)
            size = CallSize(partial(_estimate_tokens, placed), placed.max_output)
            # Another endpoint that can take the call is better than a long wait.
            patience = SHORT_WAIT if request.fallbacks else MAX_QUEUE_SECONDS
            async with limiter.admit_call(size, tenant, observer, patience) as admitted:
                reply = await complete_with_observer(chat, placed, reply_observer)
                counts = has_counted_cache_reads(self._places.get_endpoint(model).kind, scope.model)
                admitted.record_usage(reply.usage, counts_cache_reads=counts)
                return reply

        return await self._answer(request, call)

    async def _call(self, model: str, request: ModelRequest) -> ModelResponse:
        return await self._of(model).complete(request)

    async def _answer(
        self, request: ModelRequest, call: Callable[[str, ModelRequest], Awaitable[ModelResponse]]
    ) -> ModelResponse:
        """Return the reply of the model or of a fallback.

        A call that was refused and certainly not charged goes to the next fallback. One that may have been charged
        fails, and the caller's next attempt goes to the fallback. If a fallback does not take the call (a wrong key,
        too long a request), only its own error says so. Errors name the model.
        """
        refused: ModelError | None = None
        for model in self._order(request):
            asked = model == request.model
            try:
                with self._named_in_errors(model, "" if asked else model):
                    reply = await call(model, request.convert_for_model(model))
            except (ModelUnavailable, SpendingLimitReached, ModelRejected) as error:
                passed_on = _passed_on(error, asked=asked) and self._rested(model, request, error)
                if not passed_on or not request.fallbacks:
                    raise
                if isinstance(error, ModelUnavailable) and error.possibly_billed:
                    raise _without_delay(error) from None
                own = isinstance(error, ModelRejected) and not asked
                if not own and (refused is None or isinstance(error, ModelUnavailable)):
                    refused = error
            else:
                return reply if asked else reply.replace(called_model=model)
        raise refused or ModelRejected("no model was asked")

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """See `ChatModel`. If another model can take the call, a count is not waited for."""
        if self._rests.get(request.model, 0.0) > _now():
            return None
        try:
            with self._named_in_errors(request.model):
                return await self._of(request.model).count_tokens(request.convert_for_model(request.model))
        except (ModelUnavailable, SpendingLimitReached, ModelNotFoundError) as error:
            if not self._rested(request.model, request, error):
                raise
            return None

    async def warm_cache(self, request: ModelRequest) -> ModelResponse | None:
        """See `CacheWarmingModel`. Each model has a cache of its own, so no fallback takes the call."""
        with self._named_in_errors(request.model):
            model = self._of(request.model)
            if not isinstance(model, CacheWarmingModel):
                return None
            return await model.warm_cache(request.convert_for_model(request.model))

    async def aclose(self) -> None:
        """Close all models."""
        for model in (self._offline, self._provider, *self._named.values()):
            if model is not None:
                await model.aclose()
        if self._pacing is not None:
            await self._pacing.limiter.aclose()

    def _rested(self, model: str, request: ModelRequest, error: ModelError) -> bool:
        """Return whether others can take the calls of a model that did not answer, and let it rest for a while."""
        if not self.list_fallbacks(request.model):
            return False
        self._rests[model] = _now() + REST_SECONDS
        _log.warning("%s does not answer (%s)", model, type(error).__name__)
        return True

    def _order(self, request: ModelRequest) -> Sequence[str]:
        """Return the models to try: first those that answered their last call."""
        now = _now()
        return sorted((request.model, *request.fallbacks), key=lambda model: self._rests.get(model, 0.0) > now)

    @contextmanager
    def _named_in_errors(self, model: str, asked: str = "") -> Generator[None]:
        """Name the model in errors. `asked`: the requested model, if this one is its fallback."""
        variable = self._keys.get(parse_model_name(model).endpoint or "", "")
        try:
            yield
        except ModelError as error:
            named = add_model_to_error(error, model, variable, is_set=bool(os.environ.get(variable)))
            if asked:
                named.called_model = asked
            raise named from None

    def _of(self, model: str) -> ChatModel:
        if model == OFFLINE_MODEL:
            return self._offline
        if place := parse_model_name(model).endpoint:
            if place not in self._named:
                raise ModelRejected(f"the config file of this worker has no [endpoints.{place}]")
            return self._named[place]
        if self._provider is None:
            raise ModelRejected(f"the task needs it, but this worker has no {PROVIDER_KEY}")
        return self._provider


def _now() -> float:
    return asyncio.get_running_loop().time()


def _without_delay(error: ModelUnavailable) -> ModelUnavailable:
    """Return the error without a delay before the next attempt, which goes to another model."""
    told = ModelUnavailable(str(error))
    vars(told).update({name: vars(error)[name] for name in ("reported_usage", "called_model") if name in vars(error)})
    return told


def _passed_on(error: ModelError, *, asked: bool) -> bool:
    """Return whether another model may be tried after this error.

    `asked`: the error comes from the requested model, whose rejections of the request itself go to the caller. A short
    delay is waited for, and a blocked reply may be charged.
    """
    if isinstance(error, ModelRejected):
        return isinstance(error, ModelNotFoundError | BrokenEndpointError) or not (
            asked or isinstance(error, ContentFilterError)
        )
    if not isinstance(error, ModelUnavailable) or error.possibly_billed:
        return True
    return error.retry_after is None or error.retry_after > SHORT_WAIT


@dataclass(frozen=True)
class RouterLimits:
    """The rate limits that a router's calls wait for."""

    limiter: RateLimiter
    find_scope: Callable[[str], LimitScope]
    """Returns what limits a model, by its full name."""


def has_counted_cache_reads(kind: str, model: str) -> bool:
    """Return whether input tokens that are read from the cache count towards the limit of an endpoint of this kind.

    For current Claude models they do not: of the input, only new tokens and those that are written to the cache count
    (https://platform.claude.com/docs/en/api/rate-limits, "Cache-aware ITPM"). They do for Claude Haiku 3.5, and
    everywhere behind chat completions.
    """
    return kind == "openai" or "3-5-haiku" in model


def create_limit_scopes(settings: Settings, key: bytes) -> Callable[[str], LimitScope]:
    """Return the function that finds what limits a model, by its full name. `key`: for the hashes of accounts."""
    registry, named = settings.endpoint_registry, settings.named_endpoints

    def find_scope(model: str) -> LimitScope:
        place = parse_model_name(model)
        endpoint = named.get(place.endpoint or "")
        if endpoint is None:
            secret = settings.anthropic_api_key
            account = "" if secret is None else secret.get_secret_value()
        else:
            account = os.environ.get(endpoint.key_variable) or (
                f"{endpoint.kind}/{endpoint.profile}/{endpoint.project}/{endpoint.resource}"
            )
        return LimitScope(registry.get_endpoint(model).url, hash_account(key, account), place.model)

    return find_scope


def hash_account(key: bytes, account: str) -> str:
    """Return a keyed hash of an API key, which tells accounts apart and reveals nothing to who reads the store."""
    return hmac.new(key, b"rate limit\0" + account.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:16]


def create_limiter_context(
    settings: Settings, leases: LimitRepository, worker: str, weights: Mapping[str, float]
) -> LimiterContext:
    """Create what the limiters of this process share.

    Args:
        settings: The settings.
        leases: Where leases come from.
        worker: Name of this process among the workers of the store.
        weights: Weights of tenants, by their hashes.
    """
    return LimiterContext(leases, worker, time.monotonic, random, weights=weights, fixed=settings.fixed_limits)


def _estimate_tokens(request: ModelRequest) -> int:
    tools = json.dumps([tool.model_dump(mode="json") for tool in request.tools])
    return estimate_request_tokens(estimate_text(request.system) + estimate_text(tools), request.messages)


def create_model_router(settings: Settings, pacing: RouterLimits | None = None) -> ModelRouter:
    """Create the router over the models that these settings reach. `pacing`: the rate limits of their endpoints.

    Raises:
        BadInput: A named endpoint that these settings use lacks something that it needs.
    """
    used = settings.used_endpoints
    makers = {name: partial(_named_model, settings, name) for name in settings.named_endpoints}
    named = {name: make() if name in used else LazyChatModel(make) for name, make in makers.items()}
    keys = {"": PROVIDER_KEY, **{name: one.key_variable for name, one in settings.named_endpoints.items()}}
    provider = (
        None if settings.anthropic_api_key is None else _provider(settings, settings.endpoint_registry.get_endpoint(""))
    )
    built_in = NamedEndpoint(kind=OFFLINE_KIND)
    row = ModelEndpoint(url=built_in.url, kind=built_in.kind)
    offline = LazyChatModel(partial(_model_at_endpoint, settings, built_in, row))
    return ModelRouter(offline, provider, named, settings.endpoint_registry, keys, pacing)


def _named_model(settings: Settings, name: str) -> ChatModel:
    row = settings.endpoint_registry.get_endpoint(format_model_name(name, "-"))
    return _model_at_endpoint(settings, settings.named_endpoints[name], row)


def _model_at_endpoint(settings: Settings, endpoint: NamedEndpoint, row: ModelEndpoint) -> ChatModel:
    """Models of ours, or of a plug-in. Raises BadInput."""
    patience = get_model_timeouts(settings)
    if not endpoint.is_plugin:
        return create_endpoint_model(endpoint, row, patience)
    context = ChatModelContext(endpoint, row, _load_endpoint_key(endpoint), patience)
    return build_plugin_registry(settings).create_chat_model(context)


def create_probe_model(settings: Settings, model: str, endpoint: ModelEndpoint) -> ChatModel:
    """Create a model at its endpoint without assumptions about its abilities. Raises BadInput without a key."""
    if place := parse_model_name(model).endpoint:
        return _model_at_endpoint(settings, settings.named_endpoints[place], endpoint)
    if settings.anthropic_api_key is None:
        raise BadInput("no endpoint is configured: set ANTHROPIC_API_KEY, and ANTHROPIC_BASE_URL for another endpoint")
    return _provider(settings, endpoint)


def create_endpoint_model(
    endpoint: NamedEndpoint, row: ModelEndpoint, patience: ModelTimeouts, http_client: httpx2.AsyncClient | None = None
) -> ChatModel:
    """The models of a named endpoint of a kind of ours. Raises BadInput where it lacks a key or packages."""
    key = _load_endpoint_key(endpoint)
    if endpoint.kind == "openai":
        return create_openai_model(key, endpoint.url, http_client, patience, row)
    with pause_gc_for_imports():
        from waystation.models.anthropic.model import AnthropicModel  # noqa: PLC0415  as above
        from waystation.models.anthropic.platforms import create_platform_client  # noqa: PLC0415

    connected = create_platform_client(endpoint, key, http_client, patience)
    return AnthropicModel(connected.client, patience, row, connected.no_credentials)


def _load_endpoint_key(endpoint: NamedEndpoint) -> str | None:
    """None where it takes none. Raises BadInput where it lacks one."""
    key = os.environ.get(endpoint.key_variable) or None
    if key is None and endpoint.required_key_variable:
        raise BadInput(endpoint.missing_key_message)
    return key


def _provider(settings: Settings, endpoint: ModelEndpoint) -> ChatModel:
    if settings.anthropic_api_key is None:
        raise BadInput("set ANTHROPIC_API_KEY")
    with pause_gc_for_imports():
        from waystation.models.anthropic.model import create_anthropic_model  # noqa: PLC0415  as above

    key = settings.anthropic_api_key.get_secret_value()
    return create_anthropic_model(
        key, settings.anthropic_base_url, patience=get_model_timeouts(settings), endpoint=endpoint
    )


def get_model_timeouts(settings: Settings) -> ModelTimeouts:
    """Return how long the provider may be silent."""
    return ModelTimeouts(settings.model_patience, settings.model_patience_thinking, settings.model_stream_patience)
