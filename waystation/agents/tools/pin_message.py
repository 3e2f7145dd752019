"""The tool by which an agent pins a message of its conversation. Models see no ids, so it is named by words of it."""

import json
from collections.abc import Iterator, Mapping

from pydantic import Field

from waystation.agents.tools.tool import CallSite, ToolInput, ToolRefused, TypedTool
from waystation.domain.compaction.history import current
from waystation.domain.compaction.ledger import is_stand_in, shortened
from waystation.domain.compaction.pins import pin, unpin
from waystation.domain.compaction.view import view
from waystation.domain.compaction.wording import has_words, words_of
from waystation.domain.errors import BadInput
from waystation.domain.messages import Message, ToolUse
from waystation.domain.projection import LAST, urgent
from waystation.domain.transcript import Pinned, Record, Transcript

ID_PREFIX = "pin-"
NAME_CHARACTERS = 80


class PinMessageInput(ToolInput):
    """Which message."""

    quote: str = Field(
        pattern=r"\w",
        max_length=500,
        description="Words of one line of it, exactly as they stand. The newest message that has them is meant.",
    )
    take_back: bool = Field(default=False, description="Take back a pin of yours instead.")


class PinMessage(TypedTool[PinMessageInput]):
    """Keeps a message in view, or takes such a pin back."""

    name = "pin_message"
    description = (
        "Pins an earlier message: it stays word for word when the conversation is compressed, a call with its results. "
        "Pins take a fifth of your context at most: keep the rest as notes."
    )
    permission = "note"
    urgency = urgent(LAST)
    input_model = PinMessageInput

    async def run(self, arguments: PinMessageInput, at: CallSite) -> str:
        """What was pinned, in words. The record derives its id from the call, so that a repeated call makes one pin."""
        calls = {call.id: call for message in at.transcript.messages for call in message.tool_uses}
        message = _quoted(arguments.quote, at.transcript)
        done = f"{'no longer pinned' if arguments.take_back else 'pinned'}: {_in_words(message, calls)}"
        record_id = f"{ID_PREFIX}{at.call_id}"
        if not any(record.id == record_id for record in at.transcript.records):
            at.records.append(_record(message.id, at, record_id, take_back=arguments.take_back))
        return done


def _record(message_id: str, at: CallSite, record_id: str, *, take_back: bool) -> Record:
    own = {pinned.message_id for pinned in _pins(at.transcript) if pinned.id.startswith(ID_PREFIX)}
    if take_back and message_id not in own:
        raise ToolRefused(f"This is no pin of yours.\nPins are: {_all_pins(at.transcript)}")
    try:
        if take_back:
            return unpin(at.transcript, message_id, record_id)
        return pin(at.transcript, message_id, at.policy, at.measure, record_id)
    except BadInput as refused:
        raise ToolRefused(f"{refused}\nPins are: {_all_pins(at.transcript)}") from refused


def _quoted(quote: str, transcript: Transcript) -> Message:
    """The newest message in view with these words, the one that asks for the call aside. Raises ToolRefused."""
    for message in reversed(view(transcript)[:-1]):
        texts = (message.text, *(result.content for result in message.tool_results))
        if not is_stand_in(message) and any(has_words(words_of(text), quote) for text in texts):
            return message
    raise ToolRefused(
        "No earlier message that you are shown whole has these words in one line. Copy them exactly; what is no longer "
        "shown has to be read again before it can be pinned."
    )


def _pins(transcript: Transcript) -> Iterator[Pinned]:
    return (record for record in current(transcript).records if isinstance(record, Pinned))


def _all_pins(transcript: Transcript) -> str:
    said = {message.id: message for message in transcript.messages}
    calls = {call.id: call for message in transcript.messages for call in message.tool_uses}
    named = [f"{pinned.message_id}, {_in_words(said[pinned.message_id], calls)}" for pinned in _pins(transcript)]
    return "; ".join(named) or "none"


def _in_words(message: Message, calls: Mapping[str, ToolUse]) -> str:
    """What the message is, for a model: no ids, and no more than its beginning."""
    if asked := [calls[result.tool_use_id] for result in message.tool_results if result.tool_use_id in calls]:
        return " and ".join(f"the result of {call.name} {_start(json.dumps(call.input))}" for call in asked)
    return f"“{_start(message.text)}”"


def _start(text: str) -> str:
    return shortened(" ".join(text.split()), NAME_CHARACTERS)
