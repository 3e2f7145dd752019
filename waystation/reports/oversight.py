"""What looks over a task's work: reviews of its report, revisions of its plan.

Reviews draft reports: code checks what words and places show, then a model judges; the writer hears of both.

Revises plans: a model sees what the research found, and says which steps are to come, go or change.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from pydantic import Field, JsonValue

from waystation.agents.attempt import task_as_told
from waystation.agents.call_ledger import MeteredModel
from waystation.agents.redaction import redactor_for
from waystation.agents.roles import prompt
from waystation.agents.tools.tool import ToolInput
from waystation.agents.tools.work import AgentResultSummary, TaskDeliverables, load_task_deliverables, result_lines
from waystation.context.transcript import build_platform_message
from waystation.kernel.refs import RunRef, TaskRef
from waystation.models.ports import ToolSpec
from waystation.planning.plan import (
    Plan,
    PlanChange,
    PlanRevision,
    PlanVersion,
    Review,
    Revised,
    Step,
    change_errors,
    changed,
    difference,
    review_id,
    revision_id,
)
from waystation.planning.planner import Consultant, Lack, Matter, Means, NoAnswer, UnusableAnswer, with_safe_titles
from waystation.privacy.policy import TextDestination, truncate_redacted
from waystation.privacy.ports import Redactor
from waystation.reports.publisher import CitationCheck
from waystation.reports.report import Drafted, Fault, Faults, bullet_list, faults_in
from waystation.security.untrusted import SafeMarkup, escape_tags, wrap_untrusted, wrap_untrusted_line
from waystation.store.ports import Store
from waystation.tasks.reviews import Reviewed, ReviewRequest, RevisionRequest

REASON_CHARACTERS = 300
_MOST_LINES = 40
"""Of what one step handed in: the first claims, and all that stayed open."""
_LINE_CHARACTERS = 400


class RevisePlanInput(PlanChange, ToolInput):
    """What is to be done to the plan, and why."""

    reason: str = Field(min_length=1, description="Why the plan is changed, or kept, in one sentence.")


REVISE_PLAN = ToolSpec(
    name="revise_plan",
    description="Changes the steps of the plan that have not begun, adds steps, or keeps the plan as it is.",
    input_schema=RevisePlanInput.model_json_schema(),
)
REVISION_NOTES = {
    Lack.UNUSABLE: "A revision of the plan could not be run, also after one repair; the plan was kept as it was.",
    Lack.TOO_DEAR: "The budget was too small for revising the plan; it was kept as it was.",
    Lack.NO_REPLY: "No revision of the plan was to be had of the model; it was kept as it was.",
}


@dataclass(frozen=True)
class Reviser:
    """Makes revisions. Each is an agent run of its own, with a transcript: a retry asks nothing twice."""

    model: MeteredModel
    store: Store
    redactor: Redactor

    async def revise(self, request: RevisionRequest) -> Revised:
        """What became of the plan; what is in the store already, if it is. Raises ModelError, StoreError,
        RedactionFailed.
        """
        run = RunRef(**request.ref.model_dump(), step_id=revision_id(request.number), role="planning")
        if request.denied:
            return await self._taken_back(run, request)
        notes: tuple[str, ...] = ()
        if not await self._made(run):
            answer = await self._answer(run, request)
            if isinstance(answer, NoAnswer):
                notes = (answer.note(REVISION_NOTES),)
            elif not answer.nothing:
                await self._save(run, request, answer)
        revision, plan = PlanRevision(number=request.number, seen=request.seen), None
        if (versions := await self._made(run)) is not None:
            before, after = versions
            plan = after.plan.without_goals()
            steps = difference(before.plan, after.plan)
            revision = revision.replace(
                version=after.number, added=steps.added, dropped=steps.dropped, changed=steps.changed
            )
        return Revised(revision=revision, plan=plan, totals=await self.store.totals(run.run_id), notes=notes)

    async def _taken_back(self, run: RunRef, request: RevisionRequest) -> Revised:
        """The plan before it is the newest version again; done once."""
        made_by, versions = f"{run.step_id}/denied", await self.store.plan_versions(run.task_id, run.reader)
        if (pair := await self._made(run)) is not None and versions[-1].made_by != made_by:
            number, reason = versions[-1].number + 1, "A person denied the revision."
            version = PlanVersion(number=number, plan=pair[0].plan, made_by=made_by, reason=reason)
            await self.store.save_revision(run.task_id, version)
        note = f"Revision {request.number} of the plan was not agreed to: the plan stays as it was."
        revision = PlanRevision(number=request.number, seen=request.seen)
        return Revised(revision=revision, totals=await self.store.totals(run.run_id), notes=(note,))

    async def _made(self, run: RunRef) -> tuple[PlanVersion, PlanVersion] | None:
        """The version that this run has made, after the one that it changed."""
        versions = await self.store.plan_versions(run.task_id, run.reader)
        return next(((before, after) for before, after in pairwise(versions) if after.made_by == run.step_id), None)

    async def _answer(self, run: RunRef, request: RevisionRequest) -> RevisePlanInput | NoAnswer:
        plan, begun = await self._newest(run), frozenset(request.begun)

        def read(arguments: Mapping[str, JsonValue]) -> RevisePlanInput:
            wanted = RevisePlanInput.model_validate(arguments)
            if not wanted.nothing and (errors := change_errors(plan, wanted, begun, request.room)):
                raise UnusableAnswer(*errors)
            return wanted

        matter = Matter(
            run=run,
            kind="plan",
            system=prompt("revise"),
            tool=REVISE_PLAN,
            opening=lambda: self._opening(run, request),
            place=TextDestination.CONTRACT,
            read=read,
            refusal="This revision cannot be run",
        )
        means = Means(request.model, request.limit, request.prices)
        return await Consultant(self.model, self.store, self.redactor).answer(matter, means)

    async def _save(self, run: RunRef, request: RevisionRequest, wanted: RevisePlanInput) -> None:
        versions = await self.store.plan_versions(run.task_id, run.reader)
        plan = changed(versions[-1].plan, wanted, frozenset(request.begun))
        known = [step.id for step in versions[-1].plan.steps]
        redactor = redactor_for(self.redactor, self.store, run.reader)
        (reason,) = await redactor.redact([wanted.reason], TextDestination.TITLE, run.tenant)
        version = PlanVersion(
            number=versions[-1].number + 1,
            plan=await with_safe_titles(plan, redactor, run.tenant, known),
            made_by=run.step_id,
            reason=truncate_redacted(" ".join(reason.text.split()), REASON_CHARACTERS),
        )
        await self.store.save_revision(run.task_id, version)

    async def _newest(self, run: RunRef) -> Plan:
        return (await self.store.plan_versions(run.task_id, run.reader))[-1].plan

    async def _opening(self, run: RunRef, request: RevisionRequest) -> str:
        there = await load_task_deliverables(run.reader, self.store)
        steps = [_step(step, begun=step.id in request.begun) for step in there.plan.steps]
        parts = [
            await task_as_told(request.ref, self.store, self.redactor),
            wrap_untrusted("plan", *steps),
            *found_parts(there),
            wrap_untrusted_line("room", f"There is budget for {request.room} new steps."),
        ]
        return "\n".join(parts)


def found_parts(there: TaskDeliverables) -> list[SafeMarkup]:
    """What each step has handed in, in its tag: claims with citations, then what stayed open."""
    made = {**there.findings, **there.analyses}
    return [
        wrap_untrusted("found", *_lines(result_lines(made[step.id])), step=step.id, title=step.title)
        for step in there.plan.steps
        if step.id in made
    ]


def _lines(handed_in: AgentResultSummary) -> Iterable[str]:
    """Cut where there are many: the claims give way, and what stayed open does not."""
    more = len(handed_in.claims) - _MOST_LINES
    shown = [*handed_in.claims[:_MOST_LINES], *([f"({more} more findings)"] if more > 0 else [])]
    return [f"- {_short(line)}" for line in (*shown, *handed_in.left_open)]


def _short(line: str) -> str:
    one = " ".join(line.split())
    return one if len(one) <= _LINE_CHARACTERS else f"{one[:_LINE_CHARACTERS]} …"


def _step(step: Step, *, begun: bool) -> str:
    needs = f" needs {', '.join(step.needs)}" if step.needs else ""
    stands = "begun" if begun else "not begun"
    return f"- {step.id} ({step.role}, {stands}{needs}) {step.title}: {step.goal}"


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
REVIEW_NOTES = {
    Lack.UNUSABLE: "A review of the report could not be used, also after one repair; code alone checked it.",
    Lack.TOO_DEAR: "The budget was too small for a review of the report by a model; code alone checked it.",
    Lack.NO_REPLY: "No review of the report was to be had of the model; code alone checked it.",
}


@dataclass(frozen=True)
class Reviewer:
    """Makes reviews. Each is an agent run of its own, with a transcript: a retry asks nothing twice."""

    model: MeteredModel
    store: Store
    redactor: Redactor
    check: CitationCheck

    async def review(self, request: ReviewRequest) -> Reviewed:
        """What is wrong with the report; its writer has been told, where it shall be. Raises ModelError, StoreError,
        RedactionFailed.
        """
        run = request.writer.replace(step_id=review_id(request.number), role="reviewing")
        ref = TaskRef(store_id=run.store_id, tenant=run.tenant, session=run.session, task_id=run.task_id)
        there = await load_task_deliverables(ref.reader, self.store)
        drafted = await self._drafted(ref, there)
        known = await asyncio.to_thread(faults_in, drafted)
        answer = await self._answer(run, request, lambda: self._opening(ref, there, drafted, known))
        judged, notes = ((), (answer.note(REVIEW_NOTES),)) if isinstance(answer, NoAnswer) else (answer.faults, ())
        faults = tuple(dict.fromkeys((*known, *judged)))[:MOST_FAULTS]
        sent_back = bool(faults) and request.may_send_back
        if sent_back:
            await self._tell(request, faults)
        found = await self.store.put_text(Faults(faults=faults).model_dump_json(), ref.reader) if faults else None
        return Reviewed(
            review=Review(number=request.number, faults=len(faults), sent_back=sent_back, found=found),
            totals=await self.store.totals(run.run_id),
            notes=notes,
        )

    async def _drafted(self, ref: TaskRef, there: TaskDeliverables) -> Drafted:
        asked = (await self.store.task(ref.task_id, ref.reader)).request
        drafted = Drafted(
            draft=there.draft,
            asked=(*asked.accept, *(f"{one.title}: {one.goal}" for one in there.plan.steps if one.role == "research")),
            findings=tuple(there.findings.values()),
            analysis=there.analysis,
        )
        checked = await self.check.check(ref, drafted.text)
        return drafted.replace(failed=checked.failed)

    async def _answer(
        self, run: RunRef, request: ReviewRequest, opening: Callable[[], Awaitable[str]]
    ) -> ReviewReportInput | NoAnswer:
        matter = Matter(
            run=run,
            kind="review",
            system=prompt("review"),
            tool=REVIEW_REPORT,
            opening=opening,
            place=TextDestination.CONTRACT,
            read=ReviewReportInput.model_validate,
            refusal="This review cannot be used",
        )
        means = Means(request.model, request.limit, request.prices)
        return await Consultant(self.model, self.store, self.redactor).answer(matter, means)

    async def _opening(self, ref: TaskRef, there: TaskDeliverables, drafted: Drafted, known: tuple[Fault, ...]) -> str:
        unused = await asyncio.to_thread(lambda: drafted.unused)
        parts = [
            await task_as_told(ref, self.store, self.redactor),
            *found_parts(there),
            wrap_untrusted("draft", drafted.text),
            wrap_untrusted(
                "checked",
                bullet_list(known) or "Code found nothing wrong.",
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
            f"not allow to mend, say in the report; invent nothing.\n{escape_tags(bullet_list(faults))}"
        )
        (redacted,) = await self.redactor.redact([text], TextDestination.CONTRACT, writer.tenant)
        fence = await self.store.take_fence(writer.run_id)
        transcript = await self.store.load(writer.run_id, writer.reader)
        told = build_platform_message(transcript.next_id, redacted.text)
        if not any(message.text == told.text for message in transcript.messages):
            await self.store.commit_message(fence, transcript.version, told)
