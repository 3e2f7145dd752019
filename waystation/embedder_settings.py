"""Settings of memory: what of documents goes there, and the embedder, which makes vectors of passages."""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings

from waystation.written import shared


class EmbedderSettings(BaseSettings):
    """Read together with all others: see `waystation.settings.Settings`. Workers of a memory must agree on them."""

    remembered_characters: int = Field(
        default=2_000_000,
        ge=0,
        description="Characters of a task's documents that go into memory when it has delivered, for later tasks of "
        "its session; 0: none.",
    )
    embedder: Literal["static", "none", "fastembed", "voyage", "openai"] = Field(
        default="static",
        description="What makes vectors of passages: static (comes with the package), none (memory searches by words "
        "alone), fastembed, voyage, or openai, which many servers speak (docs/memory.md). Memory that was made with "
        "another one is made anew by `waystation memory reindex`.",
    )
    embedder_model: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Its model; by default BAAI/bge-small-en-v1.5, voyage-4 or text-embedding-3-small.",
    )
    embedder_dimension: int | None = Field(
        default=None,
        ge=1,
        le=65_536,
        description="Length of the vectors that voyage or openai are to give; needed for models of other vendors.",
    )
    embedder_url: str | None = Field(
        default=None,
        repr=False,
        description="Where voyage or openai is, like http://127.0.0.1:11434/v1, if not at its vendor.",
    )
    embedder_folder: Path | None = Field(
        default=None, description="Folder with the files of fastembed's model; by default fastembed's cache."
    )
    embedder_key: SecretStr | None = Field(default=None, description="Key of the embedder's server.")
    voyage_api_key: SecretStr | None = Field(
        default=None,
        validation_alias=shared("VOYAGE_API_KEY"),
        description="The same, for voyage alone.",
    )
