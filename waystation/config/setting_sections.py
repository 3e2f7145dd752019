"""Settings by subject: access, agents, compaction, memory, privacy, and assistants that submit tasks by MCP.

Settings of models are in `waystation.config.model_settings`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import NoDecode

from waystation.agents.delegation import DelegationConfig
from waystation.agents.tool_visibility import ParameterLimit, ParameterLimits, ToolPolicy
from waystation.config.presets import CompactionProfile
from waystation.config.setting_types import (
    SettingSection,
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


class AccessSettings(SettingSection):
    """Who may use `waystation serve`. Read together with all others: see `waystation.config.settings.Settings`."""

    pages: bool = Field(
        default=True, description="Whether `dev` and `up` also serve the web pages, to this machine only."
    )
    oidc_issuer: str | None = Field(
        default=None,
        description="Issuer of the OpenID tokens that `waystation serve` accepts. Needs WAYSTATION_OIDC_AUDIENCE and "
        "WAYSTATION_OIDC_JWKS.",
    )
    oidc_audience: str | None = Field(default=None, description="Audience that OpenID tokens must have.")
    oidc_jwks: str | None = Field(default=None, description="Address of the issuer's public keys (JWKS).")
    oidc_tenant_claim: str = Field(default="tenant", description="Claim of OpenID tokens that names the tenant.")
    oidc_name_claim: str = Field(default="email", description="Claim of OpenID tokens that names the person.")
    oidc_role_claim: str = Field(
        default="role", description="Claim of OpenID tokens that names the role: read, submit or approve."
    )
    server: str | None = Field(
        default=None,
        description="Address of a running `waystation serve`. Commands about tasks then use it, and need no Temporal "
        "server and no store. Same as `waystation --server URL`.",
    )
    token: SecretStr | None = Field(
        default=None,
        description="Credential for WAYSTATION_SERVER: an API key (`waystation keys make`) or an OpenID token.",
    )
    approvers: WrittenNames = Field(
        default=(),
        description="Names of the only people who may answer approval requests. `waystation serve` verifies the names "
        "by API keys or OpenID tokens. Set WAYSTATION_APPROVERS for all workers. It requires WAYSTATION_KEY.",
    )

    @field_validator("approvers")
    @classmethod
    def _take_a_key(cls, given: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        # The fields of this section come after those of the key.
        said: bool | None = info.data.get("encrypt_payloads")
        if given and not (info.data.get("key") is not None if said is None else said):
            raise ValueError(
                "it needs WAYSTATION_KEY, and WAYSTATION_ENCRYPT_PAYLOADS must not be false: without encryption, "
                "anyone who can reach Temporal can answer under any name"
            )
        return given


class AgentSettings(SettingSection):
    """Settings of subagents, the web and tool servers.

    Read together with all others: see `waystation.config.settings.Settings`.
    """

    subagent_depth: int = Field(
        default=2,
        ge=0,
        le=4,
        description="Maximum depth of subagents: 0 for none, 1 if subagents may not start subagents.",
    )
    subagent_width: int = Field(
        default=8, ge=1, le=32, description="Maximum number of subagents of one agent that work at the same time."
    )
    subagent_share: int = Field(
        default=80,
        ge=1,
        le=100,
        description="Maximum percentage of an agent's remaining budget that may be reserved for all its subagents "
        "together.",
    )

    memory_scope: MemoryScope = Field(
        default="session",
        description="Memory that agents search: session (their own session) or team (all sessions of the tenant).",
    )
    review_plan: bool = Field(default=False, description="Whether a task waits until a person approves its plan.")
    revisions: int = Field(
        default=1, ge=0, le=5, description="Maximum number of revisions of a plan after the research; 0 for none."
    )
    revision_percent: int | None = Field(
        default=None,
        ge=0,
        le=100,
        description="Percentage of a task's budget that the new steps of a revised plan may spend without approval. A "
        "revision above this percentage waits until a person approves it. Default: no revision waits.",
    )
    reviews: int = Field(
        default=1,
        ge=0,
        le=5,
        description="Maximum number of times that a review may send a report back to its writer; 0 for no reviews.",
    )

    tool_tokens: int | None = Field(
        default=None,
        ge=0,
        description="Maximum tokens that the definitions of added tools (from tool servers and plug-ins) take in each "
        "agent's requests. Above this maximum, tools with the lowest priority are hidden. Waystation's own tools are "
        "never hidden for their size. Default: a tenth of the window.",
    )
    tools_denied: WrittenNames = Field(
        default=(),
        description="Tools that no agent may use: names, patterns like tickets__*, or permissions (read, note, "
        "delegate, compute, web, foreign). Agents can always submit their results.",
    )
    environment: Literal["development", "production"] = Field(
        default="development",
        description="development or production. In production, tool parameters are limited (WAYSTATION_PARAMETERS), "
        "and agents read only pages of the domains in WAYSTATION_WEB_ALLOW.",
    )
    parameters: Annotated[dict[str, dict[str, ParameterLimit]], NoDecode, WrittenTable] = Field(
        default={},
        description="Limits of tool parameters in production, by tool and parameter: min, max, one_of or domains. In "
        "the config file: [parameters.web_search] with limit = {max = 3}.",
    )
    procedures: Path | None = Field(
        default=None,
        description="Markdown file or folder with procedures for new tasks. --procedures overrides it.",
    )
    tool_servers: Path | None = Field(
        default=None,
        description="Config file of the MCP servers whose tools agents may call (docs/how-to/add-an-mcp-server.md).",
    )
    web: bool = Field(
        default=False,
        description="Whether agents may read web pages and, if ANTHROPIC_API_KEY is set, search the web.",
    )
    web_allow: WrittenNames = Field(
        default=(),
        description="Domains whose pages agents may read without approval, including subdomains; * for all.",
    )
    web_deny: WrittenNames = Field(default=(), description="Domains whose pages agents may never read.")
    web_asks: WebApprovalMode = Field(
        default="always",
        description="When a web search needs approval: always, suspicious (only if it looks like more than keywords) "
        "or never. With always and suspicious, a page of an allowed domain also needs approval if its address may "
        "contain text of the task.",
    )
    web_user_agent: str | None = Field(
        default=None, min_length=1, description="User agent of web requests; it should say how to contact you."
    )
    web_reachable: WrittenNetworks = Field(
        default=(), description="Private networks whose pages agents may read, such as an intranet."
    )
    web_search_model: str = Field(default=DEFAULT_SUMMARY_MODEL, description="Model that runs web searches.")

    @property
    def delegation(self) -> DelegationConfig | None:
        """Limits within which agents delegate; None if they do not."""
        if not self.subagent_depth:
            return None
        return DelegationConfig(
            max_depth=self.subagent_depth, max_concurrent=self.subagent_width, budget_percent=self.subagent_share
        )

    @property
    def tool_policy(self) -> ToolPolicy:
        """The operator's policy for tools."""
        return ToolPolicy(added_tool_tokens=self.tool_tokens, denied=self.tools_denied, limits=self._limits)

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


