"""What an agent of a role works with: its prompt, its dependencies, and its toolbox with the tools visible to it."""

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Protocol

from waystation.agents.citation_checker import CitationChecker
from waystation.agents.citation_feedback import SubmissionChecker
from waystation.agents.delegation import can_delegate
from waystation.agents.leg import AgentConfig
from waystation.agents.ports import (
    EarlierTasks,
    LoadedRun,
    PartialReplyRepository,
    PlaceholderAudit,
    RunRepository,
    TaskSource,
    ToolDefinitionRepository,
    WorkRepository,
)
from waystation.agents.tool_visibility import (
    AgentPermissions,
    CandidateTool,
    ToolPolicy,
    ToolVisibility,
    compute_tool_visibility,
    find_unknown_parameters,
    get_tool_phase,
    retain_sent_tools,
)
from waystation.agents.tools.delegate import DelegateTool
from waystation.agents.tools.documents import (
    ListDocumentsTool,
    ReadDocumentTool,
    ReadSkillFileTool,
    ReadSkillTool,
    ReadStoredResultTool,
    SearchDocumentsTool,
)
from waystation.agents.tools.notes import PinMessageTool, ReadNotesTool, TakeNoteTool
from waystation.agents.tools.plugin_tool import AdaptedPluginTool, PluginToolBase
from waystation.agents.tools.recall import ExpandReferenceTool, RecallTool
from waystation.agents.tools.submissions import (
    ReadFindingsTool,
    SubmitAnalysisTool,
    SubmitFindingsTool,
    SubmitReportTool,
    WriteOutlineTool,
    WriteSectionTool,
)
from waystation.agents.tools.tables import CalculatorTool, QueryTableTool, is_table
from waystation.agents.tools.tool import McpTool, Tool
from waystation.agents.tools.toolbox import Toolbox
from waystation.agents.tools.web import FETCH_PAGE, WebSearchTool
from waystation.context.history import find_prompt_prefix
from waystation.context.tokens import estimate_text
from waystation.context.transcript import PromptPrefixRecord, Transcript
from waystation.documents.ports import DocumentSearch, DocumentUpdateReader, TextStore
from waystation.documents.redacted_documents import RedactedDocumentStore, RedactedTableReader
from waystation.kernel.refs import RunRef
from waystation.kernel.roles import ROLES, AgentRole, get_role_spec, list_step_roles
from waystation.kernel.text import format_count
from waystation.mcp.ports import ToolServers
from waystation.memory.indexing import MemoryRecall
from waystation.memory.ports import PassageReader
from waystation.models.ports import ToolSpec
from waystation.planning.ports import PlanReader
from waystation.privacy.ports import Redactor, Vault
from waystation.security.untrusted import DEFAULT_SERVERS, UntrustedTools

_log = logging.getLogger(__name__)


NO_SERVERS = "the task requests tool servers, but the worker has no config file for them: set WAYSTATION_TOOL_SERVERS"


@dataclass(frozen=True)
class ToolVisibilityContext:
    """What tool visibility depends on, besides tools and settings."""

    run: RunRef
    config: AgentConfig
    transcript: Transcript


def apply_tool_visibility(toolbox: Toolbox, of: ToolVisibilityContext, policy: ToolPolicy) -> Toolbox:
    """Return the toolbox with parameter limits and with the tools that the agent sees.

    These are the tools sent since the last compaction, or, right after one, those that fit the phase.
    """
    schemas = {tool.name: tool.spec.input_schema for tool in toolbox.tools if tool.name in policy.limits}
    amiss = {name: find_unknown_parameters(schema, policy.limits[name]) for name, schema in schemas.items()}
    limits = {name: policy.limits[name] for name in schemas if not amiss[name]}
    box = replace(toolbox, limits=limits)
    offered = [_offered(tool, box.specs_by_name[tool.name], amiss.get(tool.name, [])) for tool in box.tools]
    delegates = can_delegate(of.run.step_id, of.config.delegation)
    rights = AgentPermissions(role=of.run.role, may_delegate=delegates, denied=policy.denied)
    budget = policy.compute_added_tool_budget(of.config.window)
    now = compute_tool_visibility(
        offered, get_tool_phase(of.run.role, of.transcript, box.ending_tool_names), rights, budget
    )
    prefix = find_prompt_prefix(of.transcript)
    if prefix is not None:
        now, prefix = _held(now, prefix, {tool.name for tool in offered})
    _tell(of.run, now, is_first=prefix is None)
    return replace(box, visibility=now, prefix=prefix)


