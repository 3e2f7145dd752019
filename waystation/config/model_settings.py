"""Settings of models: their endpoints, the model for each role and purpose, and its effort and thinking."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, StringConstraints, ValidationInfo, field_validator
from pydantic_settings import NoDecode

from waystation.config.setting_types import (
    SettingSection,
    WrittenBaseUrl,
    WrittenEffort,
    WrittenEndpoints,
    WrittenTable,
    WrittenThinking,
    build_shared_alias,
    filter_named_endpoints,
)
from waystation.kernel.roles import AgentRole, Role, get_role_spec, list_step_roles
from waystation.kernel.value import Value
from waystation.models.endpoints import BUILT_IN_KINDS, PROVIDER_KEY, EndpointRegistry, ModelCapabilities, NamedEndpoint
from waystation.models.profiles import (
    DEFAULT_AGENT_MODEL,
    DEFAULT_SUMMARY_MODEL,
    Effort,
    ModelOptions,
    OptionSettingNames,
    ThinkingSetting,
    get_model_profile,
    parse_model_name,
)
from waystation.models.rate_limits import RateLimits
from waystation.security.untrusted import is_blank

AS_PROVIDED: Literal["default"] = "default"
"""As effort or thinking: use the provider's default, even if another setting applies to all roles."""

MAX_TIMEOUT_SECONDS = 1_200
"""Maximum of the time-outs in seconds. A leg may take half an hour in all."""


def _refuse_blank_name(given: str) -> str:
    if is_blank(given):
        raise ValueError("the name of the model is blank: give a name, or remove the setting")
    return given


ModelName = Annotated[str, StringConstraints(strip_whitespace=True), AfterValidator(_refuse_blank_name)]
"""MODEL or ENDPOINT::MODEL."""


class RoleSettings(Value):
    """Settings for the agents of one role."""

    model: ModelName | None = None
    endpoint: str = ""
    effort: WrittenEffort | None = None
    thinking: WrittenThinking | None = None


class ModelLimits(Value):
    """Limits per minute of one model."""

    requests: float | None = Field(default=None, gt=0)
    input_tokens: float | None = Field(default=None, gt=0)
    output_tokens: float | None = Field(default=None, gt=0)

    @property
    def rate_limits(self) -> RateLimits:
        """The limits as the limiter keeps them."""
        return RateLimits(requests=self.requests, input_tokens=self.input_tokens, output_tokens=self.output_tokens)


