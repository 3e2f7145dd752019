"""All settings of Waystation, read once from the environment and the config file by the entry points.

The connection to Temporal is not included: the standard `TEMPORAL_*` variables and profiles define it. OpenTelemetry's
own variables define where spans go, and are only inspected here.
"""

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple, get_origin
from urllib.parse import urlsplit

from pydantic import AfterValidator, AliasChoices, Field, HttpUrl, SecretStr, StringConstraints, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from waystation.budgets.budget import BudgetMode
from waystation.config.model_settings import MAX_TIMEOUT_SECONDS, ModelSettings
from waystation.config.presets import DEFAULT_AGENT_BUDGET, DEFAULT_BUDGET, TRIGGER_PERCENT
from waystation.config.setting_sections import (
    AccessSettings,
    AgentSettings,
    AssistantSettings,
    ContextSettings,
    EmbedderSettings,
    MemorySettings,
    PluginSettings,
    PrivacySettings,
)
from waystation.config.setting_types import (
    CONFIG_NAME,
    ENVIRONMENT_PREFIX,
    NESTING_SEPARATOR,
    PageAddress,
    SecretAddress,
    SettingSection,
    TenantWeight,
    WrittenBudget,
    WrittenTable,
    WrittenTokens,
    iter_trace_setting_faults,
    list_setting_variables,
    make_variable_name,
    read_config,
)
from waystation.context.policy import PRIMERS, RECENTS
from waystation.kernel.errors import BadInput
from waystation.kernel.roles import list_step_roles
from waystation.kernel.value import ReplaceDescriptor, extract_validation_faults
from waystation.models.endpoints import PROVIDER_KEY
from waystation.models.profiles import parse_model_name
from waystation.tasks.task import MAX_WINDOW_TOKENS, MIN_WINDOW_TOKENS, Preset


class EncryptionSettings(SettingSection):
    """Settings of the key, and of what is encrypted with it.

    Read together with all others: see `waystation.config.settings.Settings`.
    """

    key: SecretStr | None = Field(
        default=None,
        description="Key for placeholders and encryption, 32 bytes in hex. Default: a file in the home folder. Workers "
        "that share a store need the same key.",
    )
    previous_keys: SecretStr | None = Field(
        default=None,
        description="Earlier keys in hex, separated by commas, the newest first. They decrypt what was "
        "encrypted with them in Temporal and, until `waystation store reseal`, in the store. The last key in the list "
        "determines the placeholders, unless WAYSTATION_PLACEHOLDER_KEY is set.",
    )
    placeholder_key: SecretStr | None = Field(
        default=None,
        description="Earlier key in hex that determines the placeholders but decrypts nothing. Default: the last key "
        "in WAYSTATION_PREVIOUS_KEYS, otherwise WAYSTATION_KEY.",
    )
    encrypt_payloads: bool | None = Field(
        default=None,
        description="Whether to encrypt payloads, failures and summaries in Temporal. Default: yes if WAYSTATION_KEY "
        "is set. All workers and clients of a namespace need the same value (docs/how-to/encrypt-what-is-stored.md).",
    )
    encrypt_at_rest: bool | None = Field(
        default=None,
        description="Whether to encrypt texts in the store: questions, documents, transcripts, notes and reports. "
        "Default: yes if WAYSTATION_KEY is set. If this is set to true, a store with unencrypted texts is refused. A "
        "change neither encrypts nor decrypts existing texts.",
    )
    codec_token: SecretStr | None = Field(
        default=None,
        description="Token that `waystation codec-server` requires (Authorization: Bearer). Without a token, the "
        "address of the codec server has a secret path.",
    )

    @property
    def encrypts_payloads(self) -> bool:
        """Whether payloads are encrypted.

        A key that was generated on first use does not enable it: anyone who can read the server's file on this machine
        can read that key too.
        """
        return self.key is not None if self.encrypt_payloads is None else self.encrypt_payloads

    @property
    def encrypts_at_rest(self) -> bool:
        """Whether the store's texts are encrypted, by the same rule: a lost key then loses them."""
        return self.key is not None if self.encrypt_at_rest is None else self.encrypt_at_rest


HOME = Path("~/.waystation")

