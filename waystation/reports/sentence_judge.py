"""Asks a model about the cited sentences of a report that code cannot decide, and applies its verdicts."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from pydantic import BeforeValidator, Field, JsonValue
from pydantic_core import from_json

from waystation.agents.call_ledger import MeteredModel
from waystation.agents.citation_checker import CitationChecker, CitationCheckResult
from waystation.agents.roles import load_prompt
from waystation.agents.structured_caller import (
    CallOptions,
    NoAnswer,
    NoAnswerReason,
    StructuredCaller,
    StructuredPrompt,
    UnusableAnswerError,
)
from waystation.agents.task_brief import render_question
from waystation.agents.tools.submissions import load_task_deliverables
from waystation.agents.tools.tool import ToolInput, build_input_schema
from waystation.context.transcript import UNPARSED_ARGUMENTS
from waystation.documents.citations import CitedDocument, Claim
from waystation.documents.cited_sentences import CitedSentence, SentenceCheck
from waystation.documents.support_verdicts import SupportVerdict
from waystation.kernel.identifiers import Identifier
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.refs import RunRef
from waystation.kernel.value import Value, text_hash
from waystation.models.ports import ToolSpec
from waystation.planning.plan import SentenceJudgement, make_judge_id
from waystation.privacy.policy import TextDestination, truncate_redacted
from waystation.privacy.ports import Redactor
from waystation.reports.cited_sentences import is_above_answer
from waystation.reports.report import DraftUnderReview
from waystation.reports.reviewers import ReviewStore, list_cited_lines
from waystation.security.untrusted import SafeMarkup, wrap_untrusted
from waystation.tasks.reviews import JudgeRequest, JudgeResult

MAX_JUDGED_SENTENCES = 60
"""Maximum number of different sentences that a model is shown; the others stay undecided."""
MAX_SENTENCE_CHARACTERS = 800
"""A longer sentence stays undecided."""
MAX_LABEL_CHARACTERS = 300
"""Maximum characters of what is above the cited lines: their heading, and the first row of their table."""
MAX_REASON_CHARACTERS = 200
ANSWER_TOKENS, VERDICT_TOKENS = 200, 130
"""Tokens of an answer without verdicts, and of one verdict: 30 for its number and names, and 100 for its reason, if a
token has two characters. 60 verdicts have 8,000.
"""
JUDGED_REMARK = "a model compared the sentence with the cited lines: "
"""Before the reason of a verdict that a model gave."""


class SentenceVerdict(Value):
    """The verdict on one sentence."""

    number: int = Field(description="The number of the sentence.")
    verdict: Literal["supported", "not_supported", "cannot_tell"] = Field(
        description="supported: the lines say all that the sentence says; not_supported: they say something else, or "
        "lack a part of it; cannot_tell: the lines do not allow either."
    )
    reason: Annotated[str, BeforeValidator(lambda given: "" if given is None else given)] = Field(
        default="",
        description="If not supported: what the lines lack or say instead, in one short sentence; otherwise empty.",
    )


class JudgeSentencesInput(ToolInput):
    """Verdicts on the sentences."""

    verdicts: tuple[SentenceVerdict, ...] = Field(description="One verdict for each sentence.")


JUDGE_SENTENCES = ToolSpec(
    name="judge_sentences",
    description="Submits, for each numbered sentence, whether the lines that it cites support it.",
    input_schema=build_input_schema(JudgeSentencesInput),
    strict=True,
)
JUDGE_NOTES = {
    NoAnswerReason.UNUSABLE: (
        "The judgement of cited sentences could not be used, even after one correction, so only code checked them."
    ),
    NoAnswerReason.TOO_DEAR: (
        "The budget was too small for a model to judge cited sentences, so only code checked them."
    ),
    NoAnswerReason.NO_REPLY: "The model returned no judgement of cited sentences, so only code checked them.",
}


PARTLY_TOO_DEAR_NOTE = (
    "The budget was too small for a model to judge all cited sentences that code could not decide, so the model judged "
    "the first ones."
)
CHANGED_NOTE = "The report or a cited document changed while a model judged cited sentences, so only code checked them."
_SHOWN = compile_bounded(r' shown="(?P<count>\d{1,4})">')
"""In the first line of the first message: the number of sentences."""


class JudgedSentence(CitedSentence):
    """A sentence with the verdict of a model."""

    lines_hash: Identifier = ""
    """Hash of the lines that the model was asked about."""


class _SentenceKey(NamedTuple):
    """What a verdict belongs to."""

    text: str
    citations: tuple[str, ...]
    lines_hash: str


class JudgedSentenceList(Value):
    """The sentences that a model judged, with its verdicts."""

    sentences: tuple[JudgedSentence, ...] = ()

    def decide(
        self, checks: Sequence[SentenceCheck], checked: CitationCheckResult
    ) -> tuple[tuple[SentenceCheck, ...], int]:
        """Return the checks, with the model's verdict on each sentence that code could not decide.

        A verdict holds for exactly the words, the citations and the cited lines that the model was asked about.

        Returns:
            The checks, and how many of them the model decided.
        """
        verdicts = {_SentenceKey(one.text, one.citations, one.lines_hash): one for one in self.sentences}
        decided = [
            _decide(check, verdicts.get(_build_key(check.located.claim, checked))) if _is_open(check) else check
            for check in checks
        ]
        return tuple(decided), sum(one.verdict is not check.verdict for one, check in zip(decided, checks, strict=True))


def _is_open(check: SentenceCheck) -> bool:
    return check.verdict is SupportVerdict.CANNOT_TELL


def _build_key(claim: Claim, checked: CitationCheckResult) -> _SentenceKey:
    lines = [
        [
            str(one),
            *document.list_lines_above(one.first_line),
            "",
            *document.list_lines(one.first_line, one.last_line),
        ]
        for one in _keep_valid_citations(claim, checked).citations
        if (document := checked.documents[one.document])
    ]
    return _SentenceKey(claim.text, tuple(map(str, claim.citations)), text_hash(json.dumps(lines)))


def _keep_valid_citations(claim: Claim, checked: CitationCheckResult) -> Claim:
    """Return the claim with the citations that passed their check: code compares only these, too."""
    valid = (one for one in claim.citations if not checked.faults.get(one) and one.document in checked.documents)
    return claim.replace(citations=tuple(valid))


def _decide(check: SentenceCheck, judged: JudgedSentence | None) -> SentenceCheck:
    if judged is None or check.result is None:
        return check
    missing = f"{JUDGED_REMARK}{judged.missing}" if judged.verdict is SupportVerdict.NOT_SUPPORTED else ""
    return check._replace(result=check.result.replace(verdict=judged.verdict, missing=()), missing=missing)


class _Asked(NamedTuple):
    """The verdicts on the first sentences."""

    verdicts: Mapping[int, SentenceVerdict] | None
    """By number; None if the model gave none."""
    shown: int
    """Number of sentences that the model was shown."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SentenceJudge:
    """Asks a model about the cited sentences of a complete draft that code cannot decide.

    Each judgement is an agent run with its own transcript, so a retry repeats no model call.
    """

    model: MeteredModel
    store: ReviewStore
    redactor: Redactor
    check: CitationChecker

    async def judge(self, request: JudgeRequest) -> JudgeResult:
        """Judge the sentences, and store the verdicts. Without such a sentence, no model is asked.

        Raises:
            ModelError: the model call failed.
            StoreError: the store did not do its part.
            RedactionFailed: a text could not be redacted.
        """
        ref = request.ref
        run = RunRef(**ref.model_dump(), step_id=make_judge_id(request.number), role="reviewing")
        row = await self.store.get_task(ref.task_id, ref.scope)
        task = wrap_untrusted("task", *render_question(row.request, row.submitted_at))
        there = await load_task_deliverables(ref.scope, self.store)
        drafted = DraftUnderReview(draft=there.draft, requirements=(), findings=(), analysis=None)
        checked = await self.check.check(ref, drafted.text)
        checks = await asyncio.to_thread(checked.check_sentences, row.request.question)
        undecided = [
            (_build_key(one.located.claim, checked), one.located.claim)
            for one in checks
            if _is_open(one) and not is_above_answer(checked.markdown, one.located.mark_start)
        ]
        # The same sentence is asked about once, and each of its places counts.
        places, different = Counter(key for key, _ in undecided), dict(undecided)
        # A verdict is about the whole sentence, so one that would be shown in part is not judged.
        short = {key: claim for key, claim in different.items() if len(claim.text) <= MAX_SENTENCE_CHARACTERS}
        keys = [*short][:MAX_JUDGED_SENTENCES]
        asked = await self._ask(run, request, task, [short[key] for key in keys], checked) if keys else _Asked(None, 0)
        shown = keys[: asked.shown]
        judgement = SentenceJudgement(
            number=request.number,
            undecided=len(undecided),
            not_shown=len(undecided) - sum(places[key] for key in shown),
        )
        if asked.verdicts is not None:
            judged = [_read_verdict(key, asked.verdicts.get(number)) for number, key in enumerate(shown, 1)]
            supported, unsupported = (
                sum(places[key] for key, one in zip(shown, judged, strict=True) if one.verdict is verdict)
                for verdict in (SupportVerdict.SUPPORTED, SupportVerdict.NOT_SUPPORTED)
            )
            kept = JudgedSentenceList(sentences=tuple(judged)).model_dump_json()
            judgement = judgement.replace(
                supported=supported,
                unsupported=unsupported,
                undecided=len(undecided) - supported - unsupported,
                verdicts_hash=await self.store.put_text(kept, ref.scope),
            )
        totals = await self.store.get_run_usage(run.run_id)
        return JudgeResult(judgement=judgement, totals=totals, notes=asked.notes)

    async def _ask(
        self,
        run: RunRef,
        request: JudgeRequest,
        task: SafeMarkup,
        claims: Sequence[Claim],
        checked: CitationCheckResult,
    ) -> _Asked:
        """Ask about as many of the sentences, from the first, as the budget covers."""
        caller = StructuredCaller(self.model, self.store, self.redactor)
        means = CallOptions(request.model, request.limit, request.prices, request.effort)

        def build(count: int) -> StructuredPrompt[Mapping[int, SentenceVerdict]]:
            return _build_prompt(run, task, claims[:count], checked)

        sent = (await self.store.load_transcript(run.run_id, run.scope)).messages
        if sent:
            # The number of sentences is what an earlier attempt could afford, and the verdicts are about these.
            found = _SHOWN.search(sent[0].text.partition("\n")[0])
            count = int(found["count"]) if found else 0
            if sent[0].text != await caller.render_first_message(build(count)):
                return _Asked(None, 0, (CHANGED_NOTE,))
        else:
            count = await _find_affordable_count(caller, build, means, len(claims))
            if not count:
                return _Asked(None, 0, (JUDGE_NOTES[NoAnswerReason.TOO_DEAR],))
        answer = await caller.request_answer(build(count), means)
        if isinstance(answer, NoAnswer):
            return _Asked(None, count, (answer.format_note(JUDGE_NOTES),))
        return _Asked(answer, count, (PARTLY_TOO_DEAR_NOTE,) if count < len(claims) else ())


