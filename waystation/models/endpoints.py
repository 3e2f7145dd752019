"""Endpoints of models: their addresses, and what each can do, as documented by its vendor, probed, or configured.

A model at a named endpoint has a full name, `ENDPOINT::MODEL`, which is used in configs, prices and charges. A name
without an endpoint belongs to the one that `ANTHROPIC_BASE_URL` names, by default the provider's own.
"""

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Literal, Self, get_args
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, model_validator

from waystation.kernel.errors import BadInput
from waystation.kernel.value import Value
from waystation.models.profiles import OFFLINE_MODEL, format_model_name, get_model_profile, parse_model_name

PROVIDER = "anthropic.com"
"""Domain of the provider whose prices are built in."""
PROVIDER_URL = f"https://api.{PROVIDER}"
PROVIDER_KEY = "ANTHROPIC_API_KEY"


class ModelCapabilities(Value):
    """What one endpoint can do for one model. None: unknown, and treated as the provider's own endpoint would be."""

    streams: bool | None = None
    """Whether its replies are complete event streams that end with a stop reason."""
    tools: bool | None = None
    """Whether it accepts tools, calls them, and accepts their results."""
    forces_tools: bool | None = None
    """Whether `tool_choice` may name a tool; if not, the model is asked in words."""
    parallel_calls: bool | None = None
    """Whether one reply can hold several calls."""
    reports_usage: bool | None = None
    caches: bool | None = None
    """Whether it accepts cache marks and reports what they saved; if not, no marks are sent."""
    counts: bool | None = None
    """Whether it counts tokens; if not, it is never asked to."""
    binds_thinking: bool | None = None
    """Whether it accepts the provider's beta that drops outdated thinking; if not, the beta is never requested."""
    strict_tools: bool | None = None
    """Whether it takes tools whose arguments are constrained to their schemas while the model writes them. Unknown
    counts as no: other servers reject the field, and on some platforms an organisation has to permit it.
    """
    names_overflow: bool | None = None
    """Whether it rejects a request longer than the window in words that distinguish it from other rejections."""
    answers_as: str = ""
    """The model that answers, if it differs from the requested one."""
    probed: date | None = None
    """Date of the probe; None if the capabilities were configured by hand."""
    source: str = ""

    @property
    def unfit_reason(self) -> str:
        """Why no task can run there; empty if nothing is known to prevent it."""
        if self.streams is False:
            return "the endpoint does not stream its replies, or its streams end early or are malformed"
        return "the model does not accept tools, or does not call them" if self.tools is False else ""


UNKNOWN_CAPABILITIES = ModelCapabilities()
KNOWN_CAPABILITIES: Mapping[str, ModelCapabilities] = {
    PROVIDER_URL: ModelCapabilities(
        streams=True,
        tools=True,
        parallel_calls=True,
        reports_usage=True,
        caches=True,
        counts=True,
        strict_tools=True,
        names_overflow=True,
        source="the provider's reference of the Messages API, as of October 2026",
    ),
}
"""By address. Forced tool choice and bound thinking depend on the model there (`waystation.models.profiles`)."""


EndpointKind = Literal["anthropic", "compatible", "bedrock", "mantle", "vertex", "foundry", "openai"]
"""The provider's API; another server of its protocol; Amazon Bedrock by its older and its newer door; Google Vertex;
Microsoft Foundry; chat completions."""
BUILT_IN_KINDS = frozenset[str](get_args(EndpointKind))
EndpointKindName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
"""An `EndpointKind`, or the name of a plug-in that has the models of an endpoint."""
OPENAI_URL = "https://api.openai.com/v1"
OPENAI_KEY = "OPENAI_API_KEY"
_CAPABILITIES_BY_KIND: Mapping[str, ModelCapabilities] = {
    "bedrock": ModelCapabilities(counts=False, source="the SDK, which does not count tokens on Bedrock"),
    "openai": ModelCapabilities(
        caches=False,
        counts=False,
        binds_thinking=False,
        source="the chat completions API, which has no cache marks, no token counts and no beta for thinking",
    ),
}
"""What follows from how an endpoint is spoken to, where nothing else is known of it."""
_URLS: Mapping[str, str] = {
    "bedrock": "https://bedrock-runtime.{}.amazonaws.com",
    "mantle": "https://bedrock-mantle.{}.api.aws/anthropic",
    "foundry": "https://{}.services.ai.azure.com/anthropic",
    "openai": OPENAI_URL,
}
"""By region or resource, as the SDK has them."""
_VERTEX: Mapping[str, str] = {
    "global": "https://aiplatform.googleapis.com/v1",
    "us": "https://aiplatform.us.rep.googleapis.com/v1",
    "eu": "https://aiplatform.eu.rep.googleapis.com/v1",
}
_REGIONAL = ("bedrock", "mantle", "vertex")
Auth = Literal["bearer", "x-api-key", "both"]
FullName = Annotated[str, StringConstraints(min_length=1, max_length=200)]