DRIVERS = {"postgres": "postgresql+asyncpg", "postgresql": "postgresql+asyncpg", "sqlite": "sqlite+aiosqlite"}
"""Teams have one URL for programs in many languages, and it names another driver or none."""


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()


class Settings(
    AccessSettings,
    AgentSettings,
    AssistantSettings,
    ContextSettings,
    EmbedderSettings,
    EncryptionSettings,
    MemorySettings,
    ModelSettings,
    PluginSettings,
    PrivacySettings,
):
    """Read from `WAYSTATION_<NAME>`, then from the config file under `<name>`; values given in code override both.

    Raises ValidationError (`format_setting_errors` renders it for people), and BadInput for an unusable config file.
    """

    replace: ClassVar[ReplaceDescriptor] = ReplaceDescriptor()

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX,
        frozen=True,
        env_ignore_empty=True,
        env_nested_delimiter=NESTING_SEPARATOR,
        populate_by_name=True,
        extra="forbid",
        hide_input_in_errors=True,
    )

    home: Annotated[Path, AfterValidator(_absolute)] = Field(
        default=HOME, description="Folder of all data: store, memory, reports and logs."
    )
    config: Path | None = Field(
        default=None, description="TOML file with settings. Default: config.toml in the home folder."
    )
    tenant: str = Field(
        default="local",
        min_length=1,
        max_length=200,
        description="Tenant: the team that owns the sessions. It cannot see the data of other tenants.",
    )
    store_url: Annotated[str, StringConstraints(strip_whitespace=True)] | None = Field(
        default=None,
        validation_alias=AliasChoices("WAYSTATION_STORE_URL", "DATABASE_URL"),
        repr=False,
        description="URL of the store's database, postgresql://… or sqlite:///…. Default: an SQLite file in the home "
        "folder.",
    )
    budget: WrittenBudget = Field(
        default=DEFAULT_BUDGET,
        description="Budget of a task: 600k (tokens), $2.00 or 600k+$2.00. Default: $10.00 if all its models have "
        "known prices, else 600k.",
    )
    agent_budget: WrittenBudget = Field(
        default=DEFAULT_AGENT_BUDGET,
        description="Maximum budget that an agent starts with, like 100k or $0.30. In dollars, the default is a "
        "sixth of the task's budget.",
    )
    mode: BudgetMode = Field(
        default=BudgetMode.APPROVAL,
        description="What an agent does when its budget is spent: approval (it asks a person), soft or hard (it "
        "delivers what it has; docs/how-to/set-a-budget.md).",
    )
    preset: Preset | None = Field(
        default=None,
        description="Preset for a kind of work: qa, debugging, long or web. Its values override other settings.",
    )
    window: WrittenTokens = Field(
        default=None,
        ge=MIN_WINDOW_TOKENS,
        le=MAX_WINDOW_TOKENS,
        description="Context window of each agent in tokens, like 50k. Default: the window of the model, up to "
        "WAYSTATION_WINDOW_CAP.",
    )
    trigger_percent: int = Field(
        default=TRIGGER_PERCENT, ge=50, le=99, description="Percentage of the window at which a context counts as full."
    )
    primers: int = Field(
        default=PRIMERS,
        ge=0,
        le=100,
        description="Maximum number of initial messages that a compaction keeps with the strategy `window`.",
    )
    recents: int = Field(
        default=RECENTS,
        ge=1,
        le=1_000,
        description="Maximum number of latest messages that a compaction keeps with the strategy `window`.",
    )
    prices: Path | None = Field(
        default=None, description="TOML file with your own prices of models (docs/how-to/see-what-tasks-cost.md)."
    )
    backpressure: bool = Field(default=True, description="Whether to slow down calls when a budget is nearly spent.")
    window_cap: int = Field(
        default=200_000, ge=2_000, description="Maximum context window in tokens, even if the model has a larger one."
    )
    installation: str = Field(
        default="",
        pattern="^([a-z][a-z0-9-]{0,30})?$",
        description="Name of this installation, like acme, if several share a Temporal namespace. Its task queues, "
        "workflow ids and schedule ids begin with the name and a dot.",
    )
    temporal_ui: str | None = Field(
        default=None, description="Address of the Temporal UI. Default: the UI that `waystation dev` started."
    )
    webhook: SecretAddress = Field(
        default=None,
        description="Webhook for notifications of approval requests and finished tasks, like a Slack incoming webhook.",
    )
    notify: SecretStr | None = Field(
        default=None, description="Apprise URLs for notifications by e-mail, chat or push, separated by spaces."
    )
    page: PageAddress = Field(
        default=None,
        description="Public address of `waystation serve`, for links in notifications. Without it, links lead to the "
        "Temporal UI.",
    )

    metrics_address: str | None = Field(
        default=None, description="Address where a worker serves Prometheus metrics, like 0.0.0.0:9464."
    )
    health_address: str | None = Field(
        default=None, description="Address where a worker serves /livez and /readyz, like 0.0.0.0:8090."
    )

    queues: str = Field(
        default="",
        description="Queues that a worker polls, separated by commas: workflows, agents, context. Default: all. A "
        "worker with fewer queues needs QDRANT_URL.",
    )
    versioning: bool = Field(
        default=False,
        description="Whether workers take part in Temporal's worker versioning: tasks stay on the build on which "
        "they began until they can move to a new one (docs/how-to/deploy-and-roll-back.md). `dev` and `up` do not "
        "use worker versioning.",
    )
    build_id: str | None = Field(
        default=None,
        pattern="^[A-Za-z0-9][A-Za-z0-9._+-]{0,99}$",
        description="Build id of a worker's code, like a version or a commit. All workers with the same code need the "
        "same id. Default: the version of Waystation.",
    )
    agents_at_once: int = Field(
        default=32,
        ge=1,
        description="Maximum number of agents, planners and reviewers that a worker runs at the same time.",
    )
    contexts_at_once: int = Field(
        default=4,
        ge=1,
        description="Maximum number of compactions, admissions and similar activities that a worker runs at the same "
        "time.",
    )
    tenant_weights: Annotated[dict[str, TenantWeight], NoDecode, WrittenTable] = Field(
        default={},
        description="Weight of each tenant, by name, when tasks of several tenants wait for workers. Default: 1. With "
        "weight 2, a tenant gets twice the share of the workers' time that a tenant with weight 1 gets. In the config "
        "file: [tenant_weights].",
    )
    stop_grace: float | None = Field(
        default=None,
        ge=0,
        le=MAX_TIMEOUT_SECONDS,
        description="Seconds that a stopping worker waits for model calls in progress. Providers charge even for calls "
        "that the worker gives up. Default: the longer of WAYSTATION_MODEL_PATIENCE and "
        "WAYSTATION_MODEL_PATIENCE_THINKING. `dev` and `up` wait 20 seconds.",
    )
    target_memory: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="A worker accepts no new work while more than this share of RAM is in use, like 0.8.",
    )
    target_cpu: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="A worker accepts no new work while more than this share of the CPU is in use, like 0.9.",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources, the strongest first: code, environment, config file."""
        given = {**env_settings(), **init_settings()}
        must_exist = given.get("config") is not None
        written = read_config(_config_path(given), settings_cls.model_fields, must_exist=must_exist)
        return (
            init_settings,
            env_settings,
            dotenv_settings,
            file_secret_settings,
            InitSettingsSource(settings_cls, written),
        )

    @property
    def database_url(self) -> str:
        """SQLAlchemy URL of the store with the installed driver, whatever driver the given URL names."""
        url = self.store_url or f"sqlite:///{self.home / 'waystation.db'}"
        scheme, separator, place = url.partition("://")
        return DRIVERS.get(scheme.partition("+")[0], scheme) + separator + place

    @property
    def worker_grace(self) -> timedelta:
        """How long a stopping worker waits for calls in progress: whether a task uses thinking is not known here."""
        longest = max(self.model_patience, self.model_patience_thinking)
        return timedelta(seconds=longest if self.stop_grace is None else self.stop_grace)

    @property
    def sends_notifications(self) -> bool:
        """Whether notifications are sent."""
        return bool(self.notification_channels)

    @property
    def notification_channels(self) -> str:
        """Description of how notifications are sent, without secrets; empty if none are."""
        webhook = [f"a webhook at {HttpUrl(self.webhook.get_secret_value()).host}"] if self.webhook is not None else []
        addresses = self.notify.get_secret_value().split() if self.notify is not None else []
        ways = [*webhook, *(address.partition("://")[0] for address in addresses if "://" in address)]
        return f"by {' and '.join(ways)} (workers send them, and need the same settings)" if ways else ""

    @property
    def memory_folder(self) -> Path:
        """Folder of embedded Qdrant's points."""
        return self.home / "memory"

    @property
    def reports_folder(self) -> Path:
        """Folder of finished reports in Markdown."""
        return self.home / "reports"

    @property
    def logs_folder(self) -> Path:
        """Folder of the logs of the dev server and detached workers."""
        return self.home / "logs"

    @property
    def key_file(self) -> Path:
        """File with the key behind the placeholders of redacted text."""
        return self.home / "key"

    @property
    def prefix(self) -> str:
        """Prefix of this installation's names on the Temporal server."""
        return f"{self.installation}." if self.installation else ""

    @property
    def run_file(self) -> Path:
        """File that lists what runs on this machine now: addresses and process ids."""
        return self.home / "run.json"

    @property
    def used_endpoints(self) -> frozenset[str]:
        """Named endpoints of the models in these settings, including fallbacks."""
        if self.uses_offline_model:
            return frozenset()
        names = {*self.oversight_models}
        for role in list_step_roles():
            names |= {self.get_model_options(role).model, self.get_summary_model(role, self.condense_model)}
        others = {other for name in names for other in self.endpoint_registry.list_fallbacks(name)}
        return frozenset(filter(None, (parse_model_name(name).endpoint for name in names | others)))

    def find_missing_key_variable(self, model: str) -> str:
        """Return the variable with the key of a model's endpoint if it is not set; else empty."""
        place = parse_model_name(model).endpoint
        if not place:
            return "" if self.anthropic_api_key is not None else PROVIDER_KEY
        variable = self.named_endpoints[place].required_key_variable if place in self.named_endpoints else ""
        return "" if os.environ.get(variable) else variable

    @property
    def temporal_database(self) -> Path:
        """SQLite file of the dev server."""
        return self.home / "temporal.db"


