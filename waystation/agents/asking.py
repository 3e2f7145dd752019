"""What an agent's model is sent at a turn."""

from waystation.agents.attempt import Attempt
from waystation.agents.metered import Affordable, MeteredModel, TooDear
from waystation.domain.messages import Message
from waystation.domain.reminder import Reminder, recent_failures
from waystation.ports import ModelRequest


async def affordable(attempt: Attempt, shown: tuple[Message, ...], model: MeteredModel) -> Affordable | TooDear:
    """The next call, with the view of the conversation. Raises as `MeteredModel.fitted` does.

    What the reminder says gives way before the call does. What is missing then does not depend on what is left, nor on
    how far others are: who is granted just that goes on.
    """
    terms, reminder = attempt.request.terms, _reminder(attempt)
    left, floor, prices = attempt.left, terms.output_floor, terms.prices
    call = await model.fitted(_request(attempt, shown, reminder.text(terms.window)), left, floor, prices)
    if not isinstance(call, TooDear):
        return call
    call = await model.fitted(_request(attempt, shown, reminder.widest.least), left, floor, prices)
    return call if isinstance(call, TooDear) else call.reminded(reminder.least)


def _request(attempt: Attempt, shown: tuple[Message, ...], reminder: str) -> ModelRequest:
    terms = attempt.request.terms
    return ModelRequest(
        model=terms.model,
        system=attempt.system,
        messages=shown,
        tools=attempt.toolbox.specs,
        max_output=terms.max_output,
        effort=terms.effort,
        thinking=terms.thinking,
        reminder=reminder,
    )


def _reminder(attempt: Attempt) -> Reminder:
    request = attempt.request
    return Reminder(
        step_id=request.run.step_id,
        turn=attempt.transcript.turns + 1,
        left=attempt.left,
        final=request.terms.hard,
        team=request.team,
        failures=recent_failures(attempt.said),
    )
