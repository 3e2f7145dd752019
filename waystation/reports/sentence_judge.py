"""Asks a model about the cited sentences of a report that code cannot decide, and applies its verdicts."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, JsonValue

from waystation.agents.call_ledger import MeteredModel
from waystation.agents.citation_checker import CitationChecker
from waystation.agents.leg_attempt import render_task_with_messages
from waystation.agents.roles import load_prompt
from waystation.agents.structured_caller import (
    CallOptions,
    NoAnswer,
    NoAnswerReason,
    StructuredCaller,
    StructuredPrompt,
    UnusableAnswerError,
)
from waystation.agents.tools.submissions import load_task_deliverables
from waystation.agents.tools.tool import ToolInput, build_input_schema
from waystation.documents.citations import CitedDocument, Claim
from waystation.documents.cited_sentences import CitedSentence, SentenceCheck
from waystation.documents.support_verdicts import SupportVerdict
from waystation.kernel.refs import RunRef
from waystation.kernel.value import Value
from waystation.models.ports import ToolSpec
from waystation.planning.plan import SentenceJudgement, make_judge_id
from waystation.privacy.policy import TextDestination, truncate_redacted
from waystation.privacy.ports import Redactor
from waystation.reports.report import DraftUnderReview
from waystation.reports.reviewers import ReviewStore, list_cited_lines
from waystation.security.untrusted import wrap_untrusted
from waystation.tasks.reviews import JudgeRequest, JudgeResult

MAX_JUDGED_SENTENCES = 60
"""Maximum number of sentences that a model is shown; the others stay undecided."""
MAX_SENTENCE_CHARACTERS = 800
"""A longer sentence stays undecided."""
MAX_LABEL_CHARACTERS = 300
"""Maximum characters of what is above the cited lines: their heading, and the first row of their table."""
MAX_REASON_CHARACTERS = 200
JUDGED_REMARK = "a model compared the sentence with the cited lines: "
"""Before the reason of a verdict that a model gave."""


class SentenceVerdict(Value):
    """The verdict on one sentence."""

    number: int = Field(description="The number of the sentence.")
    verdict: Literal["supported", "not_supported", "cannot_tell"] = Field(
        description="supported: the lines say all that the sentence says; not_supported: they say something else, or "
        "lack a part of it; cannot_tell: the lines do not allow either."
    )
    reason: str = Field(
        description="If not supported: what the lines lack or say instead, in one short sentence; otherwise empty."
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


class JudgedSentenceList(Value):
    """The sentences that a model judged, with its verdicts."""

    sentences: tuple[CitedSentence, ...] = ()

    def decide(self, checks: Sequence[SentenceCheck]) -> tuple[tuple[SentenceCheck, ...], int]:
        """Return the checks, with the model's verdict on each sentence that code could not decide.

        A verdict holds for exactly the words and citations that the model was shown.

        Returns:
            The checks, and how many of them the model decided.
        """
        verdicts = {(one.text, one.citations): one for one in self.sentences}
        decided = [_decide(check, verdicts.get(_key(check.located.claim))) for check in checks]
        return tuple(decided), sum(one.verdict is not check.verdict for one, check in zip(decided, checks, strict=True))


def _key(claim: Claim) -> tuple[str, tuple[str, ...]]:
    return claim.text, tuple(map(str, claim.citations))


def _decide(check: SentenceCheck, judged: CitedSentence | None) -> SentenceCheck:
    if judged is None or check.result is None or check.verdict is not SupportVerdict.CANNOT_TELL:
        return check
    missing = f"{JUDGED_REMARK}{judged.missing}" if judged.verdict is SupportVerdict.NOT_SUPPORTED else ""
    return check._replace(result=check.result.replace(verdict=judged.verdict, missing=()), missing=missing)


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
        question = (await self.store.get_task(ref.task_id, ref.scope)).request.question
        there = await load_task_deliverables(ref.scope, self.store)
        drafted = DraftUnderReview(draft=there.draft, requirements=(), findings=(), analysis=None)
        checked = await self.check.check(ref, drafted.text)
        checks = await asyncio.to_thread(checked.check_sentences, question)
        undecided = [one.located.claim for one in checks if one.verdict is SupportVerdict.CANNOT_TELL]
        judgement = SentenceJudgement(number=request.number, undecided=len(undecided))
        # A verdict is about the whole sentence, so one that would be shown in part is not judged.
        shown = [one for one in undecided if len(one.text) <= MAX_SENTENCE_CHARACTERS][:MAX_JUDGED_SENTENCES]
        if not shown:
            return JudgeResult(judgement=judgement, totals=await self.store.get_run_usage(run.run_id))
        answer = await self._answer(run, request, shown, checked.documents)
        if isinstance(answer, NoAnswer):
            totals, note = await self.store.get_run_usage(run.run_id), answer.format_note(JUDGE_NOTES)
            return JudgeResult(judgement=judgement, totals=totals, notes=(note,))
        verdicts = {one.number: one for one in answer.verdicts}
        judged = [_read_verdict(claim, verdicts[number]) for number, claim in enumerate(shown, 1)]
        supported, unsupported = (
            sum(one.verdict is verdict for one in judged)
            for verdict in (SupportVerdict.SUPPORTED, SupportVerdict.NOT_SUPPORTED)
        )
        kept = JudgedSentenceList(sentences=tuple(judged)).model_dump_json()
        judgement = judgement.replace(
            supported=supported,
            unsupported=unsupported,
            undecided=len(undecided) - supported - unsupported,
            verdicts_hash=await self.store.put_text(kept, ref.scope),
        )
        return JudgeResult(judgement=judgement, totals=await self.store.get_run_usage(run.run_id))

    async def _answer(
        self,
        run: RunRef,
        request: JudgeRequest,
        claims: Sequence[Claim],
        documents: Mapping[str, CitedDocument],
    ) -> JudgeSentencesInput | NoAnswer:
        async def build_first_message() -> str:
            sentences = await asyncio.to_thread(lambda: [*_render_sentences(claims, documents)])
            task = await render_task_with_messages(request.ref, self.store, self.redactor)
            return "\n".join([wrap_untrusted("sentences", *sentences), task])

        def read(arguments: Mapping[str, JsonValue]) -> JudgeSentencesInput:
            answer = JudgeSentencesInput.model_validate(arguments)
            if sorted(one.number for one in answer.verdicts) != [*range(1, len(claims) + 1)]:
                raise UnusableAnswerError(f"give exactly one verdict for each sentence from 1 to {len(claims)}")
            return answer

        matter = StructuredPrompt(
            run=run,
            kind="review",
            system=load_prompt("judge"),
            tool=JUDGE_SENTENCES,
            build_first_message=build_first_message,
            destination=TextDestination.CONTRACT,
            parse=read,
            rejection_heading="These verdicts cannot be used",
        )
        means = CallOptions(request.model, request.limit, request.prices, request.effort)
        return await StructuredCaller(self.model, self.store, self.redactor).request_answer(matter, means)


def _render_sentences(claims: Sequence[Claim], documents: Mapping[str, CitedDocument]) -> Iterator[str]:
    """Yield each sentence with its number, then the lines that it cites."""
    for number, claim in enumerate(claims, 1):
        yield f"{number}. {claim.text}"
        yield from _list_labels(claim, documents)
        yield from list_cited_lines(claim, documents)


def _list_labels(claim: Claim, documents: Mapping[str, CitedDocument]) -> Iterator[str]:
    """Yield what is above the cited lines: their heading, and the first row of their table."""
    for citation in claim.citations:
        document = documents.get(citation.document)
        above = document.list_lines_above(citation.first_line) if document is not None else []
        if above:
            text = " / ".join(" ".join(line.split()) for line in above)
            yield f"   above {citation}: {truncate_redacted(text, MAX_LABEL_CHARACTERS, ' …')}"


def _read_verdict(claim: Claim, given: SentenceVerdict) -> CitedSentence:
    verdict, reason = SupportVerdict(given.verdict), ""
    if verdict is SupportVerdict.NOT_SUPPORTED:
        reason = " ".join(given.reason.split()).rstrip(".") or "they do not support it"
    text, citations = _key(claim)
    return CitedSentence(
        text=text,
        citations=citations,
        verdict=verdict,
        missing=truncate_redacted(reason, MAX_REASON_CHARACTERS, " …"),
    )
