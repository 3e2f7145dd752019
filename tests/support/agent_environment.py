"""The environment of agent tests: a real store, real document search, and doubles for model, redactor and memory."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tests.support.prices import PRICES
from tests.support.scopes import SYSTEM_SCOPE
from tests.support.strict_server import check_requests
from waystation.agents.call_ledger import MeteredModel
from waystation.agents.citation_checker import CitationChecker
from waystation.agents.compaction_request import CompactionRequest
from waystation.agents.compactor import Compactor
from waystation.agents.leg import AgentConfig, LegOutcome, LegRequest
from waystation.agents.loop import AgentLoop
from waystation.agents.planner import Planner
from waystation.agents.roles import AgentDeps
from waystation.agents.task_brief import BriefBuilder
from waystation.agents.tools.tool import ToolContext
from waystation.budgets.budget import BudgetMode
from waystation.context.tokens import TokenEstimator
from waystation.context.transcript import Charge, Message, PromptPrefixRecord, Record, ToolUse, Transcript
from waystation.documents.documents import SourceDocument
from waystation.documents.redacted_documents import RedactedDocumentStore, RedactedTableReader
from waystation.documents.search import HybridDocumentSearch
from waystation.documents.table_engine.engine import DuckDbTableEngine
from waystation.documents.table_redaction import TableRedactor
from waystation.kernel.amount import Limit
from waystation.kernel.refs import RunRef, TaskRef
from waystation.kernel.roles import Role
from waystation.kernel.usage import Usage
from waystation.memory.embedders.local import NoEmbedder
from waystation.memory.indexing import MemoryRecall, OutboxDrainer
from waystation.planning.plan import Plan, Step
from waystation.reports.publisher import ReportPublisher
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.earlier_tasks import EarlierTaskReader
from waystation.tasks.task import TaskConfig, TaskRequest, TaskRow, make_own_session_name, tenant_hash
from waystation.testing.doubles import ListMemory, PlainRedactor, RecordingMeter, ScriptedModel

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
TASK = "task-1"
TENANT = tenant_hash("local")
"""The tenant of the default settings, so that commands on a store of the environment find its tasks."""
SECRET, SECRET_PLACEHOLDER = "sk-live-4711", "<SECRET_0123456789ab>"
"""Replaced before every model call."""
NAME, NAME_PLACEHOLDER = "Ada Lovelace", "<PERSON_7f3a2c91d04e>"
"""Replaced on the way to summariser and memory only."""
DOCUMENTS = (
    SourceDocument(name="harbour.md", text="The harbour was dug in 1811.\nIt silted up within ten years.\n"),
    SourceDocument(name="keeper.md", text=f"The keeper was {NAME}.\nHer key is {SECRET}.\n"),
)
AGENT_CONFIG = AgentConfig(
    model="claude-sonnet-5-5", condense_model="small", window=22_000, trigger=16_500, target=9_000, prices=PRICES
)
LIMIT = Limit(tokens=100_000)

TASK_REQUEST = TaskRequest(question="Why did it silt up?", request_id=TASK)


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now

    def advance(self, step: timedelta) -> None:
        self.now += step


def make_step(step_id: str, role: Role, *needs: str) -> Step:
    return Step(id=step_id, role=role, title=f"The {step_id}", goal=f"Do the {role}.", needs=needs)


PLAN = Plan(
    steps=(
        make_step("research-1", "research"),
        make_step("research-2", "research"),
        make_step("analysis", "analysis", "research-1", "research-2"),
        make_step("writing", "writing", "analysis"),
    )
)


def make_tool_use(name: str, call_id: str = "c1", /, **arguments: object) -> ToolUse:
    """Make a tool call."""
    return ToolUse.model_validate({"id": call_id, "name": name, "input": arguments})


def without_statuses(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages without the agent's status messages."""
    return tuple(message for message in messages if not message.is_status)


