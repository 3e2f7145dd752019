"""What the client tells of agents' next requests: who gets how much of the window, from what the store holds."""

from collections.abc import Mapping, Sequence

from waystation.adapters.store import SqlStore
from waystation.agents.roles import Desk, prompt
from waystation.agents.tools.expand import Expand
from waystation.agents.tools.read_findings import ReadFindings
from waystation.agents.tools.read_notes import ReadNotes
from waystation.agents.tools.read_skill import ReadSkill
from waystation.agents.tools.recall import Recall
from waystation.agents.tools.take_note import TakeNote
from waystation.client.desk import idle_desk
from waystation.domain.compaction.history import current
from waystation.domain.compaction.tokens import Measure, estimate_text
from waystation.domain.errors import BadInput
from waystation.domain.layers import Allocation, Layer, Part, allocate
from waystation.domain.leg import RunRef, Standing
from waystation.domain.projection import ToolPolicy
from waystation.domain.reminder import Reminder, recent_failures
from waystation.domain.request_layers import demands_of
from waystation.domain.task import StepProgress, TaskProgress, TaskRow
from waystation.domain.team import team_of
from waystation.domain.transcript import Transcript
from waystation.domain.value import Value

RESULT_LAYERS: Mapping[str, Layer] = {
    TakeNote.name: Layer.SEMANTIC,
    ReadNotes.name: Layer.SEMANTIC,
    ReadFindings.name: Layer.SEMANTIC,
    ReadSkill.name: Layer.PROCEDURAL,
    Recall.name: Layer.RETRIEVED,
    Expand.name: Layer.RETRIEVED,
}
"""Of tools whose results are no observations."""


class AgentContext(Value):
    """The next request of one agent, in layers."""

    agent: str
    model: str
    turn: int
    window: int
    trigger: int
    """From so many tokens on the context counts as full."""
    cached_share: float
    """Of the input of all its calls so far, what was read from the provider's cache."""
    system_known: bool
    """Whether system prompt and tools are as a leg has measured them. Before the first has ended they are estimated
    without tools of the web and of tool servers.
    """
    allocation: Allocation


async def contexts(
    store: SqlStore, row: TaskRow, progress: TaskProgress, agent: str | None, policy: ToolPolicy
) -> tuple[AgentContext, ...]:
    """Of one agent, or of each that has begun. Raises BadInput for an agent that the task does not have."""
    steps = [step for step in progress.steps if agent is None or step.id == agent]
    if agent is not None and not steps:
        known = ", ".join(step.id for step in progress.steps) or "none yet"
        raise BadInput(f"{row.ref.task_id} has no agent {agent!r}; it has {known}")
    found: list[AgentContext] = []
    for step in steps:
        run_id = f"{row.ref.task_id}/{step.id}"
        transcript = await store.load(run_id, row.ref.reader)
        if transcript.messages:
            ended = await store.outcome(run_id, step.legs, row.ref.reader)
            standing = ended.standing if ended is not None else Standing(totals=await store.totals(run_id))
            known = standing.fixed > 0
            if not known:
                fixed = await _own_tools(idle_desk(store, policy), row, step, transcript)
                standing = standing.model_copy(update={"fixed": fixed})
            context = _context(row, progress, step, transcript, standing)
            found.append(context.model_copy(update={"system_known": known}))
    return tuple(found)


async def _own_tools(desk: Desk, row: TaskRow, step: StepProgress, transcript: Transcript) -> int:
    """Estimated tokens of system prompt and tools, as far as they are ours."""
    run = RunRef.model_validate({**row.ref.model_dump(), "step_id": step.id, "role": step.role})
    toolbox = await desk.toolbox_of(run, row.terms.agent_of(run.role), transcript)
    return toolbox.fixed_tokens(prompt(run.role))


def _context(
    row: TaskRow, progress: TaskProgress, step: StepProgress, transcript: Transcript, standing: Standing
) -> AgentContext:
    terms = row.terms.agent_of(step.role)
    terms = terms.narrowed(standing.window or terms.window)
    measure = Measure(fixed=standing.fixed, scale=standing.scale)
    reminder = _reminder(row, progress.steps, step, transcript).text(terms.window)
    demands = {
        **demands_of(transcript, measure, RESULT_LAYERS),
        Layer.RUNTIME: [Part(name="reminder", tokens=measure.part(estimate_text(reminder)), firm=True)],
        Layer.WORK: [Part(name="room for the reply", tokens=terms.max_output, divisible=True)],
    }
    return AgentContext(
        agent=step.id,
        model=terms.model,
        turn=transcript.turns + 1,
        window=terms.window,
        trigger=terms.trigger,
        cached_share=step.usage.cached_share,
        system_known=True,
        allocation=allocate(terms.window, demands),
    )


def _reminder(row: TaskRow, steps: Sequence[StepProgress], step: StepProgress, transcript: Transcript) -> Reminder:
    return Reminder(
        step_id=step.id,
        turn=transcript.turns + 1,
        left=step.limit.after(step.spent),
        final=row.terms.agent.hard,
        team=team_of(steps, step.id),
        failures=recent_failures(current(transcript).messages),
    )
