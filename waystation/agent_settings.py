"""Settings of what agents may do: the subagents that they start, the web, the tools of others."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, NoDecode

from waystation.domain.delegation import DelegationTerms
from waystation.domain.memory import MemoryScope
from waystation.domain.models import CONDENSE_MODEL
from waystation.domain.parameters import Limits, ParameterLimit
from waystation.domain.projection import ToolPolicy
from waystation.domain.web import WebAsks
from waystation.written import WrittenNames, WrittenNetworks, WrittenTable

SEARCH_HITS = 5
"""Most pages that one search of the web names in production."""


class AgentSettings(BaseSettings):
    """Read together with all others: see `waystation.settings.Settings`."""

    subagent_depth: int = Field(
        default=2, ge=0, le=4, description="How deep agents may delegate: 0 for not at all, 1 for no further."
    )
    subagent_width: int = Field(
        default=8, ge=1, le=32, description="Most subagents of one agent that work at the same time."
    )
    subagent_share: int = Field(
        default=80, ge=1, le=100, description="Percent of what an agent has left that its subagents may hold together."
    )

    memory_scope: MemoryScope = Field(
        default="session",
        description="What agents recall of: earlier work of their session, or of all sessions of the tenant (team).",
    )
    revisions: int = Field(
        default=1, ge=0, le=5, description="How often a plan may be revised after its research: 0 for never."
    )
    reviews: int = Field(
        default=1,
        ge=0,
        le=5,
        description="How often a review may send a report back to its writer: 0 for reports without a review.",
    )

    tool_tokens: int | None = Field(
        default=None,
        ge=0,
        description="Budget of each agent for definitions of tools, in tokens: the most urgent ones are shown. By "
        "default 2,000; with the web or tool servers a quarter of the window, up to 4,000.",
    )
    tools_denied: WrittenNames = Field(
        default=(),
        description="Tools that no agent may have: names, patterns like tickets__*, or permissions (read, note, "
        "delegate, compute, web, foreign). An agent can always hand in.",
    )
    environment: Literal["development", "production"] = Field(
        default="development", description="In production the values of tools' parameters are limited."
    )
    parameters: Annotated[dict[str, dict[str, ParameterLimit]], NoDecode, WrittenTable] = Field(
        default={},
        description="Limits in production, by tool and parameter: min, max, one_of or domains. In the config file: "
        "[parameters.web_search] with limit = {max = 3}.",
    )
    procedures: Path | None = Field(
        default=None,
        description="Markdown file, or folder of them, that agents of new tasks follow; --procedures beats it.",
    )
    tool_servers: Path | None = Field(
        default=None, description="Config file of MCP servers whose tools agents may call (docs/agents.md)."
    )
    web: bool = Field(
        default=False, description="Let agents read pages of the web, and search it where there is a key."
    )
    web_allow: WrittenNames = Field(
        default=(),
        description="Domains whose pages are read without asking a person, each with all below it; * for every domain.",
    )
    web_deny: WrittenNames = Field(default=(), description="Domains whose pages are never read.")
    web_asks: WebAsks = Field(
        default="always",
        description="Which searches of the web ask a person: always, suspicious (what looks like more than key words), "
        "never.",
    )
    web_user_agent: str | None = Field(
        default=None, min_length=1, description="How requests to the web say who makes them, and how you are reached."
    )
    web_reachable: WrittenNetworks = Field(
        default=(), description="Networks that may be read although they are not public, such as an intranet's."
    )
    web_search_model: str = Field(default=CONDENSE_MODEL, description="Model that makes searches of the web.")

    @property
    def delegation(self) -> DelegationTerms | None:
        """Within which bounds agents delegate; None where they do not."""
        if not self.subagent_depth:
            return None
        return DelegationTerms(depth=self.subagent_depth, width=self.subagent_width, share=self.subagent_share)

    @property
    def tool_policy(self) -> ToolPolicy:
        """What whoever runs the agents says of their tools."""
        more = self.web or self.tool_servers is not None
        return ToolPolicy(tokens=self.tool_tokens, more=more, denied=self.tools_denied, limits=self._limits)

    @property
    def _limits(self) -> Mapping[str, Limits]:
        """Ours, and over them what is set: nobody is asked for a page of a domain that is not on the list."""
        if self.environment == "development":
            return {}
        ours: Mapping[str, Limits] = {
            "web_search": {"limit": ParameterLimit(max=SEARCH_HITS)},
            "fetch_page": {"url": ParameterLimit(domains=self.web_allow)},
        }
        return {tool: {**ours.get(tool, {}), **self.parameters.get(tool, {})} for tool in (*ours, *self.parameters)}
