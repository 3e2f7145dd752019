"""Every part of an agent's request, in the layer that it belongs to."""

from collections.abc import Iterator, Mapping, Sequence

from waystation.domain.compaction.history import current, stand_in
from waystation.domain.compaction.tokens import MESSAGE_TOKENS, Measure, estimate_message, estimate_text
from waystation.domain.compaction.view import view
from waystation.domain.layers import Layer, Part
from waystation.domain.messages import Block, Message
from waystation.domain.transcript import Masked, Transcript
from waystation.patterns import Enclosed

CONTRACT_OPEN = "<task>"
_PROCEDURES = Enclosed(r"<procedures? ", r"</procedures?>")
_RETRIEVED = (Enclosed(r"<documents\b", r"</documents>"), Enclosed(r"<recalled\b", r"</recalled>"))


def demands_of(
    transcript: Transcript, measure: Measure, result_layers: Mapping[str, Layer]
) -> Mapping[Layer, Sequence[Part]]:
    """What the next request has of system prompt, tools and conversation, as its provider would count it. All firm.

    `result_layers`: by name of the tool, the layer of its results; those of other tools are observations.
    """
    shown = view(transcript)
    hidden = {stand_in(record).id for record in current(transcript).compactions if not isinstance(record, Masked)}
    calls = {call.id: call.name for message in shown for call in message.tool_uses}
    demands: dict[Layer, list[Part]] = {Layer.SYSTEM: [_part("system and tools", measure.fixed, measure)]}
    for message in shown:
        for number, (layer, tokens) in enumerate(_layered(message, hidden, calls, result_layers)):
            demands.setdefault(layer, []).append(_part(f"{message.id}.{number}", tokens, measure))
    return demands


def _part(name: str, estimated: int, measure: Measure) -> Part:
    return Part(name=name, tokens=measure.part(estimated), firm=True)


def _layered(
    message: Message, hidden: set[str], calls: Mapping[str, str], result_layers: Mapping[str, Layer]
) -> Iterator[tuple[Layer, int]]:
    """The message's parts with their plain estimates, which together are that of the message."""
    if message.id in hidden:
        yield Layer.EPISODIC, estimate_message(message)
        return
    if message.role == "user" and message.text.startswith(CONTRACT_OPEN):
        yield from _of_contract(message)
        return
    yield Layer.SHORT_TERM, MESSAGE_TOKENS
    for block in message.blocks:
        alone = message.model_copy(update={"blocks": (block,)})
        yield _layer_of(block, calls, result_layers), estimate_message(alone) - MESSAGE_TOKENS


def _of_contract(message: Message) -> Iterator[tuple[Layer, int]]:
    text = message.text
    procedures, rest = _PROCEDURES.taken_out(text)
    retrieved: list[str] = []
    for kind in _RETRIEVED:
        found, rest = kind.taken_out(rest)
        retrieved += found
    apart = {Layer.PROCEDURAL: estimate_text("".join(procedures)), Layer.RETRIEVED: estimate_text("".join(retrieved))}
    yield Layer.CONTRACT, max(0, estimate_message(message) - sum(apart.values()))
    yield from ((layer, tokens) for layer, tokens in apart.items() if tokens)


def _layer_of(block: Block, calls: Mapping[str, str], result_layers: Mapping[str, Layer]) -> Layer:
    if block.type != "tool_result":
        return Layer.SHORT_TERM
    return result_layers.get(calls.get(block.tool_use_id, ""), Layer.OBSERVATIONS)
