"""What a model wrote, as it is kept: private values in its words and in its calls' arguments replaced, like everywhere.

Models are told of no originals, and still write some: guessed, recited, or decoded from what redaction cannot read.
"""

from collections.abc import Iterator, Sequence

from pydantic import JsonValue

from waystation.domain.messages import Block, Text, ToolUse
from waystation.domain.privacy import Place
from waystation.domain.redaction import Redacted
from waystation.ports import Redactor


async def redacted_reply(
    blocks: Sequence[Block], redactor: Redactor, tenant: str
) -> tuple[tuple[Block, ...], tuple[Redacted, ...]]:
    """The blocks as they may be kept, and what was redacted for it.

    Signed reasoning stays as it is: the provider takes it back unchanged or not at all. Raises RedactionFailed.
    """
    words = [block.text for block in blocks if isinstance(block, Text)]
    arguments = [text for block in blocks if isinstance(block, ToolUse) for text in _strings(block.input)]
    said = await redactor.redact(words, Place.MODEL_OUTPUT, tenant)
    given = await redactor.redact(arguments, Place.TOOL_ARGUMENT, tenant)
    said_texts, given_texts = iter([one.text for one in said]), iter([one.text for one in given])
    return tuple([_kept(block, said_texts, given_texts) for block in blocks]), (*said, *given)


def _kept(block: Block, said: Iterator[str], given: Iterator[str]) -> Block:
    if isinstance(block, Text):
        return block.model_copy(update={"text": next(said)})
    if isinstance(block, ToolUse):
        return block.model_copy(update={"input": {name: _with(value, given) for name, value in block.input.items()}})
    return block


def _strings(value: JsonValue) -> Iterator[str]:
    """Every string in it, but for the names of fields."""
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from _strings(item)
        case dict():
            for item in value.values():
                yield from _strings(item)
        case _:
            return


def _with(value: JsonValue, strings: Iterator[str]) -> JsonValue:
    """The value with its strings replaced, in the order of `_strings`."""
    match value:
        case str():
            return next(strings)
        case list():
            return [_with(item, strings) for item in value]
        case dict():
            return {name: _with(item, strings) for name, item in value.items()}
        case _:
            return value
