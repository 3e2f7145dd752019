"""A subagent: a thin workflow around its agent run, started by its task and gone whenever that has to decide."""

from pydantic import JsonValue
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from waystation.domain.agent_run import AgentRun
from waystation.domain.delegation import SubagentNews
from waystation.domain.moves import Compact, RunLeg
from waystation.domain.names import SUBAGENT_NEWS, SUBAGENT_WORKFLOW
from waystation.domain.step_progress import run_details
from waystation.domain.team import Teammate
from waystation.domain.value import Value
from workflows.agent_work import AgentWork


class SubagentStart(Value):
    """Input of the workflow."""

    run: AgentRun
    title: str
    """Redacted."""
    task_used: float
    """The share of the task's budget that was spent when it was started."""
    team: tuple[Teammate, ...] = ()
    """As it was then. Not known of those that an earlier release started."""


@workflow.defn(name=SUBAGENT_WORKFLOW)
class SubagentWorkflow:
    """Works until it needs its task: for money, for subagents of its own, or because it has delivered.

    It holds no decision: its task is the one place where budgets and answers are kept, and starts it again with the
    run as it is then. So a paused subagent is no workflow at all.
    """

    @workflow.init
    def __init__(self, start: SubagentStart) -> None:
        self._start, self._run, self._called_back = start, start.run, False
        self._told = start.run.leg
        self._work = AgentWork(self, start.run.run.step_id)

    @workflow.run
    async def run_until_it_needs_its_task(self, start: SubagentStart) -> AgentRun:
        """The run as it is when it can go no further on its own, or was called back."""
        self.keep(start.run)
        while not (self._called_back or workflow.info().is_continue_as_new_suggested()):
            match self._run.next_move():
                case RunLeg(request=request):
                    await self._tell()
                    await self._work.leg(request)
                case Compact(request_tokens=tokens):
                    await self._tell()
                    await self._work.compact(tokens)
                case _:
                    break
        return self._run

    @workflow.signal(description="Come back to the task when the present leg is over. Sent by the task.")
    def call_back(self, *_: JsonValue) -> None:
        """Whatever is sent."""
        self._called_back = True

    def run(self, step_id: str) -> AgentRun:  # noqa: ARG002 (there is one)
        """As it is now."""
        return self._run

    def keep(self, run: AgentRun) -> None:
        """As it is from now on, shown at once."""
        self._run = run
        workflow.set_current_details(run_details(run, self._start.title))

    @property
    def task_used(self) -> float:
        """As it was when the subagent was started."""
        return self._start.task_used

    def team(self, step_id: str) -> tuple[Teammate, ...]:  # noqa: ARG002 (there is one)
        """As it was when the subagent was started."""
        return self._start.team

    async def _tell(self) -> None:
        """How far it is after a leg, where it goes on: the task counts what it spends, and shows it."""
        run = self._run
        if run.leg == self._told:
            return
        self._told = run.leg
        news = SubagentNews(id=run.run.step_id, totals=run.totals, leg=run.leg, made=run.made)
        try:
            await workflow.get_external_workflow_handle(run.run.task_id).signal(SUBAGENT_NEWS, news)
        except ApplicationError:
            workflow.logger.warning("the task of this subagent is gone")
