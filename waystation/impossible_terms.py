"""Terms that cannot work: refused when a task is submitted, with what to give instead."""

from collections.abc import Callable, Sequence
from datetime import date

from waystation.domain.amount import Amount, Limit, limit_text
from waystation.domain.budget import Mode
from waystation.domain.compaction.tokens import estimate_text
from waystation.domain.errors import BadInput
from waystation.domain.presets import REQUEST, Choices
from waystation.domain.pricing import Price, price_of
from waystation.domain.task import TaskRequest
from waystation.domain.unattended import Unattended

PROMPT_TOKENS = 2_550
"""System prompt and tools of the role with the longest ones (analysis), as estimated; a test compares it with them."""
CONTRACT_TOKENS = 300
"""What the first message of a step in a new session says beside what was asked: its goal, a dozen documents."""


def refuse_unpriced(budget: Limit, models: tuple[str, ...], prices: Sequence[Price], today: date) -> None:
    """What an unpriced call costs nobody could hold against a limit in dollars."""
    unpriced = sorted({model for model in models if price_of(model, today, prices) is None})
    if budget.micro_usd is not None and unpriced:
        raise BadInput(
            f"a budget in dollars needs models with known prices, and {', '.join(unpriced)} has none: give --budget in "
            "tokens, or the price in a file that WAYSTATION_PRICES names"
        )


def refuse_other_units(budget: Limit, agent_budget: Limit) -> None:
    """An agent draws on its task, which can give nothing of a unit that it does not count."""
    for task, agent, unit in (
        (budget.tokens, agent_budget.tokens, "tokens"),
        (budget.micro_usd, agent_budget.micro_usd, "dollars"),
    ):
        if agent is not None and task is None:
            raise BadInput(f"an agent's budget in {unit} needs a --budget in {unit} too: give both, or leave it out")


def refuse_ceiling(ceiling: Limit, budget: Limit) -> None:
    """Under its budget a ceiling allows no grant; in a unit that the budget does not count it stops none."""
    for unit, most, given in (
        ("tokens", ceiling.tokens, budget.tokens),
        ("dollars", ceiling.micro_usd, budget.micro_usd),
    ):
        if most is None:
            continue
        if given is None:
            raise BadInput(f"--ceiling in {unit} stops no grant to a budget of {limit_text(budget)}: use its unit")
        if most < given:
            raise BadInput(
                f"--ceiling is {limit_text(ceiling)}, and the budget that it lets people raise is {limit_text(budget)} "
                "already: give a ceiling above that, or leave it out"
            )


def refuse_idle(unattended: Unattended, chosen: Choices) -> None:
    """What is decided in advance about requests is of no use where none is made, or where it gives the other unit."""
    if unattended == Unattended():
        return
    if chosen.mode is not Mode.APPROVAL:
        by = chosen.origins.get("mode", REQUEST)
        source = "" if by == REQUEST else f" ({by})"
        raise BadInput(
            f"--top-up and --answer-by are about requests, and mode {chosen.mode}{source} makes none: "
            "use --mode approval"
        )
    raised = unattended.top_up.amount if unattended.top_up is not None else Amount()
    given = {"tokens": raised.tokens, "dollars": raised.micro_usd}
    limited = {"tokens": chosen.budget.tokens, "dollars": chosen.budget.micro_usd}
    for unit, amount in given.items():
        if amount and limited[unit] is None:
            raise BadInput(f"--top-up in {unit} has no effect on a budget of {limit_text(chosen.budget)}: use its unit")


def refuse_too_narrow(window: int, trigger: int, begins_with: int, wider: Callable[[int], str]) -> None:
    """`wider` tells how to get a window in which a request of so many tokens does not count as full."""
    if begins_with >= trigger:
        raise BadInput(
            f"a window of {window:,} tokens is full at {trigger:,}, and with its prompt, its "
            f"tools and what you ask an agent begins with about {begins_with:,}: give {wider(begins_with)} or more"
        )


def first_turn(request: TaskRequest) -> int:
    """Tokens of the smallest request that every agent has to make."""
    asked = (request.question, request.instructions, *request.accept)
    return PROMPT_TOKENS + CONTRACT_TOKENS + sum(map(estimate_text, asked))
