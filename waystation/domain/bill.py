"""A task's bill: every charge once, added up by agent, model and kind of call."""

from collections.abc import Sequence

from waystation.domain.budget import Usage
from waystation.domain.fork import Reused
from waystation.domain.turn import Charge, Intent
from waystation.domain.value import Value


class Paid(Value):
    """A charge and the agent run that it was for."""

    agent: str
    """Id of the step, or of the planning."""
    charge: Charge


class Unanswered(Value):
    """A call whose reply was never committed: it may have been billed, at most for its worst case."""

    agent: str
    intent: Intent


class BillLine(Value):
    """Calls of one kind. `cost_micro_usd` is None where one of them has no known price: never zero, never a guess."""

    agent: str
    model: str
    kind: str
    calls: int
    usage: Usage
    cost_micro_usd: int | None


class Bill(Value):
    """What a task has cost so far."""

    lines: tuple[BillLine, ...]
    """By agent, model and kind; agents in the order of their first call."""
    compactions: tuple[BillLine, ...]
    """The summaries one by one; their `kind` is the charge's key. They are part of `lines`, too."""
    total: BillLine
    possibly_billed: tuple[Unanswered, ...] = ()
    reused: Reused | None = None
    """What of another task counts as done here. Its cost is on that task's bill."""


def bill(paid: Sequence[Paid], unanswered: Sequence[Unanswered] = ()) -> Bill:
    """The bill over these charges, in the order of their commits."""
    groups: dict[tuple[str, str, str], list[Charge]] = {}
    for entry in paid:
        groups.setdefault((entry.agent, entry.charge.model, entry.charge.kind), []).append(entry.charge)
    agents = list(dict.fromkeys(entry.agent for entry in paid))
    in_order = sorted(groups.items(), key=lambda group: agents.index(group[0][0]))
    summaries = [entry for entry in paid if entry.charge.kind == "summary"]
    return Bill(
        lines=tuple(_line(*key, charges) for key, charges in in_order),
        compactions=tuple(
            _line(entry.agent, entry.charge.model, entry.charge.key, [entry.charge]) for entry in summaries
        ),
        total=_line("", "", "", [entry.charge for entry in paid]),
        possibly_billed=tuple(unanswered),
    )


def _line(agent: str, model: str, kind: str, charges: Sequence[Charge]) -> BillLine:
    costs = [charge.cost_micro_usd for charge in charges]
    return BillLine(
        agent=agent,
        model=model,
        kind=kind,
        calls=len(charges),
        usage=sum((charge.usage for charge in charges), Usage()),
        cost_micro_usd=None if None in costs else sum(cost or 0 for cost in costs),
    )
