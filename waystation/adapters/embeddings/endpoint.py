"""What a server of embeddings is asked, and where: Voyage's API, and that of OpenAI, which many servers speak."""

from collections.abc import Mapping, Sequence
from typing import Literal
from urllib.parse import urlsplit

from pydantic import JsonValue, SecretStr

from waystation.domain.errors import BadInput
from waystation.domain.value import Value
from waystation.ports.knowledge import Use

Vendor = Literal["voyage", "openai"]

_URLS: Mapping[Vendor, str] = {"voyage": "https://api.voyageai.com/v1", "openai": "https://api.openai.com/v1"}
_MODELS: Mapping[Vendor, str] = {"voyage": "voyage-4", "openai": "text-embedding-3-small"}
_DIMENSION_FIELDS: Mapping[Vendor, str] = {"voyage": "output_dimension", "openai": "dimensions"}
_DIMENSIONS = {
    "voyage-4-large": 1024,
    "voyage-4": 1024,
    "voyage-4-lite": 1024,
    "voyage-3-large": 1024,
    "voyage-3.5": 1024,
    "voyage-3.5-lite": 1024,
    "voyage-code-3": 1024,
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
}
"""What these models give unless they are asked for another dimension, which they all can (documentation of the vendors,
October 2026). Of other models the dimension must be set, and is not asked for: not every server knows how to."""


class Endpoint(Value):
    """A model on a server. Made by `endpoint_of`."""

    vendor: Vendor
    url: str
    """Without the path of the one request."""
    model: str
    dimension: int
    key: SecretStr | None = None

    @property
    def name(self) -> str:
        """The embedder's: the same model on another server makes the same vectors."""
        return f"{self.vendor}/{self.model}"

    @property
    def host(self) -> str:
        """For messages."""
        return urlsplit(self.url).netloc

    @property
    def headers(self) -> dict[str, str]:
        """With the key, if there is one."""
        return {} if self.key is None else {"Authorization": f"Bearer {self.key.get_secret_value()}"}

    def body(self, texts: Sequence[str], use: Use) -> dict[str, JsonValue]:
        """The request for the vectors of these texts."""
        body: dict[str, JsonValue] = {"model": self.model, "input": [*texts]}
        if self.vendor == "voyage":
            body["input_type"] = "document" if use == "passage" else "query"
        if _DIMENSIONS.get(self.model, self.dimension) != self.dimension:
            body[_DIMENSION_FIELDS[self.vendor]] = self.dimension
        return body


def endpoint_of(
    vendor: Vendor, url: str | None, model: str | None, dimension: int | None, key: SecretStr | None
) -> Endpoint:
    """The endpoint that these settings mean; what is not given is the vendor's own. Raises BadInput."""
    chosen = model or _MODELS[vendor]
    length = dimension or _DIMENSIONS.get(chosen)
    if length is None:
        raise BadInput(f"set WAYSTATION_EMBEDDER_DIMENSION to the length of the vectors that {chosen} gives")
    if key is None and url is None:
        variable = "VOYAGE_API_KEY" if vendor == "voyage" else "WAYSTATION_EMBEDDER_KEY"
        raise BadInput(f"the embedder {vendor} needs a key: set {variable}")
    address = _checked(url or _URLS[vendor])
    return Endpoint(vendor=vendor, url=address, model=chosen, dimension=length, key=key)


def _checked(url: str) -> str:
    """Refused without being shown where it may hold a secret: HTTP clients log addresses."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    else:
        usable = usable and not (parts.username or parts.password or parts.query or parts.fragment)
    if not usable:
        raise BadInput(
            "WAYSTATION_EMBEDDER_URL must look like https://embeddings.example.com/v1, without a password or "
            "parameters: WAYSTATION_EMBEDDER_KEY takes the key"
        )
    return url.rstrip("/")
