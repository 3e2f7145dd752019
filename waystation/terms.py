"""The terms of a task: what was asked for, what is set and what the model can do, as the numbers the work runs by."""

from collections.abc import Callable, Sequence
from datetime import date
from decimal import ROUND_CEILING
from functools import partial
from typing import NamedTuple, TypedDict

from waystation.domain.allowance import WorstRates
from waystation.domain.amount import Limit, limit_text
from waystation.domain.budget import Mode
from waystation.domain.leg import AgentTerms
from waystation.domain.models import OFFLINE_MODEL, model_facts
from waystation.domain.presets import PRESETS, REQUEST, Choices, Source, Wishes, choose
from waystation.domain.pricing import Price, prices_of, worst_rates
from waystation.domain.profiles import profile_of, wishes_of
from waystation.domain.task import TaskRequest, TaskTerms
from waystation.impossible_terms import (
    first_turn,
    refuse_ceiling,
    refuse_idle,
    refuse_other_units,
    refuse_too_narrow,
    refuse_unpriced,
)
from waystation.settings import Settings, variable_given

OUTPUT_RESERVE = 20_000
"""Most tokens of a model's window that are kept free for its reply."""
MAX_OUTPUT = 8_000
OUTPUT_FLOOR = 256
FEW_TURNS = 5
SMALL_HARD_BUDGET = 10_000
LATE_TRIGGER_PERCENT = 95
FEW_PRIMERS, MANY_RECENTS = 2, 50
NARROW_WINDOW = 8_000
"""The offline model over the survey of the end-to-end tests: in a session with memory the first message has 1,850
tokens (three recalled passages), so that 3,900 are taken before anything is read. In windows of up to 4,500 the
analysis and the report ended with nothing; in 5,000 an agent compacted 197 times without an end; in 5,333 to 6,666, as
dollars buy them, the money went into compactions and the task ended partial; from 8,000 on the same task was done.
"""
AGENT_PART = 6
"""An agent starts with this part of a budget in dollars, where nobody said."""


def _agent_budget(request: TaskRequest, chosen: Choices) -> Limit:
    """What an agent starts with. Raises BadInput for amounts that cannot work together."""
    agent_budget = request.agent_budget or _part_for_an_agent(chosen)
    refuse_other_units(chosen.budget, agent_budget)
    refuse_ceiling(request.ceiling, chosen.budget)
    refuse_idle(request.unattended, chosen)
    return agent_budget


class _Context(TypedDict):
    window: int
    trigger: int
    target: int
    max_output: int


def choices(request: TaskRequest, settings: Settings) -> Choices:
    """What holds where several speak: the request beats its preset, that the environment, that the config file, that
    the model's profile.
    """
    asked = Wishes.model_validate(request.model_dump(include={*Wishes.model_fields}))
    preset = request.preset or settings.preset
    sources = [Source(REQUEST, asked)]
    if preset is not None:
        by = "" if request.preset else f" of {_origin('preset')}"
        sources.append(Source(f"preset {preset}{by}", PRESETS[preset]))
    given = settings.model_dump(include=Wishes.model_fields.keys() & settings.model_fields_set)
    sources += [Source(_origin(name), Wishes.model_validate({name: value})) for name, value in given.items()]
    model = _agent_model(settings)
    if (found := profile_of(model, settings.profiles)) is not None:
        name, profile = found
        keeps_ends = choose(sources).strategy == "ends"
        sources.append(Source(f"profile {name}", wishes_of(profile, model, keeps_ends=keeps_ends)))
    return choose(sources)


def _agent_model(settings: Settings) -> str:
    return OFFLINE_MODEL if settings.uses_offline_model else settings.agent_model


def _origin(name: str) -> str:
    return variable_given(name) or "config file"


class _Models(NamedTuple):
    agent: str
    condense: str
    plan: str
    review: str
    reviews: bool

    @property
    def called(self) -> tuple[str, ...]:
        """Those that a task may pay for."""
        return (self.agent, self.condense, self.plan, *([self.review] if self.reviews else []))


def _models(chosen: Choices, settings: Settings) -> _Models:
    names = (chosen.condense_model, settings.plan_model, settings.review_model or settings.plan_model)
    others = (OFFLINE_MODEL if settings.uses_offline_model else name for name in names)
    return _Models(_agent_model(settings), *others, reviews=settings.reviews > 0)


def task_terms(request: TaskRequest, settings: Settings, prices: Sequence[Price], today: date) -> TaskTerms:
    """Those of this request. Raises BadInput for terms that cannot work (`waystation.impossible_terms`)."""
    chosen = choices(request, settings)
    models = _models(chosen, settings)
    refuse_unpriced(chosen.budget, models.called, prices, today)
    agent_budget = _agent_budget(request, chosen)
    rates = worst_rates(models.agent, 0, today, prices)
    context = _context(_window(models.agent, chosen, settings, _worth(agent_budget, rates)), chosen)
    _refuse_narrow(request, context, partial(_wider, chosen=chosen, agent_budget=agent_budget, rates=rates))
    agent = AgentTerms(
        model=models.agent,
        condense_model=models.condense,
        **context,
        strategy=chosen.strategy,
        keep_last=chosen.keep_last,
        auto_compact=settings.auto_compact,
        primers=chosen.primers,
        recents=chosen.recents,
        messages=chosen.messages,
        history=chosen.history,
        output_floor=OUTPUT_FLOOR,
        hard=chosen.mode is not Mode.APPROVAL,
        prices=prices_of(models.called, prices),
        backpressure=settings.backpressure,
        memory=request.memory or settings.memory_scope,
        delegation=settings.delegation,
    )
    return TaskTerms(
        budget=chosen.budget,
        agent_budget=agent_budget,
        ceiling=request.ceiling,
        unattended=request.unattended,
        mode=chosen.mode,
        agent=agent,
        plan_model=models.plan,
        remembered_characters=settings.remembered_characters,
        review_model=models.review,
        revisions=settings.revisions,
        reviews=settings.reviews,
        offline=settings.uses_offline_model,
    )


