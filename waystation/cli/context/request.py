"""`waystation context tokens`, `check` and `audit`: the estimated size of a request, what the Messages API would reject
in it, and what compactions of a task's agents kept and lost.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated

import typer
from pydantic import JsonValue

from waystation.cli.console import OK, WORK_FAILED, print_message, print_text
from waystation.cli.context.arguments import (
    CompactionOptions,
    FileArgument,
    MaxOutputOption,
    ThresholdOption,
    WindowOption,
    read_bytes,
    read_request_file,
)
from waystation.cli.context.compact import print_object
from waystation.cli.options import JsonOption, TaskArgument
from waystation.cli.render_context import SHORT_ID
from waystation.client import connect_client
from waystation.config.settings import Settings
from waystation.context.audit import AUDIT_KINDS, AuditItem, CompactionAudit
from waystation.context.policy import CompactionPolicy
from waystation.context.tokens import MESSAGE_TOKENS, estimate_message, estimate_text
from waystation.context.transcript import Message, OpaqueBlock, ToolResult
from waystation.kernel.errors import BadInput, MemoryUnavailable
from waystation.kernel.text import format_count
from waystation.plugins.request_files.faults import find_request_faults
from waystation.plugins.request_files.request_body import RequestBody
from waystation.tasks.view import AgentCompactionAudits, MemoryWithEmbedder

app = typer.Typer()


@app.command()
def tokens(
    file: FileArgument,
    window: WindowOption = None,
    max_output: MaxOutputOption = None,
    threshold: ThresholdOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate the tokens of a request: system prompt, tools, and each message by kind of content."""
    body, asked = read_request_file(file), CompactionOptions(window, max_output, threshold)
    policy = asked.build_policy(body, Settings())
    counts = [_by_kind(original.message) for original in body.originals]
    if as_json:
        print_object(_json(body, policy, counts, asked.notes))
        return
    for line in _lines(body, policy, counts):
        print_text(line)
    for note in asked.notes:
        print_text(note)


def _by_kind(message: Message) -> Counter[str]:
    """Count tokens by block type, with those of the message itself as `overhead`."""
    counts = Counter({"overhead": MESSAGE_TOKENS})
    for block in message.blocks:
        whole = estimate_message(message.replace(blocks=(block,))) - MESSAGE_TOKENS
        attached = block.attachments if isinstance(block, ToolResult) else ()
        for part in attached:
            counts[part.kind] += part.tokens
        counts[block.kind if isinstance(block, OpaqueBlock) else block.type] += whole - sum(
            part.tokens for part in attached
        )
    return counts


def _json(
    body: RequestBody, policy: CompactionPolicy, counts: list[Counter[str]], notes: list[str]
) -> dict[str, JsonValue]:
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


def _lines(body: RequestBody, policy: CompactionPolicy, counts: list[Counter[str]]) -> Iterator[str]:
    system, tools = estimate_text(body.system), estimate_text(body.tools_json)
    total = system + tools + sum(count.total() for count in counts)
    share = f"{total / policy.window:.0%} of the window of {policy.window:,}"
    yield f"{total:,} tokens, {share}; a compaction starts at {policy.trigger:,}"
    yield f"{system:>9,}  system prompt"
    yield f"{tools:>9,}  tools"
    for index, (original, count) in enumerate(zip(body.originals, counts, strict=True)):
        kinds = ", ".join(f"{kind} {tokens:,}" for kind, tokens in count.items() if kind != "overhead")
        yield f"{count.total():>9,}  {index} {original.body['role']}: {kinds or 'empty'}"


@app.command()
def check(file: FileArgument, as_json: JsonOption = False) -> None:
    """Check a conversation, and print everything that the Messages API would reject, with its location.

    Exits with 0 if the conversation is legal, with 1 if not, and with 2 if the file cannot be read.
    """
    try:
        found = find_request_faults(read_bytes(file))
    except BadInput as error:
        raise BadInput(f"{file}: {error}") from None
    if as_json:
        listed: list[JsonValue] = [{"path": fault.path, "index": fault.index, "fault": fault.rule} for fault in found]
        print_object({"legal": not found, "violations": listed})
    else:
        for fault in found:
            print_text(f"{fault.path}: {fault.rule}")
        if not found:
            print_text("legal")
    raise typer.Exit(WORK_FAILED if found else OK)


BY_MEMORY, BY_PASSAGES = "memory", "passages"
_PLACES = ("summary", "ledger", "elsewhere")


