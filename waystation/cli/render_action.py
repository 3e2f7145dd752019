"""What a tool asks before it is called, as lines of a terminal that cannot pass for lines of ours."""

from textwrap import wrap

from waystation.domain.action_text import hidden_text
from waystation.domain.actions import ActionQuestion
from waystation.seen import PendingApproval

BAR = "  | "
"""Before every line of the question, however narrow the terminal is."""
NARROWEST = 20


def question_lines(one: PendingApproval, question: ActionQuestion, width: int) -> list[str]:
    """The question, and where the rest of it is read."""
    room = max(width - len(BAR), NARROWEST)
    words = [part for line in question.text.split("\n") for part in wrap(line, room, drop_whitespace=False) or [""]]
    rest = hidden_text(one.task_id, one.approval.agent, question)
    return [*(f"{BAR}{part}" for part in words), *([f"  {rest}"] if rest else [])]


def action_facts(one: PendingApproval) -> list[tuple[str, str]]:
    """What an answer does."""
    agent = one.approval.agent
    return [
        ("approved", "it is called once, with exactly these arguments"),
        ("if denied", f"{agent} goes on without it, and reads the `--note` that you give"),
    ]
