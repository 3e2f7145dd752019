"""The terms of a task: what was asked for, what is set and what the model can do, as the numbers the work runs by."""

from waystation.domain.budget import Mode
from waystation.domain.leg import AgentTerms
from waystation.domain.models import OFFLINE_MODEL, model_facts
from waystation.domain.task import TaskRequest, TaskTerms
from waystation.settings import Settings

OUTPUT_RESERVE = 20_000
"""Most tokens of a model's window that are kept free for its reply."""
TRIGGER_PERCENT = 75
MAX_OUTPUT = 8_000
OUTPUT_FLOOR = 256
FEW_TURNS = 5
SMALL_HARD_BUDGET = 10_000


def task_terms(request: TaskRequest, settings: Settings) -> TaskTerms:
    """The terms under which this request is submitted."""
    offline = settings.uses_offline_model
    model = OFFLINE_MODEL if offline else settings.agent_model
    window = _window(model, request, settings)
    trigger = window * TRIGGER_PERCENT // 100
    agent = AgentTerms(
        model=model,
        condense_model=OFFLINE_MODEL if offline else settings.condense_model,
        window=window,
        trigger=trigger,
        target=trigger // 2,
        max_output=max(OUTPUT_FLOOR, min(MAX_OUTPUT, window // 4)),
        output_floor=OUTPUT_FLOOR,
        hard=request.mode is Mode.HARD,
    )
    return TaskTerms(
        budget=request.budget,
        agent_budget=request.agent_budget,
        mode=request.mode,
        agent=agent,
        plan_model=OFFLINE_MODEL if offline else settings.plan_model,
        offline=offline,
    )


def _window(model: str, request: TaskRequest, settings: Settings) -> int:
    facts = model_facts(model)
    usable = facts.window - min(facts.max_output, OUTPUT_RESERVE) - facts.window // 10
    return min(usable, request.window or usable, request.agent_budget // 2, settings.window_cap)


def warnings_about(terms: TaskTerms) -> tuple[str, ...]:
    """Sentences on what is legal here, but will probably disappoint."""
    warnings: list[str] = []
    facts = model_facts(terms.agent.model)
    if not facts.known and not terms.offline:
        warnings.append(
            f"The model {facts.name} is not known here: its window is taken to be {facts.window:,} tokens, "
            "and its price is unknown."
        )
    if terms.budget < FEW_TURNS * terms.agent.window:
        warnings.append(
            f"A budget of {terms.budget:,} tokens covers fewer than {FEW_TURNS} turns with a full window of "
            f"{terms.agent.window:,}: raise --budget or lower --window."
        )
    if terms.mode is Mode.HARD and terms.budget <= SMALL_HARD_BUDGET:
        warnings.append(
            f"In mode hard, {terms.budget:,} tokens will most likely end in a partial report: raise --budget or use "
            "--mode approval."
        )
    if terms.agent_budget > terms.budget:
        warnings.append(
            f"One agent may spend {terms.agent_budget:,} tokens, but the whole task has only {terms.budget:,}."
        )
    return tuple(warnings)