def normalise_base_url(address: str, *, versioned: bool = False) -> str:
    """Return the address that a client appends its paths to. The error does not repeat it: it may contain a password.

    Args:
        address: an http or https address.
        versioned: whether its path may end in `/v1`.

    Raises:
        ValueError: it is not such an address.
    """
    address, fault = address.strip(), "it must be the http or https address of an endpoint, like http://localhost:11434"
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        raise ValueError(fault) from None
    clean = len(address.split()) == 1 and not {"?", "#"} & {*address}
    if parts.scheme not in ("http", "https") or not parts.hostname or not clean:
        raise ValueError(fault)
    added = ("/chat/completions",) if versioned else ("/v1", "/messages")
    if parts.path.rstrip("/").endswith(added):
        named = "/chat/completions" if versioned else "/v1 or /v1/messages"
        raise ValueError(f"remove {named} from the end of the address: the client adds it")
    return address


class NamedEndpoint(Value):
    """A named endpoint as in the config file: `[endpoints.NAME]`. It contains no secret."""

    kind: EndpointKindName
    base_url: str | None = None
    """Its address, if it is not the vendor's own."""
    auth: Auth = "bearer"
    """How the key is sent to a `compatible` server."""
    key_from: str = ""
    """Environment variable with its key, without which it is not called. Default: `ANTHROPIC_API_KEY` for the provider,
    `OPENAI_API_KEY` for openai, `ANTHROPIC_FOUNDRY_API_KEY`, `AWS_BEARER_TOKEN_BEDROCK`; none for `compatible`.
    """
    model: str = ""
    """Default model at this endpoint."""
    region: str = Field(default="", pattern=r"^[a-z0-9-]{0,40}$")
    profile: str = ""
    """Profile in AWS's own configuration."""
    project: str = ""
    """Google project; by default that of the credentials."""
    resource: str = Field(default="", pattern=r"^[A-Za-z0-9-]{0,64}$")
    """Foundry resource: the first part of its host name."""
    fallback: tuple[FullName, ...] = ()
    """What takes over a call if this endpoint is gone, overloaded or over its spending limit, in this order: a full
    name, or an endpoint that has a model of the same name or its own default.
    """

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.base_url is not None:
            normalise_base_url(self.base_url, versioned=self.kind == "openai")
        elif self.kind == "compatible":
            raise ValueError("it needs a base_url")
        if self.kind in _REGIONAL and not self.region:
            raise ValueError("it needs a region, like us-east-1")
        if self.kind == "foundry" and bool(self.resource) == (self.base_url is not None):
            raise ValueError("it needs either a resource or a base_url, not both")
        return self

    @property
    def is_plugin(self) -> bool:
        """Whether a plug-in has its models."""
        return self.kind not in BUILT_IN_KINDS

    @property
    def url(self) -> str:
        """Where it is; of a plug-in that was given no address a name, since prices and capabilities go by that."""
        if self.base_url is not None:
            return self.base_url
        if self.is_plugin:
            return f"plugin://{self.kind}"
        place = self.region if self.kind != "foundry" else self.resource
        if self.kind == "vertex":
            return _VERTEX.get(place, f"https://{place}-aiplatform.googleapis.com/v1")
        return _URLS.get(self.kind, PROVIDER_URL).format(place)

    @property
    def address(self) -> str:
        """The address without credentials, for people to read."""
        return _address(self.url)

    @property
    def key_variable(self) -> str:
        """The variable that has its key; empty where it takes none."""
        of_kind: Mapping[str, str] = {
            "foundry": "ANTHROPIC_FOUNDRY_API_KEY",
            "bedrock": "AWS_BEARER_TOKEN_BEDROCK",
            "mantle": "AWS_BEARER_TOKEN_BEDROCK",
        }
        return self.required_key_variable or of_kind.get(self.kind, "")

    @property
    def required_key_variable(self) -> str:
        """The variable without which it is not called: a configured one, or the vendor's own."""
        if self.key_from or self.kind == "anthropic":
            return self.key_from or PROVIDER_KEY
        of_maker = self.kind == "openai" and urlsplit(self.url).hostname == urlsplit(OPENAI_URL).hostname
        return OPENAI_KEY if of_maker else ""

    @property
    def missing_key_message(self) -> str:
        """Message if its key is missing."""
        return f"the endpoint at {self.address} needs a key: set {self.key_variable}"


