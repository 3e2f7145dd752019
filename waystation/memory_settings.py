"""Settings of memory: where it is, how a Qdrant server is to keep it, and how long anything is kept."""

from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings

from waystation.written import shared


class MemorySettings(BaseSettings):
    """Read together with all others: see `waystation.settings.Settings`."""

    qdrant_url: str | None = Field(
        default=None,
        validation_alias=shared("QDRANT_URL"),
        description="A Qdrant server or cluster; without one memory is embedded, and one process runs all workers.",
    )
    qdrant_api_key: SecretStr | None = Field(
        default=None,
        validation_alias=shared("QDRANT_API_KEY"),
        description="Key of the Qdrant server.",
    )
    qdrant_grpc_port: int = Field(default=6334, ge=0, le=65_535, description="Port of Qdrant's gRPC; 0 for REST alone.")
    qdrant_collection: str = Field(
        default="waystation", pattern=r"^[A-Za-z0-9_-]{1,200}$", description="Collection of the Qdrant server."
    )
    qdrant_quantisation: Literal["none", "scalar", "product", "binary"] = Field(
        default="none",
        description="How a Qdrant server keeps vectors in memory: none (as they are), scalar (a quarter of that), "
        "product (a 16th) or binary (a 32nd). This and the next three hold for a collection that is made, not for one "
        "that is there.",
    )
    qdrant_shards: int | None = Field(default=None, ge=1, le=10_000, description="Shards of its collection.")
    qdrant_replicas: int | None = Field(default=None, ge=1, le=100, description="Copies of each shard in a cluster.")
    qdrant_on_disk: bool | None = Field(
        default=None, description="Whether vectors and passages are read from the disk, and not kept in memory."
    )
    retention_days: int | None = Field(
        default=None,
        ge=1,
        le=36_500,
        description="So many days after its end a task is forgotten, every word of it. Not given: nothing is.",
    )
