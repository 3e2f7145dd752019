"""Settings by subject: access, agents, compaction, memory, privacy, and assistants that submit tasks by MCP.

Settings of models are in `waystation.config.model_settings`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode

from waystation.agents.delegation import DelegationConfig
from waystation.agents.tool_visibility import ParameterLimit, ParameterLimits, ToolPolicy
from waystation.config.presets import CompactionProfile
from waystation.config.setting_types import (
    WrittenCap,
    WrittenHook,
    WrittenNames,
    WrittenNetworks,
    WrittenPaths,
    WrittenTable,
    build_shared_alias,
)
from waystation.context.policy import StrategyName
from waystation.kernel.patterns import compile_bounded
from waystation.memory.passages import MemoryScope
from waystation.models.profiles import DEFAULT_SUMMARY_MODEL
from waystation.privacy.policy import RedactionFailureMode, RedactionPolicy
from waystation.security.web_addresses import WebApprovalMode

SEARCH_HITS = 5
"""Maximum pages that one web search returns in production."""


class AccessSettings(BaseSettings):
    """Who may use `waystation serve`. Read together with all others: see `waystation.config.settings.Settings`."""

    pages: bool = Field(
        default=True, description="Whether `dev` and `up` start `waystation serve`, for this machine alone, too."
    )
    oidc_issuer: str | None = Field(
        default=None,
        description="Issuer of the OpenID tokens that `waystation serve` takes; with WAYSTATION_OIDC_AUDIENCE and "
        "WAYSTATION_OIDC_JWKS.",
    )
    oidc_audience: str | None = Field(default=None, description="For whom those tokens have to be made out.")
    oidc_jwks: str | None = Field(default=None, description="Address of that issuer's public keys.")
    oidc_tenant_claim: str = Field(default="tenant", description="Which claim of them names the tenant.")
    oidc_name_claim: str = Field(default="email", description="Which names the person.")
    oidc_role_claim: str = Field(default="role", description="Which names the role: read, submit or approve.")
    server: str | None = Field(
        default=None,
        description="Address of a `waystation serve`: commands about tasks go there, and need neither its Temporal "
        "server nor its store. Also `waystation --server ADDRESS`.",
    )
    token: SecretStr | None = Field(
        default=None, description="What opens that server: an API key (`waystation keys make`), or an OpenID token."
    )
    approvers: WrittenNames = Field(
        default=(),
        description="Names of those who alone answer requests, proved to `waystation serve` by an API key or an OpenID "
        "token. Of the workers; takes WAYSTATION_KEY.",
    )

    @field_validator("approvers")
    @classmethod
    def _take_a_key(cls, given: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        # The fields of this section come after those of the key.
        said: bool | None = info.data.get("encrypt_payloads")
        if given and not (info.data.get("key") is not None if said is None else said):
            raise ValueError("it takes WAYSTATION_KEY: else whoever reaches Temporal answers under any name")
        return given


class AgentSettings(BaseSettings):
    """Settings of subagents, the web and tool servers.

    Read together with all others: see `waystation.config.settings.Settings`.
    """

    subagent_depth: int = Field(
        default=2, ge=0, le=4, description="How deep agents may delegate: 0 for not at all, 1 for no further."
    )
    subagent_width: int = Field(
        default=8, ge=1, le=32, description="Most subagents of one agent that work at the same time."
    )
    subagent_share: int = Field(
        default=80, ge=1, le=100, description="Percent of what an agent has left that its subagents may hold together."
    )

    memory_scope: MemoryScope = Field(
        default="session",
        description="What agents recall of: earlier work of their session, or of all sessions of the tenant (team).",
    )
    review_plan: bool = Field(
        default=False, description="Whether a task waits with its plan until a person agrees to it."
    )
    revisions: int = Field(
        default=1, ge=0, le=5, description="How often a plan may be revised after its research: 0 for never."
    )
    revision_percent: int | None = Field(
        default=None,
        ge=0,
        le=100,
        description="Percent of a task's budget: a revision whose new steps may spend more waits until a person "
        "agrees to it; by default none waits.",
    )
    reviews: int = Field(
        default=1,
        ge=0,
        le=5,
        description="How often a review may send a report back to its writer: 0 for reports without a review.",
    )

    tool_tokens: int | None = Field(
        default=None,
        ge=0,
        description="Budget of each agent for definitions of tools, in tokens: the most urgent ones are shown. By "
        "default 2,500; with the web or tool servers a quarter of the window, up to 5,000.",
    )
    tools_denied: WrittenNames = Field(
        default=(),
        description="Tools that no agent may have: names, patterns like tickets__*, or permissions (read, note, "
        "delegate, compute, web, foreign). An agent can always hand in.",
    )
    environment: Literal["development", "production"] = Field(
        default="development", description="In production the values of tools' parameters are limited."
    )
    parameters: Annotated[dict[str, dict[str, ParameterLimit]], NoDecode, WrittenTable] = Field(
        default={},
        description="Limits in production, by tool and parameter: min, max, one_of or domains. In the config file: "
        "[parameters.web_search] with limit = {max = 3}.",
    )
    procedures: Path | None = Field(
        default=None,
        description="Markdown file, or folder of them, that agents of new tasks follow; --procedures beats it.",
    )
    tool_servers: Path | None = Field(
        default=None,
        description="Config file of MCP servers whose tools agents may call (docs/how-to/add-an-mcp-server.md).",
    )
    web: bool = Field(
        default=False, description="Let agents read pages of the web, and search it where there is a key."
    )
    web_allow: WrittenNames = Field(
        default=(),
        description="Domains whose pages are read without asking a person, each with all below it; * for every domain.",
    )
    web_deny: WrittenNames = Field(default=(), description="Domains whose pages are never read.")
    web_asks: WebApprovalMode = Field(
        default="always",
        description="Which searches of the web ask a person: always, suspicious (what looks like more than key words), "
        "never.",
    )
    web_user_agent: str | None = Field(
        default=None, min_length=1, description="How requests to the web say who makes them, and how you are reached."
    )
    web_reachable: WrittenNetworks = Field(
        default=(), description="Networks that may be read although they are not public, such as an intranet's."
    )
    web_search_model: str = Field(default=DEFAULT_SUMMARY_MODEL, description="Model that makes searches of the web.")

    @property
    def delegation(self) -> DelegationConfig | None:
        """Limits within which agents delegate; None if they do not."""
        if not self.subagent_depth:
            return None
        return DelegationConfig(depth=self.subagent_depth, width=self.subagent_width, share=self.subagent_share)

    @property
    def tool_policy(self) -> ToolPolicy:
        """The operator's policy for tools."""
        more = self.web or self.tool_servers is not None
        return ToolPolicy(tokens=self.tool_tokens, more=more, denied=self.tools_denied, limits=self._limits)

    @property
    def _limits(self) -> Mapping[str, ParameterLimits]:
        """Our limits, overridden by configured ones: no one is asked about a page of an unlisted domain."""
        if self.environment == "development":
            return {}
        ours: Mapping[str, ParameterLimits] = {
            "web_search": {"limit": ParameterLimit(max=SEARCH_HITS)},
            "fetch_page": {"url": ParameterLimit(domains=self.web_allow)},
        }
        return {tool: {**ours.get(tool, {}), **self.parameters.get(tool, {})} for tool in (*ours, *self.parameters)}


