"""Which model answers a request: the built-in offline one, or the provider's."""

import httpx2

from waystation.adapters.anthropic.model import Patience, anthropic_model
from waystation.adapters.offline.transport import offline_transport
from waystation.domain.endpoints import ModelEndpoint, model_endpoint
from waystation.domain.errors import BadInput, ModelRejected
from waystation.domain.models import OFFLINE_MODEL
from waystation.ports import ChatModel, ModelReply, ModelRequest
from waystation.settings import Settings


class ModelSwitch:
    """Sends a request where its model lives, so that one worker serves offline tasks and others."""

    def __init__(self, offline: ChatModel, provider: ChatModel | None) -> None:
        self._offline, self._provider = offline, provider

    async def complete(self, request: ModelRequest) -> ModelReply:
        """See `ChatModel`."""
        return await self._of(request.model).complete(request)

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """See `ChatModel`."""
        return await self._of(request.model).count_tokens(request)

    async def aclose(self) -> None:
        """Close both."""
        await self._offline.aclose()
        if self._provider is not None:
            await self._provider.aclose()

    def _of(self, model: str) -> ChatModel:
        if model == OFFLINE_MODEL:
            return self._offline
        if self._provider is None:
            raise ModelRejected(f"the task wants {model}, but this worker has no ANTHROPIC_API_KEY")
        return self._provider


def model_switch(settings: Settings) -> ModelSwitch:
    """The models that these settings reach. The offline one is behind the same adapter as the provider's."""
    in_process = httpx2.AsyncClient(transport=offline_transport())
    offline = anthropic_model("offline", "http://offline.invalid", in_process)
    if settings.anthropic_api_key is None:
        return ModelSwitch(offline, None)
    key = settings.anthropic_api_key.get_secret_value()
    endpoint = model_endpoint(settings.anthropic_base_url, settings.endpoints)
    provider = anthropic_model(key, settings.anthropic_base_url, patience=patience_of(settings), endpoint=endpoint)
    return ModelSwitch(offline, provider)


def probing_model(settings: Settings, endpoint: ModelEndpoint) -> ChatModel:
    """The provider's model at an endpoint of which nothing is taken for granted. Raises BadInput without a key."""
    if settings.anthropic_api_key is None:
        raise BadInput("there is no endpoint to ask: set ANTHROPIC_API_KEY, and ANTHROPIC_BASE_URL for another one")
    key = settings.anthropic_api_key.get_secret_value()
    return anthropic_model(key, settings.anthropic_base_url, patience=patience_of(settings), endpoint=endpoint)


def patience_of(settings: Settings) -> Patience:
    """How long the provider may be silent."""
    return Patience(settings.model_patience, settings.model_patience_thinking, settings.model_stream_patience)
