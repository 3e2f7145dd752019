"""Rejects a task's config that cannot work when the task is submitted, and says what to set instead."""

from collections.abc import Sequence
from datetime import date

from waystation.agents.action_approvals import UnattendedPolicy
from waystation.budgets.budget import BudgetMode, WorstCaseRates
from waystation.config.presets import REQUEST, ResolvedConfig
from waystation.config.setting_types import make_variable_name
from waystation.context.tokens import estimate_text
from waystation.kernel.amount import Amount, Limit, format_limit
from waystation.kernel.errors import BadInput
from waystation.kernel.roles import Role
from waystation.models.endpoints import ModelEndpoint
from waystation.models.profiles import (
    MIN_THINKING_TOKENS,
    PRICE_SOURCE,
    THINKING_PART,
    ModelOptions,
    OptionSettingNames,
    Price,
    find_price,
    get_model_profile,
    get_thinking_tokens,
)
from waystation.tasks.task import TaskRequest

PROMPT_TOKENS = 5_000
"""Estimated tokens of the system prompt and tools of the role with the longest ones (analysis), checked by a test."""
TASK_BRIEF_TOKENS = 300
"""Tokens in the first message of a step in a new session besides what was asked: its goal, a dozen documents."""


def filter_endpoint_prices(endpoint: ModelEndpoint, prices: Sequence[Price]) -> tuple[Price, ...]:
    """Return the prices that apply at an endpoint: the built-in ones are the provider's."""
    return tuple(price for price in prices if endpoint.is_provider or price.source != PRICE_SOURCE)


def validate_known_prices(
    budget: Limit, models_with_endpoints: Sequence[tuple[str, ModelEndpoint]], prices: Sequence[Price], today: date
) -> None:
    """Check that all models have prices: the cost of an unpriced call could not be held against a limit in dollars.

    Args:
        budget: budget of the task; without a limit in dollars, no price is needed.
        models_with_endpoints: the models that the task may call, and where.
        prices: the prices that apply at these endpoints (`waystation.config.resolver.resolve_endpoint_prices`).
        today: day for the prices.

    Raises:
        BadInput: the budget is in dollars, and a model has no price at its endpoint.
    """
    if budget.micro_usd is None:
        return
    unpriced = [pair for pair in models_with_endpoints if find_price(pair[0], today, prices) is None]
    cure = "give --budget in tokens, or write the price into a file and set WAYSTATION_PRICES to its path"
    for host in sorted({endpoint.host for _, endpoint in unpriced}):
        here = [(model, endpoint) for model, endpoint in unpriced if endpoint.host == host]
        models = ", ".join(sorted({model for model, _ in here}))
        if here[0][1].is_provider:
            raise BadInput(
                f"a budget in dollars needs models with known prices, but the price of {models} is unknown: {cure}"
            )
        raise BadInput(f"a budget in dollars needs your own prices at {host}, but there is none for {models}: {cure}")


def validate_model_capabilities(models_with_endpoints: Sequence[tuple[str, ModelEndpoint]]) -> None:
    """Check that no model is known to lack what every task needs."""
    for model, endpoint in sorted(models_with_endpoints, key=lambda pair: pair[0]):
        if cause := endpoint.get_capabilities(model).unfit_reason:
            raise BadInput(
                f"{model} at {endpoint.host} cannot run tasks: {cause}. Choose another model "
                "(docs/how-to/use-another-endpoint.md), or test "
                f"this model again with `waystation doctor --model {model} --save`"
            )


def validate_api_keys(missing: Sequence[tuple[str, str]]) -> None:
    """Check for missing keys of endpoints, given as pairs of a model and the missing variable (empty if it is set)."""
    for model, variable in sorted(missing):
        if variable:
            raise BadInput(
                f"the endpoint of {model} needs a key: set {variable} in this environment and in that of the "
                "workers. If only the workers have the key, set WAYSTATION_OFFLINE=false in this environment"
            )


def validate_budget_units(budget: Limit, agent_budget: Limit) -> None:
    """Check that an agent's budget is in units of the task's, which cannot grant a unit that it does not count."""
    for task, agent, unit in (
        (budget.tokens, agent_budget.tokens, "tokens"),
        (budget.micro_usd, agent_budget.micro_usd, "dollars"),
    ):
        if agent is not None and task is None:
            raise BadInput(
                f"--agent-budget in {unit} needs --budget in {unit}, too: give both in {unit}, or leave "
                "--agent-budget out"
            )


def validate_ceiling(ceiling: Limit, budget: Limit) -> None:
    """Check the ceiling: below its budget it allows no grant; in a unit that the budget does not count it has no
    effect.
    """
    for unit, most, given in (
        ("tokens", ceiling.tokens, budget.tokens),
        ("dollars", ceiling.micro_usd, budget.micro_usd),
    ):
        if most is None:
            continue
        if given is None:
            raise BadInput(f"--ceiling in {unit} cannot limit a budget of {format_limit(budget)}: use the same unit")
        if most < given:
            raise BadInput(
                f"--ceiling {format_limit(ceiling)} is below the budget of {format_limit(budget)}: give a higher "
                "ceiling, or leave --ceiling out"
            )