def _refuse_narrow(request: TaskRequest, context: _Context, wider: Callable[[int], str]) -> None:
    refuse_too_narrow(context["window"], context["trigger"], first_turn(request), wider)


def _context(window: int, chosen: Choices) -> _Context:
    trigger = window * chosen.trigger_percent // 100
    max_output = max(OUTPUT_FLOOR, min(MAX_OUTPUT, window // 4))
    return _Context(window=window, trigger=trigger, target=trigger // 2, max_output=max_output)


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


def _part_for_an_agent(chosen: Choices) -> Limit:
    """What one agent starts with when the request does not say: in the units of the task's budget."""
    budget, own, part = chosen.budget, chosen.agent_budget, chosen.budget.part(AGENT_PART)
    return Limit(
        tokens=None if budget.tokens is None else own.tokens or part.tokens,
        micro_usd=None if budget.micro_usd is None else own.micro_usd or part.micro_usd,
    )


def _worth(budget: Limit, rates: WorstRates | None) -> int | None:
    """How many tokens of input the budget buys at most; None: any number."""
    bought = [] if budget.tokens is None else [budget.tokens]
    if budget.micro_usd is not None and rates is not None and rates.input:
        bought.append(int(budget.micro_usd / rates.input))
    return min(bought, default=None)


def _window(model: str, chosen: Choices, settings: Settings, worth: int | None) -> int:
    """At most half of what the agent's budget buys: one call with nothing cached must not stop it long before."""
    usable = _usable(model)
    return min(usable, chosen.window or usable, settings.window_cap, usable if worth is None else worth // 2)


def _usable(model: str) -> int:
    """What of the model's window a request may fill, with room for the reply."""
    facts = model_facts(model)
    return facts.window - min(facts.max_output, OUTPUT_RESERVE) - facts.window // 10


def adjustments(request: TaskRequest, settings: Settings) -> tuple[str, ...]:
    """Sentences on what was asked for and cannot be had, with what takes its place."""
    sentences: list[str] = []
    model, chosen = _agent_model(settings), choices(request, settings)
    usable = _usable(model)
    if chosen.window is not None and chosen.window > usable:
        sentences.append(
            f"A window of {chosen.window:,} tokens is more than {model} takes with room for its reply: "
            f"it is {usable:,} at most."
        )
    found = profile_of(model, settings.profiles)
    if found is not None and (fault := found[1].fault):
        sentences.append(f"In profile {found[0]}, {fault}.")
    return tuple(sentences)


def warnings_about(terms: TaskTerms) -> tuple[str, ...]:
    """Sentences on what is legal here, but will probably disappoint."""
    warnings: list[str] = []
    facts = model_facts(terms.agent.model)
    if not facts.known and not terms.offline:
        warnings.append(
            f"The model {facts.name} is not known here: its window is taken to be {facts.window:,} tokens, "
            "and its price is unknown."
        )
    tokens = terms.budget.tokens
    if tokens is not None and tokens < FEW_TURNS * terms.agent.window:
        warnings.append(
            f"A budget of {tokens:,} tokens covers fewer than {FEW_TURNS} turns with a full window of "
            f"{terms.agent.window:,}: raise --budget or lower --window."
        )
    if terms.mode is Mode.HARD and tokens is not None and tokens <= SMALL_HARD_BUDGET:
        warnings.append(
            f"In mode hard, {tokens:,} tokens will most likely end in a partial report: raise --budget or use "
            "--mode approval."
        )
    if terms.agent.window < NARROW_WINDOW:
        warnings.append(
            f"A window of {terms.agent.window:,} tokens is narrow: under {NARROW_WINDOW:,}, prompts, tools and what is "
            "recalled leave little room for documents, and a budget can go into compactions, with little to show. "
            "Raise --agent-budget or --budget, and --window where it is set."
        )
    warnings += _about_compaction(terms.agent)
    if not terms.budget.covers(terms.agent_budget.amount):
        warnings.append(
            f"One agent may spend {limit_text(terms.agent_budget)}, but the whole task has only "
            f"{limit_text(terms.budget)}."
        )
    return tuple(warnings)


def _about_compaction(agent: AgentTerms) -> list[str]:
    warnings: list[str] = []
    if agent.trigger >= agent.window * LATE_TRIGGER_PERCENT // 100:
        warnings.append(
            f"A context that is full at {agent.trigger:,} of {agent.window:,} tokens leaves no room for a large "
            "result: lower WAYSTATION_TRIGGER_PERCENT."
        )
    if agent.primers < FEW_PRIMERS and agent.recents >= MANY_RECENTS:
        warnings.append(
            f"Compactions keep {agent.primers} of the first messages and {agent.recents} of the last: how the work "
            "began is lost first. Raise WAYSTATION_PRIMERS or lower WAYSTATION_RECENTS."
        )
    return warnings
