"""The gateway of assistants that submit work: whose tasks they see, what they may spend and read, and who answers their
requests.

An assistant is a program that untrusted text reaches too: it may do what was allowed beforehand, and nothing else.
"""

import asyncio
import fcntl
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Literal, Self
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

from waystation.agents.deliverables import ReportLength
from waystation.client import Client
from waystation.client.agent_contexts import MemoryMatchJson
from waystation.client.store_queries import load_redacted_document_text
from waystation.config.settings import Settings
from waystation.documents.citations import parse_citations
from waystation.documents.cited_sentences import CitedSentence
from waystation.documents.document_loading import DocumentLoadResult, assign_unique_names, load_documents, load_skills
from waystation.documents.documents import SkippedItem, SourceDocument
from waystation.documents.procedures import ProcedureSource
from waystation.kernel.amount import Amount, Limit, format_amount, format_limit, parse_limit
from waystation.kernel.errors import BadInput, UnknownTask, Unreachable
from waystation.kernel.files import create_private_folder, open_private_file
from waystation.kernel.value import Value
from waystation.memory.passages import MemoryQuery
from waystation.plugins.web.principals import AssistantPolicy
from waystation.plugins.web.request_bodies import DocumentCountLimit
from waystation.reports.blocks import NumberedSource, ReportMetadata, parse_stored_report
from waystation.reports.markdown import build_report_export, find_section, split_into_sections
from waystation.runtime.temporal.connect import resolve_temporal_target
from waystation.security.untrusted import ServerNames, sanitize_line
from waystation.tasks.details import parse_grant
from waystation.tasks.signals import AnswerResult
from waystation.tasks.task import TaskPhase, TaskRequest, session_hash, tenant_hash
from waystation.tasks.view import (
    PendingApproval,
    ReportVersionView,
    ShownLimit,
    TaskFilter,
    TaskView,
    list_pending_approvals,
)
from waystation.workers.memory import MemoryReader

MAX_ASSISTANT_TASKS = 10_000
"""Maximum tasks of one assistant: with more, its spending cannot be summed."""
MAX_SKILLS = 50
SCHEME = "waystation"
"""URI scheme of a task's resources: `waystation://tasks/TASK/report`, `waystation://tasks/TASK/documents/NAME`."""


class DocumentInput(Value):
    """A document: its text with a name, the path of a file or folder, or the address of a resource."""

    name: str = Field(default="", max_length=200, description="Name that citations use; required with text.")
    text: str | None = Field(default=None, description="Text of the document.")
    path: str | None = Field(
        default=None, max_length=4_000, description="Path of a file or folder below an allowed folder."
    )
    uri: str | None = Field(
        default=None,
        max_length=4_000,
        description="A resource: file:///…, waystation://tasks/TASK/report, waystation://tasks/TASK/documents (all "
        "documents of an earlier task), or one of these documents (…/documents/NAME).",
    )

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if sum(given is not None for given in (self.text, self.path, self.uri)) != 1:
            raise ValueError("give exactly one of text, path and uri")
        if self.text is not None and not (self.name.strip() and self.text.strip()):
            raise ValueError("a text must not be blank, and needs a name, which citations use")
        if not (self.path or self.uri or self.text or "").strip():
            raise ValueError("a path or an address must not be empty: the path `.` means the whole allowed folder")
        return self


class SubmitResearchRequest(Value):
    """What is handed over."""

    question: str
    documents: Annotated[tuple[DocumentInput, ...], DocumentCountLimit] = Field(min_length=1)
    budget: Limit | None = None
    instructions: str = ""
    accept: tuple[str, ...] = ()
    length: ReportLength | None = None
    servers: ServerNames | None = None
    skills: tuple[str, ...] = Field(default=(), max_length=MAX_SKILLS)
    request_id: str = Field(min_length=1, max_length=200)


class AcceptedTask(Value):
    """A task that was accepted. Its schema admits more fields, since a finished task has those and more."""

    model_config = ConfigDict(extra="ignore")

    task_id: str
    page: str | None
    """Web page where a person follows it; null if no pages are served."""
    budget: ShownLimit
    documents: int
    warnings: tuple[str, ...]