class ContextSettings(SettingSection):
    """Settings of compaction: strategy, profiles by model, hooks.

    Read together with all others: see `waystation.config.settings.Settings`.
    """

    strategy: StrategyName = Field(
        default="ends",
        description="How compactions choose the messages that a summary replaces: ends, window, snapshot or replace "
        "(docs/explanation/context.md).",
    )
    keep_last: int | None = Field(
        default=None,
        ge=0,
        le=1_000,
        description="Maximum number of latest messages that a compaction keeps, with strategy `replace` (default: "
        "0) or `ends` (default: 3, or the value in the model's profile).",
    )
    auto_compact: bool = Field(
        default=True,
        description="Whether automatic compactions may write a summary. If off, and masking old tool results is not "
        "enough, the oldest half of the messages is hidden instead, or more if needed.",
    )
    profiles: Annotated[dict[str, CompactionProfile], NoDecode, WrittenTable] = Field(
        default={},
        description="Compaction profiles, each for the models whose names contain the profile's name: threshold "
        "(percent, 5 to 100, -1 for the default), keep (number of last messages that stay with strategy `ends`) and "
        "condense_model (the model that writes summaries; `itself` for the agent's own). In the "
        "config file: [profiles.sonnet].",
    )
    compaction_before: WrittenHook = Field(
        default=None,
        repr=False,
        description="Hook that workers call before each compaction: a command line (run without a shell) or an http "
        "or https address (docs/how-to/add-compaction-hooks.md).",
    )
    compaction_after: WrittenHook = Field(
        default=None,
        repr=False,
        description="Hook that workers call after each compaction, whatever its result "
        "(docs/how-to/add-compaction-hooks.md).",
    )
    compaction_hook_blocks: bool = Field(
        default=False,
        description="Whether to skip a compaction if the hook before it fails. If off, the failure is only reported.",
    )


