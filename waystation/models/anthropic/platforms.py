"""Creates clients of the Messages API for each platform: Anthropic, another server, Bedrock, Vertex or Foundry.

None of them traces or logs content, and all have the same time-outs. The packages for Bedrock, Vertex and Foundry come
with the extras of these names; they find credentials as their vendors' programs do.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

import httpx2
from anthropic import NOT_GIVEN, AsyncAnthropic, AsyncAnthropicFoundry, DefaultAsyncHttpxClient, omit
from anthropic.lib.bedrock import AsyncAnthropicBedrock, AsyncAnthropicBedrockMantle
from anthropic.lib.vertex import AsyncAnthropicVertex

from waystation.kernel.errors import BadInput
from waystation.kernel.text import format_extra_hint
from waystation.models.endpoints import NamedEndpoint
from waystation.models.http_errors import DEFAULT_TIMEOUTS, ModelTimeouts, build_read_timeout, install_stream_watchdog

MessagesClient = (
    AsyncAnthropic | AsyncAnthropicBedrock | AsyncAnthropicBedrockMantle | AsyncAnthropicFoundry | AsyncAnthropicVertex
)
NO_KEY = "none"
"""Sent as the key to an endpoint that needs none."""
CUSTOM_HEADERS_VARIABLE = "ANTHROPIC_CUSTOM_HEADERS"
ENTRA_SCOPE = "https://ai.azure.com/.default"
"""OAuth scope of an Entra token for Foundry."""


class PlatformClient(NamedTuple):
    """A client, and the errors by which its vendor's libraries say that they found no credentials."""

    client: MessagesClient
    no_credentials: tuple[type[Exception], ...] = ()


class _Open(NamedTuple):
    """What every kind of client is created with."""

    endpoint: NamedEndpoint
    key: str | None
    http: httpx2.AsyncClient
    timeout: httpx2.Timeout


def create_sdk_client(
    api_key: str,
    base_url: str | None = None,
    http_client: httpx2.AsyncClient | None = None,
    patience: ModelTimeouts = DEFAULT_TIMEOUTS,
) -> AsyncAnthropic:
    """Create the SDK's client of the provider's API, or of another server that takes its key in the same way."""
    _quiet()
    return AsyncAnthropic(
        api_key=api_key,
        base_url=base_url,
        http_client=_watched(http_client, patience),
        timeout=build_read_timeout(patience.first_byte),
        open_telemetry=False,
    )


def create_platform_client(
    endpoint: NamedEndpoint,
    key: str | None,
    http_client: httpx2.AsyncClient | None = None,
    patience: ModelTimeouts = DEFAULT_TIMEOUTS,
) -> PlatformClient:
    """Create the client of a named endpoint. Credentials are not looked up before the first call.

    Raises:
        BadInput: its packages or its key are missing.
    """
    _quiet()
    made = _CLIENTS[endpoint.kind](
        _Open(endpoint, key, _watched(http_client, patience), build_read_timeout(patience.first_byte))
    )
    client = _without_headers_of_others(made.client)
    if endpoint.kind == "compatible" and endpoint.auth != "bearer":
        # The SDK only sends a key as `Authorization: Bearer`.
        others = {"Authorization": omit} if endpoint.auth == "x-api-key" else {}
        client = client.copy(default_headers={"x-api-key": key or NO_KEY, **others})  # pyright: ignore[reportArgumentType]
    return made._replace(client=client)


def _without_headers_of_others(client: MessagesClient) -> MessagesClient:
    """Drop the custom headers of the environment that replace a key: the SDK sends them to every server, but they are
    meant for the provider, or for what `ANTHROPIC_BASE_URL` names.
    """
    written = [line.partition(":") for line in os.environ.get(CUSTOM_HEADERS_VARIABLE, "").split("\n")]
    own = {name.lower(): value for name, value in client.auth_headers.items()}
    headers = {name.strip(): own.get(name.strip().lower(), omit) for name, colon, _ in written if colon}
    return client.copy(default_headers=headers) if headers else client  # pyright: ignore[reportArgumentType]


def _quiet() -> None:
    # At level DEBUG the SDK logs whole requests, whatever level the application chose for itself.
    logging.getLogger("anthropic").setLevel(logging.WARNING)