class ReportPart(Value):
    """A report, or a section of it, with what it cites."""

    task_id: str
    phase: TaskPhase
    version: int | None
    versions: tuple[ReportVersionView, ...]
    title: str
    sections: tuple[str, ...]
    """All headings, in order."""
    section: str | None
    """The section in this part; null: the whole report."""
    markdown: str
    """A citation is `[document:first-last]`."""
    checked: str
    """Result of the check of all its citations, as a sentence."""
    sources: tuple[NumberedSource, ...]
    """Sources cited in this part; `fault` says why a citation failed the check."""
    sentences: tuple[CitedSentence, ...] = ()
    """Sentences that cite only these sources, each with the result of the comparison with its lines."""


class FinishedTask(AcceptedTask, ReportPart):
    """What a submitted task came to, for whom the submission lasts as long: its report beside what is known at once."""


class RequestOutcome(Value):
    """What became of an answer."""

    task_id: str
    request_id: str
    outcome: str
    reason: str


class GrantForm(BaseModel):
    """What a person says to a request."""

    amount: str = Field(
        default="",
        max_length=60,
        description="Amount to grant, such as 50k tokens or $0.25; empty for the requested amount.",
    )
    note: str = Field(default="", max_length=2_000, description="Note for the audit log.")


class AnswerForm(GrantForm):
    """The same where one form takes either answer."""

    decision: Literal["approve", "deny"] = Field(
        description="approve: the agent continues; deny: the agent delivers what it has, or, if the request is about a "
        "tool call, continues without the call."
    )


