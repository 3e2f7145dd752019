"""Which model answers a request: the built-in offline one, the provider's, or one at a named endpoint."""

import os
from collections.abc import Mapping

import httpx2

from waystation.adapters.anthropic.model import AnthropicModel, anthropic_model
from waystation.adapters.anthropic.platforms import platform_client
from waystation.adapters.offline.transport import offline_transport
from waystation.adapters.openai.model import openai_model
from waystation.connections import Patience
from waystation.domain.endpoints import ModelEndpoint, NamedEndpoint
from waystation.domain.errors import BadInput, ModelRejected
from waystation.domain.models import OFFLINE_MODEL, located
from waystation.ports import ChatModel, ModelReply, ModelRequest
from waystation.settings import Settings


class ModelSwitch:
    """Sends a request where its model lives, so that one worker serves offline tasks and others."""

    def __init__(self, offline: ChatModel, provider: ChatModel | None, named: Mapping[str, ChatModel]) -> None:
        self._offline, self._provider, self._named = offline, provider, named

    async def complete(self, request: ModelRequest) -> ModelReply:
        """See `ChatModel`."""
        return await self._of(request.model).complete(_there(request))

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """See `ChatModel`."""
        return await self._of(request.model).count_tokens(_there(request))

    async def aclose(self) -> None:
        """Close all."""
        for model in (self._offline, self._provider, *self._named.values()):
            if model is not None:
                await model.aclose()

    def _of(self, model: str) -> ChatModel:
        if model == OFFLINE_MODEL:
            return self._offline
        if place := located(model).endpoint:
            if place not in self._named:
                raise ModelRejected(f"the task wants {model}, but this worker's config file has no [endpoints.{place}]")
            return self._named[place]
        if self._provider is None:
            raise ModelRejected(f"the task wants {model}, but this worker has no ANTHROPIC_API_KEY")
        return self._provider


def _there(request: ModelRequest) -> ModelRequest:
    """The request as its endpoint takes it: there a model has no endpoint before its name."""
    return request.model_copy(update={"model": located(request.model).model})


def model_switch(settings: Settings) -> ModelSwitch:
    """The models that these settings reach. The offline one is behind the same adapter as the provider's.

    Raises BadInput for a named endpoint without what it needs.
    """
    in_process = httpx2.AsyncClient(transport=offline_transport())
    offline = anthropic_model("offline", "http://offline.invalid", in_process)
    named = {
        name: endpoint_model(endpoint, settings.places.at(f"{name}::-"), patience_of(settings))
        for name, endpoint in settings.named_endpoints.items()
    }
    if settings.anthropic_api_key is None:
        return ModelSwitch(offline, None, named)
    return ModelSwitch(offline, _provider(settings, settings.places.at("")), named)


def probing_model(settings: Settings, model: str, endpoint: ModelEndpoint) -> ChatModel:
    """A model at its endpoint, of which nothing is taken for granted. Raises BadInput without a key."""
    if place := located(model).endpoint:
        return endpoint_model(settings.named_endpoints[place], endpoint, patience_of(settings))
    if settings.anthropic_api_key is None:
        raise BadInput("there is no endpoint to ask: set ANTHROPIC_API_KEY, and ANTHROPIC_BASE_URL for another one")
    return _provider(settings, endpoint)


def endpoint_model(
    endpoint: NamedEndpoint, row: ModelEndpoint, patience: Patience, http_client: httpx2.AsyncClient | None = None
) -> ChatModel:
    """The models of a named endpoint. Raises BadInput where it lacks a key or packages."""
    key = os.environ.get(endpoint.key_variable) if endpoint.key_variable else None
    if endpoint.kind == "openai":
        return openai_model(key, endpoint.url, http_client, patience, row)
    connected = platform_client(endpoint, key or None, http_client, patience)
    return AnthropicModel(connected.client, patience, row, connected.no_credentials)


def _provider(settings: Settings, endpoint: ModelEndpoint) -> ChatModel:
    if settings.anthropic_api_key is None:
        raise BadInput("set ANTHROPIC_API_KEY")
    key = settings.anthropic_api_key.get_secret_value()
    return anthropic_model(key, settings.anthropic_base_url, patience=patience_of(settings), endpoint=endpoint)


def patience_of(settings: Settings) -> Patience:
    """How long the provider may be silent."""
    return Patience(settings.model_patience, settings.model_patience_thinking, settings.model_stream_patience)
