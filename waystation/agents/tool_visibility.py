"""Which tools an agent sees: those that its permissions and its phase admit; of added ones, those that fit a budget.

Pure functions of the transcript, so that an attempt after a crash sees the same tools, and a tool's absence can be
explained afterwards. Also limits on the values of tool parameters, checked before a call and shown in the schema; what
cannot be checked is refused, such as a value of another type.
"""

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import Field, JsonValue, model_validator

from waystation.context.history import count_messages_before, get_effective_transcript
from waystation.context.transcript import Transcript
from waystation.kernel.errors import WebPageUnreadableError
from waystation.kernel.roles import AgentPhase, AgentRole, ToolPermission, get_role_spec
from waystation.kernel.value import Value
from waystation.security.web_addresses import DomainPolicy, parse_web_address


class ParameterLimit(Value):
    """Limits on the values of one parameter. At least one must be set."""

    min: float | None = None
    max: float | None = None
    one_of: Annotated[tuple[str | int | float | bool, ...], Field(min_length=1)] | None = None
    domains: tuple[str, ...] | None = None
    """For an address: the allowed domains, each with its subdomains; `*` allows all, an empty list none."""

    @model_validator(mode="after")
    def _says_something(self) -> "ParameterLimit":
        if self == ParameterLimit.model_construct():
            raise ValueError("give min, max, one_of or domains")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min:g} is more than max {self.max:g}")
        if self.domains is not None:
            DomainPolicy(allow=self.domains)  # rejects invalid domains
        return self

    def is_allowed(self, value: JsonValue) -> bool:
        """Return whether a call may have this value."""
        return self._in_range(value) and self._is_listed(value) and self._in_domains(value)

    @property
    def description(self) -> str:
        """The limit in words, for agents and people. Allowed values are the operator's own words."""
        said = [
            f"at least {self.min:g}" if self.min is not None else "",
            f"at most {self.max:g}" if self.max is not None else "",
            f"one of {', '.join(map(str, self.one_of))}" if self.one_of is not None else "",
            "" if self.domains is None else _describe_domains(self.domains),
        ]
        return " and ".join(filter(None, said))

    def apply_to_schema(self, plain: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Return a parameter's JSON schema with the limit.

        A default that is not allowed is replaced by one that is, or removed.
        """
        limited = {**plain}
        if self.min is not None:
            limited["minimum"] = _whole(max(self.min, _number(plain.get("minimum"), self.min)))
        if self.max is not None:
            limited["maximum"] = _whole(min(self.max, _number(plain.get("maximum"), self.max)))
        if self.one_of is not None:
            limited["enum"] = [*self.one_of]
        if self.domains is not None:
            limited["description"] = f"{plain.get('description', '')} Restriction: {self.description}.".strip()
        if (default := self._instead_of(limited.pop("default", None))) is not None:
            limited["default"] = default
        return limited

    def _instead_of(self, default: JsonValue) -> JsonValue:
        """Return the default itself, the bound next to it, or the first listed value; None if none is allowed."""
        low = default if self.min is None else max(self.min, _number(default, self.min))
        near = low if self.max is None else min(self.max, _number(low, self.max))
        stand_ins: list[JsonValue] = [default, _whole(_number(near, 0)), *(self.one_of or ())]
        return None if default is None else next((value for value in stand_ins if self.is_allowed(value)), None)

    def _in_range(self, value: JsonValue) -> bool:
        if self.min is None and self.max is None:
            return True
        if not isinstance(value, int | float) or isinstance(value, bool):
            return False
        return (self.min is None or value >= self.min) and (self.max is None or value <= self.max)

    def _is_listed(self, value: JsonValue) -> bool:
        return self.one_of is None or any(type(value) is type(one) and value == one for one in self.one_of)

    def _in_domains(self, value: JsonValue) -> bool:
        if self.domains is None:
            return True
        try:
            return DomainPolicy(allow=self.domains).is_allowed(parse_web_address(str(value)).host)
        except WebPageUnreadableError:
            return False


ParameterLimits = Mapping[str, ParameterLimit]
"""By parameter name."""


def find_unknown_parameters(schema: Mapping[str, JsonValue], limits: ParameterLimits) -> list[str]:
    """Return limited parameters that the tool's schema lacks: a limit on them would have no effect."""
    return sorted(limits.keys() - _properties(schema).keys())


def apply_parameter_limits(schema: Mapping[str, JsonValue], limits: ParameterLimits) -> dict[str, JsonValue]:
    """Return a tool's schema with the limits. Parameters without an allowed default become required."""
    required = schema.get("required")
    parameters = _properties(schema)
    held = {name: limit.apply_to_schema(_as_object(parameters[name])) for name, limit in limits.items()}
    asked = [*required] if isinstance(required, list) else []
    asked += [name for name, parameter in held.items() if "default" not in parameter and name not in asked]
    return {**schema, "properties": {**parameters, **held}, **({"required": asked} if asked else {})}


def with_defaults(
    arguments: Mapping[str, JsonValue], schema: Mapping[str, JsonValue], limits: ParameterLimits
) -> dict[str, JsonValue]:
    """Fill in omitted limited parameters with the defaults of a schema from `apply_parameter_limits`."""
    properties = _properties(schema)
    left_out = [name for name in limits if name not in arguments and "default" in _as_object(properties[name])]
    return {**arguments, **{name: _as_object(properties[name])["default"] for name in left_out}}


def find_argument_error(arguments: Mapping[str, JsonValue], limits: ParameterLimits) -> str | None:
    """Return what is wrong with complete arguments, without their values; None if nothing is."""
    wrong = [name for name, limit in limits.items() if name not in arguments or not limit.is_allowed(arguments[name])]
    return "; ".join(f"{name} has to be {limits[name].description}" for name in wrong) or None


def _describe_domains(allowed: Sequence[str]) -> str:
    return (
        f"an address in {', '.join(allowed)}"
        if allowed
        else "an address in an allowed domain, but no domain is allowed"
    )


def _properties(schema: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    return _as_object(schema.get("properties"))


def _as_object(value: JsonValue) -> dict[str, JsonValue]:
    return {**value} if isinstance(value, dict) else {}


def _number(value: JsonValue, otherwise: float) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else otherwise


def _whole(value: float) -> JsonValue:
    """Write whole numbers without a fraction: 5, not 5.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


PhaseUrgency = Mapping[AgentPhase, int]
"""Phases in which a tool is useful, and its urgency there: smaller is more urgent."""

FIRST, SOON, LATER, LAST = 1, 2, 3, 4
"""Indispensable; specific to this task; convenient; replaceable."""
ADDED_TOOLS_DIVISOR = 10
"""Definitions of added tools, those of tool servers and plug-ins, may take this fraction of the window (1/10). Our own
are never hidden for their size.
"""


def make_urgency(executing: int, reflecting: int | None = None, verifying: int | None = None) -> PhaseUrgency:
    """Build the urgency for the phases of a step's agent; a phase without a value takes that of the previous phase."""
    reflecting = executing if reflecting is None else reflecting
    return {
        "executing": executing,
        "reflecting": reflecting,
        "verifying": reflecting if verifying is None else verifying,
    }


class CandidateTool(Value):
    """A tool that an agent could have."""

    name: str
    tokens: int
    """Estimated tokens of its definition."""
    permission: ToolPermission
    urgency: PhaseUrgency
    unusable_reason: str = ""
    """Why it cannot be used here."""
    is_added: bool = False
    """Whether it is of a tool server or a plug-in, not our own."""


class HiddenToolRecord(Value):
    """A tool that the agent does not see, and why."""

    name: str
    tokens: int
    reason: str
    crowded_out: bool = False
    """Whether more urgent added tools left no room for its definition."""


class ToolVisibility(Value):
    """What an agent sees in a phase, in the order in which the tools were offered."""

    phase: AgentPhase
    token_budget: int
    """Tokens for definitions of added tools."""
    shown: tuple[CandidateTool, ...]
    hidden: tuple[HiddenToolRecord, ...]
    permitted: tuple[CandidateTool, ...] = ()
    """All tools that its permissions admit, whatever the phase and the budget for added ones."""

    @property
    def tokens(self) -> int:
        """Tokens of the tools shown."""
        return sum(tool.tokens for tool in self.shown)

    @property
    def names(self) -> frozenset[str]:
        """Names of the tools shown."""
        return frozenset(tool.name for tool in self.shown)

    @property
    def crowded_out(self) -> tuple[str, ...]:
        """Names of the tools for whose definitions there is no room."""
        return tuple(tool.name for tool in self.hidden if tool.crowded_out)

    def get_hidden_reason(self, name: str) -> str | None:
        """Return why a tool is hidden; None if it is shown or was not offered."""
        return next((tool.reason for tool in self.hidden if tool.name == name), None)


class ToolPolicy(Value):
    """The operator's settings for tools."""

    added_tool_tokens: int | None = None
    """Budget for definitions of added tools in tokens; None: a fraction of the window."""
    denied: tuple[str, ...] = ()
    """Denied tools: names, patterns with `*`, or permissions. An agent can always submit."""
    limits: Mapping[str, ParameterLimits] = {}
    """Limits on parameters, by tool name."""

    def compute_added_tool_budget(self, window: int) -> int:
        """Return the tokens for definitions of added tools, for an agent with this window."""
        return window // ADDED_TOOLS_DIVISOR if self.added_tool_tokens is None else self.added_tool_tokens


class AgentPermissions(Value):
    """What an agent may have at all."""

    role: AgentRole
    may_delegate: bool
    """Whether it may start subagents, by its depth and its task's config."""
    denied: tuple[str, ...] = ()
    """As in `ToolPolicy`."""

    def find_denial_reason(self, tool: CandidateTool) -> str | None:
        """Return why it may not have this tool; None if it may."""
        if tool.permission not in get_role_spec(self.role).permissions:
            return f"the role {self.role} does not have the permission {tool.permission}"
        if tool.permission == "submit":
            return None
        if tool.permission == "delegate" and not self.may_delegate:
            return "this agent may not start subagents"
        denial = next((one for one in self.denied if one == tool.permission or fnmatchcase(tool.name, one)), None)
        return tool.unusable_reason or None if denial is None else f"the settings deny {denial}"


ADDED_LATER_REASON = (
    "it was added after this conversation had received its tools, and will be available after the next compaction"
)


def retain_sent_tools(now: ToolVisibility, sent: Collection[str]) -> ToolVisibility:
    """Return the visibility with exactly the sent tools that still exist and are permitted.

    A change of tools between compactions would break the prompt cache and lose the model's thinking so far.
    """
    shown = tuple(tool for tool in now.permitted if tool.name in sent)
    names = {tool.name for tool in shown}
    hidden = [tool for tool in now.hidden if tool.name not in names]
    fresh = [tool for tool in now.shown if tool.name not in names]
    hidden += [HiddenToolRecord(name=tool.name, tokens=tool.tokens, reason=ADDED_LATER_REASON) for tool in fresh]
    return now.replace(shown=shown, hidden=tuple(hidden))


def compute_tool_visibility(
    offered: Sequence[CandidateTool], phase: AgentPhase, rights: AgentPermissions, budget: int
) -> ToolVisibility:
    """Select the tools to show: permitted ones; of added ones the most urgent first, while definitions fit.

    A tool that does not fit leaves its space to smaller, less urgent ones. Names are unique.
    """
    refused = {tool.name: why for tool in offered if (why := _why_not(tool, phase, rights)) is not None}
    crowded_out: set[str] = set()
    added = [tool for tool in offered if tool.is_added and tool.permission != "submit" and tool.name not in refused]
    room = budget
    for tool in sorted(added, key=lambda tool: tool.urgency.get(phase, LAST)):
        if tool.tokens <= room:
            room -= tool.tokens
        else:
            crowded_out.add(tool.name)
            refused[tool.name] = (
                f"its definition has {tool.tokens} tokens, and only {room} of the {budget} tokens for added tools were "
                "left"
            )
    return ToolVisibility(
        phase=phase,
        token_budget=budget,
        permitted=tuple(tool for tool in offered if rights.find_denial_reason(tool) is None),
        shown=tuple(tool for tool in offered if tool.name not in refused),
        hidden=tuple(
            HiddenToolRecord(
                name=tool.name, tokens=tool.tokens, reason=refused[tool.name], crowded_out=tool.name in crowded_out
            )
            for tool in offered
            if tool.name in refused
        ),
    )


def _why_not(tool: CandidateTool, phase: AgentPhase, rights: AgentPermissions) -> str | None:
    """Return why a tool is not shown, by permissions, then by phase; None if it may be."""
    if (refusal := rights.find_denial_reason(tool)) is not None:
        return refusal
    return None if phase in tool.urgency or tool.permission == "submit" else f"not available while {phase}"


_TURN_MESSAGES = 2
"""A reply, and the results of its calls."""


def get_tool_phase(role: AgentRole, transcript: Transcript, ending: Collection[str]) -> AgentPhase:
    """Return the phase whose tools are shown from the next compaction on; before the first one, from the start.

    - planning: the agent makes or revises the plan.
    - executing: an agent of a step, until one of the following holds.
    - reflecting: its context was compacted. It works from a summary and needs the tools that recover what it replaced.
    - verifying: it has tried to submit and its result came back, or it reviews a report. It fixes, and starts nothing
      new.

    Args:
        role: Role of the agent.
        transcript: Its conversation.
        ending: Names of the tools that submit.
    """
    return get_role_spec(role).phase or _phase_of_step(transcript, ending)


def _phase_of_step(transcript: Transcript, ending: Collection[str]) -> AgentPhase:
    compacted = [
        count_messages_before(record, transcript) for record in get_effective_transcript(transcript).compactions
    ]
    tried = _first_try(transcript, ending)
    if tried is not None and any(place > tried for place in compacted):
        return "verifying"
    return "reflecting" if compacted else "executing"


def _first_try(transcript: Transcript, ending: Collection[str]) -> int | None:
    """Return the number of messages when the first submission had come back."""
    counting = {message.id for message in get_effective_transcript(transcript).messages}
    for place, message in enumerate(transcript.messages):
        if message.id in counting and any(call.name in ending for call in message.tool_uses):
            return place + _TURN_MESSAGES
    return None
