"""A request to call a tool in words, for the Temporal UI: the question, redacted, and the signals that answer."""

import json
from textwrap import indent

from waystation.domain.actions import ActionQuestion
from waystation.domain.task import Approval

CODE = " " * 4
"""Markdown shows what is indented by so much as it is: no fence that the words hold ends it, and no link works."""


def action_details(task_id: str, approval: Approval, question: ActionQuestion) -> str:
    """What is asked, and what to send; Markdown."""
    yes = json.dumps({"request_id": approval.request_id, "action": question.tool, "by": "name"})
    no = json.dumps({"request_id": approval.request_id, "note": "why, for the agent", "by": "name"})
    deadline = f"- its deadline: {approval.answer_by:%Y-%m-%d %H:%M %Z}" if approval.answer_by is not None else ""
    parts = [
        f"**{approval.agent} asks to call {question.tool}.** It is called once, with exactly what is said here:",
        indent(question.text, CODE),
        hidden_text(task_id, approval.agent, question),
        deadline,
        f"To have it called, send the signal `approve_budget` with\n\n```json\n{yes}\n```",
        f"To have the agent go on without it, send `deny_budget` with\n\n```json\n{no}\n```",
    ]
    return "\n\n".join(filter(None, parts))


def hidden_text(task_id: str, agent: str, question: ActionQuestion) -> str:
    """Where the whole call is read, if not all of it is shown; else empty."""
    if not question.hidden:
        return ""
    command = f"waystation transcript {task_id} --agent {agent}"
    return f"{question.hidden:,} more characters are not shown: `{command}` ends with the whole call."
