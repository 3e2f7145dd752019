"""What people decide beside money: calls that ask first, and what is settled in advance.

Actions that a person decides on before they are carried out: what is asked, and what was decided.

Both cross workflow history: the words of a question are redacted and bounded.

What a person decides in advance, so that a task can go on or end while nobody looks.
"""

import hashlib
import json
from datetime import datetime, timedelta
from typing import Literal

from pydantic import Field

from waystation.context.transcript import ToolUse
from waystation.kernel.amount import Amount
from waystation.kernel.value import Value
from waystation.security.untrusted import escape_control_characters_in_json

MAX_OPEN_QUESTIONS = 5
"""Of one agent; others of its reply come after those: the Temporal UI takes 20,000 bytes of details."""
QUESTION_CHARACTERS = 1_000
QUESTION_LINES = 30


class ActionQuestion(Value):
    """One call that is not carried out before a person says so."""

    call_id: str
    tool: str
    text: str
    """What the tool asks; redacted, without characters that nobody sees."""
    hidden: int = 0
    """Characters of it that did not fit. The agent's transcript has the whole call."""
    digest: str
    """See `compute_call_digest`."""


class ActionDecision(Value):
    """What was decided on one call."""

    digest: str
    allowed: bool
    note: str = ""
    """To the agent, from whoever refused it. Not redacted."""
    expired: bool = False
    """Nobody decided until the deadline."""


def compute_call_digest(message_id: str, call: ToolUse, definition: str = "") -> str:
    """What a decision is bound to: this call in this message of this agent, with these arguments, and no other.

    Models may give two calls one id; no two messages of an agent have one. `definition`: digest of what a tool of
    others was like when it was asked about; one that has become another is asked about anew.
    """
    bound = [message_id, call.id, call.name, call.input, *([definition] if definition else [])]
    return hashlib.sha256(json.dumps(bound, sort_keys=True).encode()).hexdigest()


_NO_SPELLING = "\n\u200c\u200d"
"""Joiners are left by `escape_control_characters_in_json` where they shape letters or pictures."""


def build_action_question(message_id: str, call: ToolUse, redacted: str, definition: str = "") -> ActionQuestion:
    """The question as people see it: nothing in it can pass for something else, or push the answer off the screen."""
    seen = escape_control_characters_in_json(redacted)
    words = "".join(one if one.isprintable() or one in _NO_SPELLING else f"\\u{ord(one):04x}" for one in seen)
    text = "\n".join(words[:QUESTION_CHARACTERS].split("\n")[:QUESTION_LINES])
    return ActionQuestion(
        call_id=call.id,
        tool=call.name,
        text=text,
        hidden=len(words) - len(text),
        digest=compute_call_digest(message_id, call, definition),
    )


AUTHORISED_IN_ADVANCE = "authorised in advance"
"""The name under which a raise stands that nobody was asked for."""


class TopUpPolicy(Value):
    """Raises that were authorised when the task was submitted."""

    amount: Amount
    times: int = Field(ge=1, le=1_000)


class UnattendedPolicy(Value):
    """What happens to requests for money that nobody answers. By default they wait, for as long as it takes."""

    top_up: TopUpPolicy | None = None
    answer_by: datetime | None = None
    """Requests that are open then, and those that come later, are not waited for."""
    answer_within: timedelta | None = None
    """So long each request waits."""
    then: Literal["partial", "wait"] = "partial"
    """At the deadline: the agent delivers what it has, or the request stays open and is noted as overdue."""

    def compute_deadline(self, asked_at: datetime) -> datetime | None:
        """Until when a request of that moment is waited for; None: for ever."""
        within = [asked_at + self.answer_within] if self.answer_within is not None else []
        return min([*within, *([self.answer_by] if self.answer_by is not None else [])], default=None)


class PlaceholderResolution(Value):
    """A tool was given what placeholders in its arguments stand for. What that is stands nowhere."""

    agent: str
    """Id of the step, or of a subagent."""
    tool: str
    call_id: str
    placeholders: tuple[str, ...]