def _held(
    now: ToolVisibility, prefix: PromptPrefixRecord, known: Collection[str]
) -> tuple[ToolVisibility, PromptPrefixRecord]:
    """Keep the sent tools.

    Tools that are missing now (their server is away) stay among them, and a call of one is refused; tools that were
    denied since then are removed at once.
    """
    admitted = {tool.name for tool in now.permitted}
    sent = tuple(spec for spec in prefix.tools if spec.name in admitted or spec.name not in known)
    return retain_sent_tools(now, {spec.name for spec in sent}), prefix.replace(tools=sent)


def _offered(tool: Tool, spec: ToolSpec, amiss: list[str]) -> CandidateTool:
    written = json.dumps(spec.model_dump(mode="json", exclude={"strict"}), ensure_ascii=False, separators=(",", ":"))
    return CandidateTool(
        name=tool.name,
        tokens=estimate_text(written),
        permission=tool.permission,
        urgency=tool.urgency,
        unusable_reason=f"limits are set for parameters that the tool does not have: {', '.join(amiss)}"
        if amiss
        else "",
        is_added=isinstance(tool, McpTool | AdaptedPluginTool),
    )


def _tell(run: RunRef, now: ToolVisibility, *, is_first: bool) -> None:
    """Log what is hidden, and warn once, before the first call, if tools had no room."""
    hidden = "; ".join(f"{tool.name} ({tool.reason})" for tool in now.hidden) or "nothing"
    _log.debug("%s, %s: %d tools of %d tokens; hidden: %s", run.run_id, now.phase, len(now.shown), now.tokens, hidden)
    if is_first and now.crowded_out:
        left_out = ", ".join(now.crowded_out)
        _log.warning(
            "agent run %s does not see the tools %s: the definitions of all added tools together may have at most %d "
            "tokens. `waystation show %s --tools` shows all tools; WAYSTATION_TOOL_TOKENS sets this limit",
            run.run_id,
            left_out,
            now.token_budget,
            run.task_id,
        )


def _missed(offered: UntrustedTools, named: Sequence[str]) -> tuple[str, ...]:
    """Return a note for people on the number of named tool servers from which the agents have no tools."""
    told = {one.server for one in offered.tools} | {one.server for one in offered.hidden if one.tool}
    missed = {one.server for one in offered.hidden if one.server in named} - told
    if not missed:
        return ()
    return (
        f"The agents have no tools from {format_count(len(missed), 'tool server')} that the task names; "
        "`waystation show TASK --tools` says why",
    )


@cache
def load_prompt(name: str) -> str:
    """Load a prompt file of this package.

    `research`, `analysis`, `writing`, `plan`, `revise`, `review`, `condense` or `snapshot`.
    """
    return files("waystation.agents").joinpath("prompts", f"{name}.md").read_text(encoding="utf-8")


def load_role_prompt(role: AgentRole) -> str:
    """Load the system prompt of a role."""
    return load_prompt(get_role_spec(role).prompt)


def build_planning_prompt() -> str:
    """Build the system prompt of planning, which explains what steps of each role are for."""
    steps = "; ".join(f"{role} {get_role_spec(role).purpose}" for role in list_step_roles())
    return load_role_prompt("planning").replace("{roles}", steps)


def list_built_in_tool_names() -> frozenset[str]:
    """Names that no tool of a plug-in may have: those of all our tools, and of those that a model is made to call."""
    forms = {"submit_plan", "revise_plan", "review_report", "judge_sentences"}
    others = {FETCH_PAGE, WebSearchTool.name, ReadSkillTool.name, ReadSkillFileTool.name}
    return frozenset(forms | others).union(*(spec.tools for spec in ROLES.values()))


class AgentStore(
    RunRepository,
    WorkRepository,
    PartialReplyRepository,
    TaskSource,
    TextStore,
    DocumentUpdateReader,
    PlanReader,
    PassageReader,
    PlaceholderAudit,
    ToolDefinitionRepository,
    Protocol,
):
    """What legs, tools and compactions need of the store."""