class ModelSettings(SettingSection):
    """Read together with all others: see `waystation.config.settings.Settings`."""

    anthropic_api_key: SecretStr | None = Field(
        default=None,
        validation_alias=build_shared_alias(PROVIDER_KEY),
        description="Key of the Messages API. Without a key, the built-in offline model is used, unless a setting "
        "names another endpoint.",
    )
    anthropic_base_url: WrittenBaseUrl = Field(
        default=None,
        validation_alias=build_shared_alias("ANTHROPIC_BASE_URL"),
        description="Address of an endpoint with the Messages API, to use instead of Anthropic's.",
    )
    offline: bool | None = Field(
        default=None,
        description="Whether to use the built-in offline model. Default: only if no other model is set up.",
    )
    agent_model: ModelName = Field(default=DEFAULT_AGENT_MODEL, description="Model of the agents.")
    endpoint: str = Field(
        default="",
        description="Name of the endpoint for models that are written as MODEL, not as ENDPOINT::MODEL "
        "(docs/how-to/use-another-endpoint.md).",
    )
    endpoints: WrittenEndpoints = Field(
        default={},
        description="Endpoints by name. In the config file: [endpoints.NAME] with a kind. `waystation doctor --model "
        "NAME --save` adds tables that are named after the address of an endpoint and contain the capabilities of its "
        "models (docs/how-to/use-another-endpoint.md).",
    )
    roles: Annotated[dict[Role, RoleSettings], NoDecode, WrittenTable] = Field(
        default={},
        description="Model, endpoint, effort and thinking of single roles. They override the settings for all roles. "
        "In the config file: [roles.writing] with model, endpoint, effort, thinking. In the environment: "
        "WAYSTATION_ROLES__WRITING__MODEL.",
    )
    condense_model: ModelName = Field(default=DEFAULT_SUMMARY_MODEL, description="Model that writes summaries.")
    plan_model: ModelName | None = Field(
        default=None,
        description="Model that plans tasks and revises plans. Default: the model of the analysis agents.",
    )
    review_model: ModelName | None = Field(
        default=None, description="Model that reviews reports. Default: the model that plans."
    )
    judge_model: ModelName | None = Field(
        default=None,
        description="Model that decides about the cited sentences that code cannot decide, when the report is "
        "complete. Default: none; these sentences stay marked as undecided.",
    )

    effort: WrittenEffort | None = Field(
        default=None,
        description="Effort of agents: low, medium, high, xhigh, max, or default (the provider's default). Without "
        "this setting: medium for research, and high for other roles, planning and reviews, if the model supports it.",
    )

    thinking: WrittenThinking = Field(
        default=AS_PROVIDED,
        description="How agents' models think before they reply: adaptive, off, a maximum of thinking tokens for each "
        "reply (1,024 or more, like 4k), or default (the provider's default).",
    )

    resume_at_reset: bool = Field(
        default=False,
        description="Whether a task continues by itself when the provider resets the spending limit that paused the "
        "task. Default: it waits for a person.",
    )
    model_limits: Annotated[dict[str, ModelLimits], NoDecode, WrittenTable] = Field(
        default={},
        description="Limits per minute for each model: requests, input_tokens, output_tokens. All workers of the store "
        "share these limits. If a provider reports a stricter limit, it applies. Default: only the limits that "
        "providers report, or that their refusals show. In the config file: [model_limits.NAME], with the full name of "
        "the model.",
    )

    model_patience: float = Field(
        default=180,
        ge=1,
        le=MAX_TIMEOUT_SECONDS,
        description="Maximum seconds until the first byte of a model's reply. After that, the call is retried.",
    )
    model_patience_thinking: float = Field(
        default=600,
        ge=1,
        le=MAX_TIMEOUT_SECONDS,
        description="Maximum seconds until the first byte of a reply with thinking. After that, the call is retried.",
    )
    model_stream_patience: float = Field(
        default=90,
        ge=1,
        le=MAX_TIMEOUT_SECONDS,
        description="Maximum seconds between two parts of a reply (a ping counts as a part). After that, the reply is "
        "abandoned.",
    )

    @field_validator("endpoints")
    @classmethod
    def _have_kinds(
        cls, given: dict[str, NamedEndpoint | dict[str, ModelCapabilities]], info: ValidationInfo
    ) -> dict[str, NamedEndpoint | dict[str, ModelCapabilities]]:
        # The fields of this section come behind those of plug-ins.
        enabled: tuple[str, ...] = info.data.get("plugins", ())
        for name, endpoint in filter_named_endpoints(given).items():
            if endpoint.is_plugin and endpoint.kind not in enabled:
                raise ValueError(
                    f"endpoint {name} has the unknown kind {endpoint.kind!r}: use one of "
                    f"{', '.join(sorted(BUILT_IN_KINDS))}, or add the plug-in for this kind to WAYSTATION_PLUGINS"
                )
        return given

    def get_model_options(self, role: Role) -> ModelOptions:
        """Return the model of a role and its options, as set for the role or for all roles."""
        own = self._own(role)
        given = own.model is not None or "agent_model" in self.model_fields_set
        model = self.endpoint_registry.qualify_model_name(own.model or self.agent_model, own.endpoint, given=given)
        thinking = _thinking(own.thinking or self.thinking)
        written = own.effort or self.effort
        effort = _find_role_effort(role, model, thinking) if written is None else _effort(written)
        return ModelOptions(model=model, effort=effort, thinking=thinking)

    @property
    def named_endpoints(self) -> dict[str, NamedEndpoint]:
        """Endpoints with a table of their own."""
        return filter_named_endpoints(self.endpoints)

    @property
    def endpoint_registry(self) -> EndpointRegistry:
        """All endpoints of models."""
        rows = {place: table for place, table in self.endpoints.items() if not isinstance(table, NamedEndpoint)}
        return EndpointRegistry(
            base_url=self.anthropic_base_url, named=self.named_endpoints, capabilities=rows, default=self.endpoint
        )

    @property
    def fixed_limits(self) -> dict[tuple[str, str], RateLimits]:
        """Limits of models by the address of their endpoint and their name there."""
        registry = self.endpoint_registry
        return {
            (registry.get_endpoint(model).url, parse_model_name(model).model): limits.rate_limits
            for model, limits in self.model_limits.items()
        }

    @property
    def uses_offline_model(self) -> bool:
        """Whether the built-in extractive model does the work: if no other model can be reached, unless it is set."""
        if self.offline is not None:
            return self.offline
        named = self.endpoint or any(own.endpoint for own in self.roles.values())
        return self.anthropic_api_key is None and not named and not any(map(_is_placed, self._chosen))

    @property
    def _chosen(self) -> Iterator[str]:
        """Models that are set for all roles or for one."""
        oversight = self.plan_model, self.review_model, self.judge_model
        yield from filter(None, (self.agent_model, self.condense_model, *oversight))
        yield from filter(None, (self._own(role).model for role in list_step_roles()))

    @property
    def planner_model(self) -> str:
        """Full name of the model that plans: the analysts' model unless another one is set."""
        if self.plan_model:
            return self.endpoint_registry.qualify_model_name(self.plan_model)
        return self.get_model_options("analysis").model

    @property
    def reviewer_model(self) -> str:
        """Full name of the model that reviews."""
        return self.endpoint_registry.qualify_model_name(self.review_model) if self.review_model else self.planner_model

    @property
    def sentence_judge_model(self) -> str:
        """Full name of the model that judges cited sentences; empty if there is none."""
        return self.endpoint_registry.qualify_model_name(self.judge_model) if self.judge_model else ""

    @property
    def oversight_models(self) -> tuple[str, ...]:
        """Full names of the models that plan, review and judge."""
        judge = self.sentence_judge_model
        return self.planner_model, self.reviewer_model, *([judge] if judge else [])

    def resolve_oversight_effort(self, role: AgentRole, model: str) -> Effort | None:
        """Return the effort of the model that plans or reviews; None: the provider's default.

        An effort that is set for all agents applies here too, if the model supports it. Such calls are made to use a
        tool, and some models do not think then.
        """
        facts = get_model_profile(model)
        thinking: ThinkingSetting | None = "off" if facts.forces_tools and facts.is_known else None
        effort = get_role_spec(role).effort if self.effort is None else _effort(self.effort)
        supported = facts.supported_options
        if supported is None:
            return None if self.effort is None else effort
        return None if supported.find_unsupported_option(effort, thinking) is not None else effort

    def get_summary_model(self, role: Role, chosen: str) -> str:
        """Return the full name of the model that writes the summaries of a role's agents.

        `chosen` is the model by settings and profile. If no one chose it, the one at the role's endpoint is used.
        """
        given = "condense_model" in self.model_fields_set or chosen != DEFAULT_SUMMARY_MODEL
        return self.endpoint_registry.qualify_model_name(chosen, "" if given else self._own(role).endpoint, given=given)

    def get_option_setting_names(self, role: Role) -> OptionSettingNames:
        """Return which settings define a role's effort and thinking: its own, or those for all roles."""
        own = self._own(role)
        return OptionSettingNames(
            effort="effort" if own.effort is None else f"roles.{role}.effort",
            thinking="thinking" if own.thinking is None else f"roles.{role}.thinking",
        )

    def _own(self, role: Role) -> RoleSettings:
        """Return what is set for the role alone."""
        return self.roles.get(role, RoleSettings())


def _is_placed(model: str) -> bool:
    """Whether the model's name says at which endpoint it is."""
    return bool(parse_model_name(model).endpoint)


def _find_role_effort(role: Role, model: str, thinking: ThinkingSetting | None) -> Effort | None:
    """Return the effort of a role; None if its model is not known to support it."""
    effort, supported = get_role_spec(role).effort, get_model_profile(model).supported_options
    if effort is None or supported is None or supported.find_unsupported_option(effort, thinking) is not None:
        return None
    return effort


def _effort(written: WrittenEffort) -> Effort | None:
    return None if written == AS_PROVIDED else written


def _thinking(written: WrittenThinking) -> ThinkingSetting | None:
    return None if written == AS_PROVIDED else written
