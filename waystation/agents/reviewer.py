"""Reviews draft reports: code checks what words and places show, then a model judges; the writer hears of both."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from waystation.agents.checked import CitationCheck
from waystation.agents.consulting import Consultant, Matter, Means, NoAnswer
from waystation.agents.handed_over import HandedOver, handed_over
from waystation.agents.hearing import task_as_told
from waystation.agents.metered import MeteredModel
from waystation.agents.reviser import found_parts
from waystation.agents.roles import prompt
from waystation.agents.tools.tool import ToolInput
from waystation.domain.foreign_text import tagged, without_tags
from waystation.domain.leg import RunRef
from waystation.domain.messages import platform_text
from waystation.domain.oversight import Review, review_id
from waystation.domain.privacy import Place
from waystation.domain.report_check import Drafted, Fault, Faults, faults_in, listed
from waystation.domain.reviewing import Reviewed, ReviewRequest
from waystation.domain.task import TaskRef
from waystation.ports import DocumentStore, Redactor, TaskStore, ToolSpec, TranscriptStore, WorkStore

MOST_FAULTS = 20
"""That a writer is sent at once, those that code found first."""


class ReviewReportInput(ToolInput):
    """What is wrong with the report."""

    faults: tuple[Fault, ...]


REVIEW_REPORT = ToolSpec(
    name="review_report",
    description="Says what is wrong with the report, fault by fault. Without any it is good as it is.",
    input_schema=ReviewReportInput.model_json_schema(),
)
NOTES = {
    NoAnswer.UNUSABLE: "A review of the report could not be used, also after one repair; code alone checked it.",
    NoAnswer.TOO_DEAR: "The budget was too small for a review of the report by a model; code alone checked it.",
}


@dataclass(frozen=True)
class Reviewer:
    """Makes reviews. Each is an agent run of its own, with a transcript: a retry asks nothing twice."""

    model: MeteredModel
    transcripts: TranscriptStore
    documents: DocumentStore
    tasks: TaskStore
    work: WorkStore
    redactor: Redactor
    check: CitationCheck

    async def review(self, request: ReviewRequest) -> Reviewed:
        """What is wrong with the report; its writer has been told, where it shall be. Raises ModelError, StoreError,
        RedactionFailed.
        """
        ref = TaskRef.model_validate(request.writer.model_dump(include=set(TaskRef.model_fields)))
        run = RunRef(**ref.model_dump(), step_id=review_id(request.number), role="reviewing")
        there = await handed_over(ref.reader, self.tasks, self.work)
        drafted = await self._drafted(ref, there)
        known = await asyncio.to_thread(faults_in, drafted)
        answer = await self._answer(run, request, lambda: self._opening(ref, there, drafted, known))
        judged, notes = ((), (NOTES[answer],)) if isinstance(answer, NoAnswer) else (answer.faults, ())
        faults = tuple(dict.fromkeys((*known, *judged)))[:MOST_FAULTS]
        sent_back = bool(faults) and request.may_send_back
        if sent_back:
            await self._tell(request, faults)
        found = await self.documents.put_text(Faults(faults=faults).model_dump_json(), ref.reader) if faults else None
        return Reviewed(
            review=Review(number=request.number, faults=len(faults), sent_back=sent_back, found=found),
            totals=await self.transcripts.totals(run.run_id),
            notes=notes,
        )

    async def _drafted(self, ref: TaskRef, there: HandedOver) -> Drafted:
        asked = (await self.tasks.task(ref.task_id, ref.reader)).request
        drafted = Drafted(
            draft=there.draft,
            asked=(*asked.accept, *(f"{one.title}: {one.goal}" for one in there.plan.steps if one.role == "research")),
            findings=tuple(there.findings.values()),
            analysis=there.analysis,
        )
        checked = await self.check.check(ref, drafted.text)
        return drafted.model_copy(update={"failed": checked.failed})

    async def _answer(
        self, run: RunRef, request: ReviewRequest, opening: Callable[[], Awaitable[str]]
    ) -> ReviewReportInput | NoAnswer:
        matter = Matter(
            run=run,
            kind="review",
            system=prompt("review"),
            tool=REVIEW_REPORT,
            opening=opening,
            place=Place.CONTRACT,
            read=ReviewReportInput.model_validate,
            refusal="This review cannot be used",
        )
        means = Means(request.model, request.limit, request.prices)
        return await Consultant(self.model, self.transcripts, self.redactor).answer(matter, means)

    async def _opening(self, ref: TaskRef, there: HandedOver, drafted: Drafted, known: tuple[Fault, ...]) -> str:
        unused = await asyncio.to_thread(lambda: drafted.unused)
        parts = [
            await task_as_told(ref, self.tasks, self.documents, self.redactor),
            *found_parts(there),
            tagged("draft", drafted.text),
            tagged(
                "checked",
                listed(known) or "Code found nothing wrong.",
                f"{unused} of {len(drafted.found)} findings are not cited.",
            ),
        ]
        return "\n".join(parts)

    async def _tell(self, request: ReviewRequest, faults: tuple[Fault, ...]) -> None:
        """The writer's next leg begins with it. Told once, whatever is retried."""
        writer = request.writer
        text = (
            f"Review {request.number} of your report found what follows. Mend it: write the sections concerned again "
            "with write_section, each under its heading, then hand in again with submit_report. What the findings do "
            f"not allow to mend, say in the report; invent nothing.\n{without_tags(listed(faults))}"
        )
        (redacted,) = await self.redactor.redact([text], Place.CONTRACT, writer.tenant)
        fence = await self.transcripts.take_fence(writer.run_id)
        transcript = await self.transcripts.load(writer.run_id, writer.reader)
        told = platform_text(transcript.next_id, redacted.text)
        if not any(message.text == told.text for message in transcript.messages):
            await self.transcripts.commit_message(fence, transcript.version, told)
