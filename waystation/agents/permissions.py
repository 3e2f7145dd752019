"""Which calls of an agent's reply wait for a person, and which are not carried out: before any call of it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from waystation.agents.attempt import Attempt
from waystation.domain.actions import QUESTIONS_AT_ONCE, ActionDecision, ActionQuestion, digest_of, question_on
from waystation.domain.messages import Message, ToolResult, ToolUse, refused_call
from waystation.domain.privacy import Place

GO_ON = "Go on without it, and say in your result what is missing for that."
UNSHOWN = f"What a person would be asked before this call could not be redacted, so it was not carried out. {GO_ON}"
NOBODY = f"A person has to be asked before this call, and this task asks nobody, so it was not carried out. {GO_ON}"
EXPIRED = f"A person was asked about this call, and nobody answered in time, so it was not carried out. {GO_ON}"
DENIED = "A person refused this call, so it was not carried out."


@dataclass(frozen=True)
class Permissions:
    """What a reply waits for, and what is said of calls that are refused."""

    questions: tuple[ActionQuestion, ...] = ()
    refused: Mapping[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    """By id of the call."""


async def permissions(attempt: Attempt, reply: Message) -> Permissions:
    """Of a reply that has no results yet, from what was decided on its calls so far. Raises RedactionFailed."""
    decisions = {decision.digest: decision for decision in attempt.request.decisions}
    refused: dict[str, ToolResult] = {}
    asking: list[tuple[ToolUse, str]] = []
    for call in reply.tool_uses:
        decision = decisions.get(digest_of(reply.id, call, attempt.toolbox.definition(call)))
        if decision is None and (question := attempt.toolbox.question(call)) is not None:
            asking.append((call, question))
        elif decision is not None and not decision.allowed:
            refused[call.id] = refused_call(call, await _words(attempt, decision))
    if attempt.request.terms.hard:
        refused |= {call.id: refused_call(call, NOBODY) for call, _ in asking}
        attempt.notices.extend(f"{call.name} asks a person first, nobody is asked: not called" for call, _ in asking)
        return Permissions(refused=refused)
    questions = await _questions(attempt, reply.id, asking[:QUESTIONS_AT_ONCE])
    refused |= {call.id: refused_call(call, UNSHOWN) for call, question in questions if question is None}
    return Permissions(tuple(question for _, question in questions if question is not None), refused)


async def _questions(
    attempt: Attempt, message_id: str, asking: Sequence[tuple[ToolUse, str]]
) -> list[tuple[ToolUse, ActionQuestion | None]]:
    """None where the words could not be redacted: nobody agrees to what they cannot read."""
    words = [question for _, question in asking]
    redacted = await attempt.desk.redactor.redact(words, Place.QUESTION, attempt.request.run.tenant)
    return [
        (
            call,
            None if shown.unredacted else question_on(message_id, call, shown.text, attempt.toolbox.definition(call)),
        )
        for (call, _), shown in zip(asking, redacted, strict=True)
    ]


async def _words(attempt: Attempt, decision: ActionDecision) -> str:
    if decision.expired:
        return EXPIRED
    if not decision.note:
        return f"{DENIED} {GO_ON}"
    (note,) = await attempt.desk.redactor.redact([decision.note], Place.TOOL_RESULT, attempt.request.run.tenant)
    return f"{DENIED} They say: {note.text}\n{GO_ON}"
