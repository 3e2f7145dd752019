"""What a request for money is about: what calls have cost, what more would buy, and what a denial would deliver.

Counts and ids only: it is part of workflow history.
"""

from waystation.domain.agent_run import AgentRun
from waystation.domain.amount import Amount, Limit
from waystation.domain.ledger import Account
from waystation.domain.plan import Plan
from waystation.domain.value import Value
from waystation.domain.work import Made


class Outlook(Value):
    """As it was when the request was made."""

    calls: int
    """Turns of the agent so far."""
    each: Amount
    """What a turn has cost on average, in the units that the agent is limited in."""
    worth: int
    """About how many more turns what is asked for is good for, at that average."""
    finished: int
    """Steps that delivered."""
    to_come: int
    """Steps that were not started."""
    kept: Amount
    """What stays reserved for those."""
    made: Made
    """What the agent has to deliver."""
    needed_by: tuple[str, ...]
    """Ids of the steps that build on this one; none of a writing step."""
    room: Limit = Limit()
    """What could still be granted before the task would pass its ceiling; no limit where it has none."""
    grantable: bool = True
    """Whether that is enough for the agent's next call. It never gets more: a ceiling stays, and grants use it up."""

    def under(self, ceiling: Limit, limit: Limit, needed: Amount) -> "Outlook":
        """The same with what may be granted to a task of this limit, where the next call needs so much more."""
        room = ceiling.after(limit.amount)
        return self.model_copy(update={"room": room, "grantable": room.covers(needed)})


def outlook(run: AgentRun, plan: Plan, account: Account, started: frozenset[str], finished: int) -> Outlook:
    """The outlook of an agent that spent its budget, from its task's account and the ids of the steps that started."""
    spent, calls = run.limit.counted(run.totals.spent), run.totals.turns
    each = Amount(tokens=spent.tokens // calls, micro_usd=spent.micro_usd // calls) if calls else Amount()
    to_come = [step.id for step in plan.steps if step.id not in started]
    return Outlook(
        calls=calls,
        each=each,
        worth=_worth(run.wanted, run.needed, each),
        finished=finished,
        to_come=len(to_come),
        kept=sum((account.reserved.get(step_id, Amount()) for step_id in to_come), Amount()),
        made=run.made,
        needed_by=tuple(step.id for step in plan.steps if run.run.step_id in step.needs),
    )


def _worth(asked: Amount, needed: Amount, each: Amount) -> int:
    """Turns until the next one no longer fits: each is let through by its worst case, and costs the average.

    With `needed` alone the next turn fits; every further one takes another average of what is asked for beyond that.
    """
    units = ((asked.tokens, needed.tokens, each.tokens), (asked.micro_usd, needed.micro_usd, each.micro_usd))
    return min(
        (1 + (wanted - short) // cost for wanted, short, cost in units if wanted >= short and wanted and cost),
        default=0,
    )
