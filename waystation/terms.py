"""The terms of a task: what was asked for, what is set and what the models can do, as the numbers the work runs by."""

from collections.abc import Iterator, Sequence
from datetime import date

from waystation.agent_terms import AGENT_PART, Basis, agent_terms, choices, condenser, usable_window, working
from waystation.domain.amount import Limit, limit_text
from waystation.domain.budget import Mode
from waystation.domain.leg import AgentTerms
from waystation.domain.models import OFFLINE_MODEL, model_facts
from waystation.domain.plan import ROLES, Role
from waystation.domain.presets import Choices
from waystation.domain.pricing import Price, prices_of
from waystation.domain.profiles import profile_of
from waystation.domain.task import TaskRequest, TaskTerms
from waystation.impossible_terms import refuse_ceiling, refuse_idle, refuse_other_units, refuse_unpriced
from waystation.model_settings import ModelSettings
from waystation.settings import Settings, variable_given

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


def _agent_budget(request: TaskRequest, chosen: Choices) -> Limit:
    """What an agent starts with. Raises BadInput for amounts that cannot work together."""
    agent_budget = request.agent_budget or _part_for_an_agent(chosen)
    refuse_other_units(chosen.budget, agent_budget)
    refuse_ceiling(request.ceiling, chosen.budget)
    refuse_idle(request.unattended, chosen)
    return agent_budget


def task_terms(
    request: TaskRequest, settings: Settings, prices: Sequence[Price], today: date, earlier: int = 0
) -> TaskTerms:
    """Those of this request. `earlier`: tokens of what its agents are told of earlier tasks of the session.

    Raises BadInput for terms that cannot work (`waystation.impossible_terms`).
    """
    chosen, called = choices(request, settings), tuple(_called(request, settings))
    refuse_unpriced(chosen.budget, called, prices, today)
    agent_budget = _agent_budget(request, chosen)
    basis = Basis(request, settings, agent_budget, prices_of(called, prices), today, earlier)
    agents = {role: agent_terms(basis, role) for role in ROLES}
    agent = agents["research"]
    return TaskTerms(
        budget=chosen.budget,
        agent_budget=agent_budget,
        ceiling=request.ceiling,
        unattended=request.unattended,
        mode=chosen.mode,
        agent=agent,
        by_role={role: own for role, own in agents.items() if own != agent},
        plan_model=_plan_model(settings),
        remembered_characters=settings.remembered_characters,
        review_model=_review_model(settings),
        revisions=settings.revisions,
        reviews=settings.reviews,
        offline=settings.uses_offline_model,
        procedures_among_documents=False,
    )


def _called(request: TaskRequest, settings: Settings) -> Iterator[str]:
    """The models that a task may pay for."""
    for role in ROLES:
        yield working(settings, role).model
        yield condenser(choices(request, settings, role), settings)
    yield _plan_model(settings)
    if settings.reviews:
        yield _review_model(settings)


def _plan_model(settings: Settings) -> str:
    return OFFLINE_MODEL if settings.uses_offline_model else settings.plan_model


def _review_model(settings: Settings) -> str:
    return OFFLINE_MODEL if settings.uses_offline_model else settings.review_model or settings.plan_model


def _part_for_an_agent(chosen: Choices) -> Limit:
    """What one agent starts with when the request does not say: in the units of the task's budget."""
    budget, own, part = chosen.budget, chosen.agent_budget, chosen.budget.part(AGENT_PART)
    return Limit(
        tokens=None if budget.tokens is None else own.tokens or part.tokens,
        micro_usd=None if budget.micro_usd is None else own.micro_usd or part.micro_usd,
    )


def adjustments(request: TaskRequest, settings: Settings) -> tuple[str, ...]:
    """Sentences on what was asked for and cannot be had, with what takes its place; each once."""
    sentences = (sentence for role in ROLES for sentence in _adjustments(request, settings, role))
    return tuple(dict.fromkeys((*_of_no_use(settings), *sentences)))


def _of_no_use(settings: Settings) -> Iterator[str]:
    """Settings of models that do not work here."""
    given = [name for name in ModelSettings.model_fields if name in settings.model_fields_set]
    if settings.uses_offline_model and given:
        named = ", ".join(variable_given(name) or f"{name} in the config file" for name in given)
        yield f"The built-in offline model does the work. Not used: {named}."


def _adjustments(request: TaskRequest, settings: Settings, role: Role) -> Iterator[str]:
    works, chosen = working(settings, role), choices(request, settings, role)
    usable = usable_window(works)
    if chosen.window is not None and chosen.window > usable:
        yield (
            f"A window of {chosen.window:,} tokens is more than {works.model} takes with room for its reply: "
            f"it is {usable:,} at most."
        )
    found = profile_of(works.model, settings.profiles)
    if found is not None and (fault := found[1].fault):
        yield f"In profile {found[0]}, {fault}."


def warnings_about(terms: TaskTerms) -> tuple[str, ...]:
    """Sentences on what is legal here, but will probably disappoint; each once."""
    agents = (terms.agent, *terms.by_role.values())
    warnings = [sentence for agent in agents for sentence in _about_agent(agent, terms)]
    tokens = terms.budget.tokens
    if terms.mode is Mode.HARD and tokens is not None and tokens <= SMALL_HARD_BUDGET:
        warnings.append(
            f"In mode hard, {tokens:,} tokens will most likely end in a partial report: raise --budget or use "
            "--mode approval."
        )
    if not terms.budget.covers(terms.agent_budget.amount):
        warnings.append(
            f"One agent may spend {limit_text(terms.agent_budget)}, but the whole task has only "
            f"{limit_text(terms.budget)}."
        )
    return tuple(dict.fromkeys(warnings))


def _about_agent(agent: AgentTerms, terms: TaskTerms) -> Iterator[str]:
    facts, tokens = model_facts(agent.model), terms.budget.tokens
    if not facts.known and not terms.offline:
        yield (
            f"The model {facts.name} is not known here: its window is taken to be {facts.window:,} tokens, "
            "and its price is unknown."
        )
    if tokens is not None and tokens < FEW_TURNS * agent.window:
        yield (
            f"A budget of {tokens:,} tokens covers fewer than {FEW_TURNS} turns with a full window of "
            f"{agent.window:,}: raise --budget or lower --window."
        )
    if agent.window < NARROW_WINDOW:
        yield (
            f"A window of {agent.window:,} tokens is narrow: under {NARROW_WINDOW:,}, prompts, tools and what is "
            "recalled leave little room for documents, and a budget can go into compactions, with little to show. "
            "Raise --agent-budget or --budget, and --window where it is set."
        )
    yield from _about_compaction(agent)


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
