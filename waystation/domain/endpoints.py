"""What an endpoint can do for a model: known from its maker's pages, probed, or written down; and what follows."""

from collections.abc import Mapping
from datetime import date
from urllib.parse import urlsplit

from waystation.domain.value import Input

PROVIDER = "anthropic.com"
"""Whose the built-in prices are."""
PROVIDER_URL = f"https://api.{PROVIDER}"


class Capabilities(Input):
    """What one endpoint can do for one model. None: nobody knows, and it is asked as the provider's own would be."""

    streams: bool | None = None
    """Whether its replies are whole event streams that end with a stop reason."""
    tools: bool | None = None
    """Whether it takes tools, calls them, and takes their results."""
    forces_tools: bool | None = None
    """Whether `tool_choice` may name a tool; where not, the model is asked in words."""
    parallel_calls: bool | None = None
    """Whether one reply can hold several calls."""
    reports_usage: bool | None = None
    caches: bool | None = None
    """Whether it takes cache marks and reports what they saved; where not, no marks are sent."""
    counts: bool | None = None
    """Whether it counts tokens; where not, it is never asked to."""
    binds_thinking: bool | None = None
    """Whether it takes the provider's beta that leaves outdated thinking out; where not, that is never asked for."""
    names_overflow: bool | None = None
    """Whether it refuses what is longer than the window in words that are told apart from other refusals."""
    answers_as: str = ""
    """The model that answers, where it is another than was asked for."""
    probed: date | None = None
    """When it was asked. None: these are somebody's words."""
    source: str = ""

    @property
    def unfit(self) -> str:
        """Why no task can run there; empty where nothing is known to stop one."""
        if self.streams is False:
            return "its replies are no whole streams"
        return "it does not take tools, or does not call them" if self.tools is False else ""


UNKNOWN = Capabilities()
KNOWN: Mapping[str, Capabilities] = {
    PROVIDER_URL: Capabilities(
        streams=True,
        tools=True,
        parallel_calls=True,
        reports_usage=True,
        caches=True,
        counts=True,
        names_overflow=True,
        source="the provider's reference of the Messages API, read in October 2026",
    ),
}
"""By address. Which models take a forced choice and bound thinking differs there (`waystation.domain.models`)."""


class ModelEndpoint(Input):
    """Where models answer, and what is written down of them there."""

    url: str = PROVIDER_URL
    """Without who may use it: a password is nobody's name."""
    rows: Mapping[str, Capabilities] = {}
    """By the model's name."""

    @property
    def host(self) -> str:
        """Its host."""
        return urlsplit(self.url).hostname or "this endpoint"

    @property
    def is_provider(self) -> bool:
        """Whether it is the provider's own, whose prices and habits are built in."""
        return self.host == PROVIDER or self.host.endswith(f".{PROVIDER}")

    def of(self, model: str) -> Capabilities:
        """What it can do for a model: as written down, or else as known."""
        return self.rows.get(model) or KNOWN.get(PROVIDER_URL if self.is_provider else self.url, UNKNOWN)


def model_endpoint(base_url: str | None, written: Mapping[str, Mapping[str, Capabilities]]) -> ModelEndpoint:
    """The endpoint at an address, with what the settings say of it."""
    url = _address(base_url or PROVIDER_URL)
    rows = {model: row for place, rows in written.items() if _address(place) == url for model, row in rows.items()}
    return ModelEndpoint(url=url, rows=rows)


def _address(base_url: str) -> str:
    """An address as rows name it: no user, no password, no slash at its end."""
    parts = urlsplit(base_url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2].lower()).geturl().rstrip("/")
