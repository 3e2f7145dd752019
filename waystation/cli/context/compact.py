"""`waystation context compact` and `mask`: shorten a conversation in a file, with a given summary or one by the
configured model; the result is JSON with stable keys, or a short text.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import typer
from pydantic import JsonValue

from waystation.agents.call_ledger import MeteredModel
from waystation.agents.compaction_request import CompactionRequest
from waystation.agents.leg import AgentConfig
from waystation.agents.summariser import Summariser, SummaryInput, SummaryModel
from waystation.cli.console import print_text
from waystation.cli.context.arguments import (
    CompactionOptions,
    FileArgument,
    FilesOption,
    ForceOption,
    InstructionsOption,
    MaxOutputOption,
    OriginalsOption,
    PinOption,
    ReadingOption,
    RereadableOption,
    StrategyOption,
    SummaryOption,
    ThresholdOption,
    WindowOption,
    build_token_estimator,
    find_file_reading_tools,
    find_repeatable_tools,
    read_request_file,
    read_text,
    select_summary_model,
)
from waystation.cli.options import JsonOption
from waystation.cli.render import format_count
from waystation.config.settings import Settings
from waystation.context import summary
from waystation.context.history import (
    build_model_view,
    get_masked_call_ids,
    get_pinned_message_ids,
    get_replacement,
    with_record,
)
from waystation.context.message_rules import find_violations
from waystation.context.pipeline import SummariseDecision
from waystation.context.policy import CompactionPolicy
from waystation.context.summary_validator import check_summary
from waystation.context.tokens import TokenEstimator
from waystation.context.transcript import (
    SYSTEM_MESSAGE_TYPE,
    Compaction,
    MaskRecord,
    Message,
    OpaqueBlock,
    SummaryRecord,
    ToolResult,
    Transcript,
)
from waystation.context.units import build_pin_record
from waystation.kernel.amount import Limit
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import ModelError
from waystation.kernel.refs import RunRef
from waystation.plugins.request_files.conversation import (
    Conversation,
    MissingSummary,
    StageAttempt,
    SummaryVerdict,
    SummaryWriter,
)
from waystation.plugins.request_files.offload import FileChangeDetector, ResultOffloader
from waystation.plugins.request_files.request_body import (
    RequestBody,
    build_message_id,
    parse_message_index,
    serialize_messages,
)
from waystation.privacy.policy import RedactionResult, TextDestination
from waystation.privacy.ports import Redactor
from waystation.security.untrusted import escape_control_characters_in_json


class NoOpRedactor:
    """A redactor for texts that are sent nowhere: it replaces nothing."""

    async def redact(
        self,
        texts: Sequence[str],
        destination: TextDestination,  # noqa: ARG002
        tenant: str,  # noqa: ARG002
    ) -> tuple[RedactionResult, ...]:
        """See `Redactor`."""
        return tuple(RedactionResult(text=text) for text in texts)


def make_fixed_summariser(text: str, policy: CompactionPolicy) -> SummaryWriter:
    """Return a summariser that returns this text. Nothing leaves this machine, so nothing is redacted."""

    async def ask(transcript: Transcript, rung: SummariseDecision) -> SummaryVerdict:
        middle, _ = await SummaryInput.build_redacted(rung.middle, transcript, NoOpRedactor(), "")
        return check_summary(text, middle.to_check_input(rung, policy))

    return ask


@dataclass(frozen=True)
class ModelSummariser:
    """Summarises with the configured model, as for agents: redacted, and in parts if there is much to read.

    Its calls are recorded in a temporary store.
    """

    settings: Settings
    model: str
    policy: CompactionPolicy
    notes: list[str]
    """Receives remarks on the call for the person."""

    async def __call__(self, transcript: Transcript, rung: SummariseDecision) -> SummaryVerdict:
        """Summarise once. Raises RedactionFailed: nothing was sent."""
        # These imports take seconds, and most of these commands need no model.
        from waystation.runtime.redaction_setup import create_redactor  # noqa: PLC0415
        from waystation.runtime.store_setup import load_oldest_key  # noqa: PLC0415

        redactor = create_redactor(self.settings, load_oldest_key(self.settings))
        try:
            middle, spans = await SummaryInput.build_redacted(rung.middle, transcript, redactor, self.settings.tenant)
            self.notes.extend(middle.notes)
            values = format_count(spans, "private value")
            self.notes.append(f"Asked {self.model} for the summary, with {values} redacted.")
            with TemporaryDirectory(prefix="waystation-") as folder:
                return await self._summary(Path(folder), redactor, rung, middle)
        except ModelError as error:
            return MissingSummary(reason=str(error))
        finally:
            redactor.close()

    async def _summary(
        self, folder: Path, redactor: Redactor, rung: SummariseDecision, middle: SummaryInput
    ) -> SummaryVerdict:
        from temporalio.common import MetricMeter  # noqa: PLC0415

        from waystation.runtime.sql_store import SqlStore  # noqa: PLC0415
        from waystation.runtime.temporal.metrics import TemporalMeter  # noqa: PLC0415
        from waystation.workers.models import create_model_router  # noqa: PLC0415

        async with AsyncExitStack() as stack:
            url = f"sqlite+aiosqlite:///{folder / 'calls.db'}"
            store = await stack.enter_async_context(aclosing(await SqlStore.open(url, utc_now)))
            model = create_model_router(self.settings)
            stack.push_async_callback(model.aclose)
            request = self._request(await store.get_store_id(), rung)
            await store.open_run(request.run)
            fence = await store.acquire_fence(request.run.run_id)
            metered = MeteredModel(model, store, utc_now, TemporalMeter(MetricMeter.noop))
            wishes = await redactor.redact([self.policy.instructions], TextDestination.WISH, self.settings.tenant)
            policy = self.policy.replace(instructions=wishes[0].text)
            asked = SummaryModel(metered, redactor, request, fence, policy)
            result = await Summariser(
                asked, await store.load_transcript(request.run.run_id, request.run.scope)
            ).summarise(rung, middle)
        return result.verdict or MissingSummary(reason=" ".join(result.notes))

    def _request(self, store_id: str, rung: SummariseDecision) -> CompactionRequest:
        return CompactionRequest(
            run=RunRef(
                store_id=store_id,
                tenant=self.settings.tenant,
                session="",
                task_id="file",
                step_id=rung.compaction_id,
                role="research",
            ),
            config=AgentConfig(
                model=self.model,
                condense_model=self.model,
                window=self.policy.window,
                trigger=self.policy.trigger,
                target=self.policy.target,
            ),
            limit=Limit(),
            request_tokens=rung.tokens_before,
            known_records=0,
        )


MAX_SHOWN_FAULTS = 20


@dataclass(frozen=True)
class CompactionResult:
    """A compacted conversation, with the file that it comes from."""

    body: RequestBody
    conversation: Conversation
    tokens_before: int

    def to_json(self) -> dict[str, JsonValue]:
        """Return everything, under stable keys; indices are those of the file's messages.

        All other fields of the request are included unchanged, so that the result is a request again.
        """
        done = self.conversation
        found: dict[str, JsonValue] = {
            "status": done.status,
            "strategy": done.policy.strategy,
            "tokens_before": self.tokens_before,
            "tokens_after": done.tokens,
            "threshold": done.policy.trigger,
            "window": done.policy.window,
            "compaction_id": self._records[-1].id if self._records else "",
            "messages": [*serialize_messages(self.body, self._shown)],
            "hidden": [*self.hidden_indices],
            "kept": [*self._kept],
            "masked": [*self._masked],
            "pinned": [*_places(get_pinned_message_ids(done.transcript))],
            "ledger": [*self._ledger],
            "notes": [*self._notes],
            "attempts": [attempt.model_dump(mode="json") for attempt in done.attempts],
        }
        return found | {key: value for key, value in self.body.body.items() if key not in found}

    def to_text(self) -> str:
        """Return the result for people, without the messages."""
        done = self.conversation
        lines = [
            f"{done.status}  {self.tokens_before:,} → {done.tokens:,} tokens, system prompt and tools included "
            f"(full at {done.policy.trigger:,}, window {done.policy.window:,})"
        ]
        lines += [_attempt_text(attempt) for attempt in done.attempts]
        shown = {
            "hidden": self.hidden_indices,
            "masked": self._masked,
            "pinned": _places(get_pinned_message_ids(done.transcript)),
        }
        lines += [
            f"{name}: {format_count(len(found), 'message')} ({_ranges(found)})"
            for name, found in shown.items()
            if found
        ]
        lines += [f"ledger: {line}" for line in self._ledger]
        return "\n".join([*lines, *self._notes])

    @cached_property
    def hidden_indices(self) -> list[int]:
        """Indices of the messages that a summary or a marker replaces."""
        covered = {name for record in self._records if not isinstance(record, MaskRecord) for name in record.covered}
        return [index for index in _places(covered | self._merged_into(covered)) if index not in set(self._kept)]

    @property
    def _hidden_unread(self) -> Counter[str]:
        """Number of hidden blocks by type, for types with content besides text, which no summariser read."""
        hidden = {build_message_id(index) for index in self.hidden_indices}
        blocks = [block for one in self.body.transcript.messages if one.id in hidden for block in one.blocks]
        attached = [part for block in blocks if isinstance(block, ToolResult) for part in block.attachments]
        opaque = [*(block for block in blocks if isinstance(block, OpaqueBlock)), *attached]
        return Counter(block.kind for block in opaque if block.kind != SYSTEM_MESSAGE_TYPE and not block.is_readable)

    def _merged_into(self, covered: Set[str]) -> set[str]:
        """Return ids of the file's messages whose results were merged with others in these."""
        before = build_model_view(self.body.transcript)
        answers = {result.tool_use_id for message in before if message.id in covered for result in message.tool_results}
        return {
            message.id
            for message in self.body.transcript.messages
            if any(result.tool_use_id in answers for result in message.tool_results)
        }

    @cached_property
    def _shown(self) -> tuple[Message, ...]:
        return build_model_view(self.conversation.transcript)

    @cached_property
    def _kept(self) -> list[int]:
        return _places(message.id for message in self._shown)

    @property
    def _notes(self) -> list[str]:
        mended = find_violations(self.body.transcript.messages, pending_allowed=True)
        notes = [f"Repaired: {fault}." for fault in mended[:MAX_SHOWN_FAULTS]]
        if len(mended) > MAX_SHOWN_FAULTS:
            notes.append(
                f"Repaired: {format_count(len(mended) - MAX_SHOWN_FAULTS, 'more fault')}; "
                "`waystation context check` lists all."
            )
        if self._shown and find_violations(self._shown):
            notes.append("The last tool calls have no results yet. Add the results, or the API rejects the messages.")
        if unread := self._hidden_unread:
            kinds = ", ".join(f"{number:,} × {kind}" for kind, number in sorted(unread.items()))
            notes.append(f"Hidden but not summarised, because the summariser reads only text: {kinds}.")
        for record in self._records:
            if isinstance(record, SummaryRecord):
                notes += [f"The check of the summary added {what}." for what in record.added]
                notes += [f"The check of the summary removed {what}." for what in record.removed]
        return [*self.conversation.notes, *notes]

    @property
    def _masked(self) -> list[int]:
        calls = get_masked_call_ids(self.conversation.transcript)
        return _places(
            message.id for message in self._shown if any(item.tool_use_id in calls for item in message.tool_results)
        )

    @property
    def _records(self) -> tuple[Compaction, ...]:
        """Records of this compaction."""
        return self.conversation.transcript.compactions[len(self.body.transcript.compactions) :]

    @property
    def _ledger(self) -> list[str]:
        made = [get_replacement(record) for record in self._records if not isinstance(record, MaskRecord)]
        shown = {message.id for message in self._shown}
        return [line for message in made if message.id in shown for line in summary.parse_ledger_entries(message, "")]


