"""Resolves the config of a task and of each role from the request, the settings and the models' capabilities."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import ROUND_CEILING
from typing import TypedDict

from waystation.agents.leg import REDUCED_MIN_REPLY_TOKENS, AgentConfig, compute_min_reply_tokens
from waystation.budgets.budget import BudgetMode, CallCostBound, WorstCaseRates
from waystation.config.model_settings import ModelSettings
from waystation.config.presets import (
    DEFAULT_AGENT_BUDGET,
    DEFAULT_PRICED_BUDGET,
    PRESETS,
    REQUEST,
    ConfigLayer,
    ConfigSource,
    ResolvedConfig,
    build_profile_layer,
    find_compaction_profile,
    merge_config_sources,
)
from waystation.config.settings import Settings, find_active_variable
from waystation.config.validation import (
    estimate_first_turn_tokens,
    filter_endpoint_prices,
    validate_agent_budget,
    validate_api_keys,
    validate_budget_units,
    validate_ceiling,
    validate_known_prices,
    validate_model_capabilities,
    validate_model_options,
    validate_thinking_tokens,
    validate_unattended,
    validate_window_fits_prompt,
)
from waystation.kernel.amount import Amount, Limit, format_amount, format_limit
from waystation.kernel.errors import UnknownTask
from waystation.kernel.refs import TaskRef
from waystation.kernel.roles import AgentRole, Role, get_role_spec, list_step_roles
from waystation.models.profiles import (
    OFFLINE_MODEL,
    OFFLINE_PRICE,
    Effort,
    ModelOptions,
    Price,
    filter_prices,
    find_price,
    find_worst_rates,
    get_model_profile,
    get_thinking_tokens,
    parse_model_name,
    strip_snapshot_date,
)
from waystation.security.untrusted import DEFAULT_SERVERS
from waystation.tasks.earlier_tasks import WINDOW_SHARE, EarlierTaskReader
from waystation.tasks.ports import TaskReader
from waystation.tasks.task import TaskConfig, TaskRequest, TaskRow, make_task_id, session_hash, tenant_hash

OUTPUT_RESERVE = 20_000
"""Maximum tokens of a model's window that are kept free for its reply, excluding those set aside for thinking."""
MAX_OUTPUT = 32_000
"""Maximum tokens of a reply, including its thinking: a survey with 40 quoted findings must fit after much thinking."""
AGENT_BUDGET_DIVISOR = 6
"""By default an agent starts with one part in this many of a budget in dollars."""


@dataclass(frozen=True)
class ConfigInputs:
    """Inputs that the configs of all roles are derived from."""

    request: TaskRequest
    settings: Settings
    budget: Limit
    agent_budget: Limit
    prices: Sequence[Price]
    """Prices of all models that the task may call."""
    today: date
    earlier_tasks_tokens: int = 0
    """Tokens of what agents are shown of earlier tasks of the session, in a window large enough for all of it."""


class _Context(TypedDict):
    window: int
    max_output: int
    min_reply_tokens: int


def resolve_agent_model(settings: Settings, role: Role) -> ModelOptions:
    """Return the model of a role's agents and its options."""
    return ModelOptions(OFFLINE_MODEL) if settings.uses_offline_model else settings.get_model_options(role)


def resolve_config(request: TaskRequest, settings: Settings, role: Role = "research") -> ResolvedConfig:
    """Resolve the config by precedence: request, its preset, environment, config file, profile of the role's model."""
    asked = ConfigLayer.model_validate(request, from_attributes=True)
    preset = request.preset or settings.preset
    sources = [ConfigSource(REQUEST, asked)]
    if preset is not None:
        by = "" if request.preset else f" of {_origin('preset')}"
        sources.append(ConfigSource(f"preset {preset}{by}", PRESETS[preset]))
    given = [name for name in ConfigLayer.model_fields if name in settings.model_fields_set]
    sources += [
        ConfigSource(_origin(name), ConfigLayer.model_validate({name: getattr(settings, name)})) for name in given
    ]
    model = resolve_agent_model(settings, role).model
    if (found := find_compaction_profile(model, settings.profiles)) is not None:
        name, profile = found
        keeps_ends = merge_config_sources(sources).strategy == "ends"
        sources.append(ConfigSource(f"profile {name}", build_profile_layer(profile, model, keeps_ends=keeps_ends)))
    return merge_config_sources(sources)


