"""In which phase an agent run is, and when its tools follow: a change of tools breaks the whole prompt cache.

All of it is read from the transcript, so that an attempt after a crash sees what the one before it saw:

- planning: the agent that makes or revises the plan.
- executing: an agent of a step, until something of the following holds.
- reflecting: its context was compacted. It works from a summary, and needs the ways back to what that stands for.
- verifying: it has tried to hand in, and its result came back; or it reviews a report. It mends, and begins nothing.

Permissions do not wait for the cache: what is denied is hidden from the next leg on.
"""

from collections.abc import Collection, Mapping

from waystation.domain.compaction.history import current, place_of
from waystation.domain.compaction.tokens import request_tokens
from waystation.domain.compaction.view import view
from waystation.domain.plan import AgentRole
from waystation.domain.projection import Phase
from waystation.domain.transcript import Transcript
from waystation.domain.value import Value

READ_PERCENT, WRITE_PERCENT = 10, 125
"""Of the price of input, as Anthropic's models have it: reading the prompt cache, and writing it for five minutes."""
TURN_MESSAGES = 2
"""A reply, and the results of its calls."""


class Weights(Value):
    """What a change of tools is weighed by."""

    fixed: Mapping[Phase, int]
    """Estimated tokens of system prompt and shown tools in each phase of a step's agent."""
    turns: int
    """Over how many turns a smaller prompt is to pay for the change: those of a leg."""


def change_pays(prefix: int, saved: int, turns: int) -> bool:
    """Whether definitions that are smaller by `saved` tokens save more in so many turns than it costs to write a prefix
    of `prefix` tokens into the cache once, instead of reading it.
    """
    return READ_PERCENT * saved * turns > (WRITE_PERCENT - READ_PERCENT) * prefix


def tool_phase(role: AgentRole, transcript: Transcript, ending: Collection[str], weights: Weights) -> Phase:
    """The phase that the shown tools follow. `ending`: names of the tools that hand in.

    A compaction breaks most of the cache in any case, so at each one the tools follow the phase. Between two they do
    only where the change pays for itself.
    """
    match role:
        case "planning":
            return "planning"
        case "reviewing":
            return "verifying"
        case "research" | "analysis" | "writing":
            return _phase_of_step(transcript, ending, weights)


def _phase_of_step(transcript: Transcript, ending: Collection[str], weights: Weights) -> Phase:
    compacted = [place_of(record, transcript) for record in current(transcript).compactions]
    before: Phase = "reflecting" if compacted else "executing"
    tried = _first_try(transcript, ending)
    if tried is None:
        return before
    if any(place > tried for place in compacted):
        return "verifying"
    prefix = request_tokens(weights.fixed["verifying"], view(_as_it_was(transcript, tried)))
    saved = weights.fixed[before] - weights.fixed["verifying"]
    return "verifying" if change_pays(prefix, saved, weights.turns) else before


def _first_try(transcript: Transcript, ending: Collection[str]) -> int | None:
    """How many messages there were when the first result that was handed in had come back."""
    counting = {message.id for message in current(transcript).messages}
    for place, message in enumerate(transcript.messages):
        if message.id in counting and any(call.name in ending for call in message.tool_uses):
            return place + TURN_MESSAGES
    return None


def _as_it_was(transcript: Transcript, messages: int) -> Transcript:
    """With so many messages, and what had been done to it by then."""
    done = tuple(record for record in transcript.records if place_of(record, transcript) <= messages)
    return transcript.model_copy(update={"messages": transcript.messages[:messages], "records": done})