def _build_prompt(
    run: RunRef, task: SafeMarkup, claims: Sequence[Claim], checked: CitationCheckResult
) -> StructuredPrompt[Mapping[int, SentenceVerdict]]:
    async def build_first_message() -> str:
        sentences = await asyncio.to_thread(lambda: [*_render_sentences(claims, checked)])
        return "\n".join([wrap_untrusted("sentences", *sentences, shown=str(len(claims))), task])

    def read(arguments: Mapping[str, JsonValue]) -> Mapping[int, SentenceVerdict]:
        answer = JudgeSentencesInput.model_validate(arguments)
        verdicts = {one.number: one for one in answer.verdicts}
        # Another number shows that the model counts differently, so that all verdicts may be of other sentences.
        if not verdicts or len(verdicts) < len(answer.verdicts) or not verdicts.keys() <= {*numbers}:
            raise UnusableAnswerError(f"give exactly one verdict for each sentence from 1 to {len(claims)}")
        return verdicts

    numbers = range(1, len(claims) + 1)
    return StructuredPrompt(
        run=run,
        kind="review",
        system=load_prompt("judge"),
        tool=JUDGE_SENTENCES,
        build_first_message=build_first_message,
        destination=TextDestination.TASK_BRIEF,
        parse=read,
        rejection_heading="These verdicts cannot be used",
        answer_tokens=ANSWER_TOKENS + VERDICT_TOKENS * len(claims),
        keep_whole_part=_keep_whole_verdicts,
    )


