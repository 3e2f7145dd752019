"""What a model wrote, as it is kept: private values in its words and in its calls' arguments replaced, like everywhere.

Models are told of no originals, and still write some: guessed, recited, or decoded from what redaction cannot read.
"""

from collections.abc import Iterator, Sequence

from waystation.domain.json_texts import mapped, strings
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
    arguments = [text for block in blocks if isinstance(block, ToolUse) for _, text in strings(block.input)]
    said = await redactor.redact(words, Place.MODEL_OUTPUT, tenant)
    given = await redactor.redact(arguments, Place.TOOL_ARGUMENT, tenant)
    said_texts, given_texts = iter([one.text for one in said]), iter([one.text for one in given])
    return tuple([_kept(block, said_texts, given_texts) for block in blocks]), (*said, *given)


def _kept(block: Block, said: Iterator[str], given: Iterator[str]) -> Block:
    if isinstance(block, Text):
        return block.model_copy(update={"text": next(said)})
    if isinstance(block, ToolUse):
        # `mapped` meets the texts in the order in which `strings` gave them.
        return block.model_copy(update={"input": mapped(block.input, lambda _: next(given))})
    return block
