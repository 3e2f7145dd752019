"""Makes the plan of a task: the model's, repaired once by its errors, or else the standard plan."""

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Protocol

from pydantic import Field, JsonValue, ValidationError

from waystation.agents.call_ledger import MeteredModel
from waystation.agents.leg_attempt import render_task_sections
from waystation.agents.ports import EarlierTasks, RunRepository, TaskSource
from waystation.agents.redaction import load_task_redactor
from waystation.agents.roles import build_planning_prompt
from waystation.agents.structured_caller import (
    CallOptions,
    NoAnswer,
    NoAnswerReason,
    StructuredCaller,
    StructuredPrompt,
    UnusableAnswerError,
)
from waystation.agents.tools.tool import ToolInput, build_input_schema
from waystation.budgets.budget import RunUsage
from waystation.documents.previews import DocumentPreview, build_document_previews
from waystation.documents.redacted_documents import RedactedDocumentStore
from waystation.kernel.amount import Limit
from waystation.kernel.errors import TextNotFoundError
from waystation.kernel.refs import RunRef, TaskRef
from waystation.kernel.text import format_count
from waystation.kernel.value import Value
from waystation.models.ports import ToolSpec
from waystation.planning.plan import (
    MAX_STEPS,
    PERSON_EDIT_REASON,
    PLANNING_ID,
    Plan,
    PlanEdit,
    PlanEditResult,
    PlanVersion,
    Step,
    anonymise_step_ids,
    build_standard_plan,
    find_plan_errors,
    find_share_errors,
)
from waystation.planning.ports import PlanRepository
from waystation.privacy.policy import TextDestination, truncate_title
from waystation.privacy.ports import Redactor
from waystation.security.untrusted import SafeMarkup, sanitize_line, wrap_untrusted

_TITLE_CHARACTERS = 60

SEND_AGAIN = "submit a plan with `waystation plan TASK --file PLAN`, which checks the plan before it sends it"
UNKNOWN_PLAN = f"the store has no plan with the id in the field `plan`: {SEND_AGAIN}"


class SubmitPlanInput(ToolInput):
    """The plan."""

    steps: tuple[Step, ...] = Field(description="In order.")


class PlanningResult(Value):
    """A runnable plan. Its goals stay in the store."""

    plan: Plan
    totals: RunUsage
    notes: tuple[str, ...] = ()


def build_plan_schema(model: type[ToolInput]) -> dict[str, JsonValue]:
    """Return the schema of a tool whose arguments contain steps, with each step's goal required.

    A `Step` without a goal is valid, because the workflow's history has no goals; a plan of a model is not.
    """
    schema = deepcopy(build_input_schema(model))
    match schema:
        case {"$defs": {"Step": {"required": list(required)}}}:
            required.append("goal")
        case _:
            pass
    return schema


SUBMIT_PLAN = ToolSpec(
    name="submit_plan",
    description=f"Submits the plan: 3 to {MAX_STEPS} steps, each before the steps that need it. Code checks the plan. "
    "If it cannot be run, the result names every error, and you submit a corrected one.",
    input_schema=build_plan_schema(SubmitPlanInput),
    strict=True,
)
PLANNING_NOTES = {
    NoAnswerReason.UNUSABLE: "The model's plan could not run, even after a correction, so the standard plan is used.",
    NoAnswerReason.TOO_DEAR: "The budget is too small for a model to plan, so the standard plan is used.",
    NoAnswerReason.NO_REPLY: "The model returned no plan, so the standard plan is used.",
}


class PlannerStore(PlanRepository, RunRepository, TaskSource, Protocol):
    """What planning needs of the store."""