def _config_path(given: Mapping[str, object]) -> Path:
    """Return the path of the config file, from what is given of `config` and `home`."""
    return _absolute(Path(str(given.get("config") or Path(str(given.get("home") or HOME)) / CONFIG_NAME)))


def find_active_variable(name: str) -> str | None:
    """Return the environment variable that sets this setting now, or a first one of a table; None if none does.

    `name` may be the path of one value of a table, like `roles.writing.model`.
    """
    given, (first, *inner) = _environment(), name.split(".")
    field = Settings.model_fields.get(first)
    whole = list_setting_variables(first, field) if field is not None else ()
    parts = [variable for variable in given if variable.startswith(make_variable_name(name) + NESTING_SEPARATOR)]
    meant = ((make_variable_name(name),) if inner else ()) + (*whole, *sorted(parts))
    return next((variable for variable in meant if variable in given), None)


def describe_unknown_variables() -> tuple[str, ...]:
    """Return sentences on variables with our prefix that are not settings, never their values."""
    variables = (name for field in Settings.model_fields.items() for name in list_setting_variables(*field))
    known = {name.removeprefix(ENVIRONMENT_PREFIX) for name in variables if name.startswith(ENVIRONMENT_PREFIX)}
    tables = tuple(
        name.upper() + NESTING_SEPARATOR for name, field in Settings.model_fields.items() if _is_table(field)
    )
    given = {name.removeprefix(ENVIRONMENT_PREFIX) for name in _environment() if name.startswith(ENVIRONMENT_PREFIX)}
    given = {name for name in given if not name.startswith(tables)}
    close = {name: get_close_matches(name, known, n=1) for name in sorted(given - known)}
    return tuple(
        f"{ENVIRONMENT_PREFIX}{name} is not a setting and has no effect"
        + (f": did you mean {ENVIRONMENT_PREFIX}{meant[0]}?" if meant else ".")
        for name, meant in close.items()
    )


