"""A rollout and a rollback while tasks stand in every phase."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from temporalio.client import Client

from tests.support.builds import (
    DOCUMENTS,
    LOOK_SECONDS,
    NEW,
    OLD,
    PHASES,
    BuildTrace,
    HoldingInterceptor,
    ModelOfPhases,
    fetch_build_id,
    list_builds,
    run_build,
    trace_builds,
)
from tests.support.send_letter_tool import SendLetterTool
from tests.support.temporal_platform import (
    TaskHandle,
    TaskSubmitter,
    make_task_request,
    open_activity_deps,
    wait_until,
)
from waystation.documents.table_engine.engine import DuckDbTableEngine
from waystation.privacy.ports import Redactor
from waystation.runtime.temporal.deployment_client import BuildStatus, TemporalDeploymentClient
from waystation.tasks.approvals import APPROVE_BUDGET
from waystation.tasks.task import TaskPhase, make_task_id
from waystation.workers.external_systems import ToolBackends
from waystation.workflows.task import TaskWorkflow


@dataclass(frozen=True)
class RolloutResult:
    """How the tasks of a rollout ended, by wave and phase."""

    ends: Mapping[tuple[str, str], TaskPhase]
    traces: Mapping[tuple[str, str], BuildTrace]
    builds: Sequence[BuildStatus]
    """The builds when all tasks had ended."""


@dataclass(frozen=True)
class PhasedTasks:
    """Submits tasks that come to stand in a phase, and lets them go on."""

    submitter: TaskSubmitter
    holder: HoldingInterceptor
    phases: Sequence[str]

    def get_task(self, wave: str, phase: str) -> TaskHandle:
        """Return the task of a wave that stands in this phase."""
        return self.submitter.get_task_handle(f"{wave} {phase}")

    def list_waiting(self, wave: str) -> list[TaskHandle]:
        """Return the tasks that wait for a person."""
        return [self.get_task(wave, phase) for phase in self.phases if not PHASES[phase].held]

    def _get_held_id(self, wave: str, phase: str) -> str:
        task_id, subagent = self.get_task(wave, phase).id, PHASES[phase].subagent
        return f"{task_id}/{subagent}" if subagent else task_id

    async def start(self, wave: str) -> None:
        """Submit a task for each phase, and wait until it stands there."""
        for phase in self.phases:
            if PHASES[phase].held:
                self.holder.held[self._get_held_id(wave, phase)] = PHASES[phase].held
            request = make_task_request(f"{wave} {phase}", question=f"How is the bar crossed, in {wave} {phase}?")
            assert make_task_id(request) == self.get_task(wave, phase).id
            await self.submitter.submit(request, under=PHASES[phase].config, documents=DOCUMENTS)

        async def list_missing() -> list[str]:
            missing: list[str] = []
            for phase in self.phases:
                if PHASES[phase].held:
                    reached = self._get_held_id(wave, phase) in self.holder.arrived
                else:
                    reached = bool(await list_open_requests(self.get_task(wave, phase)))
                missing += [] if reached else [phase]
            return missing

        async def stand() -> bool:
            await asyncio.sleep(LOOK_SECONDS)
            return not await list_missing()

        try:
            await wait_until(stand)
        except TimeoutError as error:
            raise AssertionError(f"{wave}: these did not reach their phase: {await list_missing()}") from error

    async def finish(self, wave: str) -> dict[tuple[str, str], TaskPhase]:
        """Release what is held, answer what is asked, and wait until all tasks have ended."""
        for phase in self.phases:
            self.holder.held.pop(self._get_held_id(wave, phase), None)
        ended = await asyncio.gather(*(answer_until_ended(self.get_task(wave, phase)) for phase in self.phases))
        return {(wave, phase): end for phase, end in zip(self.phases, ended, strict=True)}


async def list_open_requests(task: TaskHandle) -> list[dict[str, str]]:
    """Return an approval for each request that waits."""
    approvals = (await task.query(TaskWorkflow.progress)).approvals
    return [
        {"request_id": one.request_id, "by": "Ada"} | ({"action": one.action.tool} if one.action is not None else {})
        for one in approvals
        if one.decision == "pending"
    ]


async def answer_until_ended(task: TaskHandle) -> TaskPhase:
    """Approve everything that a task asks for until it ends."""
    result = asyncio.create_task(task.result())
    while not result.done():
        for answer in await list_open_requests(task):
            await task.signal(APPROVE_BUDGET, answer)
        await asyncio.wait([result], timeout=LOOK_SECONDS)
    return result.result().phase


async def roll_out_and_back(client: Client, folder: Path, redactor: Redactor, phases: Sequence[str]) -> RolloutResult:
    """Roll the new build out and back.

    Tasks of the wave "moved" begin on the old build and end while the new one is current; those of "returned" stand
    from before the rollout until after the rollback; those of "new" begin on the new build and end after the rollback.
    """
    holder = HoldingInterceptor()
    async with open_activity_deps(folder, redactor, ModelOfPhases()) as opened:
        parts = replace(opened, tool_backends=ToolBackends(tables=DuckDbTableEngine(), web=(SendLetterTool(),)))
        deployment, submitter = TemporalDeploymentClient(client), TaskSubmitter(client, parts.store)
        tasks = PhasedTasks(submitter, holder, phases)

        async def moved_to(build_id: str, wave: str) -> bool:
            await asyncio.sleep(LOOK_SECONDS)
            return {await fetch_build_id(client, task.id) for task in tasks.list_waiting(wave)} == {build_id}

        async with run_build(client, parts, OLD, interceptors=[holder]):
            await asyncio.gather(tasks.start("moved"), tasks.start("returned"))
            async with run_build(client, parts, NEW, interceptors=[holder]):
                await deployment.set_current(NEW)
                assert await deployment.nudge_tasks() == 2 * len(phases)
                await wait_until(lambda: moved_to(NEW, "returned"))
                ends = await tasks.finish("moved")
                await tasks.start("new")
                await deployment.set_current(OLD)
                await deployment.nudge_tasks()
                await wait_until(lambda: moved_to(OLD, "returned"))
                ends |= await tasks.finish("returned") | await tasks.finish("new")

                async def drained() -> bool:
                    return [build.state for build in await list_builds(client)] == ["current", "drained"]

                await wait_until(drained)
                builds = await list_builds(client)
        traces = {key: await trace_builds(client, tasks.get_task(*key).id) for key in ends}
    return RolloutResult(ends, traces, builds)


def check_rollout(result: RolloutResult) -> None:
    """Fail if a task did not end, was patched or failed a workflow task, or did not move as it should."""
    assert {key: end for key, end in result.ends.items() if end is not TaskPhase.DONE} == {}
    troubled = {key: trace for key, trace in result.traces.items() if trace.failed_workflow_tasks or trace.patches}
    assert troubled == {}
    for (wave, phase), trace in result.traces.items():
        if not PHASES[phase].held:
            assert trace.builds == {"moved": (OLD, NEW), "returned": (OLD, NEW, OLD), "new": (NEW, OLD)}[wave], phase
    began = {
        wave: {trace.builds[0] for key, trace in result.traces.items() if key[0] == wave} for wave, _ in result.traces
    }
    assert began == {"moved": {OLD}, "returned": {OLD}, "new": {NEW}}
    # Agents in the middle of their work move, too, when their legs have ended.
    assert result.traces["moved", "leg"].builds == (OLD, NEW)
    assert result.traces["new", "leg"].builds == (NEW, OLD)
    assert [(build.build_id, build.workflows) for build in result.builds] == [(OLD, 0), (NEW, 0)]