class ModelEndpoint(Value):
    """The endpoint of a model, and what is configured for its models."""

    url: str = PROVIDER_URL
    """Without who may use it: a password is nobody's name."""
    kind: EndpointKindName = "anthropic"
    capabilities: Mapping[str, ModelCapabilities] = {}
    """Capabilities by the model's name."""

    @property
    def host(self) -> str:
        """Host name of the endpoint."""
        return urlsplit(self.url).hostname or "this endpoint"

    @property
    def is_provider(self) -> bool:
        """Whether it is the provider's own, whose prices and behaviour are built in."""
        return self.host == PROVIDER or self.host.endswith(f".{PROVIDER}")

    def get_capabilities(self, model: str) -> ModelCapabilities:
        """Return its capabilities for a model: as configured, or else as known."""
        known = KNOWN_CAPABILITIES.get(PROVIDER_URL if self.is_provider else self.url)
        return (
            self.capabilities.get(parse_model_name(model).model)
            or known
            or _CAPABILITIES_BY_KIND.get(self.kind, UNKNOWN_CAPABILITIES)
        )

    def has_documented_capabilities(self, model: str) -> bool:
        """Whether its capabilities for a model are configured, or documented by the vendor."""
        return parse_model_name(model).model in self.capabilities or self.is_provider


class EndpointRegistry(Value):
    """Everything that the settings say about where models are."""

    base_url: str | None = None
    """Address for models without an endpoint in their names."""
    named: Mapping[str, NamedEndpoint] = {}
    capabilities: Mapping[str, Mapping[str, ModelCapabilities]] = {}
    """Capabilities by address and model."""
    default: str = ""
    """The named endpoint of models without one; if empty, the one at `base_url`."""

    def get_endpoint(self, model: str) -> ModelEndpoint:
        """Return the endpoint of a model by its full name.

        Raises:
            BadInput: no endpoint has that name.
        """
        named = parse_model_name(model).endpoint
        if not named:
            return build_model_endpoint(self.base_url, self.capabilities)
        if (endpoint := self.named.get(named)) is None:
            raise BadInput(
                f"{model} names an endpoint that is not configured: add [endpoints.{named}] to the config "
                "file (docs/how-to/use-another-endpoint.md)"
            )
        return build_model_endpoint(endpoint.url, self.capabilities).replace(kind=endpoint.kind)

    def qualify_model_name(self, model: str, endpoint: str = "", *, given: bool = True) -> str:
        """Return the full name of a model at an endpoint, or at the default one.

        Args:
            model: name of the model.
            endpoint: name of an endpoint; empty for the default one.
            given: whether a person chose the model; if not, the endpoint's own default model takes its place.
        """
        place = endpoint or self.default
        if parse_model_name(model).endpoint or not place:
            return model
        own = self.named[place].model if place in self.named else ""
        return format_model_name(place, model if given or not own else own)

    def list_fallbacks(self, model: str) -> tuple[str, ...]:
        """Return the full names of the models that may answer in its place, in order; never itself."""
        place = parse_model_name(model)
        others = self.named[place.endpoint].fallback if place.endpoint in self.named else ()
        full = (self._fallback(other, place.model) for other in others)
        return tuple(dict.fromkeys(other for other in full if other != model))

    def _fallback(self, other: str, model: str) -> str:
        return format_model_name(other, self.named[other].model or model) if other in self.named else other

    @property
    def unknown_fallbacks(self) -> tuple[tuple[str, str], ...]:
        """Pairs of an endpoint and one of its fallbacks that is neither another endpoint, nor a full name of a model at
        one, nor a model that is known at the provider.
        """
        return tuple(
            (name, other)
            for name, endpoint in self.named.items()
            for other in endpoint.fallback
            if other not in self.named and not self._knows(other)
        )

    def _knows(self, model: str) -> bool:
        place = parse_model_name(model).endpoint
        return place in self.named if place else model == OFFLINE_MODEL or get_model_profile(model).is_known


def build_model_endpoint(base_url: str | None, written: Mapping[str, Mapping[str, ModelCapabilities]]) -> ModelEndpoint:
    """Return the endpoint at an address, with what the settings say about it."""
    url = _address(base_url or PROVIDER_URL)
    rows = {model: row for place, rows in written.items() if _address(place) == url for model, row in rows.items()}
    return ModelEndpoint(url=url, capabilities=rows)


def _address(base_url: str) -> str:
    """Return an address as the settings key it: without user, password and final slash."""
    parts = urlsplit(base_url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2].lower()).geturl().rstrip("/")
