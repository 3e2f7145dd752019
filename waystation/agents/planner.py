"""Planning: the model's plan, repaired once with the errors shown, else the standard plan."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import ValidationError

from waystation.agents.contract import task_parts
from waystation.agents.document_names import document_names
from waystation.agents.metered import CallKey, MeteredModel, TooDear
from waystation.agents.replies import redacted_reply
from waystation.agents.roles import prompt
from waystation.agents.tools.tool import ToolInput
from waystation.domain.amount import Limit
from waystation.domain.budget import RunTotals
from waystation.domain.compaction.view import view
from waystation.domain.leg import RunRef
from waystation.domain.messages import Message, ToolResult, user_text
from waystation.domain.plan import PLANNING_ID, Plan, Step, plan_errors, standard_plan
from waystation.domain.pricing import Price
from waystation.domain.privacy import Place
from waystation.domain.task import TaskRef
from waystation.domain.transcript import Transcript
from waystation.domain.turn import Fence
from waystation.domain.value import Value
from waystation.ports import DocumentStore, ModelRequest, Redactor, TaskStore, ToolSpec, TranscriptStore

MAX_REPLY = 2_000
REPLY_FLOOR = 512
TRIES = 2
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


class _Means(NamedTuple):
    """With which model, for how much."""

    model: str
    limit: Limit
    prices: Sequence[Price]


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
        saved = await self.tasks.plan(ref.task_id)
        if saved is not None:
            return PlanMade(plan=saved.without_goals(), totals=await self.transcripts.totals(run.run_id))
        await self.transcripts.open_run(run)
        fence = await self.transcripts.take_fence(run.run_id)
        plan, notes = await self._made(run, fence, _Means(model, limit, prices))
        await self.tasks.save_plan(ref.task_id, await self._with_safe_titles(plan, run.tenant))
        kept = await self.tasks.plan(ref.task_id) or plan
        return PlanMade(plan=kept.without_goals(), totals=await self.transcripts.totals(run.run_id), notes=notes)

    async def _made(self, run: RunRef, fence: Fence, means: "_Means") -> tuple[Plan, tuple[str, ...]]:
        transcript = await self._begun(run, fence)
        while True:
            last = transcript.messages[-1]
            if last.role == "assistant":
                plan, errors = _read(last)
                if plan is not None and not errors:
                    return plan, ()
                if transcript.turns >= TRIES:
                    note = "The model's plan could not be run, also after one repair; the standard plan is used."
                    return await self._standard(run), (note,)
                transcript = await self._appended(transcript, fence, _complaint(last, errors, transcript.next_id))
            else:
                asked = await self._asked(transcript, run.tenant, fence, means)
                if asked is None:
                    note = "The budget is too small for planning by a model; the standard plan is used."
                    return await self._standard(run), (note,)
                transcript = asked

    async def _begun(self, run: RunRef, fence: Fence) -> Transcript:
        transcript = await self.transcripts.load(run.run_id)
        if transcript.messages:
            return transcript
        request = (await self.tasks.task(run.task_id)).request
        names = await document_names(await self.documents.documents(run.task_id), self.redactor, run.tenant)
        text = f"<task>\n{task_parts(request, names.as_shown)}\n</task>"
        (redacted,) = await self.redactor.redact([text], Place.USER_INPUT, run.tenant)
        return await self._appended(transcript, fence, user_text(transcript.next_id, redacted.text))

    async def _asked(self, transcript: Transcript, tenant: str, fence: Fence, means: "_Means") -> Transcript | None:
        """One call of the model; None where its worst case does not fit."""
        request = ModelRequest(
            model=means.model,
            system=prompt("plan"),
            messages=view(transcript),
            tools=(SUBMIT_PLAN,),
            max_output=MAX_REPLY,
            require_tool=SUBMIT_PLAN.name,
        )
        left = means.limit.after((await self.transcripts.totals(transcript.run_id)).spent)
        call = await self.model.fitted(request, left, REPLY_FLOOR, means.prices)
        if isinstance(call, TooDear):
            return None
        reply, charge = await self.model.ask(fence, CallKey("plan", str(transcript.turns + 1)), call)
        blocks, _ = await redacted_reply(reply.blocks, self.redactor, tenant)
        message = Message(id=transcript.next_id, role="assistant", blocks=blocks)
        await self.transcripts.commit_reply(fence, transcript.version, message, charge)
        return transcript.with_message(message)

    async def _appended(self, transcript: Transcript, fence: Fence, message: Message) -> Transcript:
        await self.transcripts.commit_message(fence, transcript.version, message)
        return transcript.with_message(message)

    async def _standard(self, run: RunRef) -> Plan:
        return standard_plan((await self.tasks.task(run.task_id)).request.question)

    async def _with_safe_titles(self, plan: Plan, tenant: str) -> Plan:
        """Titles are shown in the Temporal UI, so they are redacted like everything there."""
        titles = await self.redactor.redact([step.title for step in plan.steps], Place.TITLE, tenant)
        steps = zip(plan.steps, titles, strict=True)
        return Plan(
            steps=tuple(step.model_copy(update={"title": title.text[:TITLE_CHARACTERS]}) for step, title in steps)
        )


def _read(message: Message) -> tuple[Plan | None, tuple[str, ...]]:
    calls = [call for call in message.tool_uses if call.name == SUBMIT_PLAN.name]
    if not calls:
        return None, ("answer with one call of submit_plan",)
    try:
        plan = Plan(steps=SubmitPlanInput.model_validate(calls[0].input).steps)
    except ValidationError as error:
        return None, tuple(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
    return plan, plan_errors(plan)


def _complaint(message: Message, errors: tuple[str, ...], message_id: str) -> Message:
    text = "This plan cannot be run:\n" + "\n".join(f"- {error}" for error in errors) + "\nHand in a corrected one."
    results = tuple(ToolResult(tool_use_id=call.id, content=text, is_error=True) for call in message.tool_uses)
    if results:
        return Message(id=message_id, role="user", blocks=results)
    return user_text(message_id, text)