def print_result(result: CompactionResult, *, as_json: bool) -> None:
    """Print the result: one JSON value, or a text that says how to get the messages."""
    if as_json:
        print_object(result.to_json())
        return
    print_text(result.to_text())
    print_text("To get the new messages, add `--json > compacted.json`. The input file is unchanged.")


def print_object(value: Mapping[str, JsonValue]) -> None:
    """Print one JSON value. Not through the console, which takes minutes for a long conversation."""
    sys.stdout.write(escape_control_characters_in_json(json.dumps(value, ensure_ascii=False, indent=2)) + "\n")


def _attempt_text(attempt: StageAttempt) -> str:
    reason = f": {attempt.reason}" if attempt.reason else ""
    return f"  {attempt.status}  {attempt.tokens_before:,} → {attempt.tokens_after:,}{reason}"


def _places(message_ids: Iterable[str]) -> list[int]:
    return sorted({index for name in message_ids if (index := parse_message_index(name)) is not None})


def _ranges(indices: list[int]) -> str:
    """Format indices as people write them: 0, 3-9."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


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
    """Compact a conversation if it is full, and print the result. FILE itself is not changed.

    Exits with 0 for any status, and with 2 if the file cannot be used.
    """
    body, settings = read_request_file(file), Settings()
    asked = CompactionOptions(window, max_output, threshold, strategy or settings.strategy, instructions)
    policy, measure = asked.build_policy(body, settings), build_token_estimator(body)
    conversation = Conversation(
        transcript=_pinned(body, pins or [], policy, measure),
        token_estimator=measure,
        policy=policy,
        rereadable=frozenset(rereadable or ()),
        readers=find_file_reading_tools(body),
        notes=asked.notes,
    )
    if files is not None:
        conversation.has_changed = FileChangeDetector(files).has_changed
    if summary_file is None:
        ask: SummaryWriter = ModelSummariser(settings, select_summary_model(body, settings), policy, conversation.notes)
    else:
        ask = make_fixed_summariser(read_text(summary_file, "--summary-file"), policy)
    before = conversation.tokens
    asyncio.run(_make_room(conversation, ask, ResultOffloader(originals), force=force))
    print_result(CompactionResult(body, conversation, before), as_json=as_json)


async def _make_room(
    conversation: Conversation, ask: SummaryWriter, offloading: ResultOffloader, *, force: bool
) -> None:
    if force and await conversation.force_summary(ask):
        return
    await conversation.make_room(
        ask, lambda transcript: offloading.replace_with_previews(transcript, conversation.policy.window)
    )


def _pinned(body: RequestBody, indices: Sequence[int], policy: CompactionPolicy, measure: TokenEstimator) -> Transcript:
    """Return the conversation with these messages pinned.

    Raises BadInput for unknown ones, and if they exceed their cap.
    """
    transcript = body.transcript
    for index in dict.fromkeys(indices):
        transcript = with_record(
            transcript, build_pin_record(transcript, build_message_id(index), policy, measure, f"pin-{index}")
        )
    return transcript


@app.command()
def mask(file: FileArgument, rereadable: ReadingOption = None, as_json: JsonOption = False) -> None:
    """Replace old tool results over 1,000 tokens with placeholders, and print the result. The last 3 results stay.

    Results are masked even if the context is not full and little is saved. FILE itself is not changed.
    """
    body, asked = read_request_file(file), CompactionOptions()
    policy = asked.build_policy(body, Settings())
    conversation = Conversation(
        transcript=body.transcript,
        token_estimator=build_token_estimator(body),
        policy=policy,
        rereadable=frozenset(rereadable) if rereadable else find_repeatable_tools(body),
        readers={},
        notes=asked.notes,
    )
    before = conversation.tokens
    conversation.force_masking()
    print_result(CompactionResult(body, conversation, before), as_json=as_json)