class EmbedderSettings(SettingSection):
    """Settings of document memory and the embedder, on which workers of one memory must agree.

    Read together with all others: see `waystation.config.settings.Settings`.
    """

    remembered_characters: int = Field(
        default=2_000_000,
        ge=0,
        description="Maximum characters of a task's documents that are stored in memory when the task is done, for "
        "later tasks of the session; 0 for none.",
    )
    embedder: Literal["static", "none", "e5", "fastembed", "voyage", "openai"] = Field(
        default="static",
        description="Embedder of passages: static (part of the package), none (search by words only), e5, fastembed, "
        "voyage or openai (an API that many servers offer). See docs/how-to/choose-an-embedder.md. After a change, run "
        "`waystation memory reindex`.",
    )
    embedder_model: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Model of the embedder. Default: BAAI/bge-small-en-v1.5 (fastembed), voyage-4 (voyage) or "
        "text-embedding-3-small (openai).",
    )
    embedder_dimension: int | None = Field(
        default=None,
        ge=1,
        le=65_536,
        description="Dimension of the vectors that the voyage or openai API returns. Required for models of vendors "
        "other than Voyage and OpenAI.",
    )
    embedder_url: str | None = Field(
        default=None,
        repr=False,
        description="Address of the voyage or openai API, like http://127.0.0.1:11434/v1. Default: the vendor's.",
    )
    embedder_folder: Path | None = Field(
        default=None, description="Folder with the model files of fastembed. Default: the cache of fastembed."
    )
    embedder_key: SecretStr | None = Field(default=None, description="API key of the embedder's server.")
    voyage_api_key: SecretStr | None = Field(
        default=None,
        validation_alias=build_shared_alias("VOYAGE_API_KEY"),
        description="API key of Voyage.",
    )


class MemorySettings(SettingSection):
    """Settings of where memory is, how Qdrant stores it, and retention.

    Read together with all others: see `waystation.config.settings.Settings`.
    """

    qdrant_url: str | None = Field(
        default=None,
        validation_alias=build_shared_alias("QDRANT_URL"),
        description="Address of a Qdrant server or cluster. Default: embedded memory, which only one process can open, "
        "so one worker must serve all queues.",
    )
    qdrant_api_key: SecretStr | None = Field(
        default=None,
        validation_alias=build_shared_alias("QDRANT_API_KEY"),
        description="API key of the Qdrant server.",
    )
    qdrant_grpc_port: int = Field(
        default=6334, ge=0, le=65_535, description="gRPC port of the Qdrant server; 0 to use only REST."
    )
    qdrant_collection: str = Field(
        default="waystation", pattern=r"^[A-Za-z0-9_-]{1,200}$", description="Collection on the Qdrant server."
    )
    qdrant_quantisation: Literal["none", "scalar", "product", "binary"] = Field(
        default="none",
        description="Quantisation of vectors on the Qdrant server: none, scalar (a quarter of the size), product (a "
        "16th) or binary (a 32nd). Like qdrant_shards, qdrant_replicas and qdrant_on_disk, this setting applies only "
        "when the collection is created.",
    )
    qdrant_shards: int | None = Field(
        default=None, ge=1, le=10_000, description="Number of shards of the Qdrant collection."
    )
    qdrant_replicas: int | None = Field(
        default=None, ge=1, le=100, description="Number of replicas of each shard in a Qdrant cluster."
    )
    qdrant_on_disk: bool | None = Field(
        default=None,
        description="Whether the Qdrant server reads vectors and passages from disk instead of holding them in RAM.",
    )
    retention_days: int | None = Field(
        default=None,
        ge=1,
        le=36_500,
        description="Days from the end of a task until all its content is deleted. Default: tasks are never deleted.",
    )


DEFAULT_PLUGINS = ("redaction", "offline")
"""Ours, which are enabled unless a setting disables them."""
_PLUGIN_NAME = compile_bounded(r"\A-?[A-Za-z0-9][A-Za-z0-9_.-]{0,99}\Z")


