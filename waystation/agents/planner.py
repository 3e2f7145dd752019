"""Planning: the model's plan, repaired once with the errors shown, else the standard plan."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from waystation.agents.consulting import Consultant, Matter, Means, NoAnswer, Unusable
from waystation.agents.document_names import NamingRedactor
from waystation.agents.earlier import EarlierTasks
from waystation.agents.hearing import task_told
from waystation.agents.metered import MeteredModel
from waystation.agents.roles import prompt
from waystation.agents.tools.tool import ToolInput
from waystation.domain.amount import Limit
from waystation.domain.budget import RunTotals
from waystation.domain.foreign_text import tagged
from waystation.domain.leg import RunRef
from waystation.domain.plan import PLANNING_ID, Plan, Step, numbered, plan_errors, standard_plan
from waystation.domain.pricing import Price
from waystation.domain.privacy import Place
from waystation.domain.redaction import cut
from waystation.domain.task import TaskRef
from waystation.domain.value import Value
from waystation.ports import DocumentStore, Redactor, TaskStore, ToolSpec, TranscriptStore

TITLE_CHARACTERS = 60


class SubmitPlanInput(ToolInput):
    """The plan."""

    steps: tuple[Step, ...]


class PlanMade(Value):
    """A plan that can be run. Its goals stay in the store."""

    plan: Plan
    totals: RunTotals
    notes: tuple[str, ...] = ()


SUBMIT_PLAN = ToolSpec(
    name="submit_plan",
    description="Hands in the plan: its steps in order.",
    input_schema=SubmitPlanInput.model_json_schema(),
)
NOTES = {
    NoAnswer.UNUSABLE: "The model's plan could not be run, also after one repair; the standard plan is used.",
    NoAnswer.TOO_DEAR: "The budget is too small for planning by a model; the standard plan is used.",
}


@dataclass(frozen=True)
class Planner:
    """Makes plans. A planning is an agent run of its own, with a transcript: a retry asks nothing twice."""

    model: MeteredModel
    transcripts: TranscriptStore
    documents: DocumentStore
    tasks: TaskStore
    redactor: Redactor

    async def plan(self, ref: TaskRef, model: str, limit: Limit, prices: Sequence[Price]) -> PlanMade:
        """The task's plan; the saved one, if there is one.

        `limit` is what planning may spend. Raises ModelError, StoreError, RedactionFailed.
        """
        run = RunRef(**ref.model_dump(), step_id=PLANNING_ID, role="planning")
        saved = await self.tasks.plan(ref.task_id, ref.reader)
        if saved is not None:
            return PlanMade(plan=saved.without_goals(), totals=await self.transcripts.totals(run.run_id))
        plan, notes = await self._made(run, Means(model, limit, prices))
        redactor = NamingRedactor(self.redactor, self.documents, run.reader)
        await self.tasks.save_plan(ref.task_id, await with_safe_titles(plan, redactor, run.tenant))
        kept = await self.tasks.plan(ref.task_id, ref.reader) or plan
        return PlanMade(plan=kept.without_goals(), totals=await self.transcripts.totals(run.run_id), notes=notes)

    async def _made(self, run: RunRef, means: Means) -> tuple[Plan, tuple[str, ...]]:
        matter = Matter(
            run=run,
            kind="plan",
            system=prompt("plan"),
            tool=SUBMIT_PLAN,
            opening=lambda: self._task(run),
            place=Place.USER_INPUT,
            read=_plan,
            refusal="This plan cannot be run",
        )
        made = await Consultant(self.model, self.transcripts, self.redactor).answer(matter, means)
        if not isinstance(made, NoAnswer):
            return made, ()
        return standard_plan((await self.tasks.task(run.task_id, run.reader)).request.question), (NOTES[made],)

    async def _task(self, run: RunRef) -> str:
        row = await self.tasks.task(run.task_id, run.reader)
        earlier = await EarlierTasks(self.tasks, self.documents).named(row, row.terms.agent.window)
        task = await task_told(row, self.documents, self.redactor)
        return tagged("task", *task, *filter(None, [earlier]))


async def with_safe_titles(plan: Plan, redactor: Redactor, tenant: str, known: Collection[str] = ()) -> Plan:
    """Titles and ids are shown in the Temporal UI, so they are redacted like everything there; ids that are `known`
    stay. Raises RedactionFailed.
    """
    titles = await redactor.redact([step.title for step in plan.steps], Place.TITLE, tenant)
    spelled = [step.id.replace("-", " ") for step in plan.steps]
    ids = await redactor.redact(spelled, Place.TITLE, tenant)
    told = [step.id for step, words, safe in zip(plan.steps, spelled, ids, strict=True) if safe.text != words]
    steps = zip(plan.steps, titles, strict=True)
    titled = tuple(step.model_copy(update={"title": cut(title.text, TITLE_CHARACTERS)}) for step, title in steps)
    return numbered(Plan(steps=titled), set(told) - set(known))


def _plan(arguments: Mapping[str, JsonValue]) -> Plan:
    plan = Plan(steps=SubmitPlanInput.model_validate(arguments).steps)
    if errors := plan_errors(plan):
        raise Unusable(*errors)
    return plan
