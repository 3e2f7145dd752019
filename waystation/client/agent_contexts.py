"""Agents' contexts as the client shows and edits them: shares of the context window, audits of compactions, searches of
memory, and rewinds of finished tasks.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta

from pydantic import Field

from waystation.agents.auditor import CompactionAuditor
from waystation.agents.leg import LegState
from waystation.agents.prompt_sections import PromptCandidate, PromptSection, allocate_prompt, compute_prompt_demands
from waystation.agents.redaction import load_task_redactor
from waystation.agents.roles import AgentDeps, load_role_prompt
from waystation.agents.tool_visibility import ToolPolicy
from waystation.agents.tools.documents import ReadSkillTool
from waystation.agents.tools.notes import ReadNotesTool, TakeNoteTool
from waystation.agents.tools.recall import ExpandReferenceTool, RecallTool
from waystation.agents.tools.submissions import ReadFindingsTool
from waystation.agents.transcript_rewind import build_transcript_rewind
from waystation.client.store_queries import list_agent_ids
from waystation.config.settings import Settings
from waystation.context.tokens import TokenEstimator
from waystation.context.transcript import Transcript
from waystation.documents.redacted_documents import RedactedDocumentStore
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput, MemoryUnavailable, RedactionFailed
from waystation.kernel.refs import RunRef
from waystation.kernel.value import EagerValue, UtcMoment, Value
from waystation.memory.indexing import RECALLED_TOKENS, MemoryRecall
from waystation.memory.passages import MemoryExcerpt, MemoryQuery, Passage, PassageKind, ScoredPassage
from waystation.privacy.policy import RedactionResult, TextDestination
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.store_setup import get_placeholder_key
from waystation.runtime.temporal.task_client import TemporalTaskClient
from waystation.tasks.continuation import TaskRewind, build_reopened_state
from waystation.tasks.earlier_tasks import EarlierTaskReader
from waystation.tasks.session import build_session_input_for_row
from waystation.tasks.signals import MAX_INSTRUCTIONS_CHARACTERS, AnswerResult, ContextEditInput
from waystation.tasks.state import TaskState
from waystation.tasks.task import (
    TaskRow,
    make_session_workflow_id,
    session_hash,
    tenant_hash,
)
from waystation.tasks.view import AgentCompactionAudits, MemoryWithEmbedder, NextPromptView, StepView, TaskView


def build_idle_agent_deps(store: SqlStore, policy: ToolPolicy) -> AgentDeps:
    """Build the dependencies of agents that call nothing, to list their tools and count the tokens of those.

    Has our own tools only, without those of the web and of tool servers. Memory stays closed, and no text is redacted.
    """
    # These imports take a second.
    from waystation.documents.redacted_documents import RedactedTableReader  # noqa: PLC0415
    from waystation.documents.search import HybridDocumentSearch  # noqa: PLC0415
    from waystation.documents.table_engine.engine import DuckDbTableEngine  # noqa: PLC0415
    from waystation.documents.table_redaction import TableRedactor  # noqa: PLC0415
    from waystation.memory.embedders.local import NoEmbedder  # noqa: PLC0415
    from waystation.memory.indexing import MemoryRecall  # noqa: PLC0415

    redactor = UnavailableRedactor()
    return AgentDeps(
        store=store,
        search=HybridDocumentSearch(store),
        memory_recall=MemoryRecall(UnavailableMemory(), NoEmbedder(), redactor),
        redactor=redactor,
        redacted_documents=RedactedDocumentStore(store, redactor),
        earlier_tasks=EarlierTaskReader(store),
        tables=RedactedTableReader(DuckDbTableEngine(), TableRedactor(redactor, redactor), utc_now),
        policy=policy,
    )


RESULT_SECTIONS: Mapping[str, PromptSection] = {
    TakeNoteTool.name: PromptSection.SEMANTIC,
    ReadNotesTool.name: PromptSection.SEMANTIC,
    ReadFindingsTool.name: PromptSection.SEMANTIC,
    ReadSkillTool.name: PromptSection.PROCEDURAL,
    RecallTool.name: PromptSection.RETRIEVED,
    ExpandReferenceTool.name: PromptSection.RETRIEVED,
}
"""Prompt sections of tools whose results are not observations."""


async def load_agent_contexts(
    store: SqlStore, row: TaskRow, view: TaskView, agent: str | None, policy: ToolPolicy
) -> tuple[NextPromptView, ...]:
    """Return the prompt sections of one agent, or of each that has begun. Raises BadInput for an unknown agent."""
    steps = [step for step in view.steps if agent is None or step.id == agent]
    if agent is not None and not steps:
        known = ", ".join(step.id for step in view.steps) or "none yet"
        raise BadInput(f"{row.ref.task_id} has no agent {agent!r}; it has {known}")
    found: list[NextPromptView] = []
    for step in steps:
        run_id = f"{row.ref.task_id}/{step.id}"
        transcript = await store.load_transcript(run_id, row.ref.scope)
        if transcript.messages:
            ended = await store.get_leg_outcome(run_id, step.legs, row.ref.scope)
            standing = ended.state if ended is not None else LegState(totals=await store.get_run_usage(run_id))
            known = standing.fixed_tokens > 0
            if not known:
                fixed = await _own_tools(build_idle_agent_deps(store, policy), row, step, transcript)
                standing = standing.replace(fixed_tokens=fixed)
            context = _context(row, step, transcript, standing)
            found.append(context.replace(system_known=known))
    return tuple(found)


async def _own_tools(deps: AgentDeps, row: TaskRow, step: StepView, transcript: Transcript) -> int:
    """Return the estimated tokens of the system prompt and of our own tools."""
    run = RunRef.model_validate({**row.ref.model_dump(), "step_id": step.id, "role": step.role})
    toolbox = await deps.build_agent_toolbox(run, row.config.get_config(run.role), transcript)
    return toolbox.estimate_prompt_overhead(load_role_prompt(run.role))


def _context(row: TaskRow, step: StepView, transcript: Transcript, state: LegState) -> NextPromptView:
    terms = row.config.get_config(step.role)
    measure = TokenEstimator(fixed_tokens=state.fixed_tokens, token_ratio=state.token_ratio)
    demands = {
        **compute_prompt_demands(transcript, measure, RESULT_SECTIONS),
        PromptSection.WORK: [PromptCandidate(name="room for the reply", tokens=terms.max_output, divisible=True)],
    }
    return NextPromptView(
        agent=step.id,
        model=terms.model,
        turn=transcript.turn_count + 1,
        window=terms.window,
        trigger=terms.trigger,
        cached_share=step.usage.cached_share,
        system_known=True,
        allocation=allocate_prompt(terms.window, demands),
    )


async def audit_compactions(
    settings: Settings, store: SqlStore, row: TaskRow, agent: str | None, memory: MemoryWithEmbedder | None
) -> tuple[AgentCompactionAudits, ...]:
    """Audit the compactions of one agent, or of every agent that has any.

    Without memory, recall is judged by the passages that the store has.

    Raises:
        BadInput: The task has no such agent.
        RedactionFailed: A text could not be redacted.
        MemoryUnavailable: Memory was given and does not answer.
    """
    task = row.ref
    logs = {
        one: await store.load_transcript(f"{task.task_id}/{one}", task.scope)
        for one in await list_agent_ids(store, task.task_id, task.scope, agent)
    }
    compacted = {one: log for one, log in logs.items() if log.compactions}
    if not compacted:
        return ()
    # Presidio takes seconds and hundreds of megabytes; nothing else in the client needs it.
    from waystation.runtime.redaction_setup import create_redactor  # noqa: PLC0415

    redactor = create_redactor(settings, await get_placeholder_key(store, settings))
    try:
        recollection = MemoryRecall(memory.memory, memory.embedder, redactor) if memory else None
        naming = await load_task_redactor(redactor, store, task.scope)
        auditor = CompactionAuditor(naming, await store.list_task_passages(task.task_id, task.scope), recollection)
        found = [
            AgentCompactionAudits(agent=one, compactions=await auditor.audit(task, log))
            for one, log in compacted.items()
        ]
    finally:
        redactor.close()
    return tuple(one for one in found if one.compactions)


REWIND_TIMEOUT = timedelta(seconds=20)
STORE_POLL_INTERVAL = timedelta(milliseconds=100)


def validate_summary_instructions(instructions: str) -> str:
    """Return the instructions unchanged. Raises BadInput if they are too long."""
    if len(instructions) > MAX_INSTRUCTIONS_CHARACTERS:
        raise BadInput(
            f"the instructions have {len(instructions):,} characters; the maximum is {MAX_INSTRUCTIONS_CHARACTERS:,}"
        )
    return instructions


async def rewind_finished_task(
    store: SqlStore, temporal: TemporalTaskClient, row: TaskRow, edit: ContextEditInput
) -> AnswerResult:
    """Resume a finished task from an earlier message: the only edit that its contexts allow.

    Raises:
        BadInput: The rewind is not possible; nothing has changed.
        Unreachable: The server does not answer.
    """
    ref = row.ref
    if edit.action != "rewind" or edit.message is None:
        raise BadInput(
            f"{ref.task_id} has ended: the edit {edit.action!r} works only while agents run. In a task that has ended, "
            "only `waystation rewind` works"
        )
    asked = TaskRewind(
        ref=ref,
        agent=edit.agent,
        message=edit.message,
        keep_message=edit.keep is not False,
        by=edit.by,
        note=edit.note,
        requested_at=utc_now(),
    )
    await _check(store, row, asked)
    session = make_session_workflow_id(row.request.tenant, row.request.session)
    if (await temporal.rewind(build_session_input_for_row(row), session, asked, REWIND_TIMEOUT)).state != "started":
        return AnswerResult(outcome="refused", reason="the task is already running again")
    await _gone_on(store, row)
    return AnswerResult(
        outcome="done",
        reason=f"{ref.task_id} continues after the rewind; steps that used the agent's result start again",
    )


async def _gone_on(store: SqlStore, ended: TaskRow) -> None:
    """Wait until the store shows the task at work, at most `PATIENCE`: a message sent earlier would be refused."""
    for _ in range(REWIND_TIMEOUT // STORE_POLL_INTERVAL):
        if (await store.get_task(ended.ref.task_id, ended.ref.scope)).progress != ended.progress:
            return
        await asyncio.sleep(STORE_POLL_INTERVAL.total_seconds())


async def _check(store: SqlStore, row: TaskRow, rewind: TaskRewind) -> None:
    """Validate a rewind as the worker will, without any effect."""
    if row.progress is None or row.progress.state is None:
        raise BadInput(f"{row.ref.task_id} has no stored state to rewind: submit its question again")
    ended = TaskState.model_validate_json(await store.get_text(row.progress.state, row.ref.scope))
    build_reopened_state(ended, rewind, row.config.agent_budget)
    build_transcript_rewind(
        await store.load_transcript(f"{row.ref.task_id}/{rewind.agent}", row.ref.scope),
        rewind.message,
        "check",
        keep=rewind.keep_message,
    )


MEMORY_CLOSED_REASON = "memory is not open in this process"


class UnavailableMemory:
    """A `MemorySearch` without a memory. Every method raises MemoryUnavailable."""

    async def search(self, query: MemoryQuery) -> tuple[ScoredPassage, ...]:  # noqa: ARG002
        """Raises MemoryUnavailable."""
        raise MemoryUnavailable(MEMORY_CLOSED_REASON)

    async def count(self, tenant: str) -> int:  # noqa: ARG002
        """Raises MemoryUnavailable."""
        raise MemoryUnavailable(MEMORY_CLOSED_REASON)


class UnavailableRedactor:
    """A `Redactor` and `PlaceholderFactory` that redacts nothing: every text is refused."""

    async def redact(
        self,
        texts: Sequence[str],  # noqa: ARG002
        destination: TextDestination,  # noqa: ARG002
        tenant: str,  # noqa: ARG002
    ) -> tuple[RedactionResult, ...]:
        """Raises RedactionFailed."""
        raise RedactionFailed("this process redacts nothing")

    async def make_placeholders(self, type_: str, values: Sequence[str], tenant: str) -> dict[str, str]:  # noqa: ARG002
        """Raises RedactionFailed."""
        raise RedactionFailed("this process redacts nothing")


MAX_QUERY_CHARACTERS, MAX_RECALLED_TOKENS = 2_000, 20_000


class MemorySearchRequest(EagerValue):
    """A person's search of memory. Fields that are not given do not narrow it."""

    query: str = Field(
        min_length=1, max_length=MAX_QUERY_CHARACTERS, description="Words to search for; they are redacted first."
    )
    session: str | None = Field(default=None, min_length=1, max_length=200, description="Only this session.")
    task: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Only this task: its id, or the first characters of the id.",
    )
    agent: str | None = Field(
        default=None, min_length=1, max_length=200, description="Only this agent, like research-1."
    )
    kind: PassageKind | None = Field(default=None, description="Only passages of this kind.")
    since: UtcMoment | None = Field(default=None, description="Only passages stored at this time or later.")
    until: UtcMoment | None = Field(default=None, description="Only passages stored before this time.")
    tokens: int = Field(
        default=RECALLED_TOKENS, ge=1, le=MAX_RECALLED_TOKENS, description="Maximum size of the result in tokens."
    )

    async def to_query(self, tenant: str, resolve: Callable[[str], Awaitable[str]]) -> MemoryQuery:
        """Build the memory query.

        Raises:
            BadInput: The query is blank, or the time is invalid; also whatever `resolve` raises.
        """
        if not self.query.strip():
            raise BadInput("the query is empty: give a few words")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise BadInput(
                f"nothing can be found: the time `since` ({self.since}) must be before the time `until` ({self.until})"
            )
        return MemoryQuery(
            tenant=tenant_hash(tenant),
            session=None if self.session is None else session_hash(tenant, self.session),
            tasks=() if self.task is None else (await resolve(self.task),),
            agents=() if self.agent is None else (self.agent,),
            kinds=() if self.kind is None else (self.kind,),
            since=self.since,
            until=self.until,
            text=self.query,
            dense=None,
        )


