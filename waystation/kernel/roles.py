"""The roles of agents: one row holds everything that distinguishes a role, besides its prompt."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

from waystation.kernel.identifiers import Identifier
from waystation.kernel.value import Value

ToolPermission = Literal["read", "note", "submit", "delegate", "compute", "web", "foreign"]
AgentPhase = Literal["planning", "executing", "reflecting", "verifying"]
"""What a run is doing now; see `waystation.agents.tool_visibility.get_tool_phase`."""
AGENT_PHASES: tuple[AgentPhase, ...] = ("planning", "executing", "reflecting", "verifying")
AgentActivity = Literal["RunResearchAgent", "RunAnalysisAgent", "RunWritingAgent"]
"""Name under which Temporal's UI shows a leg."""


class RoleSpec(Value):
    """One kind of agent."""

    purpose: str = ""
    """What a step of this role is for, as the planner is shown it; empty if plans have no such steps."""
    prompt: str
    """File name of its system prompt in `waystation/agents/prompts`, without the suffix."""
    form: str = ""
    """What it submits, as its task brief describes it."""
    permissions: frozenset[ToolPermission] = frozenset()
    tools: tuple[str, ...] = ()
    """Names of its tools, in the order in which it sees them; `web` stands for all web tools. Tools of servers
    follow.
    """
    phase: AgentPhase | None = None
    """Phase that the role is always in; None for a step's role, which moves from phase to phase."""
    activity: AgentActivity = "RunResearchAgent"
    effort: Literal["low", "medium", "high"] | None = None
    """Effort of its model, unless a setting has another. None: the provider's default for the model."""
    reserve_tokens: int = 0
    """Minimum tokens that a step of this role starts with, if the task's budget is large enough."""
    reserve_percent: int = 0
    """The same minimum in percent of the task's budget; the larger of both applies."""


_READING = ("list_documents", "search_documents", "read_document", "recall", "expand", "read_stored", "pin_message")
_NOTING = ("take_note", "read_notes", "calculate", "query_table")

ROLES: Mapping[str, RoleSpec] = MappingProxyType(
    {
        "planning": RoleSpec(prompt="plan", phase="planning", effort="high"),
        "research": RoleSpec(
            purpose="finds out what the documents say about a part of the question",
            prompt="research",
            form="Findings, one claim each with its evidence, and what stayed open. Submit them with submit_findings.",
            permissions=frozenset({"read", "note", "submit", "delegate", "compute", "web", "foreign"}),
            tools=(*_READING, *_NOTING, "web", "submit_findings", "delegate"),
            effort="medium",
        ),
        "analysis": RoleSpec(
            purpose="weighs findings against each other",
            prompt="analysis",
            form="Conclusions, each with its evidence; also contradictions and gaps. Submit everything with "
            "submit_analysis.",
            permissions=frozenset({"read", "note", "submit", "delegate", "compute", "foreign"}),
            tools=("read_findings", *_READING, *_NOTING, "submit_analysis", "delegate"),
            activity="RunAnalysisAgent",
            effort="high",
            reserve_tokens=25_000,
        ),
        "writing": RoleSpec(
            purpose="writes the report",
            prompt="writing",
            form="A report in Markdown, every claim with its citation. Plan the sections with write_outline, write "
            "them one by one with write_section, then call submit_report.",
            permissions=frozenset({"read", "note", "submit", "foreign"}),
            tools=("read_findings", *_READING, "write_outline", "write_section", "submit_report"),
            activity="RunWritingAgent",
            effort="high",
            reserve_tokens=50_000,
            reserve_percent=15,
        ),
        "reviewing": RoleSpec(prompt="review", phase="verifying", effort="high"),
    }
)
"""All roles by name. Planning runs before the steps and after the research, reviewing after the report; both give one
structured answer.
"""


def get_role_spec(role: str) -> RoleSpec:
    """Return the row of a role."""
    return ROLES[role]


def list_agent_roles() -> tuple[str, ...]:
    """Return all roles."""
    return tuple(ROLES)


def list_step_roles() -> tuple[str, ...]:
    """Return the roles that steps of a plan can have."""
    return tuple(name for name, spec in ROLES.items() if spec.purpose)


@dataclass(frozen=True)
class _OneOf:
    """Rejects all other names as a `Literal` would; the permitted names are looked up when a value is validated."""

    names: Callable[[], tuple[str, ...]]

    def __get_pydantic_core_schema__(self, source: type[object], handler: GetCoreSchemaHandler) -> CoreSchema:
        """See pydantic."""
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """See pydantic."""
        return {"enum": [*self.names()], "type": "string"}

    def _checked(self, name: str) -> str:
        *others, last = (f"{known!r}" for known in self.names())
        if name not in self.names():
            raise PydanticKnownError("literal_error", {"expected": f"{', '.join(others)} or {last}"})
        return name


Role = Annotated[Identifier, _OneOf(list_step_roles)]
"""Role of a step."""
AgentRole = Annotated[Identifier, _OneOf(list_agent_roles)]
"""A step's role, planning (before the steps and after the research), or reviewing (after them)."""
