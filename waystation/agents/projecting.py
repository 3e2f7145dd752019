"""Gives an agent's toolbox its projection: which tools it sees now, and within which limits."""

import json
import logging
from dataclasses import dataclass, replace

from waystation.agents.tools.box import Toolbox
from waystation.agents.tools.tool import Tool
from waystation.domain.compaction.tokens import estimate_text
from waystation.domain.delegation import may_delegate
from waystation.domain.leg import AgentTerms, RunRef
from waystation.domain.parameters import unknown
from waystation.domain.projection import PHASES, Offered, Phase, Projection, Rights, ToolPolicy, project
from waystation.domain.tool_phase import Weights, tool_phase
from waystation.domain.transcript import Transcript
from waystation.ports import ToolSpec

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Seen:
    """What a projection is made of, beside tools and settings."""

    run: RunRef
    terms: AgentTerms
    transcript: Transcript
    system: int
    """Estimated tokens of the system prompt."""


def projected(toolbox: Toolbox, of: Seen, policy: ToolPolicy) -> Toolbox:
    """The same tools, with their limits, and what the agent sees of them in the phase that its tools follow."""
    schemas = {tool.name: tool.spec.input_schema for tool in toolbox.tools if tool.name in policy.limits}
    amiss = {name: unknown(schema, policy.limits[name]) for name, schema in schemas.items()}
    limits = {name: policy.limits[name] for name in schemas if not amiss[name]}
    box = replace(toolbox, limits=limits)
    offered = [_offered(tool, box.offered[tool.name], amiss.get(tool.name, [])) for tool in box.tools]
    delegates = may_delegate(of.run.step_id, of.terms.delegation)
    rights = Rights(role=of.run.role, delegates=delegates, denied=policy.denied)
    budget = policy.budget(of.terms.window)
    phases: dict[Phase, Projection] = {phase: project(offered, phase, rights, budget) for phase in PHASES}
    fixed: dict[Phase, int] = {phase: of.system + one.tokens for phase, one in phases.items()}
    ending = {tool.name for tool in box.tools if tool.ends_run}
    now = phases[tool_phase(of.run.role, of.transcript, ending, Weights(fixed=fixed, turns=of.terms.turn_limit))]
    _tell(of.run, now)
    return replace(box, projection=now)


def _offered(tool: Tool, spec: ToolSpec, amiss: list[str]) -> Offered:
    written = json.dumps(spec.model_dump(mode="json"), ensure_ascii=False, separators=(",", ":"))
    return Offered(
        name=tool.name,
        tokens=estimate_text(written),
        permission=tool.permission,
        urgency=tool.urgency,
        unusable=f"its limits name parameters that it does not have: {', '.join(amiss)}" if amiss else "",
    )


def _tell(run: RunRef, now: Projection) -> None:
    hidden = "; ".join(f"{tool.name} ({tool.reason})" for tool in now.hidden) or "nothing"
    _log.debug("%s, %s: %d tools of %d tokens; hidden: %s", run.run_id, now.phase, len(now.shown), now.tokens, hidden)
