"""Which tools an agent sees: what its permissions and its phase admit, as far as the budget for definitions reaches.

A pure function, so that the same numbers decide what the model is sent and say afterwards why a tool was hidden.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal

from waystation.domain.parameters import Limits
from waystation.domain.plan import AgentRole
from waystation.domain.value import Value

Permission = Literal["read", "note", "hand_in", "delegate", "compute", "web", "foreign"]
Phase = Literal["planning", "executing", "reflecting", "verifying"]
"""What a run is about now: see `domain.tool_phase`."""
PHASES: tuple[Phase, ...] = ("planning", "executing", "reflecting", "verifying")
Urgency = Mapping[Phase, int]
"""In which phases a tool is of use, and how urgent it is there: the smaller, the more."""

FIRST, SOON, LATER, LAST = 1, 2, 3, 4
"""What the work cannot do without; what this task has it for; what is handy; what can be done otherwise."""
TOOL_TOKENS = 2_000
MORE_PART = 4
"""Tools that somebody added may bring what is shown to this part of the window, at most to twice `TOOL_TOKENS`."""

PERMISSIONS: Mapping[AgentRole, frozenset[Permission]] = {
    "planning": frozenset(),
    "research": frozenset({"read", "note", "hand_in", "delegate", "compute", "web", "foreign"}),
    "analysis": frozenset({"read", "note", "hand_in", "delegate", "compute", "foreign"}),
    "writing": frozenset({"read", "note", "hand_in", "delegate", "foreign"}),
    "reviewing": frozenset(),
}
"""Those who plan and review answer one form and see no tools."""


def urgent(executing: int, reflecting: int | None = None, verifying: int | None = None) -> Urgency:
    """As urgent in each phase of a step's agent; in later ones as in the one before, where nothing else is said."""
    reflecting = executing if reflecting is None else reflecting
    return {
        "executing": executing,
        "reflecting": reflecting,
        "verifying": reflecting if verifying is None else verifying,
    }


class Offered(Value):
    """A tool that an agent could have."""

    name: str
    tokens: int
    """Estimated, of its definition."""
    permission: Permission
    urgency: Urgency
    unusable: str = ""
    """Why nobody may have it here."""


class Hidden(Value):
    """A tool that the agent does not see, and why."""

    name: str
    tokens: int
    reason: str


class Projection(Value):
    """What an agent sees in a phase. Both in the order in which the tools were offered."""

    phase: Phase
    budget: int
    """Tokens for definitions. The tools by which it hands in are there even where they alone have more."""
    shown: tuple[Offered, ...]
    hidden: tuple[Hidden, ...]

    @property
    def tokens(self) -> int:
        """Of what is shown."""
        return sum(tool.tokens for tool in self.shown)

    @property
    def names(self) -> frozenset[str]:
        """Of what is shown."""
        return frozenset(tool.name for tool in self.shown)

    def why_hidden(self, name: str) -> str | None:
        """None for a tool that is shown, or that was not offered."""
        return next((tool.reason for tool in self.hidden if tool.name == name), None)


class ToolPolicy(Value):
    """What whoever runs the agents says of their tools."""

    tokens: int | None = None
    """Budget for definitions; None: what `budget` says."""
    more: bool = False
    """Whether there are more tools than our own: of the web, or of servers."""
    denied: tuple[str, ...] = ()
    """Tools that nobody may have: names, patterns of names with *, or permissions. An agent can always hand in."""
    limits: Mapping[str, Limits] = {}
    """On the values of parameters, by name of the tool."""

    def budget(self, window: int) -> int:
        """Tokens for definitions of an agent with this window: what was asked for, or what its tools need."""
        if self.tokens is not None:
            return self.tokens
        return min(2 * TOOL_TOKENS, max(TOOL_TOKENS, window // MORE_PART)) if self.more else TOOL_TOKENS


class Rights(Value):
    """What an agent may have at all."""

    role: AgentRole
    delegates: bool
    """Whether it may start subagents, by its depth and its task's terms."""
    denied: tuple[str, ...] = ()
    """As in `ToolPolicy`."""

    def refusal(self, tool: Offered) -> str | None:
        """Why it may not have this tool; None where it may."""
        if tool.permission not in PERMISSIONS[self.role]:
            return f"the role {self.role} has no permission {tool.permission}"
        if tool.permission == "hand_in":
            return None
        if tool.permission == "delegate" and not self.delegates:
            return "it may start no subagents"
        denial = next((one for one in self.denied if one == tool.permission or fnmatchcase(tool.name, one)), None)
        return tool.unusable or None if denial is None else f"the settings deny {denial}"


def project(offered: Sequence[Offered], phase: Phase, rights: Rights, budget: int) -> Projection:
    """What of the offered tools is shown: what may be, the most urgent first, as long as definitions fit.

    One that is too large leaves its room to smaller ones that are less urgent. Names are unique.
    """
    refused = {tool.name: why for tool in offered if (why := _why_not(tool, phase, rights)) is not None}
    admitted = [tool for tool in offered if tool.name not in refused]
    room = budget - sum(tool.tokens for tool in admitted if tool.permission == "hand_in")
    for tool in sorted(admitted, key=lambda tool: tool.urgency.get(phase, LAST)):
        if tool.permission == "hand_in":
            continue
        if tool.tokens <= room:
            room -= tool.tokens
        else:
            left = max(0, room)
            refused[tool.name] = f"{left} of {budget} tokens were left when it was its turn, and it has {tool.tokens}"
    return Projection(
        phase=phase,
        budget=budget,
        shown=tuple(tool for tool in offered if tool.name not in refused),
        hidden=tuple(
            Hidden(name=tool.name, tokens=tool.tokens, reason=refused[tool.name])
            for tool in offered
            if tool.name in refused
        ),
    )


def _why_not(tool: Offered, phase: Phase, rights: Rights) -> str | None:
    """By its rights, then by the phase."""
    if (refusal := rights.refusal(tool)) is not None:
        return refusal
    return None if phase in tool.urgency or tool.permission == "hand_in" else f"not while {phase}"