def _is_table(field: FieldInfo) -> bool:
    return get_origin(field.annotation) is dict


def get_config_file() -> Path:
    """Return the config file that the environment refers to."""
    given = _environment()
    return _config_path({"config": given.get("WAYSTATION_CONFIG"), "home": given.get("WAYSTATION_HOME")})


def _environment() -> dict[str, str]:
    """Return the environment as the settings read it: names in any case, without empty values."""
    return {name.upper(): value for name, value in os.environ.items() if value}


class TraceTarget(NamedTuple):
    """Where spans go, by OpenTelemetry's own variables."""

    endpoint: str
    """Scheme, host and port."""
    include_content: bool
    """Whether conversation content is included, redacted."""


CAPTURE_CONTENT_VALUES = frozenset({"true", "1", "span_only", "span_and_event"})
"""Values of the variable that requests it, in lower case."""


def resolve_trace_target() -> TraceTarget | None:
    """Return where spans go; None if no variable names an exporter or an endpoint.

    Raises:
        BadInput: an exporter, a protocol or an address is not usable, or the SDK would end the process for a variable
            or ignore it.
    """
    given = _environment()
    own, all_signals = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"
    by = own if given.get(own) else all_signals
    own_address, shared_address = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"
    by_address = own_address if given.get(own_address) else shared_address
    endpoint = given.get(by_address, "")
    exporter = given.get("OTEL_TRACES_EXPORTER", "otlp" if endpoint else "none").strip().lower()
    if exporter == "none" or given.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    if exporter != "otlp":
        raise BadInput("OTEL_TRACES_EXPORTER: use `otlp`, or `none` to send no spans")
    if given.get(by, "").strip().lower() not in {"", "http/protobuf"}:
        others = "" if by == own else f"; to change the protocol for traces only, set {own}"
        raise BadInput(f"{by}: only `http/protobuf` is supported{others}")
    if fault := next(iter_trace_setting_faults(given), ""):
        raise BadInput(fault)
    said = given.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "").strip().lower()
    return TraceTarget(
        _shown(by_address, endpoint or "http://localhost:4318"), include_content=said in CAPTURE_CONTENT_VALUES
    )


