"""Asks a model about the cited sentences of a report that code cannot decide, and applies its verdicts."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, JsonValue

from waystation.agents.call_ledger import MeteredModel
from waystation.agents.citation_checker import CitationChecker
from waystation.agents.ports import AgentTask
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
from waystation.documents.citations import CitedDocument, Claim
from waystation.documents.cited_sentences import SentenceCheck
from waystation.documents.support_verdicts import SupportVerdict
from waystation.kernel.refs import RunRef
from waystation.kernel.value import Value, text_hash
from waystation.models.ports import ToolSpec
from waystation.planning.plan import SentenceJudgement, make_judge_id
from waystation.privacy.policy import TextDestination, truncate_redacted
from waystation.privacy.ports import Redactor
from waystation.reports.report import DraftUnderReview
from waystation.reports.reviewers import ReviewStore, list_cited_lines
from waystation.security.untrusted import wrap_untrusted
from waystation.tasks.reviews import JudgeRequest, JudgeResult

MAX_JUDGED_SENTENCES = 40
"""Maximum number of different sentences that a model is shown; the others stay undecided.

A verdict with the longest reason takes about 80 tokens, so that verdicts on all of them fit into a reply.
"""
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
    reason: str | None = Field(
        default=None,
        description="If not supported: what the lines lack or say instead, in one short sentence; otherwise null.",
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


class JudgedSentence(Value):
    """A model's verdict on a sentence."""

    shown: str
    """Hash of the sentence with its lines, as the model was shown them."""
    verdict: SupportVerdict
    missing: str = ""
    """If it is not supported: what the cited lines lack."""


class JudgedSentenceList(Value):
    """A model's verdicts on sentences of a report."""

    sentences: tuple[JudgedSentence, ...] = ()

    def decide(
        self, checks: Sequence[SentenceCheck], documents: Mapping[str, CitedDocument]
    ) -> tuple[tuple[SentenceCheck, ...], int]:
        """Return the checks, with the model's verdict on each sentence that code could not decide.

        A verdict holds for exactly the words and the lines that the model was shown.

        Args:
            checks: The checks by code.
            documents: The cited documents, by their names as cited.

        Returns:
            The checks, and how many of them the model decided.
        """
        verdicts = {one.shown: one for one in self.sentences}
        decided = [
            _decide(check, verdicts.get(text_hash(_render_sentence(check, documents))))
            if verdicts and check.verdict is SupportVerdict.CANNOT_TELL
            else check
            for check in checks
        ]
        return tuple(decided), sum(one.verdict is not check.verdict for one, check in zip(decided, checks, strict=True))


def _decide(check: SentenceCheck, judged: JudgedSentence | None) -> SentenceCheck:
    if judged is None or check.result is None:
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
        row = await self.store.get_task(ref.task_id, ref.scope)
        there = await load_task_deliverables(ref.scope, self.store)
        drafted = DraftUnderReview(draft=there.draft, requirements=(), findings=(), analysis=None)
        checked = await self.check.check(ref, drafted.text)
        checks = await asyncio.to_thread(checked.check_sentences, row.request.question)
        undecided = [one for one in checks if one.verdict is SupportVerdict.CANNOT_TELL]
        judgement = SentenceJudgement(number=request.number, undecided=len(undecided))
        rendered = await asyncio.to_thread(lambda: [_render_sentence(one, checked.documents) for one in undecided])
        # A verdict is about the whole sentence, so one that would be shown in part is not judged. Equal ones that cite
        # the same lines are shown once, and get the same verdict.
        whole = [
            text
            for one, text in zip(undecided, rendered, strict=True)
            if len(one.located.claim.text) <= MAX_SENTENCE_CHARACTERS
        ]
        shown = [*dict.fromkeys(whole)][:MAX_JUDGED_SENTENCES]
        if not shown:
            return JudgeResult(judgement=judgement, totals=await self.store.get_run_usage(run.run_id))
        answer = await self._answer(run, request, row, shown)
        if isinstance(answer, NoAnswer):
            totals, note = await self.store.get_run_usage(run.run_id), answer.format_note(JUDGE_NOTES)
            return JudgeResult(judgement=judgement, totals=totals, notes=(note,))
        judged = {shown[one.number - 1]: _read_verdict(shown[one.number - 1], one) for one in answer.verdicts}
        found = Counter(judged[text].verdict for text in rendered if text in judged)
        supported, unsupported = found[SupportVerdict.SUPPORTED], found[SupportVerdict.NOT_SUPPORTED]
        kept = JudgedSentenceList(sentences=tuple(judged.values())).model_dump_json()
        judgement = judgement.replace(
            supported=supported,
            unsupported=unsupported,
            undecided=len(undecided) - supported - unsupported,
            verdicts_hash=await self.store.put_text(kept, ref.scope),
        )
        return JudgeResult(judgement=judgement, totals=await self.store.get_run_usage(run.run_id))

    async def _answer(
        self, run: RunRef, request: JudgeRequest, row: AgentTask, shown: Sequence[str]
    ) -> JudgeSentencesInput | NoAnswer:
        """Ask for the verdicts. A sentence without one stays undecided."""

        async def build_first_message() -> str:
            sentences = wrap_untrusted("sentences", *(f"{number}. {text}" for number, text in enumerate(shown, 1)))
            return "\n".join([sentences, wrap_untrusted("task", *render_question(row.request, row.submitted_at))])

        def read(arguments: Mapping[str, JsonValue]) -> JudgeSentencesInput:
            answer = JudgeSentencesInput.model_validate(arguments)
            numbers = [one.number for one in answer.verdicts]
            if not numbers or len({*numbers}) < len(numbers) or not {*numbers} <= {*range(1, len(shown) + 1)}:
                raise UnusableAnswerError(f"give one verdict for each sentence from 1 to {len(shown)}")
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


def _render_sentence(check: SentenceCheck, documents: Mapping[str, CitedDocument]) -> str:
    """Render the sentence, then the lines with which code compared it."""
    claim = check.located.claim.replace(citations=check.passed)
    return "\n".join([claim.text, *_list_labels(claim, documents), *list_cited_lines(claim, documents)])


def _list_labels(claim: Claim, documents: Mapping[str, CitedDocument]) -> Iterator[str]:
    """Yield what is above the cited lines: their heading, and the first row of their table."""
    for citation in claim.citations:
        document = documents.get(citation.document)
        above = document.list_lines_above(citation.first_line) if document is not None else []
        if above:
            text = " / ".join(" ".join(line.split()) for line in above)
            yield f"   above {citation}: {truncate_redacted(text, MAX_LABEL_CHARACTERS, ' …')}"


def _read_verdict(shown: str, given: SentenceVerdict) -> JudgedSentence:
    verdict, reason = SupportVerdict(given.verdict), ""
    if verdict is SupportVerdict.NOT_SUPPORTED:
        reason = " ".join((given.reason or "").split()).rstrip(".") or "they do not support it"
    missing = truncate_redacted(reason, MAX_REASON_CHARACTERS, " …")
    return JudgedSentence(shown=text_hash(shown), verdict=verdict, missing=missing)
