"""What the agents of a task have handed over so far, step by step."""

from dataclasses import dataclass

from waystation.domain.delegation import SEPARATOR, step_of
from waystation.domain.ownership import OfTask
from waystation.domain.plan import Plan
from waystation.domain.work import Analysis, Deliverable, Findings, Note, ReportDraft, findings_from_notes
from waystation.ports import TaskStore, WorkStore


@dataclass(frozen=True)
class HandedOver:
    """By the steps of the newest plan, in its order."""

    plan: Plan
    draft: ReportDraft
    analyses: dict[str, Analysis]
    """By step id."""
    findings: dict[str, Findings]
    """By step id: what was handed in as findings; of steps that have handed in nothing, what they and their subagents
    have found so far.
    """

    @property
    def analysis(self) -> Analysis | None:
        """All of them as one, for who reads what was concluded and not by whom."""
        made = self.analyses.values()
        if not made:
            return None
        return Analysis(
            conclusions=tuple(conclusion for one in made for conclusion in one.conclusions),
            contradictions=tuple(text for one in made for text in one.contradictions),
            gaps=tuple(text for one in made for text in one.gaps),
        )


async def handed_over(task: OfTask, tasks: TaskStore, work: WorkStore) -> HandedOver:
    """Raises StoreError."""
    plan = await tasks.plan(task.task_id, task) or Plan(steps=())
    draft, analyses, findings = ReportDraft(), dict[str, Analysis](), dict[str, Findings]()
    runs = await _runs(task, work)
    for step in plan.steps:
        match runs.handed_in.get(step.id):
            case ReportDraft() as written:
                draft = written
            case Analysis() as weighed:
                analyses[step.id] = weighed
            case Findings() as found:
                findings[step.id] = found
            case None:
                findings[step.id] = runs.so_far(step.id)
    return HandedOver(plan, draft, analyses, findings)


@dataclass(frozen=True)
class _Runs:
    """What there is of each agent run of a task, by the agent's id."""

    handed_in: dict[str, Deliverable]
    notes: dict[str, list[Note]]

    def so_far(self, step_id: str) -> Findings:
        """What a step's agent has noted, and what each of its subagents has handed in or noted."""
        agents = [agent for agent in {*self.handed_in, *self.notes} if step_of(agent) == step_id]
        of_step = [self._found(agent) for agent in sorted(agents, key=_numbers)]
        return Findings(findings=tuple(finding for found in of_step for finding in found.findings))

    def _found(self, agent: str) -> Findings:
        handed_in = self.handed_in.get(agent)
        return handed_in if isinstance(handed_in, Findings) else findings_from_notes(self.notes.get(agent, []))


async def _runs(task: OfTask, work: WorkStore) -> _Runs:
    notes = dict[str, list[Note]]()
    for note in await work.notes(task.task_id, task):
        notes.setdefault(_agent(note.run_id), []).append(note)
    return _Runs(
        {_agent(run_id): made for run_id, made in (await work.deliverables(task.task_id, task)).items()}, notes
    )


def _numbers(agent: str) -> list[int]:
    """In the order in which they were started; the step's own agent first."""
    return [int(number) for number in agent.split(SEPARATOR)[1:]]


def _agent(run_id: str) -> str:
    return run_id.rpartition("/")[2]