def without_prefix_records(transcript: Transcript) -> tuple[Record, ...]:
    """Return the records except those that say what is sent."""
    return tuple(record for record in transcript.records if not isinstance(record, PromptPrefixRecord))


def find_status_texts(messages: Sequence[Message]) -> list[str]:
    """Return the status messages among these, oldest first."""
    return [message.text for message in messages if message.is_status]


def never_interrupted() -> bool:
    """Return False: nothing interrupts."""
    return False


@dataclass
class AgentEnvironment:
    """Everything that the agents' code is wired to."""

    store: SqlStore
    clock: ManualClock
    store_id: str
    model: ScriptedModel = field(default_factory=lambda: ScriptedModel([]))
    redactor: PlainRedactor = field(
        default_factory=lambda: PlainRedactor({SECRET: SECRET_PLACEHOLDER}, {NAME: NAME_PLACEHOLDER})
    )
    memory: ListMemory = field(default_factory=ListMemory)
    embedder: NoEmbedder = field(default_factory=NoEmbedder)
    meter: RecordingMeter = field(default_factory=RecordingMeter)
    terms: AgentConfig = AGENT_CONFIG
    limit: Limit = LIMIT
    task_id: str = TASK
    offline: bool = False
    task_used: float = 0.0
    pauses: list[float] = field(default_factory=list[float])
    """Seconds that backpressure made calls wait; the tests do not really wait."""

    async def open_task(
        self,
        documents: Sequence[SourceDocument] = DOCUMENTS,
        plan: Plan | None = PLAN,
        asked: TaskRequest = TASK_REQUEST,
    ) -> None:
        """Register the task with its documents and its plan. Its id is the request's."""
        terms = TaskConfig(
            budget=Limit(tokens=600_000),
            agent_budget=Limit(tokens=100_000),
            mode=BudgetMode.APPROVAL,
            default=self.terms,
            plan_model="claude-sonnet-5-5",
            offline=self.offline,
        )
        request = asked.replace(request_id=self.task_id, session=make_own_session_name(self.task_id))
        row = TaskRow(ref=self.ref, request=request, config=terms, title="Why?", submitted_at=NOON)
        assert await self.store.register_task(row, documents)
        if plan is not None:
            await self.store.save_plan(self.task_id, plan)

    @property
    def ref(self) -> TaskRef:
        return TaskRef(store_id=self.store_id, tenant=TENANT, session="session", task_id=self.task_id)

    def run_ref(self, step_id: str = "research-1") -> RunRef:
        return RunRef(**self.ref.model_dump(), step_id=step_id, role=PLAN.get_step(step_id).role)

    @property
    def metered_model(self) -> MeteredModel:
        return MeteredModel(model=check_requests(self.model), store=self.store, clock=self.clock, meter=self.meter)

    @property
    def memory_recall(self) -> MemoryRecall:
        return MemoryRecall(memory=self.memory, embedder=self.embedder, redactor=self.redactor)

    @property
    def agent_deps(self) -> AgentDeps:
        store = self.store
        return AgentDeps(
            store=store,
            search=HybridDocumentSearch(store),
            memory_recall=self.memory_recall,
            redactor=self.redactor,
            redacted_documents=self.redacted_documents,
            earlier_tasks=EarlierTaskReader(store),
        )

    @property
    def table_reader(self) -> RedactedTableReader:
        """A reader without a cache of earlier queries."""
        return RedactedTableReader(DuckDbTableEngine(), TableRedactor(self.redactor, self.redactor), self.clock)

    @property
    def redacted_documents(self) -> RedactedDocumentStore:
        return RedactedDocumentStore(self.store, self.redactor)

    @property
    def brief_builder(self) -> BriefBuilder:
        store = self.store
        return BriefBuilder(
            store=store,
            memory_recall=self.memory_recall,
            redactor=self.redactor,
            earlier_tasks=EarlierTaskReader(store),
        )

    @property
    def agent_loop(self) -> AgentLoop:
        return AgentLoop(
            model=self.metered_model,
            deps=self.agent_deps,
            briefs=self.brief_builder,
            clock=self.clock,
            sleep=self.record_pause,
        )

    async def record_pause(self, seconds: float) -> None:
        """Record the pause without waiting."""
        self.pauses.append(seconds)

    @property
    def outbox_drainer(self) -> OutboxDrainer:
        return OutboxDrainer(store=self.store, embedder=self.embedder, memory=self.memory, redactor=self.redactor)

    @property
    def compactor(self) -> Compactor:
        return Compactor(
            model=self.metered_model, deps=self.agent_deps, outbox_drainer=self.outbox_drainer, clock=self.clock
        )

    @property
    def planner(self) -> Planner:
        store = self.store
        return Planner(
            model=self.metered_model,
            store=store,
            redactor=self.redactor,
            redacted_documents=self.redacted_documents,
            earlier_tasks=EarlierTaskReader(store),
        )

    @property
    def publisher(self) -> ReportPublisher:
        store = self.store
        check = CitationChecker(store, self.redactor, self.redacted_documents)
        return ReportPublisher(store=store, redactor=self.redactor, check=check)

    async def run_leg(self, model: ScriptedModel, number: int = 1, step_id: str = "research-1") -> LegOutcome:
        """Run a leg with this model."""
        self.model = model
        request = LegRequest(
            run=self.run_ref(step_id), leg=number, limit=self.limit, config=self.terms, task_spent_share=self.task_used
        )
        return await self.agent_loop.run(request, never_interrupted)

    async def make_tool_context(
        self, step_id: str = "research-1", call_id: str = "c1", window: int = 20_000
    ) -> ToolContext:
        """Build the context of a tool call, with a fence that is taken now."""
        run = self.run_ref(step_id)
        await self.store.open_run(run)
        fence = await self.store.acquire_fence(run.run_id)
        return ToolContext(
            run=run,
            fence=fence,
            call_id=call_id,
            transcript=await self.load_transcript(step_id),
            policy=self.terms.compaction_policy.replace(window=window),
            token_estimator=TokenEstimator(fixed_tokens=0),
        )

    async def call_tool(self, call: ToolUse, step_id: str = "research-1", window: int = 20_000) -> str:
        """Return a tool's result as the agent sees it; errors are marked."""
        site = await self.make_tool_context(step_id, call.id, window)
        result = await self.agent_deps.build_role_toolbox(site.run.role).run(call, site)
        return f"ERROR {result.content}" if result.is_error else result.content

    async def load_transcript(self, step_id: str = "research-1") -> Transcript:
        return await self.store.load_transcript(f"{self.task_id}/{step_id}", SYSTEM_SCOPE)

    async def load_messages(self, step_id: str = "research-1") -> tuple[Message, ...]:
        """Return the messages of an agent's transcript without statuses."""
        return without_statuses((await self.load_transcript(step_id)).messages)

    async def commit_conversation(self, messages: Sequence[Message]) -> None:
        """Commit this conversation to the research agent's transcript, each reply with a small charge."""
        fence, transcript = (await self.make_tool_context()).fence, await self.load_transcript()
        for message in messages:
            if message.role == "user":
                await self.store.commit_message(fence, transcript.version, message)
            else:
                key, usage = f"turn-{transcript.turn_count + 1}", Usage(input=100, output=20)
                charge = Charge(key=key, kind="turn", model="m", usage=usage, cost_micro_usd=0, at=NOON)
                await self.store.commit_reply(fence, transcript.version, message, charge)
            transcript = transcript.with_message(message)

    def make_compaction_request(self, request_tokens: int) -> CompactionRequest:
        return CompactionRequest(
            run=self.run_ref(), config=self.terms, limit=self.limit, request_tokens=request_tokens, known_records=0
        )
