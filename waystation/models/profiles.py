"""Profiles of models by name: limits, effort and thinking options, and the arithmetic of prices."""

from collections.abc import Iterable, Sequence
from datetime import date
from decimal import ROUND_CEILING, Decimal
from string import ascii_letters, digits
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from waystation.budgets.budget import WorstCaseRates
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.usage import Usage
from waystation.kernel.value import Value

MIN_THINKING_TOKENS = 1_024
"""Minimum tokens; providers accept no smaller budget for thinking."""
THINKING_PART = 4
"""The thinking of one reply may use at most one part in this many of an agent's initial budget, so that no single call
exhausts it.
"""

Effort = Literal["low", "medium", "high", "xhigh", "max"]
ThinkingSetting = Literal["adaptive", "off"] | Annotated[int, Field(ge=MIN_THINKING_TOKENS)]
"""As the model sees fit, none, or at most so many tokens a reply."""
ThinkingMode = Literal["adaptive", "off", "a number of tokens"]

EFFORTS_UP_TO_HIGH: tuple[Effort, ...] = ("low", "medium", "high")
EFFORTS: tuple[Effort, ...] = (*EFFORTS_UP_TO_HIGH, "xhigh", "max")


class ModelOptions(NamedTuple):
    """The model of a role and its effort and thinking. None: the provider's default for this model."""

    model: str
    effort: Effort | None = None
    thinking: ThinkingSetting | None = None


class OptionSettingNames(NamedTuple):
    """Names of the settings for a role's effort and thinking: its own, or those for all roles."""

    effort: str
    thinking: str


class _Refused(NamedTuple):
    """An option that a model does not support, and what it supports instead."""

    setting: Literal["effort", "thinking"]
    requested: str
    allowed: tuple[str, ...]


class SupportedOptions(Value):
    """Options that a model supports. Its provider answers any other with an error."""

    efforts: tuple[Effort, ...] = EFFORTS
    thinking: tuple[ThinkingMode, ...] = ("adaptive", "off")
    quiet_efforts: tuple[Effort, ...] = EFFORTS
    """Efforts that work with thinking switched off."""

    def find_unsupported_option(self, effort: Effort | None, thinking: ThinkingSetting | None) -> _Refused | None:
        """Return the first unsupported option; None if both are supported."""
        if effort is not None and effort not in self.efforts:
            return _Refused("effort", f"effort {effort}", self.efforts)
        way = "a number of tokens" if isinstance(thinking, int) else thinking
        if way is not None and way not in self.thinking:
            return _Refused("thinking", f"thinking {thinking}", self.thinking)
        if way == "off" and effort is not None and effort not in self.quiet_efforts:
            return _Refused("effort", f"effort {effort} with thinking off", self.quiet_efforts)
        return None


def get_thinking_tokens(thinking: ThinkingSetting | None) -> int:
    """Return the tokens of every reply that are set aside for thinking."""
    return thinking if isinstance(thinking, int) else 0


OFFLINE_MODEL = "waystation-offline-1"
"""The built-in model: extractive, not an LLM."""
DEFAULT_AGENT_MODEL = "claude-sonnet-5-5"
"""Default model of agents."""
DEFAULT_SUMMARY_MODEL = "claude-haiku-5-5"
"""Default model for summaries."""

UNKNOWN_WINDOW = 200_000
UNKNOWN_MAX_OUTPUT = 8_192
"""Small enough for every model behind the Messages protocol that is in use."""

_SNAPSHOT = compile_bounded(r"-\d{8}$")
_VERSION = compile_bounded(r"-v\d{1,3}(?::\d{1,3})?$")
"""Version suffix of a model at Bedrock."""
_NAME_SIGNS = frozenset(f"{ascii_letters}{digits}-._:/@+")
MAX_NAME_CHARACTERS = 120
"""Maximum characters of a model name reported by an endpoint."""


class ModelProfile(Value):
    """Limits and options of one model."""

    name: str
    window: int
    """Tokens of request and reply together."""
    max_output: int
    """Maximum tokens of a reply, including thinking."""
    forces_tools: bool
    """Whether `tool_choice` may name a tool. Some newer models reject such a request; they are asked in words."""
    binds_thinking: bool = False
    """Whether its thinking is signed over everything before it, so that it becomes invalid if that changes."""
    supported_options: SupportedOptions | None = None
    """Supported effort and thinking; None if unknown."""
    is_known: bool = True
    """If False, the numbers are conservative guesses, and code that relies on them must say so."""


