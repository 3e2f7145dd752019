"""Values that the store's tests write."""

from datetime import UTC, datetime

from waystation.agents.deliverables import Note
from waystation.agents.leg import AgentConfig
from waystation.budgets.budget import BudgetMode
from waystation.context.transcript import CallIntent, Charge, Fence, Message, SummaryRecord, Text, build_user_message
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.refs import RunRef, TaskRef
from waystation.kernel.usage import Usage
from waystation.memory.passages import Passage
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.task import (
    TaskConfig,
    TaskRequest,
    TaskRow,
    make_own_session_name,
    make_task_id,
    session_hash,
    tenant_hash,
)

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
TASK_CONFIG = TaskConfig(
    budget=Limit(tokens=600_000),
    agent_budget=Limit(tokens=100_000),
    mode=BudgetMode.APPROVAL,
    default=AgentConfig(model="model", condense_model="small", window=50_000, trigger=37_500, target=18_750),
    plan_model="model",
    offline=False,
)


def make_task_request(
    request_id: str = "first", *, question: str = "Why is the sky blue?", tenant: str = "local", session: str = ""
) -> TaskRequest:
    """Make a request in a session of its own unless one is named."""
    session = session or make_own_session_name(request_id)
    return TaskRequest(question=question, request_id=request_id, tenant=tenant, session=session)


def make_task_row(asked: TaskRequest) -> TaskRow:
    ref = TaskRef(
        store_id="store",
        tenant=tenant_hash(asked.tenant),
        session=session_hash(asked.tenant, asked.session),
        task_id=make_task_id(asked),
    )
    return TaskRow(ref=ref, request=asked, config=TASK_CONFIG, submitted_at=NOON)


async def open_run(store: SqlStore, step_id: str = "research-1") -> Fence:
    run = RunRef(
        store_id=await store.get_store_id(),
        tenant="tenant",
        session="session",
        task_id="task-1",
        step_id=step_id,
        role="research",
    )
    await store.open_run(run)
    return await store.acquire_fence(run.run_id)


def make_reply(number: int) -> Message:
    return Message(id=f"reply-{number}", role="assistant", blocks=(Text(text=f"Reply {number} – “so”"),))


def make_question(number: int) -> Message:
    return build_user_message(f"question-{number}", f"Question {number}")


def make_charge(key: str, *, cost: int | None = 7, usage: Usage | None = None) -> Charge:
    kind = "turn" if key.startswith("turn") else "summary"
    used = usage or Usage(input=10, cache_write=20, cache_read=30, output=5)
    return Charge(key=key, kind=kind, model="model", usage=used, cost_micro_usd=cost, at=NOON)


def make_intent(key: str, worst_case: int = 1_000) -> CallIntent:
    return CallIntent(key=key, model="model", worst_case=Amount(tokens=worst_case), at=NOON)


def make_summary(record_id: str = "summary-1", after: int | None = None) -> SummaryRecord:
    message = build_user_message(f"{record_id}-message", "What happened so far")
    return SummaryRecord(
        id=record_id, strategy="summarise", covered=("question-1", "reply-1"), summary=message, after=after
    )


def make_passage(passage_id: str, run_id: str = "task-1/research-1", task_id: str = "task-1") -> Passage:
    return Passage(
        id=passage_id,
        tenant="tenant",
        session="session",
        task_id=task_id,
        run_id=run_id,
        step_id="research-1",
        first_message="question-1",
        last_message="reply-1",
        text="Question 1, Reply 1",
        content_hash="hash",
        created=NOON,
    )


def make_note(note_id: str, run_id: str) -> Note:
    return Note(id=note_id, run_id=run_id, text="Blue scatters most.", document="sky.md", first_line=1, last_line=2)
