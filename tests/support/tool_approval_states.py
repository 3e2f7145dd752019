"""A task whose agent requests approval of tool calls."""

from datetime import datetime

from tests.support.task_states import NOON, apply_leg_outcome, make_leg_state, make_working_state
from waystation.agents.action_approvals import ActionQuestion, build_action_question
from waystation.agents.leg import ApprovalRequired
from waystation.context.transcript import ToolUse
from waystation.privacy.policy import RedactionResult
from waystation.tasks.state import TaskState, build_action_requests

AGENT = "research-1"


def make_action_question(number: int = 1, text: str = "Write this file?") -> ActionQuestion:
    """Make the question of a call in the agent's fourth message."""
    return build_action_question(
        "m4",
        ToolUse(id=f"c{number}", name="fs__write_file", input={"path": f"{number}.md"}),
        RedactionResult(text=text),
    )


def end_leg_with_questions(*questions: ActionQuestion, state: TaskState | None = None) -> TaskState:
    """End the agent's leg with these questions."""
    outcome = ApprovalRequired(state=make_leg_state(500), questions=questions or (make_action_question(),))
    return apply_leg_outcome(state or make_working_state(), AGENT, outcome)


def open_tool_approvals(*questions: ActionQuestion, deadline: datetime | None = None) -> TaskState:
    """Make the state with pending approvals for these questions."""
    state = end_leg_with_questions(*questions)
    for request in build_action_requests(state, AGENT, NOON, deadline):
        state = state.with_approval_request(request)
    return state