class ContextSettings(BaseSettings):
    """Settings of compaction: strategy, profiles by model, hooks.

    Read together with all others: see `waystation.config.settings.Settings`.
    """

    strategy: StrategyName = Field(
        default="ends",
        description="How a compaction chooses what a summary is to stand for: window, snapshot, replace or ends.",
    )
    keep_last: int | None = Field(
        default=None,
        ge=0,
        le=1_000,
        description="At most so many of the last messages outlive a compaction under replace (by default none) and "
        "ends (by default 3, or what the model's profile says).",
    )
    auto_compact: bool = Field(
        default=True,
        description="Write summaries when a context is full. Off: old results are masked, and then the oldest half is "
        "hidden.",
    )
    profiles: Annotated[dict[str, CompactionProfile], NoDecode, WrittenTable] = Field(
        default={},
        description="By a part of a model's name: threshold (percent, 5 to 100, -1 for the default), keep (last "
        "messages under ends) and condense_model (its name, or itself). In the config file: [profiles.sonnet].",
    )
    compaction_before: WrittenHook = Field(
        default=None,
        repr=False,
        description="Called before each compaction that a worker makes: a command line, run without a shell, or an "
        "http or https address (docs/how-to/add-compaction-hooks.md).",
    )
    compaction_after: WrittenHook = Field(
        default=None, repr=False, description="The same, when a compaction has ended, however it did."
    )
    compaction_hook_blocks: bool = Field(
        default=False, description="Make no compaction where the hook before it fails; otherwise that is only told."
    )