@app.command()
def audit(
    task: TaskArgument,
    agent: Annotated[
        str | None,
        typer.Option(
            metavar="AGENT",
            help="Id of the agent, like research-1 (for a step) or research-1.2 (for a subagent); default: all agents.",
        ),
    ] = None,
    sample: Annotated[
        int, typer.Option("--sample", metavar="N", min=0, help="Print up to N lost items of each kind.")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Compare each summary with the messages that it hides: what the model still sees, and what it can recall.

    The command counts the identifiers (by kind), decisions and constraints in the hidden messages. One of them is lost
    if the model no longer sees it.

    This needs no server and no workers. Texts are shown redacted, as the summariser saw them.
    """
    found, recall, note = asyncio.run(_audited(task, agent, Settings()))
    if as_json:
        print_object({"recall": recall, "agents": [_audits_json(one, sample) for one in found]})
    else:
        for one in found:
            for line in _audit_lines(one, sample):
                print_text(line)
        if not found:
            print_text("No compaction hides any messages.")
    if found and note:
        print_message(note)


async def _audited(
    task: str, agent: str | None, settings: Settings
) -> tuple[Sequence[AgentCompactionAudits], str, str]:
    """Return the audits, where recall was tried, and a remark on that."""
    async with await connect_client(settings) as client:
        task_id = await client.resolve_task_id(task)
        try:
            async with _memory(settings) as memory:
                return await client.audit_compactions(task_id, agent, memory), BY_MEMORY, ""
        except MemoryUnavailable as error:
            note = (
                f"Memory cannot be searched ({error}). Instead, `recallable` counts the items whose exact text is in a "
                "passage in the store."
            )
            return await client.audit_compactions(task_id, agent), BY_PASSAGES, note


@asynccontextmanager
async def _memory(settings: Settings) -> AsyncGenerator[MemoryWithEmbedder]:
    """Open memory as a worker does. Raises MemoryUnavailable, also if a worker has the embedded memory open."""
    if settings.qdrant_url is None and not settings.memory_folder.exists():
        raise MemoryUnavailable("this home folder has no memory yet")
    # These imports take a second.
    from waystation.runtime.redaction_setup import open_embedder  # noqa: PLC0415
    from waystation.workers.memory import open_memory  # noqa: PLC0415

    async with AsyncExitStack() as stack:
        embedder = await stack.enter_async_context(open_embedder(settings))
        try:
            memory = await stack.enter_async_context(open_memory(settings, embedder))
        except BadInput as error:
            raise MemoryUnavailable("a worker has it open" if settings.qdrant_url is None else str(error)) from error
        yield MemoryWithEmbedder(memory, embedder)


def _audit_by_kind(one: CompactionAudit) -> dict[str, list[AuditItem]]:
    """Group the items by kind."""
    kinds = {kind: [item for item in one.items if item.kind == kind] for kind in AUDIT_KINDS}
    return {kind: items for kind, items in kinds.items() if items}


def _counts(items: Sequence[AuditItem]) -> dict[str, int]:
    places = {place: sum(item.kept == place for item in items) for place in _PLACES}
    lost = sum(item.kept is None for item in items)
    return {"found": len(items), **places, "lost": lost, "recallable": sum(item.recallable for item in items)}


def _examples(items: Sequence[AuditItem], sample: int) -> list[AuditItem]:
    """Return the first items, those that cannot be recalled first."""
    return sorted((item for item in items if item.kept is None), key=lambda item: item.recallable)[:sample]


def _audits_json(one: AgentCompactionAudits, sample: int) -> dict[str, JsonValue]:
    return {"agent": one.agent, "compactions": [_audit_json(compaction, sample) for compaction in one.compactions]}


def _audit_json(one: CompactionAudit, sample: int) -> dict[str, JsonValue]:
    kinds: dict[str, JsonValue] = {}
    for kind, items in _audit_by_kind(one).items():
        examples: list[JsonValue] = [
            {"text": item.text, "recallable": item.recallable} for item in _examples(items, sample)
        ]
        kinds[kind] = {**_counts(items), "examples": examples}
    return {
        "id": one.id,
        "type": one.type,
        "strategy": one.strategy,
        "hidden": [*one.hidden],
        "earlier": [*one.earlier],
        "kinds": kinds,
    }


def _audit_lines(one: AgentCompactionAudits, sample: int) -> Iterator[str]:
    for compaction in one.compactions:
        does = (
            f"summary ({compaction.strategy}) hides"
            if compaction.type == "summarised"
            else "no summary: a marker replaces"
        )
        ends = " to ".join(dict.fromkeys((*compaction.hidden[:1], *compaction.hidden[-1:])))
        earlier = ", ".join(name[:SHORT_ID] for name in compaction.earlier)
        over = f", some of them already hidden by earlier compactions: {earlier}" if earlier else ""
        what = f"{format_count(len(compaction.hidden), 'message')}{f', {ends}' if ends else ''}{over}"
        yield f"{one.agent}  {compaction.id[:SHORT_ID]}  {does} {what}"
        yield from _table(_audit_by_kind(compaction), sample)
        yield ""


def _table(kinds: dict[str, list[AuditItem]], sample: int) -> Iterator[str]:
    if not kinds:
        yield "  no items that a summary could lose"
        return
    yield f"  {'':<12}{'found':>7}{'summary':>9}{'ledger':>8}{'elsewhere':>11}{'lost':>6}{'recallable':>12}"
    for kind, items in kinds.items():
        found, summary, ledger, elsewhere, lost, recallable = _counts(items).values()
        yield (f"  {kind:<12}{found:>7,}{summary:>9,}{ledger:>8,}{elsewhere:>11,}{lost:>6,}{recallable:>12,}")
    for kind, items in kinds.items():
        for item in _examples(items, sample):
            yield f"  lost {kind}: {item.text}  ({'recallable' if item.recallable else 'not recallable'})"
