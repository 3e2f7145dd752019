"""Every setting of Waystation, read once from the environment by the entry points.

How Temporal is reached is not here: the standard `TEMPORAL_*` variables and profiles say that.
"""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, AliasChoices, Field, SecretStr, StringConstraints
from pydantic_settings import BaseSettings, SettingsConfigDict

from waystation.domain.models import AGENT_MODEL, CONDENSE_MODEL
from waystation.domain.task import DEFAULT_AGENT_BUDGET, DEFAULT_BUDGET, LOWEST_BUDGET

DRIVERS = {"postgres": "postgresql+asyncpg", "postgresql": "postgresql+asyncpg", "sqlite": "sqlite+aiosqlite"}
"""Teams have one URL for programs in many languages, and it names another driver or none."""


def _shared(name: str) -> AliasChoices:
    """A setting that other tools read too, under their name or under ours."""
    return AliasChoices(name, f"WAYSTATION_{name}")


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


class Settings(BaseSettings):
    """Read from `WAYSTATION_<NAME>`; what is given in code beats the environment."""

    model_config = SettingsConfigDict(
        env_prefix="WAYSTATION_", frozen=True, env_ignore_empty=True, populate_by_name=True, extra="forbid"
    )

    home: Annotated[Path, AfterValidator(_absolute)] = Field(
        default=Path("~/.waystation"), description="Folder of everything that is kept: store, memory, reports, logs."
    )
    tenant: str = Field(
        default="local",
        min_length=1,
        max_length=200,
        description="The team that owns the sessions; nothing crosses from one tenant to another.",
    )
    store_url: Annotated[str, StringConstraints(strip_whitespace=True)] | None = Field(
        default=None,
        validation_alias=AliasChoices("WAYSTATION_STORE_URL", "DATABASE_URL"),
        repr=False,
        description="URL of the store's database, postgresql://… or sqlite:///…; by default an SQLite file in the home "
        "folder.",
    )
    anthropic_api_key: SecretStr | None = Field(
        default=None,
        validation_alias=_shared("ANTHROPIC_API_KEY"),
        description="Key of the Messages API; without one the built-in offline model does the work.",
    )
    anthropic_base_url: str | None = Field(
        default=None,
        validation_alias=_shared("ANTHROPIC_BASE_URL"),
        description="Another endpoint that speaks the Messages API.",
    )
    offline: bool | None = Field(
        default=None, description="Use the built-in offline model. Not given: only when there is no key."
    )
    agent_model: str = Field(default=AGENT_MODEL, description="Model of the agents.")
    condense_model: str = Field(default=CONDENSE_MODEL, description="Model that writes the summaries.")
    plan_model: str = Field(default=CONDENSE_MODEL, description="Model that plans a task.")
    budget: int = Field(default=DEFAULT_BUDGET, ge=LOWEST_BUDGET, description="Fresh tokens of a task.")
    agent_budget: int = Field(
        default=DEFAULT_AGENT_BUDGET, ge=LOWEST_BUDGET, description="Fresh tokens that an agent starts with, at most."
    )
    window_cap: int = Field(
        default=200_000, ge=2_000, description="Largest working window in tokens, whatever the model could take."
    )
    temporal_ui: str | None = Field(
        default=None, description="Address of the Temporal UI, where it is not the one that `waystation dev` started."
    )

    key: SecretStr | None = Field(
        default=None,
        description="The key behind placeholders, 32 bytes in hex; by default a file in the home folder. Workers that "
        "share a store share it.",
    )
    qdrant_url: str | None = Field(
        default=None,
        validation_alias=_shared("QDRANT_URL"),
        description="A Qdrant server or cluster; without one memory is embedded, and one process runs all workers.",
    )
    qdrant_api_key: SecretStr | None = Field(
        default=None, validation_alias=_shared("QDRANT_API_KEY"), description="Key of the Qdrant server."
    )
    qdrant_grpc_port: int = Field(default=6334, ge=0, le=65_535, description="Port of Qdrant's gRPC; 0 for REST alone.")
    qdrant_collection: str = Field(
        default="waystation", pattern=r"^[A-Za-z0-9_-]{1,200}$", description="Collection of the Qdrant server."
    )
    metrics_address: str | None = Field(
        default=None, description="Host and port where a worker serves Prometheus metrics, like 0.0.0.0:9464."
    )
    health_address: str | None = Field(
        default=None, description="Host and port where a worker answers /livez and /readyz, like 0.0.0.0:8090."
    )

    queues: str = Field(
        default="",
        description="Queues that a worker serves: workflows, agents, context, with commas between; by default all. "
        "Fewer than all need QDRANT_URL.",
    )
    agents_at_once: int = Field(default=32, ge=1, description="Legs and plans that a worker carries out at once.")
    contexts_at_once: int = Field(default=4, ge=1, description="Compactions that a worker carries out at once.")
    target_memory: float | None = Field(
        default=None, gt=0, le=1, description="Share of memory from which on a worker takes on no more; 0.8 is sound."
    )
    target_cpu: float | None = Field(
        default=None, gt=0, le=1, description="Share of the processors from which on a worker takes on no more."
    )

    @property
    def uses_offline_model(self) -> bool:
        """Whether the built-in extractive model does the work."""
        return self.anthropic_api_key is None if self.offline is None else self.offline

    @property
    def database_url(self) -> str:
        """SQLAlchemy URL of the store, with the driver that is installed whichever the given URL names."""
        url = self.store_url or f"sqlite:///{self.home / 'waystation.db'}"
        scheme, separator, place = url.partition("://")
        return DRIVERS.get(scheme.partition("+")[0], scheme) + separator + place

    @property
    def memory_folder(self) -> Path:
        """Where embedded Qdrant keeps its points."""
        return self.home / "memory"

    @property
    def reports_folder(self) -> Path:
        """Where finished reports are written as Markdown."""
        return self.home / "reports"

    @property
    def logs_folder(self) -> Path:
        """Where the dev server and detached workers log."""
        return self.home / "logs"

    @property
    def key_file(self) -> Path:
        """The key behind the placeholders of redacted text."""
        return self.home / "key"

    @property
    def run_file(self) -> Path:
        """What runs on this machine now: addresses and process ids."""
        return self.home / "run.json"

    @property
    def temporal_database(self) -> Path:
        """SQLite file of the dev server."""
        return self.home / "temporal.db"
