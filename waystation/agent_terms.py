"""The terms of one role's agents: its model, how hard that works, and the numbers of its context."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_CEILING
from typing import TypedDict

from waystation.agents.earlier import WINDOW_SHARE
from waystation.domain.allowance import WorstRates
from waystation.domain.amount import Limit, limit_text
from waystation.domain.budget import Mode
from waystation.domain.leg import AgentTerms
from waystation.domain.models import OFFLINE_MODEL, model_facts
from waystation.domain.plan import Role
from waystation.domain.presets import PRESETS, REQUEST, Choices, Source, Wishes, choose
from waystation.domain.pricing import Price, worst_rates
from waystation.domain.profiles import profile_of, wishes_of
from waystation.domain.task import TaskRequest
from waystation.domain.thinking import DEEP, Working, budgeted
from waystation.impossible_terms import first_turn, refuse_long_thinking, refuse_too_narrow, refuse_untaken
from waystation.settings import Settings, variable_given

OUTPUT_RESERVE = 20_000
"""Most tokens of a model's window that are kept free for its reply, what is set aside for thinking not counted."""
MAX_OUTPUT, DEEP_OUTPUT = 8_000, 16_000
"""At the highest efforts a model thinks so long that the reply would be cut."""
OUTPUT_FLOOR = 256
AGENT_PART = 6
"""An agent starts with this part of a budget in dollars, where nobody said."""


@dataclass(frozen=True)
class Basis:
    """What the terms of all roles follow from."""

    request: TaskRequest
    settings: Settings
    agent_budget: Limit
    prices: Sequence[Price]
    """Of all models that the task may call."""
    today: date
    earlier: int = 0
    """Tokens of what agents are told of earlier tasks of the session, in a window where all of it fits."""


class _Context(TypedDict):
    window: int
    trigger: int
    target: int
    max_output: int
    output_floor: int


def working(settings: Settings, role: Role) -> Working:
    """The model of a role's agents, and how hard it works."""
    return Working(OFFLINE_MODEL) if settings.uses_offline_model else settings.working(role)


def choices(request: TaskRequest, settings: Settings, role: Role = "research") -> Choices:
    """What holds where several speak: the request beats its preset, that the environment, that the config file, that
    the profile of the role's model.
    """
    asked = Wishes.model_validate(request.model_dump(include={*Wishes.model_fields}))
    preset = request.preset or settings.preset
    sources = [Source(REQUEST, asked)]
    if preset is not None:
        by = "" if request.preset else f" of {_origin('preset')}"
        sources.append(Source(f"preset {preset}{by}", PRESETS[preset]))
    given = settings.model_dump(include=Wishes.model_fields.keys() & settings.model_fields_set)
    sources += [Source(_origin(name), Wishes.model_validate({name: value})) for name, value in given.items()]
    model = working(settings, role).model
    if (found := profile_of(model, settings.profiles)) is not None:
        name, profile = found
        keeps_ends = choose(sources).strategy == "ends"
        sources.append(Source(f"profile {name}", wishes_of(profile, model, keeps_ends=keeps_ends)))
    return choose(sources)


def _origin(name: str) -> str:
    return variable_given(name) or "config file"


def agent_terms(basis: Basis, role: Role) -> AgentTerms:
    """Those of a role's agents. Raises BadInput where its model, or what an agent starts with, does not allow them."""
    settings, chosen = basis.settings, choices(basis.request, basis.settings, role)
    works = working(settings, role)
    rates = worst_rates(works.model, 0, basis.today, basis.prices)
    spoken = settings.spoken(role)
    refuse_untaken(role, works, spoken)
    refuse_long_thinking(role, works, basis.agent_budget, rates, spoken.thinking)
    context = _context(works, _window(works, chosen, settings, _worth(basis.agent_budget, rates)), chosen)
    # A wider window has room to tell of more earlier tasks.
    asked, told = first_turn(basis.request), min(basis.earlier, context["window"] // WINDOW_SHARE)
    wider = _wider(asked + basis.earlier, chosen, basis.agent_budget, rates)
    refuse_too_narrow(context["window"], context["trigger"], asked, told, wider)
    return AgentTerms(
        model=works.model,
        effort=works.effort,
        thinking=works.thinking,
        condense_model=condenser(chosen, settings),
        **context,
        strategy=chosen.strategy,
        keep_last=chosen.keep_last,
        auto_compact=settings.auto_compact,
        primers=chosen.primers,
        recents=chosen.recents,
        messages=chosen.messages,
        history=chosen.history,
        hard=chosen.mode is not Mode.APPROVAL,
        prices=tuple(basis.prices),
        backpressure=settings.backpressure,
        memory=basis.request.memory or settings.memory_scope,
        delegation=settings.delegation,
    )


def condenser(chosen: Choices, settings: Settings) -> str:
    """The model that writes a role's summaries."""
    return OFFLINE_MODEL if settings.uses_offline_model else chosen.condense_model


def _context(works: Working, window: int, chosen: Choices) -> _Context:
    """What is set aside for thinking comes on top of the reply: a provider takes it out of the same maximum."""
    trigger, aside, facts = window * chosen.trigger_percent // 100, budgeted(works.thinking), model_facts(works.model)
    longest = facts.max_output - aside if facts.known else facts.max_output
    wanted = min(DEEP_OUTPUT if works.effort in DEEP else MAX_OUTPUT, window // 4)
    return _Context(
        window=window,
        trigger=trigger,
        target=trigger // 2,
        max_output=aside + max(OUTPUT_FLOOR, min(wanted, longest)),
        output_floor=aside + OUTPUT_FLOOR,
    )


def _wider(full: int, chosen: Choices, agent_budget: Limit, rates: WorstRates | None) -> str:
    """What has to be how large for the least window that is not full with so many tokens."""
    least = -(-(full + 1) * 100 // chosen.trigger_percent)
    worth = _worth(agent_budget, rates)
    if worth is None or worth >= 2 * least:
        return f"--window {least:,}" if chosen.window is not None else f"WAYSTATION_WINDOW_CAP={least}"
    needed = Limit(tokens=None if agent_budget.tokens is None else 2 * least)
    if agent_budget.micro_usd is None or rates is None:
        return f"--agent-budget {limit_text(needed)}"
    price = int((2 * least * rates.input).to_integral_value(rounding=ROUND_CEILING))
    needed = needed.model_copy(update={"micro_usd": price})
    task = Limit(tokens=chosen.budget.tokens, micro_usd=AGENT_PART * price)
    return f"--agent-budget {limit_text(needed)}, or --budget {limit_text(task)}"


def _worth(budget: Limit, rates: WorstRates | None) -> int | None:
    """How many tokens of input the budget buys at most; None: any number."""
    bought = [] if budget.tokens is None else [budget.tokens]
    if budget.micro_usd is not None and rates is not None and rates.input:
        bought.append(int(budget.micro_usd / rates.input))
    return min(bought, default=None)


def _window(works: Working, chosen: Choices, settings: Settings, worth: int | None) -> int:
    """At most half of what the agent's budget buys: one call with nothing cached must not stop it long before."""
    usable = usable_window(works)
    return min(usable, chosen.window or usable, settings.window_cap, usable if worth is None else worth // 2)


def usable_window(works: Working) -> int:
    """What of the model's window a request may fill, with room for the reply."""
    facts = model_facts(works.model)
    reserve = min(facts.max_output, OUTPUT_RESERVE + budgeted(works.thinking))
    return facts.window - reserve - facts.window // 10
