"""Assistants that hand work over: whose tasks they see, what they may spend and read, and who answers their requests.

An assistant is a program that other people's words reach, too: it may do what was said beforehand, and nothing else.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, Self
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt
from pydantic import Field, model_validator

from waystation.adapters.documents.sources import Loaded, apart, load_documents
from waystation.client import Client
from waystation.client.context import FoundJson
from waystation.client.lookups import document_as_shown, version_of
from waystation.client.task_json import VersionJson, report_json
from waystation.domain.amount import Amount, Limit, amount_text, limit_text, read_limit
from waystation.domain.citations import citations_in
from waystation.domain.documents import LeftOut
from waystation.domain.errors import BadInput, UnknownTask
from waystation.domain.exports import Imprint, NumberedSource, stored_report
from waystation.domain.memory import MemoryQuery
from waystation.domain.signals import Answer
from waystation.domain.task import SourceDocument, TaskPhase, TaskRequest, session_hash, tenant_hash
from waystation.domain.value import Input, Value
from waystation.files import opened_private, private_folder
from waystation.markdown import exported_report
from waystation.settings import Settings
from waystation.task_view import PendingApproval, TaskFilter, TaskView, pending
from workers.memory import MemoryReader

MOST_HANDED_IN = 10_000
"""Of one assistant: with more, its budget cannot be counted."""
TASKS_OF_A_BUDGET = 5
"""What an assistant may spend where nobody said it, in budgets of one task."""
MOST_GIVEN = 1_000
"""Documents at once, as over HTTP."""
SCHEME = "waystation"
"""Of the addresses of what tasks have: `waystation://tasks/TASK/report`, `waystation://tasks/TASK/documents/NAME`."""
Answers = Literal["person", "client", "nobody"]


class AssistantRights(Value):
    """What one assistant may."""

    name: str
    tenant: str
    budget: Limit
    """What all of its tasks may spend together."""
    roots: tuple[Path, ...] = ()
    """Below these its documents are read. Absolute, without links."""
    answers: Answers = "person"
    home: Path
    """Nothing below it is read."""

    @classmethod
    def of(cls, settings: Settings, roots: Sequence[Path] = ()) -> Self:
        """As the settings say; roots that are given beside them count, too. Raises BadInput for one that is none."""
        real = [Path(os.path.realpath(root.expanduser())) for root in (*settings.mcp_roots, *roots)]
        for root in real:
            if not root.is_dir():
                raise BadInput(f"{root} is no folder: give one below which documents may be read, or none")
        return cls(
            name=settings.mcp_client,
            tenant=settings.tenant,
            budget=settings.mcp_budget or settings.budget.percent(100 * TASKS_OF_A_BUDGET),
            roots=tuple(dict.fromkeys(real)),
            answers=settings.mcp_answers,
            home=Path(os.path.realpath(settings.home)),
        )

    @property
    def session(self) -> str:
        """Of all of its tasks."""
        return f"mcp-{self.name}"

    @property
    def signature(self) -> str:
        """By whom its answers and words are said to be."""
        return f"{self.name} (MCP)"

    def readable(self, written: str) -> Path:
        """The file or folder that is meant, without links; a relative path is one below a root. Raises BadInput, with
        the same words for what is not there and for what lies elsewhere.
        """
        if not self.roots:
            raise BadInput(
                "no folder was named below which assistants may read: start it with `--root FOLDER`, set "
                "WAYSTATION_MCP_ROOTS, or give the document as text"
            )
        for root in self.roots:
            found = _below(root, written)
            if found is not None and not found.is_relative_to(self.home):
                return found
        listed = ", ".join(map(str, self.roots))
        raise BadInput(f"{written!r} is nothing that may be read below {listed}: give a path there, or the text itself")


def _below(root: Path, written: str) -> Path | None:
    """None for what is elsewhere, is not there, or is hidden."""
    if "\0" in written:
        return None
    found = Path(os.path.realpath(root / written))
    if not found.is_relative_to(root) or not found.exists():
        return None
    return None if any(part.startswith(".") for part in found.relative_to(root).parts) else found


class GivenDocument(Input):
    """A document: its text with a name, the path of a file or folder, or the address of a resource."""

    name: str = Field(default="", max_length=200, description="What it is called in citations; needed beside a text.")
    text: str | None = Field(default=None, description="The document itself.")
    path: str | None = Field(
        default=None, max_length=4_000, description="A file or folder below a folder that the person named."
    )
    uri: str | None = Field(
        default=None,
        max_length=4_000,
        description="A resource: file:///…, waystation://tasks/TASK/report, waystation://tasks/TASK/documents (all of "
        "an earlier task), or one of these by /NAME.",
    )

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if sum(given is not None for given in (self.text, self.path, self.uri)) != 1:
            raise ValueError("give one of text, path and uri")
        if self.text is not None and not self.name.strip():
            raise ValueError("a text needs a name, which citations give")
        return self


class Handing(Input):
    """What is handed over."""

    question: str
    documents: tuple[GivenDocument, ...] = Field(min_length=1, max_length=MOST_GIVEN)
    budget: Limit | None = None
    instructions: str = ""
    request_id: str = Field(min_length=1, max_length=200)


class AcceptedTask(Value):
    """A task that was accepted."""

    task_id: str
    page: str | None
    """Where a person follows it; null where nothing serves pages."""
    budget_tokens: int | None
    budget_usd: float | None
    documents: int
    warnings: tuple[str, ...]


class ReportPart(Value):
    """A report, or a section of it, with what it cites."""

    task_id: str
    phase: TaskPhase
    version: int | None
    versions: tuple[VersionJson, ...]
    title: str
    sections: tuple[str, ...]
    """All headings, in their order."""
    section: str | None
    """Which one this is; null: the whole."""
    report: str
    """Markdown. A citation is `[document:first-last]`."""
    checked: str
    """What the check of all its citations said."""
    sources: tuple[NumberedSource, ...]
    """What is cited in this part; `fault` says why a citation does not hold."""


class Assistant:
    """One of them: its wishes are checked and carried out here. Tasks of others are as unknown as those that never
    were.
    """

    def __init__(
        self,
        client: Client,
        settings: Settings,
        rights: AssistantRights,
        memory: MemoryReader,
        page: str | None = None,
    ) -> None:
        self.client = client
        self.rights = rights
        self._memory = memory
        self._settings = settings
        self._page = page
        """Before the id of a task."""

    async def tasks(self) -> tuple[TaskView, ...]:
        """Its newest."""
        return await self.client.tasks(TaskFilter(session=self.rights.session))

    async def task(self, task_id: str) -> str:
        """The id again, if it is that of a task of its own. Raises UnknownTask, which does not tell whether others have
        it.
        """
        try:
            own = (await self.client.last_known(task_id)).session == self.rights.session
        except UnknownTask:
            own = False
        if not own:
            raise UnknownTask(f"{self.rights.name} has no task {task_id!r}: submit_research gives the ids of its tasks")
        return task_id

    async def view(self, task_id: str) -> TaskView:
        """A task of its own, as it is now. Raises as `task` does; Unreachable."""
        return await self.client.progress(await self.task(task_id))

    async def report(self, task: str, section: str | None = None, version: int | None = None) -> ReportPart:
        """The report, or a section of it. Raises as `task` does, BadInput."""
        task_id = await self.task(task)
        progress = await self.client.reported(task_id)
        found = version_of(progress, version)
        whole = report_json(progress, found, await self.client.report_text(found))
        stored = stored_report(whole.report)
        exported = exported_report(stored, Imprint(task_id=task_id, phase=whole.phase))
        sections = await asyncio.to_thread(sections_of, stored.body)
        part = whole.report if section is None else _section(sections, section)
        cited = {(one.document, one.first_line, one.last_line) for one in citations_in(part)}
        return ReportPart(
            **whole.model_dump(exclude={"report"}),
            title=exported.title,
            sections=tuple(heading for heading, _ in sections),
            section=section,
            report=part,
            checked=exported.checked,
            sources=tuple(one for one in exported.sources if (one.document, one.first_line, one.last_line) in cited),
        )

    async def document(self, task: str, name: str) -> str:
        """A document, as agents were shown it: assistants are told no more. Raises as `task`, `document_as_shown`."""
        return await document_as_shown(self._settings, await self.task(task), name)

    # ------------------------------------------------------------------------------------------------------- handing in

    async def hand_in(self, given: Handing) -> AcceptedTask:
        """Submit it, if its budget fits. Raises BadInput, and as `Client.submit` does."""
        loaded = _with_names([await self._read(one) for one in given.documents])
        request = TaskRequest(
            question=given.question,
            instructions=given.instructions,
            tenant=self.rights.tenant,
            session=self.rights.session,
            request_id=given.request_id,
            budget=given.budget,
            left_out=loaded.left_out,
        )
        row = await self.client.prepare(request)
        async with self._counting():
            await self._require_room(row.terms.budget, row.ref.task_id)
            submitted = await self.client.submit(row, loaded.documents)
        skipped = tuple(f"{one.name} was left out: {one.reason}" for one in loaded.left_out)
        return AcceptedTask(
            task_id=submitted.task_id,
            page=f"{self._page}{submitted.task_id}" if self._page else submitted.ui_url,
            budget_tokens=row.terms.budget.tokens,
            budget_usd=row.terms.budget.usd,
            documents=len(loaded.documents),
            warnings=(*submitted.warnings, *skipped),
        )

    async def _read(self, one: GivenDocument) -> Loaded:
        if one.text is not None:
            return Loaded(documents=(SourceDocument(name=one.name, text=one.text),))
        if one.path is not None:
            return await self._from_files(one.path, one.name)
        address = urlsplit(one.uri or "")
        if address.scheme == "file" and address.netloc in {"", "localhost"}:
            return await self._from_files(unquote(address.path), one.name)
        return Loaded(documents=await self._from_task(one))

    async def _from_files(self, written: str, name: str) -> Loaded:
        path = self.rights.readable(written)
        loaded = await asyncio.to_thread(load_documents, (path,), without=self.rights.home)
        if path.is_dir():
            return loaded
        short = name or next(str(path.relative_to(root)) for root in self.rights.roots if path.is_relative_to(root))
        return loaded.model_copy(
            update={"documents": tuple(one.model_copy(update={"name": short}) for one in loaded.documents)}
        )

    async def _from_task(self, one: GivenDocument) -> tuple[SourceDocument, ...]:
        address = urlsplit(one.uri or "")
        task, _, rest = address.path.removeprefix("/").partition("/")
        kind, _, quoted = rest.partition("/")
        if address.scheme != SCHEME or address.netloc != "tasks" or kind not in {"report", "documents"}:
            raise BadInput(
                f"{one.uri!r} is no resource that can be read here: give file:///… below a named folder, "
                f"{SCHEME}://tasks/TASK/report, or {SCHEME}://tasks/TASK/documents with or without /NAME"
            )
        task_id = await self.task(task)
        if kind == "report":
            return (SourceDocument(name=one.name or f"{task_id}.md", text=await self.client.report(task_id)),)
        there = [each.name for each in await self.client.documents(task_id) if not each.removed]
        names = [unquote(quoted)] if quoted else there
        return tuple([SourceDocument(name=name, text=await self.client.document_text(task_id, name)) for name in names])

    # ----------------------------------------------------------------------------------------------------------- budget

    async def used(self, but: str = "") -> Amount:
        """What its tasks have spent and may still spend, grants included, without one of them. Raises BadInput."""
        views = await self.client.tasks(TaskFilter(session=self.rights.session), MOST_HANDED_IN)
        if len(views) >= MOST_HANDED_IN:
            raise BadInput(
                f"{self.rights.name} has {MOST_HANDED_IN:,} tasks: give it another name, and a budget for that"
            )
        used = Amount()
        for view in views:
            budget = view.progress.budget
            if view.progress.task_id != but:
                used += budget.spent if view.progress.phase.over else budget.limit.amount.at_least(budget.spent)
        return used

    async def _require_room(self, wanted: Limit, but: str) -> None:
        """Raises BadInput where a task with this budget does not fit."""
        limit = self.rights.budget
        unlimited = (limit.tokens is not None and wanted.tokens is None) or (
            limit.micro_usd is not None and wanted.micro_usd is None
        )
        if unlimited:
            raise BadInput(
                f"{self.rights.name} may spend {limit_text(limit)} in all: give a budget in the same unit, or set "
                "WAYSTATION_MCP_BUDGET in that of tasks"
            )
        await self._require(wanted.amount, but)

    async def _require(self, wanted: Amount, but: str = "") -> None:
        used, limit = await self.used(but), self.rights.budget
        if not limit.covers(used + wanted):
            raise BadInput(
                f"{amount_text(limit.counted(wanted))} more are beyond what {self.rights.name} may spend: of "
                f"{limit_text(limit)} {limit_text(limit.after(used))} are left, since its tasks at work count with all "
                "they may spend. Ask for less, or have a person raise WAYSTATION_MCP_BUDGET"
            )

    @asynccontextmanager
    async def _counting(self) -> AsyncGenerator[None]:
        """One after the other, in all processes of this home folder: what two count at once would fit twice."""
        path = private_folder(self._settings.home) / f"mcp-{self.rights.name}.lock"
        with opened_private(path) as lock:
            await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
            yield

    # --------------------------------------------------------------------------------------------------------- requests

    async def requests(self) -> tuple[PendingApproval, ...]:
        """What waits for an answer in its tasks, the most urgent first."""
        found = [one for view in await self.tasks() for one in pending(view.progress)]
        return tuple(sorted(found, key=lambda one: one.urgency))

    async def request(self, task: str, request_id: str | None) -> PendingApproval:
        """The one that is meant, or the only one. Raises BadInput, as `task` does, Unreachable."""
        view = await self.view(task)
        waiting = pending(view.progress)
        meant = [one for one in waiting if request_id in {None, one.approval.request_id}]
        match meant:
            case [only]:
                return only
            case _:
                ids = ", ".join(one.approval.request_id for one in waiting) or "none"
                which = "give the request_id of one" if meant else f"{request_id or 'nothing'} does not wait"
                raise BadInput(f"{which}: what waits in {view.progress.task_id}: {ids}")

    async def approve(self, one: PendingApproval, written: str, note: str) -> Answer:
        """Grant what was asked for, or what is written, within its budget. Raises BadInput, Unreachable."""
        amount = _written(written).amount if written.strip() else one.approval.asked
        async with self._counting():
            await self._require(amount)
            return await self.client.approve(
                one.task_id,
                request_id=one.approval.request_id,
                amount=None if amount.nothing else amount,
                by=self.rights.signature,
                note=note,
            )

    async def recall(self, query: str, tokens: int) -> tuple[FoundJson, ...]:
        """What agents of its tasks would recall. Raises BadInput, Unreachable, MemoryUnavailable."""
        if not query.strip():
            raise BadInput("there is nothing to look for: give a few words")
        tenant, session = self.rights.tenant, self.rights.session
        wanted = MemoryQuery(tenant=tenant_hash(tenant), session=session_hash(tenant, session), text=query, dense=None)
        return tuple(map(FoundJson.of, await self._memory.search(wanted, tokens)))


def _written(text: str) -> Limit:
    """An amount as people write it. Raises BadInput."""
    try:
        return read_limit(text)
    except ValueError as error:
        raise BadInput(str(error)) from error


def budget_of(text: str | None) -> Limit | None:
    """A budget as people write it; None: what the settings say. Raises BadInput."""
    return _written(text) if text is not None and text.strip() else None


def _with_names(parts: Sequence[Loaded]) -> Loaded:
    """All of them together, under names that no two share and that a citation can have."""
    documents = [one for part in parts for one in part.documents]
    left_out: list[LeftOut] = [one for part in parts for one in part.left_out]
    return Loaded(
        documents=apart(documents),
        left_out=tuple(left_out),
    )


def sections_of(markdown: str) -> tuple[tuple[str, str], ...]:
    """Every heading, with all that stands below it up to the next one of its level or above."""
    tokens, lines = MarkdownIt("commonmark").parse(markdown), markdown.splitlines()
    heads = [
        (int(token.tag[1:]), token.map[0], tokens[place + 1].content)
        for place, token in enumerate(tokens)
        if token.type == "heading_open" and token.map is not None and token.level == 0
    ]
    found: list[tuple[str, str]] = []
    for place, (level, first, words) in enumerate(heads):
        end = next((line for deep, line, _ in heads[place + 1 :] if deep <= level), len(lines))
        found.append((words, "\n".join(lines[first:end]).strip()))
    return tuple(found)


def _section(sections: Iterable[tuple[str, str]], wanted: str) -> str:
    known = list(sections)
    for heading, text in known:
        if heading.casefold().strip() == wanted.casefold().strip().lstrip("# "):
            return text
    raise BadInput(f"there is no section {wanted!r}: there are {', '.join(repr(heading) for heading, _ in known)}")
