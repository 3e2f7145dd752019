"""Revises plans: a model sees what the research found, and says which steps are to come, go or change."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from pydantic import Field, JsonValue

from waystation.agents.consulting import Consultant, Matter, Means, NoAnswer, Unusable
from waystation.agents.document_names import NamingRedactor
from waystation.agents.handed_over import HandedOver, handed_over
from waystation.agents.hearing import task_as_told
from waystation.agents.metered import MeteredModel
from waystation.agents.planner import with_safe_titles
from waystation.agents.roles import prompt
from waystation.agents.tools.results import ResultLines, result_lines
from waystation.agents.tools.tool import ToolInput
from waystation.domain.foreign_text import Tagged, tagged, tagged_line
from waystation.domain.leg import RunRef
from waystation.domain.oversight import PlanRevision, revision_id
from waystation.domain.plan import Plan, Step
from waystation.domain.plan_change import PlanChange, PlanVersion, change_errors, changed, difference
from waystation.domain.privacy import Place
from waystation.domain.redaction import cut
from waystation.domain.revising import Revised, RevisionRequest
from waystation.ports import DocumentStore, Redactor, TaskStore, ToolSpec, TranscriptStore, WorkStore

REASON_CHARACTERS = 300
MOST_LINES = 40
"""Of what one step handed in: the first claims, and all that stayed open."""
LINE_CHARACTERS = 400


class RevisePlanInput(PlanChange, ToolInput):
    """What is to be done to the plan, and why."""

    reason: str = Field(min_length=1, description="Why the plan is changed, or kept, in one sentence.")


REVISE_PLAN = ToolSpec(
    name="revise_plan",
    description="Changes the steps of the plan that have not begun, adds steps, or keeps the plan as it is.",
    input_schema=RevisePlanInput.model_json_schema(),
)
NOTES = {
    NoAnswer.UNUSABLE: "A revision of the plan could not be run, also after one repair; the plan was kept as it was.",
    NoAnswer.TOO_DEAR: "The budget was too small for revising the plan; it was kept as it was.",
}


@dataclass(frozen=True)
class Reviser:
    """Makes revisions. Each is an agent run of its own, with a transcript: a retry asks nothing twice."""

    model: MeteredModel
    transcripts: TranscriptStore
    documents: DocumentStore
    tasks: TaskStore
    work: WorkStore
    redactor: Redactor

    async def revise(self, request: RevisionRequest) -> Revised:
        """What became of the plan; what is in the store already, if it is. Raises ModelError, StoreError,
        RedactionFailed.
        """
        run = RunRef(**request.ref.model_dump(), step_id=revision_id(request.number), role="planning")
        notes: tuple[str, ...] = ()
        if not await self._made(run):
            answer = await self._answer(run, request)
            if isinstance(answer, NoAnswer):
                notes = (NOTES[answer],)
            elif not answer.nothing:
                await self._save(run, request, answer)
        revision, plan = PlanRevision(number=request.number, seen=request.seen), None
        if (versions := await self._made(run)) is not None:
            before, after = versions
            plan = after.plan.without_goals()
            changes = {"version": after.number, **difference(before.plan, after.plan)}
            revision = revision.model_copy(update=changes)
        return Revised(revision=revision, plan=plan, totals=await self.transcripts.totals(run.run_id), notes=notes)

    async def _made(self, run: RunRef) -> tuple[PlanVersion, PlanVersion] | None:
        """The version that this run has made, after the one that it changed."""
        versions = await self.tasks.plan_versions(run.task_id, run.reader)
        return next(((before, after) for before, after in pairwise(versions) if after.made_by == run.step_id), None)

    async def _answer(self, run: RunRef, request: RevisionRequest) -> RevisePlanInput | NoAnswer:
        plan, begun = await self._newest(run), frozenset(request.begun)

        def read(arguments: Mapping[str, JsonValue]) -> RevisePlanInput:
            wanted = RevisePlanInput.model_validate(arguments)
            if not wanted.nothing and (errors := change_errors(plan, wanted, begun, request.room)):
                raise Unusable(*errors)
            return wanted

        matter = Matter(
            run=run,
            kind="plan",
            system=prompt("revise"),
            tool=REVISE_PLAN,
            opening=lambda: self._opening(run, request),
            place=Place.CONTRACT,
            read=read,
            refusal="This revision cannot be run",
        )
        means = Means(request.model, request.limit, request.prices)
        return await Consultant(self.model, self.transcripts, self.redactor).answer(matter, means)

    async def _save(self, run: RunRef, request: RevisionRequest, wanted: RevisePlanInput) -> None:
        versions = await self.tasks.plan_versions(run.task_id, run.reader)
        plan = changed(versions[-1].plan, wanted, frozenset(request.begun))
        known = [step.id for step in versions[-1].plan.steps]
        redactor = NamingRedactor(self.redactor, self.documents, run.reader)
        (reason,) = await redactor.redact([wanted.reason], Place.TITLE, run.tenant)
        version = PlanVersion(
            number=versions[-1].number + 1,
            plan=await with_safe_titles(plan, redactor, run.tenant, known),
            made_by=run.step_id,
            reason=cut(" ".join(reason.text.split()), REASON_CHARACTERS),
        )
        await self.tasks.save_revision(run.task_id, version)

    async def _newest(self, run: RunRef) -> Plan:
        return (await self.tasks.plan_versions(run.task_id, run.reader))[-1].plan

    async def _opening(self, run: RunRef, request: RevisionRequest) -> str:
        there = await handed_over(run.reader, self.tasks, self.work)
        steps = [_step(step, begun=step.id in request.begun) for step in there.plan.steps]
        parts = [
            await task_as_told(request.ref, self.tasks, self.documents, self.redactor),
            tagged("plan", *steps),
            *found_parts(there),
            tagged_line("room", f"There is budget for {request.room} new steps."),
        ]
        return "\n".join(parts)


def found_parts(there: HandedOver) -> list[Tagged]:
    """What each step has handed in, in its tag: claims with citations, then what stayed open."""
    made = {**there.findings, **there.analyses}
    return [
        tagged("found", *_lines(result_lines(made[step.id])), step=step.id, title=step.title)
        for step in there.plan.steps
        if step.id in made
    ]


def _lines(handed_in: ResultLines) -> Iterable[str]:
    """Cut where there are many: the claims give way, and what stayed open does not."""
    more = len(handed_in.claims) - MOST_LINES
    shown = [*handed_in.claims[:MOST_LINES], *([f"({more} more findings)"] if more > 0 else [])]
    return [f"- {_short(line)}" for line in (*shown, *handed_in.left_open)]


def _short(line: str) -> str:
    one = " ".join(line.split())
    return one if len(one) <= LINE_CHARACTERS else f"{one[:LINE_CHARACTERS]} …"


def _step(step: Step, *, begun: bool) -> str:
    needs = f" needs {', '.join(step.needs)}" if step.needs else ""
    stands = "begun" if begun else "not begun"
    return f"- {step.id} ({step.role}, {stands}{needs}) {step.title}: {step.goal}"