@dataclass(frozen=True)
class AgentDeps:
    """Dependencies of the agents' tools."""

    store: AgentStore
    search: DocumentSearch
    memory_recall: MemoryRecall
    redactor: Redactor
    redacted_documents: RedactedDocumentStore
    """Redacted texts of documents, pages and stored results, as tools show them."""
    earlier_tasks: EarlierTasks
    vault: Vault | None = None
    """Originals of placeholders in names of documents."""
    tables: RedactedTableReader | None = None
    """Calculates and queries tables; without it agents have no tools for that."""
    web: Sequence[Tool] = ()
    """Tools that fetch and search the web, if that is allowed."""
    servers: ToolServers | None = None
    """Tools of others."""
    plugins: Sequence[PluginToolBase] = ()
    """Tools of plug-ins, for the roles that each of them names."""

    policy: ToolPolicy = field(default_factory=ToolPolicy)
    """The operator's settings for tools."""

    @property
    def submission_checker(self) -> SubmissionChecker:
        """Checks citations in what agents submit."""
        return SubmissionChecker(CitationChecker(self.store, self.redactor, self.redacted_documents, self.vault))

    async def build_agent_toolbox(
        self, run: RunRef, config: AgentConfig, transcript: Transcript, loaded: LoadedRun | None = None
    ) -> Toolbox:
        """Return the tools of one agent, and which of them it sees at this point.

        Tools of plug-ins and of tool servers come after ours.

        Args:
            run: The agent run.
            config: Its configuration.
            transcript: Its transcript, which holds the tools that were sent before.
            loaded: The run's task and documents, if they were read before.
        """
        if loaded is None:
            loaded = await self.store.load_run(run)
        asked, tables = loaded.task.request, any(is_table(one.name) for one in loaded.documents)
        own = self.build_role_toolbox(run.role, tables=tables, delegates=True)
        given = asked.procedures
        if given:
            files = [ReadSkillFileTool(self.store)] if any(one.files for one in given) else []
            own = replace(own, tools=[*own.tools, ReadSkillTool(self.store), *files])
        if self.servers is not None:
            offered = await self.servers.list_tools({tool.name for tool in own.tools}, asked.servers)
            foreign = await self._foreign(run, self.servers, offered)
            own = replace(own, tools=[*own.tools, *foreign], notes=_missed(offered, asked.servers or ()))
        elif asked.servers and set(asked.servers) != {DEFAULT_SERVERS}:
            own = replace(own, notes=(NO_SERVERS,))
        return apply_tool_visibility(own, ToolVisibilityContext(run, config, transcript), self.policy)

    async def _foreign(self, run: RunRef, servers: ToolServers, offered: UntrustedTools) -> Sequence[Tool]:
        """Return the external tools of the role.

        Each is compared with its definition when the task first had it, which is what was approved.
        """
        first = await self.store.store_first_tool_definitions(run.task_id, [spec.definition for spec in offered.tools])
        compared = [spec.with_changes_since(before) for spec, before in zip(offered.tools, first, strict=True)]
        return [McpTool(spec, servers, self.redactor) for spec in compared if run.role in spec.roles]

    def build_role_toolbox(self, role: AgentRole, *, tables: bool = False, delegates: bool = False) -> Toolbox:
        """Build the toolbox of a role, in a fixed order.

        Args:
            role: The role.
            tables: Whether the task has documents that are tables.
            delegates: Whether the tool to delegate is included.
        """
        known = self._tools(tables)
        wanted = [name for name in get_role_spec(role).tools if delegates or name != DelegateTool.name]
        own = [tool for name in wanted for tool in known.get(name, ())]
        added = [AdaptedPluginTool(tool, self.redactor) for tool in self.plugins if role in tool.roles]
        return Toolbox(
            tools=[*own, *added],
            store=self.store,
            redactor=self.redactor,
            vault=self.vault,
        )

    def _tools(self, tables: bool) -> Mapping[str, Sequence[Tool]]:
        """Return all tools by the names used in the table of roles."""
        tools: list[Tool] = [
            ListDocumentsTool(self.store),
            SearchDocumentsTool(self.search, self.store, self.redactor, self.redacted_documents),
            ReadDocumentTool(self.store, self.redacted_documents),
            RecallTool(self.memory_recall, self.store),
            ExpandReferenceTool(self.store, self.redacted_documents, self.earlier_tasks),
            ReadStoredResultTool(self.redacted_documents),
            PinMessageTool(),
            TakeNoteTool(self.store, self.redacted_documents),
            ReadNotesTool(self.store),
            ReadFindingsTool(self.store),
            SubmitFindingsTool(self.store, self.submission_checker),
            SubmitAnalysisTool(self.store, self.submission_checker),
            WriteOutlineTool(self.store, self.submission_checker),
            WriteSectionTool(self.store, self.submission_checker),
            SubmitReportTool(self.store, self.submission_checker),
            DelegateTool(self.store),
        ]
        if self.tables is not None:
            query = QueryTableTool(self.store, self.redacted_documents, self.tables, wanted=tables)
            tools += [CalculatorTool(self.tables.engine), query]
        return {"web": self.web, **{tool.name: (tool,) for tool in tools}}
