"""How an agent goes on after a reply, by the reason for which the reply stopped. No reason ends a step the first time.

- `end_turn`, `stop_sequence`, `tool_use`, `pause_turn`, unknown: its calls are run. Without one, the agent is asked to
  go on.
- `max_tokens`: the same, without a call that was cut; a text in its place says how to repeat it.
- `model_context_window_exceeded`: the same, after a compaction.
- `refusal`: the reply is left out of the conversation, and the turn is repeated once, by a fallback if there is one.

A `pause_turn` is answered by a message like any other reply: newer models reject a conversation that ends with their
own words, and agents have none of the provider's tools, whose pending calls would allow it. What leads nowhere ends by
the limit of replies without a call.
"""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Literal

from waystation.context.transcript import Block, Message, RedactedThinking, Text, Thinking, ToolUse
from waystation.models.ports import ModelResponse, StopReason

NextStep = Literal["continue", "shorten", "compact", "repeat"]
NEXT_STEPS: Mapping[StopReason, NextStep] = {
    StopReason.END_TURN: "continue",
    StopReason.TOOL_USE: "continue",
    StopReason.STOP_SEQUENCE: "continue",
    StopReason.PAUSE_TURN: "continue",
    StopReason.UNKNOWN: "continue",
    StopReason.MAX_TOKENS: "shorten",
    StopReason.CONTEXT_EXCEEDED: "compact",
    StopReason.REFUSAL: "repeat",
}
MAX_REFUSALS = 2
"""Number of refused replies in a row after which the agent delivers what it has."""
NO_CATEGORY = "unspecified"
"""Category of a refusal for which the provider gives none."""
EMPTY_REPLY = "(an empty reply)"
CALL_WAS_CUT = "(A tool call was cut here: the reply was too long."
"""Beginning of the text in place of a call that was cut; `_HOW_TO_REPEAT` says how to go on."""
_ALL_AGAIN = (
    "Submit everything again in one call, but shorter: the most important first, with fewer and shorter quotations and "
    "details."
)
_HOW_TO_REPEAT: Mapping[str, str] = {
    "submit_findings": _ALL_AGAIN,
    "submit_analysis": _ALL_AGAIN,
    "write_section": "Write shorter sections, one per reply.",
}
"""By tool. A submission ends the run, so a part of it would lose the rest."""
_REPEAT = "Make the call again, shorter, and alone in a reply."
THINKING_WAS_CUT = "(This reply reached its maximum length while thinking. Make the next call now, with what you have.)"
DECLINED = "(The model declined to answer.)"


def get_next_step(reply: ModelResponse) -> NextStep:
    """Return how an agent goes on after the reply."""
    return NEXT_STEPS[reply.stop]


def build_kept_blocks(reply: ModelResponse) -> tuple[Block, ...]:
    """Return what of a reply stays in the transcript: no call that was cut or refused, and never nothing."""
    blocks = reply.blocks
    match get_next_step(reply):
        case "repeat":
            return tuple(block for block in blocks if isinstance(block, Text)) or (Text(text=DECLINED),)
        case "shorten" | "compact" if blocks and isinstance(blocks[-1], ToolUse):
            how = _HOW_TO_REPEAT.get(blocks[-1].name, _REPEAT)
            return *blocks[:-1], Text(text=f"{CALL_WAS_CUT} {how})")
        case "shorten" if blocks and all(isinstance(block, Thinking | RedactedThinking) for block in blocks):
            # The signature of thinking comes at its end, and the provider takes none back without it.
            return (Text(text=THINKING_WAS_CUT),)
        case _:
            return blocks or (Text(text=EMPTY_REPLY),)


def was_cut(message: Message) -> bool:
    """Return whether the kept reply ends where a call or its thinking was cut."""
    last = message.blocks[-1] if message.blocks else None
    return isinstance(last, Text) and last.text.startswith((CALL_WAS_CUT, THINKING_WAS_CUT))


def get_refusal_category(reply: ModelResponse) -> str:
    """Return under which category a reply was refused; empty if it was not."""
    return (reply.stop_detail or NO_CATEGORY) if get_next_step(reply) == "repeat" else ""


def list_newest_refusals(messages: Sequence[Message]) -> tuple[str, ...]:
    """Return the categories of the replies that were refused since the last one that was not, newest first."""
    replies = (message.refusal for message in reversed(messages) if message.role == "assistant")
    return tuple(takewhile(bool, replies))


def describe_refusals(categories: Sequence[str], role: str) -> str:
    """Return why an agent ends after refusals, and what a person can do."""
    named = ", ".join(sorted({*categories} - {NO_CATEGORY}))
    return (
        f"the model declined to answer {len(categories)} times in a row{f' (category: {named})' if named else ''}: "
        f"rephrase the question, leave out the document that causes this, choose another model "
        f"(WAYSTATION_ROLES__{role.upper()}__MODEL), or set a fallback for the model's endpoint"
    )
