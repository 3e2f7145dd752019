"""A task whose agent asks to call a tool, as several tests begin with it."""

from datetime import datetime

from tests.unit.task_values import NOON, after_leg, standing, working
from waystation.agents.decisions import ActionQuestion, question_on
from waystation.agents.leg import ApprovalRequired
from waystation.context.transcript import ToolUse
from waystation.tasks.state import TaskState, opened_actions

AGENT = "research-1"


def question(number: int = 1, text: str = "Write this file?") -> ActionQuestion:
    """What a call of the agent's fourth message asks."""
    return question_on("m4", ToolUse(id=f"c{number}", name="fs__write_file", input={"path": f"{number}.md"}), text)


def asking_for(*questions: ActionQuestion, state: TaskState | None = None) -> TaskState:
    """The agent's leg ended with these questions."""
    outcome = ApprovalRequired(standing=standing(500), questions=questions or (question(),))
    return after_leg(state or working(), AGENT, outcome)


def asked_for(*questions: ActionQuestion, deadline: datetime | None = None) -> TaskState:
    """A person is asked about them."""
    state = asking_for(*questions)
    for request in opened_actions(state, AGENT, NOON, deadline):
        state = state.asked(request)
    return state
