"""`waystation context tokens`: what a request is estimated to have, part by part."""

from collections import Counter
from collections.abc import Iterator

import typer
from pydantic import JsonValue

from waystation.adapters.conversation.request_body import RequestBody
from waystation.cli.console import print_text
from waystation.cli.context.files import read_body
from waystation.cli.context.options import FileArgument, MaxOutputOption, ThresholdOption, WindowOption
from waystation.cli.context.result import print_object
from waystation.cli.context.terms import Asked
from waystation.cli.options import JsonOption
from waystation.domain.compaction.policy import Policy
from waystation.domain.compaction.tokens import MESSAGE_TOKENS, estimate_message, estimate_text
from waystation.domain.messages import Message, Opaque, ToolResult
from waystation.settings import Settings

app = typer.Typer()


@app.command()
def tokens(
    file: FileArgument,
    window: WindowOption = None,
    max_output: MaxOutputOption = None,
    threshold: ThresholdOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the estimated tokens of the whole request: system prompt, tools, and each message by kind of content."""
    body, asked = read_body(file), Asked(window, max_output, threshold)
    policy = asked.policy(body, Settings())
    counts = [_by_kind(original.message) for original in body.originals]
    if as_json:
        print_object(_json(body, policy, counts, asked.notes))
        return
    for line in _lines(body, policy, counts):
        print_text(line)
    for note in asked.notes:
        print_text(note)


def _by_kind(message: Message) -> Counter[str]:
    """Tokens by the type of the blocks, and those of the message itself as `overhead`."""
    counts = Counter({"overhead": MESSAGE_TOKENS})
    for block in message.blocks:
        whole = estimate_message(message.model_copy(update={"blocks": (block,)})) - MESSAGE_TOKENS
        attached = block.attached if isinstance(block, ToolResult) else ()
        for part in attached:
            counts[part.kind] += part.tokens
        counts[block.kind if isinstance(block, Opaque) else block.type] += whole - sum(part.tokens for part in attached)
    return counts


def _json(body: RequestBody, policy: Policy, counts: list[Counter[str]], notes: list[str]) -> dict[str, JsonValue]:
    messages: list[JsonValue] = [
        {"index": index, "role": original.body["role"], "tokens": count.total(), "kinds": {**count}}
        for index, (original, count) in enumerate(zip(body.originals, counts, strict=True))
    ]
    system, tools = estimate_text(body.system), estimate_text(body.tools_json)
    return {
        "total": system + tools + sum(count.total() for count in counts),
        "system": system,
        "tools": tools,
        "kinds": {**sum(counts, Counter[str]())},
        "messages": messages,
        "threshold": policy.trigger,
        "window": policy.window,
        "notes": [*notes],
    }


def _lines(body: RequestBody, policy: Policy, counts: list[Counter[str]]) -> Iterator[str]:
    system, tools = estimate_text(body.system), estimate_text(body.tools_json)
    total = system + tools + sum(count.total() for count in counts)
    share = f"{total / policy.window:.0%} of the window of {policy.window:,}"
    yield f"{total:,} tokens, {share}; full at {policy.trigger:,}"
    yield f"{system:>9,}  system prompt"
    yield f"{tools:>9,}  tools"
    for index, (original, count) in enumerate(zip(body.originals, counts, strict=True)):
        kinds = ", ".join(f"{kind} {tokens:,}" for kind, tokens in count.items() if kind != "overhead")
        yield f"{count.total():>9,}  {index} {original.body['role']}: {kinds or 'nothing'}"
