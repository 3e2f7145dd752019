"""Presets, compaction profiles by model, and the merging of config layers: request, preset, settings, profile."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Final, NamedTuple

from pydantic import Field

from waystation.budgets.budget import BudgetMode
from waystation.context.policy import PRIMERS, RECENTS, StrategyName
from waystation.kernel.amount import Limit
from waystation.kernel.value import Value
from waystation.models.profiles import DEFAULT_SUMMARY_MODEL, strip_snapshot_date
from waystation.security.web_addresses import WebLimits
from waystation.tasks.task import Preset

REQUEST = "request"
"""Name of the source for what the submitting person has just written."""
DEFAULT_BUDGET = Limit(tokens=600_000)
DEFAULT_PRICED_BUDGET = Limit(micro_usd=10_000_000)
"""Used if every model has a known price: cache reads, most of what a long conversation sends, cost money but no tokens.

Example: 50 documents of 8,000 tokens, written to the cache at $5 per million and read again in 200 turns of 60,000 at
$0.20, with 200,000 tokens of replies at $20, cost about $8.40.
"""
DEFAULT_AGENT_BUDGET = Limit(tokens=100_000)
TRIGGER_PERCENT = 75


class ConfigLayer(Value):
    """What one source sets for a task. None: not set."""

    budget: Limit | None = None
    agent_budget: Limit | None = None
    window: int | None = None
    mode: BudgetMode | None = None
    trigger_percent: int | None = None
    strategy: StrategyName | None = None
    primers: int | None = None
    recents: int | None = None
    keep_last: int | None = None
    condense_model: str | None = None
    messages: int | None = None
    history: int | None = None
    review_plan: bool | None = None
    web_limits: WebLimits | None = None


class ResolvedConfig(Value):
    """The merged config."""

    budget: Limit = DEFAULT_BUDGET
    agent_budget: Limit = DEFAULT_AGENT_BUDGET
    window: int | None = None
    """Tokens; None: as large as the model and the cap allow."""
    mode: BudgetMode = BudgetMode.APPROVAL
    trigger_percent: int = TRIGGER_PERCENT
    """Percentage of the window from which a context counts as full."""
    strategy: StrategyName = "ends"
    primers: int = PRIMERS
    recents: int = RECENTS
    keep_last: int | None = None
    """See `CompactionPolicy.keep_last`."""
    condense_model: str = DEFAULT_SUMMARY_MODEL
    messages: int | None = None
    """Maximum messages in a view before it counts as full."""
    history: int | None = None
    """Maximum messages of an agent's conversation in total."""
    review_plan: bool = False
    web_limits: WebLimits | None = None
    """See `AgentConfig.web_limits`."""
    origins: dict[str, str] = {}
    """Name of the source of each field that a source has set."""


class ConfigSource(NamedTuple):
    """A config layer and the name that people know its source by."""

    name: str
    layer: ConfigLayer


PRESETS = {
    Preset.QA: ConfigLayer(messages=30, window=25_000, primers=2, recents=10),
    # Long looks at details take more of the budget than the usual share.
    Preset.DEBUGGING: ConfigLayer(
        messages=100, window=75_000, primers=5, recents=30, trigger_percent=85, agent_budget=Limit(tokens=150_000)
    ),
    Preset.LONG: ConfigLayer(
        messages=75, budget=Limit(tokens=300_000), primers=PRIMERS, recents=RECENTS, history=1_000
    ),
    # In mode soft no one is asked for more budget, and a call that was not approved in advance is refused.
    Preset.WEB: ConfigLayer(
        mode=BudgetMode.SOFT, review_plan=False, web_limits=WebLimits(max_searches=20, max_pages=40)
    ),
}
"""`primers` and `recents`, which survive a compaction, are far less than `messages`, so that compactions do not follow
each other immediately.
"""


def merge_config_sources(sources: Iterable[ConfigSource]) -> ResolvedConfig:
    """Take each field from the first source that sets it, or else its default."""
    said: dict[str, object] = {}
    origins: dict[str, str] = {}
    for source in sources:
        for field, wish in source.layer:
            if wish is not None and field not in said:
                said[field] = wish
                origins[field] = source.name
    if "strategy" not in said and said.keys() & {"primers", "recents"}:
        said["strategy"] = "window"  # whose numbers these are
    return ResolvedConfig.model_validate({**said, "origins": origins})


ITSELF: Final = "itself"
"""As `condense_model`: the agent's own model."""
INHERITED: Final = -1
"""As a threshold: the default's."""
MIN_THRESHOLD, MAX_THRESHOLD = 5, 100


class CompactionProfile(Value):
    """Compaction settings for a kind of models, unless other settings override them. None: not set."""

    threshold: object = None
    """Percent of the window from which a context counts as full: 5 to 100, or -1 for the default. For anything else a
    warning is shown, and the default is used.
    """
    keep: Annotated[int, Field(ge=0)] | None = None
    """Messages at the end that survive a compaction with the strategy `ends`."""
    condense_model: str | None = None
    """Model that writes the summaries; `itself` for the agent's own."""

    @property
    def threshold_percent(self) -> int | None:
        """The threshold, if it is valid."""
        value = self.threshold
        if isinstance(value, int) and not isinstance(value, bool) and MIN_THRESHOLD <= value <= MAX_THRESHOLD:
            return value
        return None

    @property
    def threshold_fault(self) -> str | None:
        """What is wrong with the threshold; None if nothing is."""
        if self.threshold_percent is not None or self.threshold is None or self.threshold == INHERITED:
            return None
        said = str(self.threshold)[:40]
        return (
            f"threshold {said} is neither a whole number from {MIN_THRESHOLD} to {MAX_THRESHOLD} "
            f"nor {INHERITED}, so the default, {TRIGGER_PERCENT}, is used"
        )


COMPACTION_PROFILES: Mapping[str, CompactionProfile] = {
    "opus": CompactionProfile(threshold=80, keep=5, condense_model=ITSELF),
    "sonnet": CompactionProfile(threshold=75, keep=3, condense_model=DEFAULT_SUMMARY_MODEL),
    "haiku": CompactionProfile(threshold=60, keep=3, condense_model=ITSELF),
}
"""By a part of the model's name."""


def find_compaction_profile(model: str, own: Mapping[str, CompactionProfile]) -> tuple[str, CompactionProfile] | None:
    """Return the profile of a model and its name; None if there is none.

    A profile's name is a part of the model's name. If several match, the longer name beats the shorter, and a custom
    profile beats the built-in one, field by field.
    """
    fitting = [(name, profile) for name, profile in _by_strength(own) if name in strip_snapshot_date(model)]
    if not fitting:
        return None
    said = {field: value for _, profile in fitting for field, value in profile if value is not None}
    return fitting[-1][0], CompactionProfile.model_validate(said)


def _by_strength(own: Mapping[str, CompactionProfile]) -> Iterator[tuple[str, CompactionProfile]]:
    """Yield profiles, the weakest first."""
    for name in sorted({*COMPACTION_PROFILES, *own}, key=lambda name: (len(name), name)):
        for profiles in (COMPACTION_PROFILES, own):
            if name in profiles:
                yield name, profiles[name]


def build_profile_layer(profile: CompactionProfile, model: str, *, keeps_ends: bool) -> ConfigLayer:
    """Build the layer of a profile for a task whose agents use this model.

    `keeps_ends`: whether compactions keep a few of the last messages.
    """
    writer = model if profile.condense_model == ITSELF else profile.condense_model
    keep = profile.keep if keeps_ends else None
    return ConfigLayer(trigger_percent=profile.threshold_percent, keep_last=keep, condense_model=writer)