def validate_unattended(unattended: UnattendedPolicy, chosen: ResolvedConfig) -> None:
    """Check decisions made in advance: they are useless if no request is made, or if they grant the other unit."""
    if unattended == UnattendedPolicy():
        return
    if chosen.mode is not BudgetMode.APPROVAL:
        by = chosen.origins.get("mode", REQUEST)
        source = "" if by == REQUEST else f" ({by})"
        raise BadInput(
            f"--top-up and --answer-by need --mode approval, because mode {chosen.mode}{source} makes no requests"
        )
    raised = unattended.top_up.amount if unattended.top_up is not None else Amount()
    given = {"tokens": raised.tokens, "dollars": raised.micro_usd}
    limited = {"tokens": chosen.budget.tokens, "dollars": chosen.budget.micro_usd}
    for unit, amount in given.items():
        if amount and limited[unit] is None:
            raise BadInput(
                f"--top-up in {unit} has no effect on a budget of {format_limit(chosen.budget)}: use the same unit"
            )


def _name_first_parts(earlier: int) -> str:
    """Name the parts of an agent's first request; `earlier`: tokens about earlier tasks in it."""
    return f"the prompt, the tools{', your question and earlier tasks' if earlier else ' and your question'}"


def validate_window_fits_prompt(window: int, trigger: int, asked: int, earlier: int, wider: str) -> None:
    """Check that the window is not full with the first request of an agent.

    Args:
        window: tokens of the window.
        trigger: tokens from which it counts as full.
        asked: tokens of the first request.
        earlier: tokens about earlier tasks in it.
        wider: what to set for a larger window.
    """
    begins_with = asked + earlier
    if begins_with >= trigger:
        raise BadInput(
            f"a window of {window:,} tokens is full at {trigger:,}, but {_name_first_parts(earlier)} already take "
            f"about {begins_with:,}: give at least {wider}"
        )


def validate_agent_budget(affordable: int, asked: int, earlier: int, wider: str) -> None:
    """Check that the first request of an agent does not use most of its budget, leaving nothing for later turns.

    `affordable`: tokens that this request may have.
    """
    begins_with = asked + earlier
    if begins_with >= affordable:
        raise BadInput(
            f"the budget of an agent covers a first request of at most {affordable:,} tokens, but "
            f"{_name_first_parts(earlier)} already take about {begins_with:,}: give at least {wider}"
        )


def validate_model_options(role: Role, works: ModelOptions, names: OptionSettingNames) -> None:
    """Check options that a model is known not to support: its provider would reject every call. Unknown models pass.

    `names`: the settings that apply to the role.
    """
    takes = get_model_profile(works.model).supported_options
    refused = takes.find_unsupported_option(works.effort, works.thinking) if takes is not None else None
    if refused is not None:
        allowed = ", ".join((*refused.allowed, "default"))
        setting = names.effort if refused.setting == "effort" else names.thinking
        raise BadInput(
            f"{works.model}, the model of {role}, does not support {refused.requested}: set "
            f"{_variables(setting, role)} to one of: {allowed}. You can also choose another model in "
            f"{make_variable_name(f'roles.{role}.model')}"
        )


def validate_thinking_tokens(
    role: Role, works: ModelOptions, agent_budget: Limit, rates: WorstCaseRates | None, setting: str
) -> None:
    """Check that thinking is not longer than the model's replies, and that a few calls do not exhaust a budget.

    `setting`: name of the setting for it.
    """
    tokens, facts = get_thinking_tokens(works.thinking), get_model_profile(works.model)
    part = agent_budget.divide_by(THINKING_PART)
    most = [facts.max_output // 2] if facts.is_known else []
    if part.tokens is not None:
        most.append(part.tokens)
    if part.micro_usd is not None and rates is not None and rates.output:
        most.append(int(part.micro_usd / rates.output))
    if not tokens or tokens <= min(most, default=tokens):
        return
    fitting = f"{min(most)} or less" if min(most) >= MIN_THINKING_TOKENS else "default"
    raise BadInput(
        f"thinking of {tokens:,} tokens is too much for {role}. The maximum is the lower of half the longest reply of "
        f"{works.model} and a quarter of an agent's budget of {format_limit(agent_budget)}. Set "
        f"{_variables(setting, role)} to {fitting}, or give a larger --agent-budget"
    )


def _variables(setting: str, role: Role) -> str:
    """Return where a setting can be changed; for one of all roles, also the one for this role."""
    own = f"roles.{role}."
    if setting.startswith(own):
        return make_variable_name(setting)
    return f"{make_variable_name(setting)} (or, for {role} only, {make_variable_name(own + setting)})"


def estimate_first_turn_tokens(request: TaskRequest) -> int:
    """Estimate the tokens of the smallest request that every agent has to make."""
    asked = (request.question, request.instructions, *request.accept)
    return PROMPT_TOKENS + TASK_BRIEF_TOKENS + sum(map(estimate_text, asked))