def _shown(variable: str, endpoint: str) -> str:
    """Return scheme, host and port of the variable's address: a path or a password may be a secret.

    Raises:
        BadInput: it is not an http or https address.
    """
    try:
        parts = urlsplit(endpoint.strip())
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        parts, port = urlsplit(""), ""
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise BadInput(f"{variable}: it must be an http or https address, like http://localhost:4318")
    return f"{parts.scheme}://{parts.hostname}{port}"


def format_setting_errors(error: ValidationError) -> str:
    """Describe what is wrong with the settings: each by where it was set, with what is permitted."""
    sentences: list[str] = []
    for fault in extract_validation_faults(error):
        first, *inner = map(str, fault.place)
        name = _name_of(first)
        if name == "endpoints":  # the kind of table follows its name, and no one wrote it
            del inner[1:2]
        field = Settings.model_fields.get(name)
        allowed = "there is no such setting" if field is None else _range(field)
        cause = "; ".join(filter(None, (allowed, fault.words if fault.ours or not allowed else "")))
        sentences.append(f"{_place_of(name, inner)}: {cause}")
    return "; ".join(sentences)


def _place_of(name: str, inner: Sequence[str]) -> str:
    """Return where a setting, or the value at `inner` in it, was set."""
    path = ".".join([name, *(part for part in inner if part != KEY_ITSELF)])
    variable = find_active_variable(path)
    if variable is None:
        return f"{path} in {get_config_file()}"
    of_table = _is_table(Settings.model_fields[name]) and inner and not variable.startswith(make_variable_name(path))
    return f"{path} in {variable}" if of_table else variable


KEY_ITSELF = "[key]"
"""In pydantic's error locations: the key of a table is wrong, not its value."""


def _name_of(place: str) -> str:
    """Return the name of the setting that an error refers to by its name or variable."""
    fields = Settings.model_fields.items()
    return next((name for name, field in fields if place in list_setting_variables(name, field)), place)


def _range(field: FieldInfo) -> str:
    """Describe the permitted range of a number; empty if it has no bounds."""
    bounds = {
        kind: getattr(mark, kind) for mark in field.metadata for kind in ("ge", "gt", "le") if hasattr(mark, kind)
    }
    words = {"ge": "{:,} or more", "gt": "more than {:,}", "le": "at most {:,}"}
    if {"ge", "le"} <= bounds.keys():
        return f"it must be from {bounds['ge']:,} to {bounds['le']:,}"
    listed = " and ".join(words[kind].format(bound) for kind, bound in bounds.items())
    return f"it must be {listed}" if listed else ""
