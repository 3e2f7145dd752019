"""Writes the summary of a redacted middle, in parts if it is too long to be read at once, and validates it.

The summarising model is called within budget and window; its reply is redacted again, without its scratchpad.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from waystation.agents.call_ledger import CallKey, CallNotAffordable, MeteredModel, PreparedCall
from waystation.agents.compaction_request import CompactionRequest
from waystation.agents.roles import load_prompt
from waystation.context.compaction import CompactionStatus
from waystation.context.constraints import (
    extract_recorded_decisions,
    extract_user_constraints,
    extract_user_requests,
    extract_user_words,
    find_open_items,
)
from waystation.context.history import build_model_view, get_effective_transcript, get_pinned_message_ids, with_record
from waystation.context.pipeline import SummariseDecision, compute_part_token_range, split_into_parts
from waystation.context.policy import CompactionPolicy
from waystation.context.restoration import without_files
from waystation.context.strategies import STRATEGIES
from waystation.context.summary import (
    is_compaction_message,
    is_summary,
    strip_frame_tags,
    without_scratchpad,
    wrap_partial_summary,
)
from waystation.context.summary_validator import (
    AcceptedSummary,
    RejectedSummary,
    SummaryCheckInput,
    SummaryRule,
    check_middle,
    check_summary,
)
from waystation.context.tokens import estimate_text
from waystation.context.transcript import (
    Charge,
    Fence,
    Message,
    SummaryPartRecord,
    Text,
    Transcript,
    build_user_message,
)
from waystation.kernel.errors import ModelRejected, ModelUnavailable
from waystation.kernel.value import Value
from waystation.memory.passage_builder import map_tool_names, render_message
from waystation.models.ports import ModelRequest, StopReason
from waystation.models.profiles import get_model_profile
from waystation.privacy.policy import TextDestination, build_redaction_notes
from waystation.privacy.ports import Redactor
from waystation.security.untrusted import SafeMarkup, escape_tags, wrap_untrusted

HEADROOM = 2
"""Maximum length of a summary, as a multiple of the requested tokens: models do not count exactly."""
THINKING_ROOM = 2_048
"""Output tokens allowed in addition to the summary: models think first, and thinking counts as output."""
_MIN_REPLY_TOKENS = 128
MAX_TRIES = 2
"""A summary that was cut off is requested once more, shorter and with twice the output."""
_SAFE_PERCENT = 75
"""Percentage of a window that an estimate may fill: mixed texts may have a third more tokens than estimated."""


class SummaryResponse(Value):
    """The model's summary."""

    text: str
    """Redacted; blank if the model refused."""
    charge: Charge
    """Not committed yet."""
    redactions: int
    truncated: bool = False
    """Whether it is incomplete even after a second try: it exceeded the reply's maximum length."""


class SummaryUnavailableResult(Value):
    """No summary could be had. Nothing was charged."""

    note: str
    model_called: bool
    """True: the model failed. False: the budget did not allow the call."""


