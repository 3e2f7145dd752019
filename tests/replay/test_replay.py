import re
from collections import Counter
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from tests.support.workflow_history import join_all_strings
from waystation import __version__
from waystation.tasks.continuation import TaskWorkflowInput
from waystation.tasks.task import TaskProgress
from waystation.workers.sandbox import create_sandboxed_runner
from waystation.workflows.index_documents import IndexDocumentsWorkflow
from waystation.workflows.schedules import ScheduledRunWorkflow
from waystation.workflows.session import SessionWorkflow
from waystation.workflows.subagent import SubagentWorkflow
from waystation.workflows.task import TaskWorkflow

HISTORIES = Path(__file__).parent / "histories"
WORKFLOWS = Path(__file__).parents[2] / "workflows"
PATCHED = re.compile(r"\bpatched\(\s*\"([^\"]+)\"")

RECORDED = (TaskWorkflow, SessionWorkflow, SubagentWorkflow, IndexDocumentsWorkflow, ScheduledRunWorkflow)
RELEASES = sorted(path.relative_to(HISTORIES).with_suffix("").as_posix() for path in HISTORIES.glob("*/*.json"))


def load_history(name: str) -> WorkflowHistory:
    return WorkflowHistory.from_json(name, (HISTORIES / f"{name}.json").read_text(encoding="utf-8"))


def create_replayer(*workflows: type) -> Replayer:
    return Replayer(
        workflows=workflows,
        data_converter=pydantic_data_converter,
        workflow_runner=create_sandboxed_runner(),
    )


@workflow.defn(name="Task")
class NondeterministicTaskWorkflow(TaskWorkflow):
    """The same task, which waits a moment before it plans: one command that the history does not have."""

    @workflow.init
    def __init__(self, start: TaskWorkflowInput) -> None:
        super().__init__(start)

    @workflow.run
    async def run(self, start: TaskWorkflowInput) -> TaskProgress:
        await workflow.sleep(1)
        return await super().run(start)


@pytest.mark.parametrize("name", RELEASES)
async def test_histories_of_every_release_replay(name: str) -> None:
    await create_replayer(*RECORDED).replay_workflow(load_history(name))


def test_the_recorded_task_compacted_paused_and_was_approved() -> None:
    written = (HISTORIES / __version__ / "task.json").read_text(encoding="utf-8")
    for activity in ("PlanTask", "RunResearchAgent", "CompressAndStoreContext", "RecordAudit", "StoreReport"):
        assert f'"name": "{activity}"' in written
    assert '"signalName": "approve_budget"' in written


def test_the_recorded_division_of_work_has_all_that_can_come_to_pass() -> None:
    written = (HISTORIES / __version__ / "divided.json").read_text(encoding="utf-8")
    for activity in ("RevisePlan", "ReviewReport", "JudgeSentences", "UpdateDocuments"):
        assert f'"name": "{activity}"' in written
    for signal in ("approve_budget", "send_message", "update_documents", "subagent_news"):
        assert f'"signalName": "{signal}"' in written
    assert written.count("EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_COMPLETED") > 2
    said = join_all_strings(load_history(f"{__version__}/divided").events)
    assert all(f'"decision":"{decision}"' in said for decision in ("pending", "approved", "withdrawn"))


def test_the_recorded_answers_came_by_updates_of_which_one_waited() -> None:
    events = load_history(f"{__version__}/answered").events
    asked = [event.workflow_execution_update_accepted_event_attributes.accepted_request for event in events]
    counted = Counter(request.input.name for request in asked if request.input.name)
    assert counted == {"send_message": 1, "approve_budget": 2, "deny_budget": 1, "edit_context": 2}
    outcomes = Counter(re.findall(r'"outcome":"(\w+)"', join_all_strings(events)))
    assert outcomes == {"done": 2, "refused": 2, "denied": 1, "approved": 1}


def test_the_recorded_runs_of_a_schedule_waited_for_a_task_and_paused_the_schedule() -> None:
    waited, failed = (load_history(f"{__version__}/{name}") for name in ("scheduled", "scheduled_failed"))
    assert {"BeginScheduledRun", "LookAtScheduledTask"} <= _activities(waited)
    assert _activities(failed) == {"BeginScheduledRun", "PauseSchedule", "GetNotificationSetting"}


def _activities(history: WorkflowHistory) -> set[str]:
    asked = (event.activity_task_scheduled_event_attributes.activity_type.name for event in history.events)
    return {name for name in asked if name}


def _marked(history: WorkflowHistory) -> str:
    """What the markers of a history hold, as one text."""
    kept = (event.marker_recorded_event_attributes.details.values() for event in history.events)
    return "".join(payload.data.decode() for details in kept for payloads in details for payload in payloads.payloads)


def test_the_histories_of_this_version_reach_every_patch() -> None:
    asked = {name for source in WORKFLOWS.glob("*.py") for name in PATCHED.findall(source.read_text(encoding="utf-8"))}
    reached = "".join(_marked(load_history(name)) for name in RELEASES if name.startswith(f"{__version__}/"))
    assert [name for name in sorted(asked) if f'"{name}"' not in reached] == []


async def test_a_task_whose_commands_come_otherwise_does_not_replay() -> None:
    with pytest.raises(workflow.NondeterminismError):
        await create_replayer(NondeterministicTaskWorkflow).replay_workflow(load_history(f"{__version__}/task"))