class AssistantGateway:
    """The gateway of one assistant: validates and carries out its requests.

    Tasks of others are as unknown as nonexistent ones.
    """

    def __init__(
        self,
        client: Client,
        settings: Settings,
        rights: AssistantPolicy,
        memory: MemoryReader,
        page: str | None = None,
    ) -> None:
        self.client = client
        self.policy = rights
        self._memory = memory
        self._settings = settings
        self._page = f"{settings.page}/tasks/" if settings.page is not None else page
        """Address prefix of a task's page."""

    async def list_tasks(self) -> tuple[TaskView, ...]:
        """Return its newest tasks."""
        return await self.client.list_tasks(TaskFilter(session=self.policy.session_name))

    async def require_own_task(self, task_id: str) -> str:
        """Return the id if the task is its own.

        Raises UnknownTask, which does not reveal whether others have it.
        """
        try:
            own = (await self.client.get_last_known_task(task_id)).session == self.policy.session_name
        except UnknownTask:
            own = False
        if not own:
            raise UnknownTask(f"{self.policy.name} has no task {task_id!r}: give an id that submit_research returned")
        return task_id

    async def get_task(self, task_id: str) -> TaskView:
        """Return one of its tasks as it is now. Raises as `require_own_task`; Unreachable."""
        return await self.client.get_task(await self.require_own_task(task_id))

    async def get_report(self, task: str, section: str | None = None, version: int | None = None) -> ReportPart:
        """Return the report, or a section of it. Raises as `require_own_task`, BadInput."""
        task_id = await self.require_own_task(task)
        whole = await self.client.load_report(task_id, version)
        stored = parse_stored_report(whole.markdown)
        exported = build_report_export(stored, ReportMetadata(task_id=task_id, phase=whole.phase))
        sections = await asyncio.to_thread(split_into_sections, stored.body)
        part = whole.markdown if section is None else find_section(sections, section)
        cited = {(one.document, one.first_line, one.last_line) for one in parse_citations(part)}
        written = {f"[{document}:{first}-{last}]" for document, first, last in cited}
        return ReportPart(
            task_id=whole.task_id,
            phase=whole.phase,
            version=whole.version,
            versions=whole.versions,
            title=exported.title,
            sections=tuple(heading for heading, _ in sections),
            section=section,
            markdown=part,
            checked=exported.checked,
            sources=tuple(one for one in exported.sources if (one.document, one.first_line, one.last_line) in cited),
            sentences=tuple(one for one in whole.sentences if written.issuperset(one.citations)),
        )

    async def build_finished_task(self, view: TaskView) -> FinishedTask:
        """Build the result of one of its finished tasks, with the report. Raises BadInput if it has none."""
        report = await self.get_report(view.task_id)
        there = [one for one in await self.client.list_documents(view.task_id) if not one.removed]
        return FinishedTask(
            **report.model_dump(),
            page=self._page_of(view.task_id, view.ui_url),
            budget=view.budget.limit,
            documents=len(there),
            warnings=(),
        )

    def _page_of(self, task_id: str, ui_url: str | None) -> str | None:
        page = self._page or resolve_temporal_target(self._settings).task_page_prefix
        return f"{page}{task_id}" if page else ui_url

    async def get_document_text(self, task: str, name: str) -> str:
        """Return a document as agents were shown it: assistants may know no more.

        Raises as `require_own_task` and `load_redacted_document_text`.
        """
        return await load_redacted_document_text(self._settings, await self.require_own_task(task), name)

    # ------------------------------------------------------------------------------------------------------- submitting

    async def submit(self, given: SubmitResearchRequest) -> AcceptedTask:
        """Submit a task if its budget fits. Raises BadInput, and as `Client.submit` does."""
        loaded = _with_names([await self._read(one) for one in given.documents])
        request = TaskRequest(
            question=given.question,
            instructions=given.instructions,
            accept=given.accept,
            length=given.length,
            tenant=self.policy.tenant,
            session=self.policy.session_name,
            request_id=given.request_id,
            budget=given.budget,
            skipped_items=loaded.skipped_items,
            servers=self.policy.resolve_servers(given.servers),
            procedures=await asyncio.to_thread(self._skills, given.skills),
        )
        row = await self.client.prepare_task(request)
        async with self._counting():
            await self._require_room(row.config.budget, row.ref.task_id)
            submitted = await self.client.submit(row, loaded.documents)
        skipped = tuple(f"{one.name} was left out: {one.reason}" for one in loaded.skipped_items)
        return AcceptedTask(
            task_id=submitted.task_id,
            page=self._page_of(submitted.task_id, submitted.ui_url),
            budget=row.config.budget,
            documents=len(loaded.documents),
            warnings=(*submitted.warnings, *skipped),
        )

    def _skills(self, wanted: Sequence[str]) -> tuple[ProcedureSource, ...]:
        """Load the skills as their folders are now.

        Raises BadInput for one that it may not name, or that cannot be followed.
        """
        there = {one.name: one for one in load_skills(self.policy.skills).skills} if wanted else {}
        if beyond := [name for name in wanted if name not in there]:
            names = ", ".join(there) or "none"
            raise BadInput(
                f"the assistant {self.policy.name} may not use the skill {sanitize_line(beyond[0])!r}; "
                f"allowed by WAYSTATION_MCP_SKILLS: {names}"
            )
        return tuple(there[name] for name in dict.fromkeys(wanted))

    async def _read(self, one: DocumentInput) -> DocumentLoadResult:
        if one.text is not None:
            return DocumentLoadResult(documents=(SourceDocument(name=one.name, text=one.text),))
        if one.path is not None:
            return await self._from_files(one.path, one.name)
        address = _address(one.uri or "")
        if address.scheme == "file" and address.netloc.lower() in {"", "localhost"} and address.path.startswith("/"):
            return await self._from_files(unquote(address.path), one.name)
        return DocumentLoadResult(documents=await self._from_task(one, address))

    async def _from_files(self, written: str, name: str) -> DocumentLoadResult:
        path = self.policy.resolve_readable_path(written)
        loaded = await asyncio.to_thread(load_documents, (path,), without=self.policy.home)
        if path.is_dir():
            return loaded
        short = name or next(str(path.relative_to(root)) for root in self.policy.roots if path.is_relative_to(root))
        return loaded.replace(documents=tuple(one.replace(name=short) for one in loaded.documents))

    async def _from_task(self, one: DocumentInput, address: SplitResult) -> tuple[SourceDocument, ...]:
        task, _, rest = address.path.removeprefix("/").partition("/")
        kind, _, quoted = rest.partition("/")
        if address.scheme != SCHEME or address.netloc != "tasks" or kind not in {"report", "documents"}:
            raise _no_resource(one.uri or "")
        task_id = await self.require_own_task(task)
        if kind == "report":
            return (SourceDocument(name=one.name or f"{task_id}.md", text=await self.client.get_report(task_id)),)
        there = [each.name for each in await self.client.list_documents(task_id) if not each.removed]
        names = [unquote(quoted)] if quoted else there
        return tuple(
            [SourceDocument(name=name, text=await self.client.get_document_text(task_id, name)) for name in names]
        )

    # ----------------------------------------------------------------------------------------------------------- budget

    async def compute_committed_amount(self, but: str = "") -> Amount:
        """Return what its tasks have spent and may still spend, except one.

        Raises BadInput, Unreachable: one does not answer.
        """
        views = await self.client.list_tasks(TaskFilter(session=self.policy.session_name), MAX_ASSISTANT_TASKS)
        if len(views) >= MAX_ASSISTANT_TASKS:
            raise BadInput(
                f"{self.policy.name} has {MAX_ASSISTANT_TASKS:,} tasks, the maximum of an assistant: configure the "
                "assistant under another name, which gets a separate budget"
            )
        used = Amount()
        for view in views:
            budget = view.budget
            if view.task_id != but:
                if view.remark and view.phase is TaskPhase.WORKING:
                    unknown = f"the budget of {view.task_id} is unknown, so the assistant's spending is unknown, too"
                    raise Unreachable(f"{unknown} ({view.remark}). Try again later")
                used += budget.spent if view.phase.over else budget.limit.amount.max_with(budget.spent)
        return used

    async def _require_room(self, wanted: Limit, but: str) -> None:
        """Raise BadInput if a task with this budget does not fit."""
        limit = self.policy.budget
        unlimited = (limit.tokens is not None and wanted.tokens is None) or (
            limit.micro_usd is not None and wanted.micro_usd is None
        )
        if unlimited:
            raise BadInput(
                f"{self.policy.name} may spend {format_limit(limit)} in all: give a budget in the same unit, or set "
                "WAYSTATION_MCP_BUDGET in the unit of your budget"
            )
        await self._require(wanted.amount, but)

    async def _require(self, amount: Amount, but: str = "") -> None:
        used, limit = await self.compute_committed_amount(but), self.policy.budget
        if not limit.can_cover(used + amount):
            raise BadInput(
                f"{self.policy.name} cannot spend another {format_amount(limit.restrict_to_limited_units(amount))}: "
                f"only {format_limit(limit.remaining_after(used))} are left of its limit of {format_limit(limit)}. "
                "Each running task counts at its full budget. Ask for less, or have a person raise "
                "WAYSTATION_MCP_BUDGET"
            )

    @asynccontextmanager
    async def _counting(self) -> AsyncGenerator[None]:
        """Serialise submissions over all processes of this home folder: two at once could both fit."""
        path = create_private_folder(self._settings.home) / f"mcp-{self.policy.name}.lock"
        with open_private_file(path) as lock:
            await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
            yield

    # --------------------------------------------------------------------------------------------------------- requests

    async def list_requests(self) -> tuple[PendingApproval, ...]:
        """Return pending requests of its tasks, the most urgent first. Raises Unreachable."""
        return await self.client.list_approvals(self.policy.session_name)

    async def find_request(self, task: str, request_id: str | None) -> PendingApproval:
        """Return the named request, or the only one. Raises BadInput, as `require_own_task`, Unreachable."""
        view = await self.get_task(task)
        waiting = list_pending_approvals(view)
        match [one for one in waiting if request_id in {None, one.approval.request_id}]:
            case [only]:
                return only
            case meant:
                ids = ", ".join(one.approval.request_id for one in waiting) or "none"
                which = "several requests are open: give a request_id. " if meant else _not_waiting(view, request_id)
                raise BadInput(f"{which}Open requests of {view.task_id} ({view.phase}): {ids}")

    async def approve(self, one: PendingApproval, written: str, note: str) -> AnswerResult:
        """Approve with the requested amount, or the given one, within its budget. Raises BadInput, Unreachable."""
        amount = parse_grant(written) if written.strip() else one.approval.requested
        async with self._counting():
            await self._require(amount)
            return await self.client.approve(
                one.task_id,
                request_id=one.approval.request_id,
                amount=None if amount.is_zero else amount,
                by=self.policy.signature,
                note=note,
            )

    async def deny(
        self, one: PendingApproval, note: str, finish: Literal["partial", "cancel"] = "partial"
    ) -> AnswerResult:
        """Deny the request for good. Raises BadInput, Unreachable."""
        return await self.client.deny(
            one.task_id, request_id=one.approval.request_id, finish=finish, by=self.policy.signature, note=note
        )

    async def deliver(self, task: str, note: str) -> AnswerResult:
        """End a task of its own with a report of what it has. Raises BadInput, Unreachable."""
        task_id = await self.require_own_task(task)
        return (await self.client.deliver(task_id, by=self.policy.signature, note=note)).answer

    async def answer_request(self, one: PendingApproval, form: AnswerForm) -> AnswerResult:
        """Approve or deny. Raises as they do."""
        if form.decision == "deny":
            return await self.deny(one, form.note)
        return await self.approve(one, form.amount, form.note)

    async def search_memory(self, query: str, tokens: int) -> tuple[MemoryMatchJson, ...]:
        """Search memory as agents of its tasks do. Raises BadInput, Unreachable, MemoryUnavailable."""
        if not query.strip():
            raise BadInput("the query is empty: give a few words")
        tenant, session = self.policy.tenant, self.policy.session_name
        wanted = MemoryQuery(tenant=tenant_hash(tenant), session=session_hash(tenant, session), text=query, dense=None)
        found = await self._memory.search(wanted, tokens)
        return await asyncio.to_thread(lambda: tuple(MemoryMatchJson.from_excerpt(one, query) for one in found))