def _origin(name: str) -> str:
    return find_active_variable(name) or "config file"


def build_agent_config(basis: ConfigInputs, role: Role) -> AgentConfig:
    """Build the config of a role's agents.

    Raises:
        BadInput: the role's model, or what an agent starts with, does not permit it.
    """
    settings, chosen = basis.settings, resolve_config(basis.request, basis.settings, role)
    works = resolve_agent_model(settings, role)
    rates = find_worst_rates(works.model, 0, basis.today, basis.prices)
    names = settings.get_option_setting_names(role)
    validate_model_options(role, works, names)
    validate_thinking_tokens(role, works, basis.agent_budget, rates, names.thinking)
    context = _context(works, _window(works, chosen, settings), _replies(basis, rates))
    trigger = context["window"] * chosen.trigger_percent // 100
    # A wider window has room for more earlier tasks.
    asked, told = (
        estimate_first_turn_tokens(basis.request),
        min(basis.earlier_tasks_tokens, context["window"] // WINDOW_SHARE),
    )
    wider = _wider(asked + basis.earlier_tasks_tokens, chosen, basis.agent_budget, rates)
    validate_window_fits_prompt(context["window"], trigger, asked, told, wider)
    if (worth := _worth(basis.agent_budget, rates)) is not None:
        validate_agent_budget(worth // 2 * chosen.trigger_percent // 100, asked, told, wider)
    return AgentConfig(
        model=works.model,
        effort=works.effort,
        thinking=works.thinking,
        condense_model=resolve_summary_model(chosen, settings, role),
        **context,
        trigger=trigger,
        target=trigger // 2,
        strategy=chosen.strategy,
        keep_last=chosen.keep_last,
        auto_compact=settings.auto_compact,
        primers=chosen.primers,
        recents=chosen.recents,
        max_view_messages=chosen.messages,
        max_messages=chosen.history,
        hard_budget=chosen.mode is not BudgetMode.APPROVAL,
        prices=tuple(basis.prices),
        backpressure=settings.backpressure,
        memory=basis.request.memory or settings.memory_scope,
        delegation=settings.delegation,
        web_limits=chosen.web_limits,
    )


def resolve_summary_model(chosen: ResolvedConfig, settings: Settings, role: Role) -> str:
    """Return the model that writes a role's summaries."""
    return OFFLINE_MODEL if settings.uses_offline_model else settings.get_summary_model(role, chosen.condense_model)


def _context(works: ModelOptions, window: int, affordable: int | None) -> _Context:
    """Compute the context numbers.

    Thinking tokens are added to the reply's: a provider takes both from the same maximum.

    `affordable`: tokens of reply that the agent's budget covers in total; None: any number.
    """
    aside, facts = get_thinking_tokens(works.thinking), get_model_profile(works.model)
    longest = facts.max_output - aside if facts.is_known else facts.max_output
    reply = max(REDUCED_MIN_REPLY_TOKENS, min(MAX_OUTPUT, window // 4, longest))
    return _Context(
        window=window,
        max_output=aside + reply,
        min_reply_tokens=aside + min(reply, compute_min_reply_tokens(affordable)),
    )


def _replies(basis: ConfigInputs, rates: WorstCaseRates | None) -> int | None:
    """Return the tokens of reply that an agent's budget, or its part of the task's, covers; None: any number."""
    return min(
        (
            least
            for one in (basis.agent_budget, basis.budget.divide_by(AGENT_BUDGET_DIVISOR))
            if (least := _output(one, rates)) is not None
        ),
        default=None,
    )


def _output(budget: Limit, rates: WorstCaseRates | None) -> int | None:
    bought = [] if budget.tokens is None else [budget.tokens]
    if budget.micro_usd is not None and rates is not None and rates.output:
        bought.append(int(budget.micro_usd / rates.output))
    return min(bought, default=None)


def _wider(full: int, chosen: ResolvedConfig, agent_budget: Limit, rates: WorstCaseRates | None) -> str:
    """Say how large the window or the budget must at least be for an agent to start."""
    least = -(-(full + 1) * 100 // chosen.trigger_percent)
    worth = _worth(agent_budget, rates)
    if worth is None or worth >= 2 * least:
        return f"--window {least:,}" if chosen.window is not None else f"WAYSTATION_WINDOW_CAP={least}"
    needed = Limit(tokens=None if agent_budget.tokens is None else 2 * least)
    if agent_budget.micro_usd is None or rates is None:
        return f"--agent-budget {format_limit(needed)}"
    price = int((2 * least * rates.input).to_integral_value(rounding=ROUND_CEILING))
    needed = needed.replace(micro_usd=price)
    task = Limit(tokens=chosen.budget.tokens, micro_usd=AGENT_BUDGET_DIVISOR * price)
    return f"--agent-budget {format_limit(needed)}, or --budget {format_limit(task)}"


def _worth(budget: Limit, rates: WorstCaseRates | None) -> int | None:
    """Return the maximum tokens of input that the budget covers; None: any number."""
    bought = [] if budget.tokens is None else [budget.tokens]
    if budget.micro_usd is not None and rates is not None and rates.input:
        bought.append(int(budget.micro_usd / rates.input))
    return min(bought, default=None)


def _window(works: ModelOptions, chosen: ResolvedConfig, settings: Settings) -> int:
    """Return the model's window, up to the cap, whatever the budget.

    A full context is compacted, and more budget can be requested.
    """
    places = () if settings.uses_offline_model else settings.endpoint_registry.list_fallbacks(works.model)
    usable = min(compute_usable_window(ModelOptions(model, *works[1:])) for model in (works.model, *places))
    return min(usable, chosen.window or usable, settings.window_cap)


def compute_usable_window(works: ModelOptions) -> int:
    """Return the part of the model's window that a request may fill, leaving room for the reply."""
    facts = get_model_profile(works.model)
    reserve = min(facts.max_output, OUTPUT_RESERVE + get_thinking_tokens(works.thinking))
    return facts.window - reserve - facts.window // 10


SMALL_HARD_BUDGET = 20_000
LATE_TRIGGER_PERCENT = 95
REDUCED_PRIMERS, RAISED_RECENTS = 2, 50
NARROW_WINDOW = 11_000
"""Room for at least 5,000 tokens besides prompt and tools (`PROMPT_TOKENS`). Measured with the offline model on the
survey of the end-to-end tests, in mode soft with 300,000 tokens: both questions were completed in every window from
7,800 on. A narrow window costs compactions: three to ten for each researcher in 8,000 to 13,000 tokens, one in
16,000. And it costs reading: in 8,000, compactions hid 5,000 tokens of each researcher, in 13,000 they hid 20,000.
"""


def _agent_budget(request: TaskRequest, chosen: ResolvedConfig) -> Limit:
    """Return the budget that an agent starts with.

    Raises:
        BadInput: the amounts cannot work together.
    """
    agent_budget = request.agent_budget or _part_for_an_agent(chosen)
    validate_budget_units(chosen.budget, agent_budget)
    validate_ceiling(request.ceiling, chosen.budget)
    validate_unattended(request.unattended, chosen)
    return agent_budget


def build_task_config(
    request: TaskRequest, settings: Settings, prices: Sequence[Price], today: date, earlier: int = 0
) -> TaskConfig:
    """Build the config of the request's task.

    Args:
        request: the submitted request.
        settings: settings of this machine.
        prices: all known prices.
        today: day for the prices.
        earlier: tokens of what its agents are shown of earlier tasks of the session.

    Raises:
        BadInput: the config cannot work (`waystation.config.validation`).
    """
    chosen, called = resolve_config(request, settings), tuple(dict.fromkeys(iter_called_models(request, settings)))
    models_with_endpoints = (
        []
        if settings.uses_offline_model
        else [(model, settings.endpoint_registry.get_endpoint(model)) for model in called]
    )
    prices = resolve_endpoint_prices(called, prices, settings)
    if (
        _budget_is_free(request, chosen)
        and not settings.uses_offline_model
        and all(find_price(model, today, prices) is not None for model, _ in models_with_endpoints)
    ):
        chosen = chosen.replace(budget=DEFAULT_PRICED_BUDGET)
    validate_known_prices(chosen.budget, models_with_endpoints, prices, today)
    validate_model_capabilities(models_with_endpoints)
    if settings.offline is None:
        validate_api_keys([(model, settings.find_missing_key_variable(model)) for model, _ in models_with_endpoints])
    agent_budget = _agent_budget(request, chosen)
    basis = ConfigInputs(request, settings, chosen.budget, agent_budget, filter_prices(called, prices), today, earlier)
    agents = {role: build_agent_config(basis, role) for role in list_step_roles()}
    agent = agents["research"]
    return TaskConfig(
        budget=chosen.budget,
        agent_budget=agent_budget,
        ceiling=request.ceiling,
        unattended=request.unattended,
        mode=chosen.mode,
        default=agent,
        by_role={role: own for role, own in agents.items() if own != agent},
        plan_model=_plan_model(settings),
        plan_effort=_resolve_oversight_effort(settings, "planning", _plan_model(settings)),
        remembered_characters=settings.remembered_characters,
        review_model=_review_model(settings),
        review_effort=_resolve_oversight_effort(settings, "reviewing", _review_model(settings)),
        judge_model=(judge := _judge_model(settings)),
        judge_effort=_resolve_oversight_effort(settings, "reviewing", judge) if judge else None,
        minimum_reserve=_floor(basis, agents),
        minimum_reserves=_minimum_reserves(basis, agents),
        review_plan=chosen.review_plan,
        revisions=settings.revisions,
        revision_percent=None if is_unattended_web_research(chosen) else settings.revision_percent,
        reviews=settings.reviews,
        resume_at_reset=settings.resume_at_reset,
        offline=settings.uses_offline_model,
    )


def is_unattended_web_research(chosen: ResolvedConfig) -> bool:
    """Whether agents use the web within limits, and no one is asked: also not about a revised plan."""
    return chosen.web_limits is not None and chosen.mode is not BudgetMode.APPROVAL


def _budget_is_free(request: TaskRequest, chosen: ResolvedConfig) -> bool:
    """Whether no one set a budget, or another amount in tokens that a budget in dollars could not count."""
    top_up = request.unattended.top_up
    in_tokens = (
        request.ceiling.tokens,
        request.agent_budget and request.agent_budget.tokens,
        top_up and top_up.amount.tokens,
    )
    return not {"budget", "agent_budget"} & chosen.origins.keys() and not any(in_tokens)


def describe_budget_in_tokens(config: TaskConfig, today: date) -> str:
    """Describe in a sentence what a task's budget buys of its agents' model, or for a budget in tokens how they are
    counted. Empty if nothing needs to be said.
    """
    agent, micro_usd = config.default, config.budget.micro_usd
    rates = find_worst_rates(agent.model, 0, today, agent.prices)
    if micro_usd is None:
        others = agent.condense_model != agent.model or bool(config.by_role)
        return "Tokens of all models count equally against the budget, even if their prices differ." if others else ""
    if rates is None or not rates.input or not rates.output:
        return ""
    read, written = int(micro_usd / rates.input), int(micro_usd / rates.output)
    return (
        f"{format_limit(Limit(micro_usd=micro_usd))} pays for about {read // 1_000 * 1_000:,} input tokens or "
        f"{written // 1_000 * 1_000:,} output tokens of {agent.model}. Input that is read from the cache "
        "costs much less."
    )


async def build_task_row(
    request: TaskRequest, settings: Settings, earlier: EarlierTaskReader, prices: Sequence[Price], now: datetime
) -> TaskRow:
    """Build the task row to be stored.

    Raises:
        BadInput: the config cannot work.
    """
    ref = TaskRef(
        store_id=await earlier.store.get_store_id(),
        tenant=tenant_hash(request.tenant),
        session=session_hash(request.tenant, request.session),
        task_id=make_task_id(request),
    )
    # The same request gets the same config again, whatever the session has finished meanwhile.
    known = await _find_known(earlier.store, ref)
    if request.servers is None:
        newest = await earlier.store.list_tasks(ref.scope.get_recall_scope("session"), 1) if known is None else (known,)
        request = request.replace(servers=newest[0].request.servers) if newest else request
    told = await earlier.estimate_max_tokens(ref, now if known is None else known.submitted_at)
    return TaskRow(
        ref=ref,
        request=request,
        config=build_task_config(request, settings, prices, now.date(), told),
        submitted_at=now,
    )


async def _find_known(store: TaskReader, ref: TaskRef) -> TaskRow | None:
    """Return the stored row of the task; None if it was not submitted before."""
    try:
        return await store.get_task(ref.task_id, ref.scope)
    except UnknownTask:
        return None


MIN_BUDGET_REPLIES = 4
"""Replies for which a step's smallest budget must suffice, each with what it brought in: enough to look at something
and deliver.
"""


def _floor(basis: ConfigInputs, agents: Mapping[Role, AgentConfig]) -> Amount:
    """Return what an agent needs to deliver something: its first call, and a few short replies."""
    asked, floors = estimate_first_turn_tokens(basis.request), list[Amount]()
    for terms in agents.values():
        told = min(basis.earlier_tasks_tokens, terms.window // WINDOW_SHARE)
        reply = max(MIN_BUDGET_REPLIES * 2 * REDUCED_MIN_REPLY_TOKENS, terms.min_reply_tokens)
        rates = find_worst_rates(terms.model, 0, basis.today, basis.prices)
        floors.append(CallCostBound(input_tokens=asked + told, rates=rates).compute_worst_case(reply))
    return Amount(tokens=max(one.tokens for one in floors), micro_usd=max(one.micro_usd for one in floors))


MAX_RESERVE_PERCENT = {"analysis": 12, "writing": 25}
"""Maximum percentage of a small task budget that a role's minimum reserve may take."""


def _minimum_reserves(basis: ConfigInputs, agents: Mapping[Role, AgentConfig]) -> dict[str, Amount]:
    """Return by role the minimum reserve of a step. In a small budget it is limited to a part of it."""
    reserves = dict[str, Amount]()
    for role, terms in agents.items():
        spec = get_role_spec(role)
        rates = find_worst_rates(terms.model, 0, basis.today, basis.prices)
        by_tokens = CallCostBound(input_tokens=spec.reserve_tokens, rates=rates).compute_worst_case(0)
        by_percent = basis.budget.compute_percent(spec.reserve_percent).amount
        largest = basis.budget.compute_percent(MAX_RESERVE_PERCENT.get(role, 0)).amount
        wanted = basis.budget.restrict_to_limited_units(by_tokens.max_with(by_percent)).min_with(largest)
        if not wanted.is_zero:
            reserves[role] = wanted
    return reserves


def resolve_endpoint_prices(models: Iterable[str], prices: Sequence[Price], settings: Settings) -> tuple[Price, ...]:
    """Return the prices of these models at their endpoints, by the names that tasks call them by.

    Configured prices apply wherever the model is; the built-in ones only at the provider. A price for a model's full
    name, with its endpoint, replaces those for its name alone.
    """
    placed = [OFFLINE_PRICE]
    for model in models:
        if model == OFFLINE_MODEL:
            continue
        name, bare = strip_snapshot_date(model), strip_snapshot_date(parse_model_name(model).model)
        holding = filter_endpoint_prices(settings.endpoint_registry.get_endpoint(model), prices)
        named = [price for price in holding if price.model == name]
        placed += named or [price.replace(model=name) for price in holding if price.model == bare]
    return tuple(dict.fromkeys(placed))


def iter_called_models(request: TaskRequest, settings: Settings) -> Iterator[str]:
    """Yield the models that a task may pay for, including fallbacks."""
    for model in _wanted(request, settings):
        yield model
        yield from settings.endpoint_registry.list_fallbacks(model)


def _wanted(request: TaskRequest, settings: Settings) -> Iterator[str]:
    for role in list_step_roles():
        yield resolve_agent_model(settings, role).model
        yield resolve_summary_model(resolve_config(request, settings, role), settings, role)
    yield _plan_model(settings)
    if settings.reviews:
        yield _review_model(settings)
    if judge := _judge_model(settings):
        yield judge


def _plan_model(settings: Settings) -> str:
    return OFFLINE_MODEL if settings.uses_offline_model else settings.planner_model


def _review_model(settings: Settings) -> str:
    return OFFLINE_MODEL if settings.uses_offline_model else settings.reviewer_model


def _judge_model(settings: Settings) -> str:
    """Return the model that judges cited sentences; empty if there is none. The offline model judges nothing."""
    return "" if settings.uses_offline_model else settings.sentence_judge_model


def _resolve_oversight_effort(settings: Settings, role: AgentRole, model: str) -> Effort | None:
    return None if settings.uses_offline_model else settings.resolve_oversight_effort(role, model)


def _part_for_an_agent(chosen: ResolvedConfig) -> Limit:
    """Return what one agent starts with if the request does not say: in the units of the task's budget."""
    budget, own, part = chosen.budget, chosen.agent_budget, chosen.budget.divide_by(AGENT_BUDGET_DIVISOR)
    return Limit(
        tokens=None if budget.tokens is None else own.tokens or part.tokens,
        micro_usd=None if budget.micro_usd is None else own.micro_usd or part.micro_usd,
    )


def collect_adjustments(request: TaskRequest, settings: Settings) -> tuple[str, ...]:
    """Return sentences on what was requested and is not available, with what replaces it; each once."""
    sentences = (sentence for role in list_step_roles() for sentence in _adjustments(request, settings, role))
    found = (
        *_of_no_use(settings),
        *_never_probed(request, settings),
        *_unknown_servers(request, settings),
        *_without_web(request, settings),
        *sentences,
    )
    return tuple(dict.fromkeys(found))


def _unknown_servers(request: TaskRequest, settings: Settings) -> Iterator[str]:
    """Report unknown tool servers. If this machine has a file of tool servers, they are rejected instead."""
    if settings.tool_servers is None and (named := [name for name in request.servers or () if name != DEFAULT_SERVERS]):
        yield (
            "This machine has no config file of tool servers, so these tool servers were not checked: "
            f"{', '.join(named)}. The task runs without any of them that the workers do not have."
        )


def _without_web(request: TaskRequest, settings: Settings) -> Iterator[str]:
    """Report a preset for the web if this machine does not allow it: its workers may, if they run elsewhere."""
    if resolve_config(request, settings).web_limits is not None and not settings.web:
        yield (
            "WAYSTATION_WEB is not set here. If it is not set for the workers either, agents cannot search or read the "
            "web, and use only the documents."
        )


def _of_no_use(settings: Settings) -> Iterator[str]:
    """Report settings of models that have no effect here."""
    reach = {"anthropic_api_key", "anthropic_base_url", "offline"}
    given = [name for name in ModelSettings.model_fields if name in settings.model_fields_set - reach]
    if settings.uses_offline_model and given:
        named = ", ".join(find_active_variable(name) or f"{name} in the config file" for name in given)
        yield f"The task uses the built-in offline model, so these settings have no effect: {named}."


def _never_probed(request: TaskRequest, settings: Settings) -> Iterator[str]:
    """Report models at endpoints whose capabilities are neither configured nor known."""
    for model in () if settings.uses_offline_model else dict.fromkeys(iter_called_models(request, settings)):
        endpoint = settings.endpoint_registry.get_endpoint(model)
        if not endpoint.has_documented_capabilities(model):
            yield (
                f"The capabilities of {model} at {endpoint.host} are unknown. Test them with "
                f"`waystation doctor --model {model} --save`."
            )


def _adjustments(request: TaskRequest, settings: Settings, role: Role) -> Iterator[str]:
    works, chosen = resolve_agent_model(settings, role), resolve_config(request, settings, role)
    usable = compute_usable_window(works)
    if chosen.window is not None and chosen.window > usable:
        yield (
            f"A window of {chosen.window:,} tokens leaves {works.model} no room for its reply: "
            f"the maximum is {usable:,}."
        )
    found = find_compaction_profile(works.model, settings.profiles)
    if found is not None and (fault := found[1].threshold_fault):
        yield f"In profile {found[0]}, {fault}."


def collect_config_warnings(config: TaskConfig) -> tuple[str, ...]:
    """Return sentences on what is permitted but will probably disappoint; each once."""
    agents = (config.default, *config.by_role.values())
    warnings = [*_small_reserves(config)] + [sentence for agent in agents for sentence in _about_agent(agent, config)]
    tokens = config.budget.tokens
    if config.mode is BudgetMode.HARD and tokens is not None and tokens <= SMALL_HARD_BUDGET:
        warnings.append(
            f"In mode hard, {tokens:,} tokens will most likely end in a partial report: raise --budget or use "
            "--mode approval."
        )
    # An agent cannot spend more than its task has: only a limit that someone chose is worth a word.
    if config.agent_budget != DEFAULT_AGENT_BUDGET and not config.budget.can_cover(config.agent_budget.amount):
        warnings.append(
            f"One agent may spend {format_limit(config.agent_budget)}, but the whole task has only "
            f"{format_limit(config.budget)}."
        )
    return tuple(dict.fromkeys(warnings))


def _small_reserves(config: TaskConfig) -> Iterator[str]:
    """Report a budget that is too small for a role's minimum reserve."""
    for role, reserve in config.minimum_reserves.items():
        spec = get_role_spec(role)
        largest = config.budget.compute_percent(MAX_RESERVE_PERCENT.get(role, 0)).amount
        # A budget whose part for the role is just the whole reserve is enough.
        reduced = config.budget.tokens is None or reserve.tokens < spec.reserve_tokens
        if reduced and largest.subtract_clamped(reserve).is_zero and spec.reserve_percent:
            yield (
                f"A budget of {format_limit(config.budget)} is small: only {format_amount(reserve)} can be reserved "
                f"for {role}, and a full report needs more. Raise --budget."
            )


def _about_agent(agent: AgentConfig, config: TaskConfig) -> Iterator[str]:
    facts = get_model_profile(agent.model)
    if not facts.is_known and not config.offline:
        yield (
            f"The model {facts.name} is unknown: its window is assumed to be {facts.window:,} tokens, and its price "
            "may be unknown."
        )
    if agent.window < NARROW_WINDOW:
        yield (
            f"A window of {agent.window:,} tokens is small: below {NARROW_WINDOW:,}, prompts, tools and recalled "
            "passages leave little room for documents. Compactions may use up the budget. Raise --window."
        )
    yield from _about_compaction(agent)


def _about_compaction(agent: AgentConfig) -> list[str]:
    warnings: list[str] = []
    if agent.trigger >= agent.window * LATE_TRIGGER_PERCENT // 100:
        warnings.append(
            f"A context that counts as full only at {agent.trigger:,} of {agent.window:,} tokens leaves no room for a "
            "large result. Lower WAYSTATION_TRIGGER_PERCENT."
        )
    if agent.strategy == "window" and agent.primers < REDUCED_PRIMERS and agent.recents >= RAISED_RECENTS:
        warnings.append(
            f"Compactions keep {agent.primers} of the first messages and {agent.recents} of the last, so the "
            "model does not see how the work began. Raise WAYSTATION_PRIMERS or lower WAYSTATION_RECENTS."
        )
    return warnings
