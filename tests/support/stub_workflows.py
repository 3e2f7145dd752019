"""Stub session and task workflows that only answer, so that the client is tested without agents."""

from contextlib import suppress

from pydantic import JsonValue
from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.exceptions import WorkflowAlreadyStartedError

from waystation.documents.documents import SourceDocument
from waystation.kernel import temporal_names as names
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.refs import TaskRef
from waystation.tasks import approvals
from waystation.tasks.session import SessionWorkflowInput, SubmissionResult
from waystation.tasks.signals import UpdateResult
from waystation.tasks.task import ApprovalRequest, BudgetProgress, TaskPhase, TaskProgress

DOCUMENTS = (SourceDocument(name="a.md", text="# A\n"),)
PENDING_ATTRIBUTE_KEY = SearchAttributeKey.for_int(names.PENDING_ATTRIBUTE)
PENDING_APPROVAL = ApprovalRequest(request_id="r1", agent="research-1", requested=Amount(tokens=30_000))


@workflow.defn(name=names.SESSION_WORKFLOW)
class StubSessionWorkflow:
    def __init__(self) -> None:
        self.limit: JsonValue = None

    @workflow.run
    async def run(self, start: SessionWorkflowInput) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.update(name=names.SUBMIT_TASK)
    async def submit_task(self, task: TaskRef) -> SubmissionResult:
        with suppress(WorkflowAlreadyStartedError):
            child = await workflow.start_child_workflow(
                names.TASK_WORKFLOW,
                task,
                id=task.task_id,
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                search_attributes=TypedSearchAttributes([SearchAttributePair(PENDING_ATTRIBUTE_KEY, 1)]),
            )
            # Otherwise the end of a cancelled child is logged later, as an error that was never retrieved.
            child.add_done_callback(lambda over: over.cancelled() or over.exception())
        return SubmissionResult(task_id=task.task_id, state="started")

    @workflow.signal(name=names.SET_SESSION_LIMIT)
    def set_session_limit(self, limit: dict[str, JsonValue]) -> None:
        self.limit = limit["tokens"]

    @workflow.query
    def limit_now(self) -> JsonValue:
        return self.limit


@workflow.defn(name=names.TASK_WORKFLOW)
class StubTaskWorkflow:
    """Waits for one approval, refuses amounts of one token, and ends."""

    @workflow.init
    def __init__(self, task: TaskRef) -> None:
        self.now = TaskProgress(
            task_id=task.task_id,
            phase=TaskPhase.PAUSED,
            title="Which?",
            model="m",
            budget=BudgetProgress(limit=Limit(tokens=1), spent=Amount(tokens=0), reserved=Amount(tokens=0)),
            approvals=(PENDING_APPROVAL,),
        )

    @workflow.run
    async def run(self, task: TaskRef) -> TaskProgress:
        await workflow.wait_condition(lambda: self.now.phase.over)
        return self.now

    @workflow.query(name=names.PROGRESS)
    def progress(self) -> TaskProgress:
        return self.now

    @workflow.query(name=names.PHASE)
    def phase(self) -> TaskPhase:
        return self.now.phase

    @workflow.signal
    def open_requests(self, names: list[str]) -> None:
        """Replace the open requests."""
        self.now = self.now.replace(approvals=tuple(PENDING_APPROVAL.replace(request_id=name) for name in names))

    @workflow.update(name=approvals.APPROVE_BUDGET)
    def approve(self, answer: dict[str, JsonValue]) -> UpdateResult:
        if answer.get("tokens") == 1:
            return UpdateResult(outcome="refused", reason="too few")
        note = str(sorted(answer.items()))
        approved = PENDING_APPROVAL.replace(decision="approved", note=note)
        self.now = self.now.replace(phase=TaskPhase.DONE, approvals=(approved,))
        return UpdateResult(outcome="approved", reason=note)

    @workflow.update(name=approvals.DENY_BUDGET)
    def deny(self, answer: dict[str, JsonValue]) -> UpdateResult:
        self.now = self.now.replace(phase=TaskPhase.PARTIAL, approvals=(PENDING_APPROVAL.replace(decision="denied"),))
        return UpdateResult(outcome="denied")

    @workflow.signal(name=approvals.DENY_BUDGET)
    def deny_later(self, answer: dict[str, JsonValue]) -> None:
        """As the client sends it where nobody answers."""
        denied = PENDING_APPROVAL.replace(decision="denied", answer_id=str(answer["answer_id"]))
        self.now = self.now.replace(phase=TaskPhase.PARTIAL, approvals=(denied,))
