"""When an agent that waits for its subagents reads its cached prefix, and how often at most.

A cached prefix lives five minutes from its last use. Reading it once more costs a small part of writing it again, so
the agent repeats its last request without asking for a reply, until that has cost as much as the rewrite would. An
agent that waits for a person does not: no activity runs then, and its budget may be spent.
"""

from datetime import date, datetime, timedelta

from waystation.agents.leg import AgentConfig
from waystation.budgets.budget import RunUsage
from waystation.kernel.amount import Limit
from waystation.kernel.refs import RunRef
from waystation.kernel.value import Value
from waystation.models.profiles import find_price

REFRESH_INTERVAL = timedelta(minutes=4)
"""Time between two refreshes. The rest of the five minutes is for queues and for the call itself."""
MAX_REFRESH_DELAY = timedelta(seconds=50)
"""A refresh that starts later than this would write the prefix again, and is not made."""
MIN_SAVING_MICRO_USD = 10_000
"""Minimum cost of the rewrite, beyond a read, that is worth a call."""


class CacheRefreshRequest(Value):
    """One refresh of an agent's cached prefix."""

    run: RunRef
    config: AgentConfig
    limit: Limit
    """What the whole agent run may have spent after it."""
    number: int
    """Number of this refresh within the wait, from 1."""
    due: datetime


class CacheRefreshOutcome(Value):
    """What a refresh cost, and whether another one makes sense."""

    totals: RunUsage
    alive: bool
    """Whether the prefix was read from the cache. If not, the agent lets it go."""


def count_worthwhile_refreshes(config: AgentConfig, prompt_tokens: int, day: date) -> int:
    """Return how often an agent's prefix may be read for at most the price of writing it again.

    How long a wait takes is not known. With this bound it never costs more than twice what the better of refreshing and
    letting go would have cost.

    Args:
        config: Config of the agent.
        prompt_tokens: Length of its last request, in tokens.
        day: Day whose prices apply.

    Returns:
        0 without a known price, for a prefix that is cheap to write, and with a fixed number of tokens for thinking,
        which the provider does not allow in a call without a reply.
    """
    price = find_price(config.model, day, config.prices)
    if price is None or isinstance(config.thinking, int):
        return 0
    rates = price.get_rates(prompt_tokens)
    saving = rates.cache_write - rates.cache_read
    if not rates.cache_read or prompt_tokens * saving < MIN_SAVING_MICRO_USD:
        return 0
    return int(saving // rates.cache_read)
