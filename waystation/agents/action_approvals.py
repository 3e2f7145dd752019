"""People's decisions besides budget requests: tool calls that need approval, and what is settled in advance.

All of it crosses workflow history, so the text of a question is redacted and bounded.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from pydantic import Field

from waystation.context.transcript import ToolUse
from waystation.kernel.amount import Amount
from waystation.kernel.identifiers import Identifier
from waystation.kernel.value import Value
from waystation.privacy.policy import PLACEHOLDER_PATTERN, RedactionResult
from waystation.security.untrusted import escape_control_characters_in_json

MAX_OPEN_QUESTIONS = 5
"""Maximum open questions of one agent; further calls of the reply are asked about after those. The Temporal UI takes
20,000 bytes of details.
"""
QUESTION_CHARACTERS = 1_000
QUESTION_LINES = 30


class ActionQuestion(Value):
    """One call that is not carried out before a person says so."""

    call_id: Identifier
    tool: str
    text: str
    """What the tool asks for; redacted, without invisible characters."""
    replaced: tuple[int, ...] = ()
    """Which placeholders of the text, counted from 0, stand for values that the call sends. It sends the others as they
    are: the agent was shown no more.
    """
    hidden_characters: int = 0
    """Number of characters that did not fit. The agent's transcript has the whole call."""
    digest: Identifier
    """See `compute_call_digest`."""


class ActionDecision(Value):
    """The decision on one call."""

    digest: str
    allowed: bool
    note: str = ""
    """Note to the agent from the person who denied the call. Not redacted."""
    expired: bool = False
    """Whether the deadline passed without a decision."""


def compute_call_digest(message_id: str, call: ToolUse, definition: str = "") -> str:
    """Return the digest that a decision is bound to: this call in this message of this agent, with these arguments.

    Args:
        message_id: Message that makes the call. Models may give two calls one ID, but message IDs are unique in an
            agent.
        call: The call.
        definition: Digest of the definition of an external tool. If the tool has changed since, approval is asked
            again.
    """
    bound = [message_id, call.id, call.name, call.input, *([definition] if definition else [])]
    return hashlib.sha256(json.dumps(bound, sort_keys=True).encode()).hexdigest()


_NO_SPELLING = "\n\u200c\u200d"
"""Joiners: `escape_control_characters_in_json` leaves those that shape letters or pictures."""


def _escape_unprintable(text: str) -> str:
    seen = escape_control_characters_in_json(text)
    return "".join(one if one.isprintable() or one in _NO_SPELLING else f"\\u{ord(one):04x}" for one in seen)


def build_action_question(
    message_id: str, call: ToolUse, redacted: RedactionResult, definition: str = ""
) -> ActionQuestion:
    """Build the question that people see: nothing in it can imitate other text or push the answer off the screen."""
    words = _escape_unprintable(redacted.text)
    text = "\n".join(words[:QUESTION_CHARACTERS].split("\n")[:QUESTION_LINES])
    return ActionQuestion(
        call_id=call.id,
        tool=call.name,
        text=text,
        replaced=_find_replaced_placeholders(redacted, text),
        hidden_characters=len(words) - len(text),
        digest=compute_call_digest(message_id, call, definition),
    )


def _find_replaced_placeholders(redacted: RedactionResult, text: str) -> tuple[int, ...]:
    """Return which placeholders of the question's text the redaction put there, counted from 0."""
    starts, longer = set[int](), 0
    for span in redacted.spans:
        starts.add(span.start + longer)
        longer += len(span.placeholder) - (span.end - span.start)
    found = [one.start() in starts for one in PLACEHOLDER_PATTERN.finditer(redacted.text)]
    # Escapes change no placeholder, so the text has the first of them.
    shown = len(PLACEHOLDER_PATTERN.findall(text))
    return tuple([number for number, replaced in enumerate(found[:shown]) if replaced])


class RestoredActionText(NamedTuple):
    """A question with the values that its call sends."""

    text: str
    replaced: tuple[int, ...]
    """Placeholders that still stand for such values, counted from 0: credentials and erased values."""


def restore_action_text(text: str, replaced: Sequence[int], originals: Mapping[str, str]) -> RestoredActionText:
    """Restore in a question the values that its call sends, so that a person can recognise them.

    Args:
        text: Text of the question.
        replaced: Which placeholders in it stand for such values, counted from 0.
        originals: Originals by placeholder.
    """
    parts, position, left, kept = list[str](), 0, list[int](), 0
    for number, found in enumerate(PLACEHOLDER_PATTERN.finditer(text)):
        if number in replaced and (original := originals.get(found[0])) is not None:
            # As in JSON, since most questions are: the original ends neither its string nor its line.
            spelled = json.dumps(original, ensure_ascii=False)[1:-1]
            parts += (text[position : found.start()], _escape_unprintable(spelled))
            position = found.end()
            continue
        if number in replaced:
            left.append(kept)
        kept += 1
    return RestoredActionText("".join((*parts, text[position:])), tuple(left))


AUTHORISED_IN_ADVANCE = "authorised in advance"
"""Approver named in a grant that was authorised in advance."""


class TopUpPolicy(Value):
    """Grants that were authorised when the task was submitted."""

    amount: Amount
    times: int = Field(ge=1, le=1_000)


class UnattendedPolicy(Value):
    """What happens to budget requests that no one answers. By default they wait without a time limit."""

    top_up: TopUpPolicy | None = None
    answer_by: datetime | None = None
    """Point in time after which open and later requests are no longer waited for."""
    answer_within: timedelta | None = None
    """Maximum waiting time of each request."""
    at_deadline: Literal["partial", "wait"] = "partial"
    """At the deadline, the agent delivers what it has, or the request stays open and is noted as overdue."""

    def compute_deadline(self, asked_at: datetime) -> datetime | None:
        """Return the deadline of a request made at this time; None: no deadline."""
        within = [asked_at + self.answer_within] if self.answer_within is not None else []
        return min([*within, *([self.answer_by] if self.answer_by is not None else [])], default=None)


class PlaceholderResolution(Value):
    """Record that a tool received the originals of placeholders in its arguments.

    The originals are recorded nowhere.
    """

    agent: Identifier
    """ID of the step or of a subagent."""
    tool: str
    call_id: Identifier
    placeholders: tuple[str, ...]
