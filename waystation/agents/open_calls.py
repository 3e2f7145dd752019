"""Answers the calls that an agent's last reply asks for: the second commit of a turn."""

from collections.abc import Callable

from waystation.agents.attempt import Attempt
from waystation.agents.delegating import asked_by
from waystation.agents.permissions import permissions
from waystation.domain.leg import ActionsAsked, Delegated, LegOutcome
from waystation.domain.messages import Message, ToolResult, ToolUse, platform_text


async def answer_open_calls(attempt: Attempt, calling: Callable[[str], None]) -> LegOutcome | None:
    """Commit the results of the last reply's calls, or a word to go on. None: the leg goes on. `calling` is told the
    name of each tool before it is called.

    Before that people decide, then subagents do their part: all results of a reply are one message.
    """
    last = attempt.said[-1]
    if last.role == "user":
        return None
    if not last.tool_uses:
        word = f"Go on. When you are done, hand in with {' or '.join(sorted(attempt.toolbox.ending))}."
        await attempt.append(platform_text(attempt.transcript.next_id, word))
        return None
    permitted = await permissions(attempt, last)
    if permitted.questions:
        return ActionsAsked(standing=attempt.standing, questions=permitted.questions)
    barred = {call.id for call in last.tool_uses if attempt.toolbox.refusal(call) is not None}
    asked = await asked_by(
        attempt.request, attempt.transcript, attempt.left, attempt.desk.redactor_of(attempt.request.run), barred
    )
    if asked.orders:
        return Delegated(standing=attempt.standing, orders=asked.orders)
    refused = {**asked.refused, **permitted.refused}
    results = [refused.get(call.id) or await _answer(attempt, call, calling) for call in last.tool_uses]
    await attempt.recount()  # a tool may have asked a model, or paid for a search
    await attempt.append(Message(id=attempt.transcript.next_id, role="user", blocks=tuple(results)))
    return None


async def _answer(attempt: Attempt, call: ToolUse, calling: Callable[[str], None]) -> ToolResult:
    """The call's result, and before it is committed what the call does to the conversation."""
    site = attempt.site(call)
    if call.name in {spec.name for spec in attempt.toolbox.specs}:  # any other name is a word of the model's
        calling(call.name)
    result = await attempt.toolbox.run(call, site)
    for record in site.records:
        await attempt.record(record)
    return result
