"""The client of the Messages API: the only module here that talks to a network."""

import logging

import httpx2
from anthropic import AsyncAnthropic
from anthropic.lib.streaming import ParsedMessageStopEvent
from anthropic.types import Message as WireMessage

from waystation.adapters.anthropic import wire
from waystation.adapters.anthropic.errors import vendor_errors
from waystation.domain.errors import ModelUnavailable
from waystation.ports import ModelReply, ModelRequest

TIMEOUT = httpx2.Timeout(600.0, connect=10.0)
"""Seconds: ten to connect, ten minutes of silence. A model that thinks sends nothing for long."""


class AnthropicModel:
    """A `ChatModel` behind the Messages API. It always streams, so that no connection idles through a long reply."""

    def __init__(self, client: AsyncAnthropic) -> None:
        """Take over the client: retries are switched off, and `aclose` closes it."""
        self._client = client.with_options(max_retries=0)

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Ask once; see `ChatModel`."""
        prompt = wire.prompt(request)
        with vendor_errors():
            return wire.reply(await self._streamed(prompt, request.max_output))

    async def count_tokens(self, request: ModelRequest) -> int:
        """The provider's count of the input; see `ChatModel`."""
        prompt = wire.prompt(request)
        with vendor_errors():
            counted = await self._client.messages.count_tokens(**prompt)
            return counted.input_tokens

    async def aclose(self) -> None:
        """Close the client and its connections."""
        await self._client.close()

    async def _streamed(self, prompt: wire.Prompt, max_output: int) -> WireMessage:
        """The message as it stands at `message_stop`. Raises ModelUnavailable where the stream ends before that."""
        async with self._client.messages.stream(max_tokens=max_output, **prompt) as stream:
            async for event in stream:
                if isinstance(event, ParsedMessageStopEvent):
                    return event.message
            if not stream.response.headers.get("content-type", "").startswith("text/event-stream"):
                raise ModelUnavailable("the endpoint answered with something else than an event stream; check its URL")
            raise ModelUnavailable("the model's reply was cut off")


def anthropic_model(
    api_key: str, base_url: str | None = None, http_client: httpx2.AsyncClient | None = None
) -> AnthropicModel:
    """A model behind `base_url` (by default the provider's public API)."""
    return AnthropicModel(sdk_client(api_key, base_url, http_client))


def sdk_client(
    api_key: str, base_url: str | None = None, http_client: httpx2.AsyncClient | None = None
) -> AsyncAnthropic:
    """The SDK's client without traces and logs of content."""
    # At level DEBUG the SDK logs whole requests, whatever level the application meant for itself.
    logging.getLogger("anthropic").setLevel(logging.WARNING)
    return AsyncAnthropic(
        api_key=api_key,
        base_url=base_url,
        http_client=http_client,
        timeout=TIMEOUT,
        open_telemetry=False,
    )
