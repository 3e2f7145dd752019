"""`waystation context compact`: what a full conversation would be compacted to."""

import asyncio
from collections.abc import Sequence

import typer

from waystation.adapters.conversation.offloading import Offloading
from waystation.adapters.conversation.on_disk import FilesOnDisk
from waystation.adapters.conversation.request_body import RequestBody, message_id
from waystation.agents.conversation import Ask, Conversation
from waystation.cli.context.files import read_body, read_text
from waystation.cli.context.options import (
    FileArgument,
    FilesOption,
    ForceOption,
    InstructionsOption,
    MaxOutputOption,
    OriginalsOption,
    PinOption,
    RereadableOption,
    StrategyOption,
    SummaryOption,
    ThresholdOption,
    WindowOption,
)
from waystation.cli.context.result import Result, print_result
from waystation.cli.context.summaries import ModelledSummary, given_summary
from waystation.cli.context.terms import Asked, condensing_model, file_readers, measure_of
from waystation.cli.options import JsonOption
from waystation.domain.compaction.apply import with_record
from waystation.domain.compaction.pins import pin
from waystation.domain.compaction.policy import Policy
from waystation.domain.compaction.tokens import Measure
from waystation.domain.transcript import Transcript
from waystation.settings import Settings

app = typer.Typer()


@app.command()
def compact(
    file: FileArgument,
    strategy: StrategyOption = None,
    window: WindowOption = None,
    max_output: MaxOutputOption = None,
    threshold: ThresholdOption = None,
    instructions: InstructionsOption = "",
    pins: PinOption = None,
    summary_file: SummaryOption = None,
    originals: OriginalsOption = None,
    files: FilesOption = None,
    rereadable: RereadableOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Print what the conversation is compacted to when it is full. FILE itself stays as it is.

    Exit code 0 whatever the status, 2 for a file that cannot be used.
    """
    body, settings = read_body(file), Settings()
    asked = Asked(window, max_output, threshold, strategy or settings.strategy, instructions)
    policy, measure = asked.policy(body, settings), measure_of(body)
    conversation = Conversation(
        transcript=_pinned(body, pins or [], policy, measure),
        measure=measure,
        policy=policy,
        rereadable=frozenset(rereadable or ()),
        readers=file_readers(body),
        notes=asked.notes,
    )
    if files is not None:
        conversation.has_changed = FilesOnDisk(files).has_changed
    if summary_file is None:
        ask: Ask = ModelledSummary(settings, condensing_model(body, settings), policy, conversation.notes)
    else:
        ask = given_summary(read_text(summary_file, "--summary-file"), policy)
    before = conversation.tokens
    asyncio.run(_make_room(conversation, ask, Offloading(originals), force=force))
    print_result(Result(body, conversation, before), as_json=as_json)


async def _make_room(conversation: Conversation, ask: Ask, offloading: Offloading, *, force: bool) -> None:
    if force and await conversation.summarise_now(ask):
        return
    await conversation.make_room(ask, lambda transcript: offloading.previewed(transcript, conversation.policy.window))


def _pinned(body: RequestBody, indices: Sequence[int], policy: Policy, measure: Measure) -> Transcript:
    """The conversation with these messages pinned. Raises BadInput for unknown ones, and where they pass their cap."""
    transcript = body.transcript
    for index in dict.fromkeys(indices):
        transcript = with_record(transcript, pin(transcript, message_id(index), policy, measure, f"pin-{index}"))
    return transcript