def _watched(http_client: httpx2.AsyncClient | None, patience: ModelTimeouts) -> httpx2.AsyncClient:
    return install_stream_watchdog(http_client or DefaultAsyncHttpxClient(), patience.stream)


def _messages(options: _Open) -> PlatformClient:
    """Create a client for the provider or a compatible server.

    Without a key the SDK would look for the provider's in the environment, and send it to that server.
    """
    client = AsyncAnthropic(
        api_key=options.key or NO_KEY,
        base_url=options.endpoint.url,
        http_client=options.http,
        timeout=options.timeout,
        open_telemetry=False,
    )
    return PlatformClient(client)


def _bedrock(options: _Open) -> PlatformClient:
    client = AsyncAnthropicBedrock(
        aws_region=options.endpoint.region,
        aws_profile=options.endpoint.profile or None,
        api_key=options.key,
        base_url=options.endpoint.url,
        http_client=options.http,
        timeout=options.timeout,
        open_telemetry=False,
    )
    return PlatformClient(client, _errors("botocore.exceptions", "BotoCoreError", "bedrock"))


def _mantle(options: _Open) -> PlatformClient:
    client = AsyncAnthropicBedrockMantle(
        aws_region=options.endpoint.region,
        aws_profile=options.endpoint.profile or None,
        api_key=options.key,
        base_url=options.endpoint.url,
        http_client=options.http,
        timeout=options.timeout,
        open_telemetry=False,
    )
    return PlatformClient(client, _errors("botocore.exceptions", "BotoCoreError", "bedrock"))


def _vertex(options: _Open) -> PlatformClient:
    no_credentials = _errors("google.auth.exceptions", "GoogleAuthError", "vertex")
    client = AsyncAnthropicVertex(
        region=options.endpoint.region,
        base_url=options.endpoint.url,
        access_token=options.key,
        http_client=options.http,
        timeout=options.timeout,
        open_telemetry=False,
        project_id=options.endpoint.project or NOT_GIVEN,
    )
    return PlatformClient(client, no_credentials)


def _foundry(options: _Open) -> PlatformClient:
    """Create a Foundry client with its key, or else with Entra tokens."""
    no_credentials: tuple[type[Exception], ...] = ()
    if options.key is None:
        if find_spec("azure") is None or _absent("azure.identity"):
            raise BadInput(
                f"{options.endpoint.missing_key_message}, or {format_extra_hint('foundry')} to use Entra tokens"
            )
        no_credentials = _errors("azure.core.exceptions", "AzureError", "foundry")
    client = AsyncAnthropicFoundry(
        base_url=options.endpoint.url,
        api_key=options.key,
        azure_ad_token_provider=None if options.key is not None else _entra_tokens(),
        http_client=options.http,
        timeout=options.timeout,
        open_telemetry=False,
    )
    return PlatformClient(client, no_credentials)


def _entra_tokens() -> Callable[[], Awaitable[str]]:
    """Return a provider of Entra tokens for the identity that Azure's own programs would find, cached until expiry.

    It may wait for a network, so it runs in a thread.
    """
    from azure.identity import DefaultAzureCredential, get_bearer_token_provider  # noqa: PLC0415 - an extra's package

    # At level INFO its chain of credentials logs for each that it was not found.
    logging.getLogger("azure").setLevel(logging.ERROR)
    token = get_bearer_token_provider(DefaultAzureCredential(), ENTRA_SCOPE)
    return lambda: asyncio.to_thread(token)


_CLIENTS: Mapping[str, Callable[[_Open], PlatformClient]] = {
    "anthropic": _messages,
    "compatible": _messages,
    "bedrock": _bedrock,
    "mantle": _mantle,
    "vertex": _vertex,
    "foundry": _foundry,
}
"""All kinds except chat completions, which are a different protocol."""


def _errors(module: str, name: str, extra: str) -> tuple[type[Exception], ...]:
    """Return the base class of a vendor's errors.

    Raises:
        BadInput: its package is not installed.
    """
    if find_spec(module.partition(".")[0]) is None or _absent(module):
        raise BadInput(f"this endpoint needs more packages: {format_extra_hint(extra)}")
    found: object = getattr(import_module(module), name)
    assert isinstance(found, type)
    assert issubclass(found, Exception)
    return found, RuntimeError


def _absent(module: str) -> bool:
    try:
        return find_spec(module) is None
    except ModuleNotFoundError:
        return True