async def _find_affordable_count(
    caller: StructuredCaller,
    build: Callable[[int], StructuredPrompt[Mapping[int, SentenceVerdict]]],
    means: CallOptions,
    count: int,
) -> int:
    """Return about how many sentences, of at most `count`, the budget covers."""
    if await caller.is_affordable(build(count), means):
        return count
    enough, too_many = 0, count
    while too_many - enough > 1:
        middle = (enough + too_many) // 2
        if await caller.is_affordable(build(middle), means):
            enough = middle
        else:
            too_many = middle
    return enough


def _keep_whole_verdicts(arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue] | None:
    """Return the verdicts before the one at which a call was cut; None if there are none."""
    written = arguments.get(UNPARSED_ARGUMENTS)
    try:
        given: JsonValue = from_json(written, allow_partial=True) if isinstance(written, str) else {**arguments}
    except ValueError:
        return None
    verdicts = given.get("verdicts") if isinstance(given, dict) else None
    # Also if the last one looks whole: a number or a reason may be cut within.
    return {"verdicts": verdicts[:-1]} if isinstance(verdicts, list) and len(verdicts) > 1 else None


def _render_sentences(claims: Sequence[Claim], checked: CitationCheckResult) -> Iterator[str]:
    """Yield each sentence with its number, then the lines that it cites."""
    for number, claim in enumerate(claims, 1):
        valid = _keep_valid_citations(claim, checked)
        yield f"{number}. {claim.text}"
        yield from _list_labels(valid, checked.documents)
        yield from list_cited_lines(valid, checked.documents)


def _list_labels(claim: Claim, documents: Mapping[str, CitedDocument]) -> Iterator[str]:
    """Yield what is above the cited lines: their heading, and the first row of their table."""
    for citation in claim.citations:
        document = documents.get(citation.document)
        above = document.list_lines_above(citation.first_line) if document is not None else []
        if above:
            text = " / ".join(" ".join(line.split()) for line in above)
            yield f"   above {citation}: {truncate_redacted(text, MAX_LABEL_CHARACTERS, ' …')}"


def _read_verdict(key: _SentenceKey, given: SentenceVerdict | None) -> JudgedSentence:
    """Build the verdict on a sentence. One that the model left out is undecided."""
    verdict, reason = SupportVerdict(given.verdict) if given is not None else SupportVerdict.CANNOT_TELL, ""
    if given is not None and verdict is SupportVerdict.NOT_SUPPORTED:
        reason = " ".join(given.reason.split()).rstrip(".") or "they do not support it"
    return JudgedSentence(
        text=key.text,
        citations=key.citations,
        verdict=verdict,
        missing=truncate_redacted(reason, MAX_REASON_CHARACTERS, " …"),
        lines_hash=key.lines_hash,
    )