class PluginSettings(SettingSection):
    """Read together with all others: see `waystation.config.settings.Settings`."""

    plugins: WrittenNames = Field(
        default=(),
        description="Plug-ins to enable, by the names of their entry points, separated by commas "
        "(docs/how-to/write-a-plugin.md). "
        "They run with all rights of the process. The built-in ones, redaction and offline, are enabled unless you "
        "add -redaction or -offline.",
    )

    @field_validator("plugins")
    @classmethod
    def _are_names(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for name in given:
            if not _PLUGIN_NAME.match(name):
                raise ValueError(f"{name!r} is not the name of a plug-in: use letters, digits, _, . and -")
            if name.startswith("-") and name[1:] not in DEFAULT_PLUGINS:
                raise ValueError(f"{name}: only {' and '.join(DEFAULT_PLUGINS)} can be disabled")
            if given.count(name) > 1 or name in DEFAULT_PLUGINS:
                raise ValueError(
                    f"{name} is listed twice"
                    if given.count(name) > 1
                    else f"{name} is enabled by default: remove it from the list"
                )
        return given

    @property
    def enabled_plugins(self) -> tuple[str, ...]:
        """Names of all plug-ins that are enabled, in the order in which redactors see a text."""
        ours = tuple(name for name in DEFAULT_PLUGINS if f"-{name}" not in self.plugins)
        return (*ours, *(name for name in self.plugins if not name.startswith("-")))


class PrivacySettings(SettingSection):
    """Settings of redaction, on which workers of one store should agree.

    Read together with all others: see `waystation.config.settings.Settings`.
    """

    privacy: RedactionPolicy = Field(
        default=RedactionPolicy.STANDARD,
        description="Redaction policy: standard, strict (names are also replaced before any model call) or "
        "secrets-only (docs/explanation/privacy.md).",
    )
    titles: Literal["redacted", "none"] = Field(
        default="redacted",
        description="Titles of tasks and steps in the Temporal UI, lists and webhooks: redacted (from the question and "
        "the plan) or none (docs/explanation/privacy.md).",
    )
    languages: WrittenNames = Field(
        default=("en",),
        min_length=1,
        description="Languages in which names are detected, separated by commas: en, or de=NAME with the name of a "
        "spaCy model. Install the models of languages other than English yourself. Texts whose language is unclear "
        "count as texts in the first language.",
    )
    national_ids: WrittenNames = Field(
        default=("us", "uk", "de", "es", "it", "pl"),
        description="Countries whose national ids are replaced, separated by commas: au, ca, de, es, fi, in, it, kr, "
        "ng, pl, se, sg, th, tr, uk, us, za.",
    )
    recognisers: Path | None = Field(
        default=None,
        description="YAML file with your own recognisers, and values that are never replaced "
        "(docs/how-to/tune-redaction.md).",
    )
    redaction_seconds: float = Field(
        default=60,
        gt=0,
        description="Time limit in seconds for redacting one text. A second is added for every 2,000 characters. "
        "A text that exceeds the limit twice is reported and not tried again.",
    )
    redaction_processes: int = Field(
        default=1,
        ge=0,
        le=64,
        description="Number of child processes of a worker that detect private values, about 300 MB each. A process "
        "is killed if a text takes too long. With 0, the worker itself detects private values, and a text that takes "
        "too long blocks the worker.",
    )
    redaction_attempts: int = Field(
        default=6,
        ge=1,
        le=1_000,
        description="Maximum number of attempts when a text cannot be redacted. Six attempts take half a minute.",
    )
    redaction_failure: RedactionFailureMode = Field(
        default="placeholder",
        description="What happens if the last attempt to redact a text fails: placeholder (a placeholder replaces "
        "the whole text) or pause (the agent pauses and asks a person).",
    )


class AssistantSettings(SettingSection):
    """Settings of assistants that submit tasks by MCP: what they may spend and read, and who answers their requests.

    Read together with all others: see `waystation.config.settings.Settings`.
    """

    mcp_client: str = Field(
        default="assistant",
        pattern="^[a-z0-9][a-z0-9-]{0,59}$",
        description="Name of the assistant that uses /mcp of `waystation serve`, or `waystation mcp` without --client. "
        "All its tasks share session mcp-NAME and one budget.",
    )
    mcp_budget: WrittenCap = Field(
        default=None,
        description="Budget of all tasks of one assistant together, like 3M or $20. Default: five times the budget of "
        "a task.",
    )
    mcp_roots: WrittenPaths = Field(
        default=(),
        description="Folders from which assistants may submit documents, separated by commas. Default: none, and "
        "assistants send documents as text.",
    )
    mcp_answers: Literal["person", "client", "nobody"] = Field(
        default="person",
        description="Who answers the requests of an assistant's tasks: `person` (its client shows a form), `client` "
        "(the assistant itself) or `nobody` (requests are answered only by commands and on the web pages).",
    )
    mcp_servers: WrittenNames = Field(
        default=(),
        description="Tool servers that assistants' tasks may use in addition to the default ones. Default: none.",
    )
    mcp_skills: WrittenPaths = Field(
        default=(),
        description="Folders of skills that assistants' tasks may use, separated by commas. Default: none.",
    )
