"""The moves of an agent run: what the workflow must do next with it."""

from waystation.domain.actions import ActionQuestion
from waystation.domain.amount import Amount
from waystation.domain.compaction.edit import EditRequest
from waystation.domain.delegation import SubagentOrder
from waystation.domain.leg import LegRequest
from waystation.domain.value import Value


class RunLeg(Value):
    """Carry out this leg."""

    request: LegRequest


class Compact(Value):
    """Make room in the context before the next leg."""

    request_tokens: int


class Edit(Value):
    """Change the context as a person asked."""

    request: EditRequest


class AskMoney(Value):
    """The agent's budget is spent: draw on its task, then its session, and only then ask a person."""

    amount: Amount


class Delegate(Value):
    """Have these subagents work, and wait until all of them have ended."""

    orders: tuple[SubagentOrder, ...]


class AskPerson(Value):
    """Have a person decide on each of these calls, and wait until all of them are decided on."""

    questions: tuple[ActionQuestion, ...]


class Deliver(Value):
    """The run is over. `partial`: the agent did not hand in a result of its own."""

    partial: bool
    reason: str = ""


Move = RunLeg | Compact | Edit | AskMoney | Delegate | AskPerson | Deliver