_ALWAYS_THINKS = SupportedOptions(thinking=("adaptive",))
"""Sonnet could be told to think only between its tool calls. But then its provider cannot be asked to drop outdated
thinking (`binds_thinking`), and rejects the request after the next compaction.
"""
_THINKS = SupportedOptions(quiet_efforts=EFFORTS_UP_TO_HIGH)
_THINKS_IF_ASKED = SupportedOptions()
_THINKS_BOTH_WAYS = SupportedOptions(
    efforts=(*EFFORTS_UP_TO_HIGH, "max"), thinking=("adaptive", "off", "a number of tokens")
)
_COUNTS_EFFORT = SupportedOptions(efforts=EFFORTS_UP_TO_HIGH, thinking=("off", "a number of tokens"))
_COUNTS = SupportedOptions(efforts=(), thinking=("off", "a number of tokens"))


def _current(name: str, takes: SupportedOptions, *, forces_tools: bool) -> ModelProfile:
    """Return a profile of the generation whose thinking is bound to what came before it."""
    return _large(name, takes).replace(forces_tools=forces_tools, binds_thinking=True)


def _large(name: str, takes: SupportedOptions) -> ModelProfile:
    return ModelProfile(name=name, window=1_000_000, max_output=128_000, forces_tools=True, supported_options=takes)


def _small(name: str, takes: SupportedOptions) -> ModelProfile:
    return ModelProfile(name=name, window=200_000, max_output=64_000, forces_tools=True, supported_options=takes)


KNOWN_MODELS = (
    _current("claude-fable-5-2", _ALWAYS_THINKS, forces_tools=False),
    _current("claude-fable-5-1", _ALWAYS_THINKS, forces_tools=False),
    _large("claude-fable-5", _ALWAYS_THINKS).replace(forces_tools=False),
    _current("claude-mythos-5-2", _ALWAYS_THINKS, forces_tools=False),
    _current("claude-mythos-5-1", _ALWAYS_THINKS, forces_tools=False),
    _large("claude-mythos-5", _ALWAYS_THINKS).replace(forces_tools=False),
    _current("claude-opus-5-5", _ALWAYS_THINKS, forces_tools=False),
    _current("claude-sonnet-5-5", _ALWAYS_THINKS, forces_tools=False),
    _current("claude-haiku-5-5", _THINKS, forces_tools=True),
    _large("claude-opus-5", _THINKS),
    _large("claude-opus-4-8", _THINKS_IF_ASKED),
    _large("claude-opus-4-7", _THINKS_IF_ASKED),
    _large("claude-opus-4-6", _THINKS_BOTH_WAYS),
    _small("claude-opus-4-5", _COUNTS_EFFORT),
    _large("claude-sonnet-5", _THINKS),
    _small("claude-sonnet-4-6", _THINKS_BOTH_WAYS).replace(window=1_000_000),
    _small("claude-sonnet-4-5", _COUNTS),
    _small("claude-haiku-4-5", _COUNTS),
)
"""According to the provider's pages on models, thinking and effort in October 2026."""
_FACTS = {facts.name: facts for facts in KNOWN_MODELS}


ENDPOINT_SEPARATOR = "::"
"""Separates the name of an endpoint from that of its model; no vendor's model name contains it in this form."""


class QualifiedModelName(NamedTuple):
    """A full model name in its parts."""

    endpoint: str
    """Empty: the unnamed endpoint."""
    model: str


def parse_model_name(model: str) -> QualifiedModelName:
    """Split a full name into endpoint and model. An ARN has colons before its `::`, which no endpoint's name has."""
    endpoint, sign, name = model.partition(ENDPOINT_SEPARATOR)
    named = sign and name and endpoint.replace("-", "_").isidentifier() and endpoint.islower()
    return QualifiedModelName(endpoint, name) if named else QualifiedModelName("", model)


def format_model_name(endpoint: str, model: str) -> str:
    """Return the full name of a model at an endpoint."""
    return f"{endpoint}{ENDPOINT_SEPARATOR}{model}"


def strip_snapshot_date(model: str) -> str:
    """Return the model's name without a snapshot date: `claude-haiku-4-5-20251001` becomes `claude-haiku-4-5`."""
    return _SNAPSHOT.sub("", model)


def get_family_name(model: str) -> str:
    """Return a model's name on any platform: `us.anthropic.claude-haiku-4-5-20251001-v1:0` is `claude-haiku-4-5`."""
    name = parse_model_name(model).model
    makers = name.rpartition("anthropic.")[2]
    return strip_snapshot_date(_VERSION.sub("", makers.partition("@")[0]) if makers.startswith("claude-") else name)


def find_substitute_model(asked: str, answered: str) -> str:
    """Return the name in a reply if it is not the requested model; characters that no model name has become `?`."""
    if get_family_name(answered) == get_family_name(asked):
        return ""
    return "".join(sign if sign in _NAME_SIGNS else "?" for sign in answered[:MAX_NAME_CHARACTERS])