@dataclass(frozen=True)
class SummaryModel:
    """The summarising model of one compaction, charged to the agent run."""

    model: MeteredModel
    redactor: Redactor
    request: CompactionRequest
    fence: Fence
    policy: CompactionPolicy
    assignment: str = ""
    """What the agent works on, redacted: the question and its step's goal, each in its tag."""

    def compute_max_input_tokens(self, maximum: int) -> int:
        """Return how many tokens of conversation it can read for a summary of at most `maximum` tokens."""
        facts = get_model_profile(self.request.config.condense_model)
        asked = estimate_text(self._system + self.policy.instructions + self.assignment)
        return max(1, (facts.window - self._most_output(maximum, MAX_TRIES) - asked) * _SAFE_PERCENT // 100)

    async def request_summary(
        self, name: str, conversation: str, length: tuple[int, int], note: str = ""
    ) -> SummaryResponse | SummaryUnavailableResult:
        """Request a summary; if it was cut off, request it once more.

        Args:
            name: Key of the call, unique in the agent run, so that it is charged once.
            conversation: What to summarise.
            length: Minimum and maximum tokens of the summary.
            note: Explains the conversation if it is not a whole one.

        Raises:
            ModelUnavailable: The model did not answer.
            RedactionFailed: The summary could not be redacted.
            StaleFenceError: Another attempt has taken over.
        """
        answer = await self._asked(name, conversation, length, note, 1)
        if isinstance(answer, SummaryUnavailableResult) or not answer.truncated:
            return answer
        shorter = (length[0], max(length[0], length[1] // 2))
        again = f"{note}\nAn earlier summary was too long and was cut: keep this summary short, and finish it.".strip()
        second = await self._asked(f"{name}-again", conversation, shorter, again, MAX_TRIES)
        if isinstance(second, SummaryUnavailableResult):
            return answer
        await self.model.store.commit_charge(self.fence, answer.charge)
        return second

    async def _asked(
        self, name: str, conversation: str, length: tuple[int, int], note: str, attempt: int
    ) -> SummaryResponse | SummaryUnavailableResult:
        terms, run = self.request.config, self.request.run
        ask = ModelRequest(
            model=terms.condense_model,
            system=self._system,
            messages=(build_user_message("m1", self._question(conversation, length, note)),),
            max_output=self._most_output(length[1], attempt),
            one_shot=True,
        )
        call = await self._fitted(ask, length[0])
        if isinstance(call, CallNotAffordable):
            return SummaryUnavailableResult(note="The budget did not allow a summary.", model_called=False)
        try:
            reply, charge = await self.model.run_call(self.fence, CallKey("summary", name), call)
        except ModelRejected as error:
            return SummaryUnavailableResult(note=f"The summariser failed: {error}", model_called=True)
        except ModelUnavailable as error:
            if error.possibly_billed and isinstance(await self._fitted(ask, length[0]), CallNotAffordable):
                return SummaryUnavailableResult(
                    note=f"The summariser failed ({error}), and the budget allows no second attempt.",
                    model_called=True,
                )
            raise
        said = () if reply.stop is StopReason.REFUSAL else reply.blocks
        text = without_scratchpad("\n".join(block.text for block in said if isinstance(block, Text)))
        (redacted,) = await self.redactor.redact([text], TextDestination.SUMMARY, run.tenant)
        # A failed redaction's placeholder is no summary.
        return SummaryResponse(
            text="" if redacted.redaction_failed else redacted.text,
            charge=charge,
            redactions=len(redacted.spans),
            truncated=reply.stop in CUT_OFF,
        )

    def _most_output(self, maximum: int, attempt: int) -> int:
        """Return the maximum output tokens of a request for a summary of at most `maximum` tokens."""
        facts = get_model_profile(self.request.config.condense_model)
        wanted = (maximum * HEADROOM + THINKING_ROOM) * attempt
        return min(wanted, facts.max_output) if facts.is_known else wanted

    async def _fitted(self, ask: ModelRequest, minimum: int) -> PreparedCall | CallNotAffordable:
        """Prepare the call with space for the shortest summary at least: less would only be cut off."""
        left = self.request.limit.remaining_after((await self.model.store.get_run_usage(self.fence.run_id)).spent)
        floor = min(max(_MIN_REPLY_TOKENS, minimum), ask.max_output)
        return await self.model.prepare_call(ask, left, floor, self.request.config.prices)

    @property
    def _system(self) -> str:
        return load_prompt(STRATEGIES[self.policy.strategy].prompt)

    def _question(self, conversation: str, length: tuple[int, int], note: str) -> str:
        wishes = self.policy.instructions.strip()
        heed = f"Wishes of the person who requested the summary:\n{wrap_untrusted('wishes', wishes)}" if wishes else ""
        work = (
            f"The agent works on this task: keep what serves it.\n{wrap_untrusted('task', _inside(self.assignment))}"
            if self.assignment
            else ""
        )
        # Long texts stand before what is asked about them.
        parts = [
            wrap_untrusted("conversation", _inside(conversation)),
            work,
            heed,
            f"Summarise this conversation in {length[0]} to {length[1]} tokens.",
            note,
            "Give the summary and nothing else.",
        ]
        return "\n".join(filter(None, parts))


def _inside(text: str) -> SafeMarkup:
    """Mark the conversation as safe.

    It keeps the frames of earlier compaction records; nothing in it can close its tag.
    """
    return SafeMarkup(escape_tags(text, "conversation", "wishes", "task"))


JOIN_INSTRUCTION = "The conversation is given as summaries of its parts, in order: make one summary of all parts."


class SummaryInput(Value):
    """The messages to hide, with everything private replaced."""

    messages: tuple[Message, ...]
    """As in the view, not redacted. Must not be shown to summariser or memory."""
    texts: dict[str, str]
    """Redacted rendering by message ID."""
    user_messages: tuple[Message, ...]
    """Messages of the user's role that have text, redacted."""
    user_texts: tuple[str, ...]
    """What the user has said in the conversation so far, redacted."""
    pinned: tuple[str, ...]
    """IDs of the messages that must not be hidden."""
    open_work: tuple[str, ...]
    """Open work at its end, redacted."""
    notes: tuple[str, ...] = ()
    """What a person should know of the redaction."""
    note_citations: tuple[str, ...] = ()
    """Citations of the notes that were taken in these messages, redacted."""
    rereadable: frozenset[str] = frozenset()
    """See `find_rereadable_identifiers`."""

    @property
    def lines(self) -> tuple[str, ...]:
        """Each message as the summariser reads it: only earlier compactions keep frame tags."""
        shown = ((message, self.texts[message.id]) for message in self.messages)
        return tuple(
            text if is_compaction_message(message) else strip_frame_tags(text) for message, text in shown if text
        )

    @property
    def text(self) -> str:
        """All lines as one text."""
        return "\n".join(self.lines)

    def to_check_input(self, rung: SummariseDecision, policy: CompactionPolicy) -> SummaryCheckInput:
        """Build the input of the check before commit.

        The user's words are taken unredacted: the agent's model has seen them, and its next view keeps them verbatim.
        Only what others read is redacted.
        """
        heard = _heard(self.messages)
        return SummaryCheckInput(
            text=self.text,
            tokens=rung.middle_tokens,
            target_tokens=rung.summary_tokens[1],
            max_constraint_tokens=policy.max_pinned_tokens,
            constraints=extract_user_constraints(heard),
            requests=extract_user_requests(heard),
            decisions=extract_recorded_decisions(self.user_messages),
            open_work=self.open_work,
            user_texts=self.user_texts,
            pinned=self.pinned,
            note_citations=self.note_citations,
            rereadable=self.rereadable,
        )

    @classmethod
    async def build_redacted(
        cls, messages: Sequence[Message], transcript: Transcript, redactor: Redactor, tenant: str, *unfinished: str
    ) -> tuple["SummaryInput", int]:
        """Build the input from a part of the transcript's view; also return the number of replaced spans.

        Args:
            messages: The messages to hide.
            transcript: The whole transcript.
            redactor: Redactor for summariser and memory.
            tenant: Tenant of the agent run.
            unfinished: Open work that the conversation does not mention.

        Raises:
            RedactionFailed: Nothing of the conversation leaves then.
        """
        shown = build_model_view(transcript)
        names, undone = map_tool_names(shown), (*find_open_items(messages, shown), *unfinished)
        rendered = [_text(message) if is_summary(message) else render_message(message, names) for message in messages]
        heard = _heard((*messages, *get_effective_transcript(transcript).messages))
        spoken = [message.text for message in heard]
        redacted = iter(await redactor.redact([*rendered, *undone, *spoken], TextDestination.COMPRESSED, tenant))
        texts, open_work = list(islice(redacted, len(rendered))), list(islice(redacted, len(undone)))
        said = {
            message.id: message.replace(blocks=(Text(text=item.text),))
            for message, item in zip(heard, redacted, strict=True)
        }
        pinned = get_pinned_message_ids(transcript)
        middle = cls(
            messages=tuple(messages),
            texts={message.id: item.text for message, item in zip(messages, texts, strict=True)},
            user_messages=tuple(said[message.id] for message in messages if message.id in said),
            user_texts=extract_user_words(tuple(said.values())),
            pinned=tuple(message.id for message in messages if message.id in pinned),
            open_work=tuple(item.text for item in open_work),
            notes=build_redaction_notes(*texts),
        )
        return middle, sum(len(item.spans) for item in texts)


class SummaryResult(Value):
    """Result of a request. No verdict: no summary could be had."""

    verdict: AcceptedSummary | RejectedSummary | None
    charge: Charge | None
    """Not committed yet."""
    model_called: bool = True
    """Whether a model was called: what was rejected earlier costs nothing, however often it is tried."""
    notes: tuple[str, ...] = ()


@dataclass
class Summariser:
    """The summary of one middle, in progress."""

    model: SummaryModel
    transcript: Transcript
    """Grows by the parts of a long middle."""
    redactions: int = 0
    """Number of spans replaced in what the model wrote."""

    async def summarise(self, rung: SummariseDecision, middle: SummaryInput, sources: str = "") -> SummaryResult:
        """Summarise a middle: in one call if the model can read all of it, and without a call if no summary would pass.

        Args:
            rung: The decision to summarise.
            middle: The messages to hide.
            sources: Line that names the passages behind the summary.

        Raises:
            ModelUnavailable: The model did not answer.
            RedactionFailed: A summary could not be redacted.
            StaleFenceError: Another attempt has taken over.
            VersionConflict: Another attempt has written.
        """
        replaced = middle.to_check_input(rung, self.model.policy).replace(sources=sources)
        if hopeless := check_middle(replaced):
            return SummaryResult(verdict=hopeless, charge=None, model_called=False)
        parts = split_into_parts(middle.lines, self.model.compute_max_input_tokens(rung.summary_tokens[1]))
        conversation, note = parts[0], ""
        if len(parts) > 1:
            said = await self._summaries(rung, parts)
            if isinstance(said, SummaryResult):
                return said
            conversation, note = said, JOIN_INSTRUCTION
        answer = await self.model.request_summary(rung.compaction_id, conversation, rung.summary_tokens, note)
        if isinstance(answer, SummaryUnavailableResult):
            return SummaryResult(verdict=None, charge=None, model_called=answer.model_called, notes=(answer.note,))
        self.redactions += answer.redactions
        verdict = _CUT if answer.truncated else check_summary(answer.text, replaced)
        return SummaryResult(verdict=verdict, charge=answer.charge)

    async def _summaries(self, rung: SummariseDecision, parts: Sequence[str]) -> str | SummaryResult:
        """Summarise the parts one after the other. Return the summaries, or the first failure."""
        high = rung.summary_tokens[1]
        length = compute_part_token_range(
            rung.summary_tokens, len(parts), self.model.compute_max_input_tokens(high) // HEADROOM
        )
        summaries: list[str] = []
        for number, part in enumerate(parts, 1):
            name = f"{rung.compaction_id}-{number}"
            note = (
                f"This is part {number} of {len(parts)} of a longer conversation; the other parts are summarised "
                "separately."
            )
            summary = self._kept(name) or await self._summarised(name, part, length, note)
            if isinstance(summary, SummaryResult):
                return summary
            summaries.append(wrap_partial_summary(summary))
        return "\n".join(summaries)

    def _kept(self, name: str) -> str | None:
        """Return a part's summary that an earlier attempt has paid for."""
        records = self.transcript.records
        return next((r.text for r in records if isinstance(r, SummaryPartRecord) and r.id == name), None)

    async def _summarised(self, name: str, part: str, length: tuple[int, int], note: str) -> str | SummaryResult:
        """Summarise a part and commit it with its charge: no later attempt pays for it again after a crash."""
        answer = await self.model.request_summary(name, part, length, note)
        if isinstance(answer, SummaryUnavailableResult):
            return SummaryResult(verdict=None, charge=None, model_called=answer.model_called, notes=(answer.note,))
        self.redactions += answer.redactions
        if answer.truncated:
            return SummaryResult(verdict=_CUT, charge=answer.charge)
        if not answer.text.strip():
            message = "the summary of a part of the conversation is blank"
            blank = RejectedSummary(
                status=CompactionStatus.FAILED_EMPTY_SUMMARY, rule=SummaryRule.EMPTY, message=message
            )
            return SummaryResult(verdict=blank, charge=answer.charge)
        record = SummaryPartRecord(id=name, text=answer.text)
        transcripts, version = self.model.model.store, self.transcript.version
        await transcripts.commit_compaction(self.model.fence, version, record, (), answer.charge)
        self.transcript = with_record(self.transcript, record)
        return answer.text


CUT_OFF = frozenset({StopReason.MAX_TOKENS, StopReason.CONTEXT_EXCEEDED})
_CUT = RejectedSummary(
    status=CompactionStatus.FAILED_CHECK,
    rule=SummaryRule.CUT,
    message="the summary was cut off: it is longer than a reply may be",
)


def _heard(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return messages of the user's role that have text, each once, with nothing but what was said."""
    heard = {message.id: message for message in messages if message.role == "user" and message.text}
    return tuple(message.replace(blocks=(Text(text=_text(message)),)) for message in heard.values())


def _text(message: Message) -> str:
    return without_files(message.text) if is_summary(message) else message.text