class EmbedderSettings(BaseSettings):
    """Settings of document memory and the embedder, on which workers of one memory must agree.

    Read together with all others: see `waystation.config.settings.Settings`.
    """

    remembered_characters: int = Field(
        default=2_000_000,
        ge=0,
        description="Characters of a task's documents that go into memory when it has delivered, for later tasks of "
        "its session; 0: none.",
    )
    embedder: Literal["static", "none", "e5", "fastembed", "voyage", "openai"] = Field(
        default="static",
        description="What makes vectors of passages: static (comes with the package), none (memory searches by words "
        "alone), e5, fastembed, voyage, or openai, which many servers speak (docs/how-to/choose-an-embedder.md). "
        "Memory made with another one is made anew by `waystation memory reindex`.",
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
        validation_alias=build_shared_alias("VOYAGE_API_KEY"),
        description="The same, for voyage alone.",
    )


class MemorySettings(BaseSettings):
    """Settings of where memory is, how Qdrant stores it, and retention.

    Read together with all others: see `waystation.config.settings.Settings`.
    """

    qdrant_url: str | None = Field(
        default=None,
        validation_alias=build_shared_alias("QDRANT_URL"),
        description="A Qdrant server or cluster; without one memory is embedded, and one process runs all workers.",
    )
    qdrant_api_key: SecretStr | None = Field(
        default=None,
        validation_alias=build_shared_alias("QDRANT_API_KEY"),
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


DEFAULT_PLUGINS = ("redaction", "offline")
"""Ours, which are enabled unless a setting disables them."""
_PLUGIN_NAME = compile_bounded(r"\A-?[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\Z")


class PluginSettings(BaseSettings):
    """Read together with all others: see `waystation.config.settings.Settings`."""

    plugins: WrittenNames = Field(
        default=(),
        description="Plug-ins that are enabled, by names of their entry points, with commas between "
        "(docs/how-to/write-a-plugin.md); each runs with the rights of the process. Ours, redaction and offline, are "
        "enabled unless -redaction or -offline is among them.",
    )

    @field_validator("plugins")
    @classmethod
    def _are_names(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for name in given:
            if not _PLUGIN_NAME.match(name):
                raise ValueError(f"{name!r} is no name of a plug-in: letters, digits, _, . and -")
            if name.startswith("-") and name[1:] not in DEFAULT_PLUGINS:
                raise ValueError(f"{name}: only {' and '.join(DEFAULT_PLUGINS)} are enabled unless they are disabled")
            if given.count(name) > 1 or name in DEFAULT_PLUGINS:
                raise ValueError(f"{name} is enabled twice" if given.count(name) > 1 else f"{name} is enabled anyway")
        return given

    @property
    def enabled_plugins(self) -> tuple[str, ...]:
        """Names of all plug-ins that are enabled, in the order in which redactors see a text."""
        ours = tuple(name for name in DEFAULT_PLUGINS if f"-{name}" not in self.plugins)
        return (*ours, *(name for name in self.plugins if not name.startswith("-")))


class PrivacySettings(BaseSettings):
    """Settings of redaction, on which workers of one store should agree.

    Read together with all others: see `waystation.config.settings.Settings`.
    """

    privacy: RedactionPolicy = Field(
        default=RedactionPolicy.STANDARD,
        description="How much is replaced before text goes anywhere: standard, strict (names too before any model "
        "call) or secrets-only (docs/explanation/privacy.md).",
    )
    titles: Literal["redacted", "none"] = Field(
        default="redacted",
        description="What titles of tasks and steps show in Temporal's UI, lists and webhooks: words of question and "
        "plan, redacted, or none of them (docs/explanation/privacy.md).",
    )
    languages: WrittenNames = Field(
        default=("en",),
        min_length=1,
        description="Languages in which names are looked for, with commas between: en, or de=NAME with the name of a "
        "spaCy model. All but English need a model that you install. The first is for texts of no clear language.",
    )
    national_ids: WrittenNames = Field(
        default=("us", "uk", "de", "es", "it", "pl"),
        description="Countries whose national ids are replaced, with commas between: au, ca, de, es, fi, in, it, kr, "
        "ng, pl, se, sg, th, tr, uk, us, za.",
    )
    recognisers: Path | None = Field(
        default=None,
        description="YAML file with recognisers of your own and values to leave alone (docs/how-to/tune-redaction.md).",
    )
    redaction_seconds: float = Field(
        default=60,
        gt=0,
        description="How long the redaction of one text may compute, plus a second for every 2,000 characters; then it "
        "has failed, and after a second time is put aside.",
    )
    redaction_processes: int = Field(
        default=1,
        ge=0,
        le=64,
        description="Child processes of a worker that search texts, some 300 MB each, and are killed where a text "
        "takes too long; with 0 the worker searches itself, and a text that hangs in it stops all.",
    )
    redaction_attempts: int = Field(
        default=6,
        ge=1,
        le=1_000,
        description="Attempts at work whose text cannot be redacted; until then it waits and is tried again. Six take "
        "half a minute.",
    )
    redaction_failure: RedactionFailureMode = Field(
        default="placeholder",
        description="What then becomes of that text: placeholder (it is left out) or pause (a person is asked).",
    )


class AssistantSettings(BaseSettings):
    """Settings of assistants that submit tasks by MCP: what they may spend and read, and who answers their requests.

    Read together with all others: see `waystation.config.settings.Settings`.
    """

    mcp_client: str = Field(
        default="assistant",
        pattern="^[a-z0-9][a-z0-9-]{0,59}$",
        description="Name of the assistant at /mcp of `waystation serve`, and of `waystation mcp` without --client: "
        "its tasks are those of session mcp-NAME, and count against its budget.",
    )
    mcp_budget: WrittenCap = Field(
        default=None,
        description="What all tasks of one assistant may spend together, like 3M or $20; by default five times the "
        "budget of a task.",
    )
    mcp_roots: WrittenPaths = Field(
        default=(),
        description="Folders below which assistants may have documents read, with commas between; by default none, and "
        "documents come as text.",
    )
    mcp_answers: Literal["person", "client", "nobody"] = Field(
        default="person",
        description="Who approves what an assistant's tasks ask for: person (its client shows a form), client (the "
        "assistant itself), nobody (only the command line and the pages).",
    )
    mcp_servers: WrittenNames = Field(
        default=(),
        description="Tool servers of the workers that tasks of assistants may name, beside the usual ones; by default "
        "none.",
    )
    mcp_skills: WrittenPaths = Field(
        default=(),
        description="Folders of skills that tasks of assistants may name, with commas between; by default none.",
    )