def merge_worst_rates(rates: Iterable[WorstCaseRates | None]) -> WorstCaseRates | None:
    """Return the highest cost of a token with any of them; None if there are none."""
    known = [one for one in rates if one is not None]
    if not known:
        return None
    return WorstCaseRates(input=max(one.input for one in known), output=max(one.output for one in known))


def get_model_profile(model: str) -> ModelProfile:
    """Return the profile of a model; for an unknown one, conservative guesses with `known` False."""
    known = _FACTS.get(get_family_name(model))
    if known is not None:
        return known
    return ModelProfile(
        name=model, window=UNKNOWN_WINDOW, max_output=UNKNOWN_MAX_OUTPUT, forces_tools=False, is_known=False
    )


PRICE_SOURCE = "the provider's published list prices, from the package genai-prices"
SEARCHES = Decimal(10)
"""USD per thousand web searches, whatever model makes them."""


class TokenRates(Value):
    """USD per million tokens, which equals micro-USD per token."""

    input: Decimal = Field(ge=0)
    output: Decimal = Field(ge=0)
    cache_write: Decimal = Field(ge=0)
    """For a lifetime of five minutes, the only one that is used."""
    cache_read: Decimal = Field(ge=0)

    @property
    def worst_case_rates(self) -> WorstCaseRates:
        """Highest possible cost of a token of the request, and of one of the reply."""
        return WorstCaseRates(input=max(self.input, self.cache_write, self.cache_read), output=self.output)

    def compute_cost(self, usage: Usage) -> Decimal:
        """Return the exact cost of the tokens in micro-USD."""
        return (
            usage.input * self.input
            + usage.output * self.output
            + usage.cache_write * self.cache_write
            + usage.cache_read * self.cache_read
        )


class LongPromptTier(Value):
    """Different rates for the whole of a call with a long prompt."""

    over: int
    """These rates apply to prompts of more tokens than this, cached or not."""
    rates: TokenRates


class Price(Value):
    """A model's list price from a certain day on."""

    model: str
    rates: TokenRates
    long_prompts: LongPromptTier | None = None
    searches: Decimal = Field(default=SEARCHES, ge=0)
    """USD per thousand web searches that the provider makes in calls of the model."""
    since: date = date.min
    """First day on which it applies."""
    source: str = PRICE_SOURCE

    def compute_cost(self, usage: Usage) -> Decimal:
        """Return the exact cost of one call in micro-USD."""
        return self.get_rates(usage.prompt_tokens).compute_cost(usage) + self.compute_search_cost(usage.searches)

    def compute_search_cost(self, count: int) -> Decimal:
        """Return the exact cost of web searches in micro-USD."""
        return count * self.searches * 1_000

    def get_rates(self, prompt: int) -> TokenRates:
        """Return the rates of a call with a prompt of this many tokens."""
        if self.long_prompts is not None and prompt > self.long_prompts.over:
            return self.long_prompts.rates
        return self.rates

    def compute_worst_rates(self, input_bound: int) -> WorstCaseRates:
        """Return the highest possible token rates of a call whose prompt has at most `input_bound` tokens."""
        worst, longer = self.rates.worst_case_rates, self.get_rates(input_bound).worst_case_rates
        return WorstCaseRates(input=max(worst.input, longer.input), output=max(worst.output, longer.output))


OFFLINE_PRICE = Price(
    model=OFFLINE_MODEL,
    rates=TokenRates(input=Decimal(0), output=Decimal(0), cache_write=Decimal(0), cache_read=Decimal(0)),
    source="the offline model runs on this machine, so its calls cost nothing",
)


def filter_prices(models: Iterable[str], prices: Sequence[Price]) -> tuple[Price, ...]:
    """Return all past, present and future prices of the models, which a task takes with it."""
    names = {strip_snapshot_date(model) for model in models}
    return tuple(price for price in prices if price.model in names)


def find_price(model: str, at: date, prices: Sequence[Price]) -> Price | None:
    """Return the price of a model on a day; None if there is none, and then nothing may guess one."""
    held = [price for price in prices if price.model == strip_snapshot_date(model) and price.since <= at]
    return max(held, key=lambda price: price.since, default=None)


def compute_cost_micro_usd(model: str, usage: Usage, at: date, prices: Sequence[Price]) -> int | None:
    """Return the cost of one call in micro-USD, rounded up; None if the model has no known price.

    Usage of several calls must be priced call by call: the length of each prompt decides its rates.
    """
    price = find_price(model, at, prices)
    if price is None:
        return None
    return int(price.compute_cost(usage).to_integral_value(rounding=ROUND_CEILING))


def find_worst_rates(model: str, input_bound: int, at: date, prices: Sequence[Price]) -> WorstCaseRates | None:
    """Return the highest possible token rates of one call; None if the model has no known price."""
    price = find_price(model, at, prices)
    return None if price is None else price.compute_worst_rates(input_bound)