@dataclass(frozen=True)
class Planner:
    """Makes plans. Planning is an agent run of its own, with a transcript: a retry asks nothing twice."""

    model: MeteredModel
    store: PlannerStore
    redactor: Redactor
    redacted_documents: RedactedDocumentStore
    """Documents as agents may see them; the planner is shown their first lines."""
    earlier_tasks: EarlierTasks

    async def create_plan(self, ref: TaskRef, options: CallOptions) -> PlanningResult:
        """Return the task's plan; the saved one, if there is one.

        Args:
            ref: The task.
            options: Model that plans, what planning may spend, prices of models, and effort.

        Raises:
            ModelError: The model did not answer.
            StoreError: The store does not answer.
            RedactionFailed: A text could not be redacted.
        """
        run = RunRef(**ref.model_dump(), step_id=PLANNING_ID, role="planning")
        saved = await self.store.get_newest_plan(ref.task_id, ref.scope)
        if saved is not None:
            return PlanningResult(plan=saved.without_goals(), totals=await self.store.get_run_usage(run.run_id))
        plan, notes = await self._made(run, options)
        redactor = await load_task_redactor(self.redactor, self.store, run.scope)
        await self.store.save_plan(ref.task_id, await redact_titles_and_ids(plan, redactor, run.tenant))
        kept = await self.store.get_newest_plan(ref.task_id, ref.scope) or plan
        return PlanningResult(plan=kept.without_goals(), totals=await self.store.get_run_usage(run.run_id), notes=notes)

    async def apply_plan_edit(self, ref: TaskRef, edit: PlanEdit, remaining: Limit) -> PlanEditResult:
        """Store a person's plan as the task's newest version. Idempotent. `left`: limit for all its steps.

        Raises StoreError, RedactionFailed.
        """
        try:
            plan = Plan.model_validate_json(await self.store.get_text(edit.plan, ref.scope))
        except (TextNotFoundError, ValidationError):
            return PlanEditResult(reason=UNKNOWN_PLAN)
        if faults := find_plan_errors(plan):
            return PlanEditResult(reason=f"the plan cannot be run ({format_count(len(faults), 'fault')}): {SEND_AGAIN}")
        if faults := find_share_errors(plan, remaining):
            return PlanEditResult(reason="; ".join(faults))
        versions = await self.store.list_plan_versions(ref.task_id, ref.scope)
        known = next((one.plan for one in versions if one.made_by == edit.made_by), None)
        if known is None:
            redactor = await load_task_redactor(self.redactor, self.store, ref.scope)
            known = await redact_titles_and_ids(
                plan, redactor, ref.tenant, [step.id for step in versions[-1].plan.steps]
            )
            number = versions[-1].number + 1
            version = PlanVersion(number=number, plan=known, made_by=edit.made_by, reason=PERSON_EDIT_REASON)
            await self.store.save_plan_version(ref.task_id, version)
        return PlanEditResult(plan=known.without_goals())

    async def _made(self, run: RunRef, means: CallOptions) -> tuple[Plan, tuple[str, ...]]:
        matter = StructuredPrompt(
            run=run,
            kind="plan",
            system=build_planning_prompt(),
            tool=SUBMIT_PLAN,
            build_first_message=lambda: self._task(run),
            destination=TextDestination.USER_INPUT,
            parse=_plan,
            rejection_heading="This plan cannot be run",
        )
        made = await StructuredCaller(self.model, self.store, self.redactor).request_answer(matter, means)
        if not isinstance(made, NoAnswer):
            return made, ()
        return build_standard_plan((await self.store.get_task(run.task_id, run.scope)).request.question), (
            made.format_note(PLANNING_NOTES),
        )

    async def _task(self, run: RunRef) -> str:
        row = await self.store.get_task(run.task_id, run.scope)
        earlier = await self.earlier_tasks.render_listing(row, row.config.default.window)
        documents = await self.store.list_documents(run.task_id, run.scope)
        previews = render_previews(
            await build_document_previews(documents, self.redacted_documents, self.redactor, run.scope), len(documents)
        )
        more = [part for part in (previews, earlier) if part]
        return wrap_untrusted("task", *await render_task_sections(row, documents, self.redactor, more))


def render_previews(previews: Sequence[DocumentPreview], count: int) -> SafeMarkup | None:
    """Render one line a document in a tag; None without any. `count`: number of documents of the task."""
    lines = [f"- {sanitize_line(one.name)}: {one.text}" for one in previews]
    return wrap_untrusted("previews", *lines, documents=f"{len(lines)} of {count}") if lines else None


async def redact_titles_and_ids(plan: Plan, redactor: Redactor, tenant: str, known: Collection[str] = ()) -> Plan:
    """Redact titles and IDs, which the Temporal UI shows. IDs in `known` stay. Raises RedactionFailed."""
    titles = await redactor.redact([step.title for step in plan.steps], TextDestination.TITLE, tenant)
    spelled = [step.id.replace("-", " ") for step in plan.steps]
    ids = await redactor.redact(spelled, TextDestination.TITLE, tenant)
    told = [step.id for step, words, safe in zip(plan.steps, spelled, ids, strict=True) if safe.text != words]
    steps = zip(plan.steps, titles, strict=True)
    titled = tuple(step.replace(title=truncate_title(title.text, _TITLE_CHARACTERS)) for step, title in steps)
    return anonymise_step_ids(Plan(steps=titled), set(told) - set(known))


def _plan(arguments: Mapping[str, JsonValue]) -> Plan:
    plan = Plan(steps=SubmitPlanInput.model_validate(arguments).steps).without_shares()
    if errors := find_plan_errors(plan):
        raise UnusableAnswerError(*errors)
    return plan