class MemoryMatchJson(Value):
    """An excerpt found in memory: lines of a document, or messages of a conversation."""

    passages: tuple[str, ...]
    kind: PassageKind
    score: float
    task_id: str
    agent: str
    first_message: str
    last_message: str
    document: str
    first_line: int
    last_line: int
    created: datetime
    text: str
    has_words: bool
    """Whether the text has at least one word of the query.

    Vector search returns the nearest text, however far away it is.
    """

    @classmethod
    def from_excerpt(cls, excerpt: MemoryExcerpt, query: str) -> "MemoryMatchJson":
        """Build it from an excerpt. Splitting it into words loads libraries, so the first call may take a while."""
        # The libraries that split text into words take a while to load.
        from waystation.documents.search_terms import find_term_spans  # noqa: PLC0415

        first, last = excerpt.turns[0], excerpt.turns[-1]
        return cls(
            kind=first.passage.kind,
            task_id=first.passage.task_id,
            document=first.passage.document,
            first_line=first.passage.first_line,
            passages=excerpt.short_ids,
            score=excerpt.best_turn.score,
            agent=first.passage.step_id,
            first_message=first.message_ids[0],
            last_message=last.message_ids[1],
            last_line=last.passage.last_line,
            created=last.passage.created,
            text=excerpt.text,
            has_words=any(find_term_spans(query, excerpt.text)),
        )


def format_passage_origin(found: MemoryMatchJson | Passage) -> str:
    """Format which agent or which document a passage comes from, for people."""
    agent = found.agent if isinstance(found, MemoryMatchJson) else found.step_id
    match found.kind:
        case "conversation":
            return f"{agent} of {found.task_id}"
        case "document":
            return f"{found.document} of {found.task_id}"
        case "report":
            return f"report of {found.task_id}"
        case "finding":
            return f"finding of {agent} in {found.task_id}"


class RecallResultJson(Value):
    """The result of a search of memory, best matches first."""

    found: tuple[MemoryMatchJson, ...]
    remark: str
    """Warns if perhaps none of the matches is relevant."""

    @classmethod
    def from_matches(cls, found: tuple[MemoryMatchJson, ...]) -> "RecallResultJson":
        """Build the result with its remark."""
        return cls(found=found, remark=build_recall_remark(found))


NOTHING_FITS = "none of the passages found contains a word of the query: perhaps memory has nothing that fits"


def build_recall_remark(found: Sequence[MemoryMatchJson]) -> str:
    """Return a remark on the matches; empty if they need none."""
    return NOTHING_FITS if found and not any(one.has_words for one in found) else ""