def _address(written: str) -> SplitResult:
    with suppress(ValueError):
        address = urlsplit(written)
        if written.isprintable() and not address.query and not address.fragment:  # otherwise a part would be ignored
            return address
    raise _no_resource(written)


def _no_resource(written: str) -> BadInput:
    return BadInput(
        f"{sanitize_line(written)!r} is not a readable resource. Readable are: file:///… (below a folder of "
        f"WAYSTATION_MCP_ROOTS or --root); {SCHEME}://tasks/TASK/report; {SCHEME}://tasks/TASK/documents; "
        f"{SCHEME}://tasks/TASK/documents/NAME"
    )


def _not_waiting(view: TaskView, request_id: str | None) -> str:
    """Return why a request is not pending.

    An answer whose result was lost is sent again: then it has been received already.
    """
    asked = next((one for one in view.approvals if one.request_id == request_id), None)
    if asked is None:
        return "" if request_id is None else "the task has no request with this id. "
    verb = "has" if asked.decision == "expired" else "was"
    by = f" by {sanitize_line(asked.by)}" if asked.by else ""
    return f"the request {asked.request_id} {verb} already {asked.decision}{by}. "


def _written(text: str) -> Limit:
    """Parse an amount as people write it. Raises BadInput."""
    try:
        return parse_limit(text)
    except ValueError as error:
        raise BadInput(str(error)) from error


def parse_optional_budget(text: str | None) -> Limit | None:
    """Parse a budget as people write it; None: the settings' default. Raises BadInput."""
    return _written(text) if text is not None and text.strip() else None


def _with_names(parts: Sequence[DocumentLoadResult]) -> DocumentLoadResult:
    """Merge the documents, under unique names that a citation can have."""
    documents = [one for part in parts for one in part.documents]
    left_out: list[SkippedItem] = [one for part in parts for one in part.skipped_items]
    return DocumentLoadResult(
        documents=assign_unique_names(documents),
        skipped_items=tuple(left_out),
    )
