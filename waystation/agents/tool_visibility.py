"""Which tools an agent sees: what its permissions and its phase admit, as far as the budget for definitions reaches.

A pure function, so that the same numbers decide what the model is sent and say afterwards why a tool was hidden.

Limits on the values of tools' parameters, as production has them: checked before a call, and shown in its schema.

What cannot be checked is refused: a value of another type, an optional parameter that is left to the tool.

In which phase an agent run is. Its tools follow at compactions alone: any other change of them would break the whole
prompt cache, and cost the model all of its thinking so far.

All of it is read from the transcript, so that an attempt after a crash sees what the one before it saw:

- planning: the agent that makes or revises the plan.
- executing: an agent of a step, until something of the following holds.
- reflecting: its context was compacted. It works from a summary, and needs the ways back to what that stands for.
- verifying: it has tried to hand in, and its result came back; or it reviews a report. It mends, and begins nothing.

Permissions do not wait: what is denied is hidden from the next leg on.
"""

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import Field, JsonValue, model_validator

from waystation.context.history import count_messages_before, get_effective_transcript
from waystation.context.transcript import Transcript
from waystation.documents.web_pages import DomainPolicy, parse_web_address
from waystation.kernel.errors import WebFetchRejectedError
from waystation.kernel.roles import AgentPhase, AgentRole, ToolPermission, get_role_spec
from waystation.kernel.value import Value


class ParameterLimit(Value):
    """What the values of one parameter are held to. At least one of these is said."""

    min: float | None = None
    max: float | None = None
    one_of: Annotated[tuple[str | int | float | bool, ...], Field(min_length=1)] | None = None
    domains: tuple[str, ...] | None = None
    """Of an address: the domains that it may lie in, each with all below it; * for every one, none for no address."""

    @model_validator(mode="after")
    def _says_something(self) -> "ParameterLimit":
        if self == ParameterLimit.model_construct():
            raise ValueError("say min, max, one_of or domains")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min:g} is more than max {self.max:g}")
        if self.domains is not None:
            DomainPolicy(allow=self.domains)  # refuses what is no domain
        return self

    def is_allowed(self, value: JsonValue) -> bool:
        """Whether a call may have this value."""
        return self._in_range(value) and self._is_listed(value) and self._in_domains(value)

    @property
    def description(self) -> str:
        """What it asks for, as an agent and a person read it. Allowed values are the operator's own words."""
        said = [
            f"at least {self.min:g}" if self.min is not None else "",
            f"at most {self.max:g}" if self.max is not None else "",
            f"one of {', '.join(map(str, self.one_of))}" if self.one_of is not None else "",
            "" if self.domains is None else f"an address in {', '.join(self.domains) or 'no domain at all'}",
        ]
        return ", ".join(filter(None, said))

    def apply_to_schema(self, plain: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """A parameter's JSON schema with the limit in it. A default that is not admitted makes way for one that is, or
        for none.
        """
        limited = {**plain}
        if self.min is not None:
            limited["minimum"] = _whole(max(self.min, _number(plain.get("minimum"), self.min)))
        if self.max is not None:
            limited["maximum"] = _whole(min(self.max, _number(plain.get("maximum"), self.max)))
        if self.one_of is not None:
            limited["enum"] = [*self.one_of]
        if self.domains is not None:
            limited["description"] = f"{plain.get('description', '')} Here: {self.description}.".strip()
        if (default := self._instead_of(limited.pop("default", None))) is not None:
            limited["default"] = default
        return limited

    def _instead_of(self, default: JsonValue) -> JsonValue:
        """The default itself, the bound that is next to it, or the first of the listed values; None where none fits."""
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
        except WebFetchRejectedError:
            return False


ParameterLimits = Mapping[str, ParameterLimit]
"""By the name of the parameter."""


def find_unknown_parameters(schema: Mapping[str, JsonValue], limits: ParameterLimits) -> list[str]:
    """Parameters that a tool with this schema does not have: a limit on them would hold nothing."""
    return sorted(limits.keys() - _properties(schema).keys())


def apply_parameter_limits(schema: Mapping[str, JsonValue], limits: ParameterLimits) -> dict[str, JsonValue]:
    """A tool's schema with the limits in it. What has no default that is admitted has to be given."""
    required = schema.get("required")
    parameters = _properties(schema)
    held = {name: limit.apply_to_schema(_as_object(parameters[name])) for name, limit in limits.items()}
    asked = [*required] if isinstance(required, list) else []
    asked += [name for name, parameter in held.items() if "default" not in parameter and name not in asked]
    return {**schema, "properties": {**parameters, **held}, **({"required": asked} if asked else {})}


def with_defaults(
    arguments: Mapping[str, JsonValue], schema: Mapping[str, JsonValue], limits: ParameterLimits
) -> dict[str, JsonValue]:
    """The arguments, and for limited parameters that were left out the defaults of a schema that was `limited`."""
    properties = _properties(schema)
    left_out = [name for name in limits if name not in arguments and "default" in _as_object(properties[name])]
    return {**arguments, **{name: _as_object(properties[name])["default"] for name in left_out}}


def find_argument_error(arguments: Mapping[str, JsonValue], limits: ParameterLimits) -> str | None:
    """What is wrong with arguments that are complete, without their values; None where nothing is."""
    wrong = [name for name, limit in limits.items() if name not in arguments or not limit.is_allowed(arguments[name])]
    return "; ".join(f"{name} has to be {limits[name].description}" for name in wrong) or None


def _properties(schema: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    return _as_object(schema.get("properties"))


def _as_object(value: JsonValue) -> dict[str, JsonValue]:
    return {**value} if isinstance(value, dict) else {}


def _number(value: JsonValue, otherwise: float) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else otherwise


def _whole(value: float) -> JsonValue:
    """As people write it: 5, and not 5.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


PhaseUrgency = Mapping[AgentPhase, int]
"""In which phases a tool is of use, and how urgent it is there: the smaller, the more."""

FIRST, SOON, LATER, LAST = 1, 2, 3, 4
"""What the work cannot do without; what this task has it for; what is handy; what can be done otherwise."""
TOOL_TOKENS = 2_500
MORE_PART = 4
"""Tools that somebody added may bring what is shown to this part of the window, at most to twice `TOOL_TOKENS`."""


def make_urgency(executing: int, reflecting: int | None = None, verifying: int | None = None) -> PhaseUrgency:
    """As urgent in each phase of a step's agent; in later ones as in the one before, where nothing else is said."""
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
    """Estimated, of its definition."""
    permission: ToolPermission
    urgency: PhaseUrgency
    unusable: str = ""
    """Why nobody may have it here."""


class HiddenToolRecord(Value):
    """A tool that the agent does not see, and why."""

    name: str
    tokens: int
    reason: str


class ToolVisibility(Value):
    """What an agent sees in a phase. Both in the order in which the tools were offered."""

    phase: AgentPhase
    budget: int
    """Tokens for definitions. The tools by which it hands in are there even where they alone have more."""
    shown: tuple[CandidateTool, ...]
    hidden: tuple[HiddenToolRecord, ...]
    admitted: tuple[CandidateTool, ...] = ()
    """All that its rights admit, whatever the phase and the budget."""

    @property
    def tokens(self) -> int:
        """Of what is shown."""
        return sum(tool.tokens for tool in self.shown)

    @property
    def names(self) -> frozenset[str]:
        """Of what is shown."""
        return frozenset(tool.name for tool in self.shown)

    def get_hidden_reason(self, name: str) -> str | None:
        """None for a tool that is shown, or that was not offered."""
        return next((tool.reason for tool in self.hidden if tool.name == name), None)


class ToolPolicy(Value):
    """What whoever runs the agents says of their tools."""

    tokens: int | None = None
    """Budget for definitions; None: what `budget` says."""
    more: bool = False
    """Whether there are more tools than our own: of the web, of plug-ins, or of servers."""
    denied: tuple[str, ...] = ()
    """Tools that nobody may have: names, patterns of names with *, or permissions. An agent can always hand in."""
    limits: Mapping[str, ParameterLimits] = {}
    """On the values of parameters, by name of the tool."""

    def compute_definition_budget(self, window: int) -> int:
        """Tokens for definitions of an agent with this window: what was asked for, or what its tools need."""
        if self.tokens is not None:
            return self.tokens
        return min(2 * TOOL_TOKENS, max(TOOL_TOKENS, window // MORE_PART)) if self.more else TOOL_TOKENS


class AgentPermissions(Value):
    """What an agent may have at all."""

    role: AgentRole
    delegates: bool
    """Whether it may start subagents, by its depth and its task's terms."""
    denied: tuple[str, ...] = ()
    """As in `ToolPolicy`."""

    def find_denial_reason(self, tool: CandidateTool) -> str | None:
        """Why it may not have this tool; None where it may."""
        if tool.permission not in get_role_spec(self.role).permissions:
            return f"the role {self.role} has no permission {tool.permission}"
        if tool.permission == "hand_in":
            return None
        if tool.permission == "delegate" and not self.delegates:
            return "it may start no subagents"
        denial = next((one for one in self.denied if one == tool.permission or fnmatchcase(tool.name, one)), None)
        return tool.unusable or None if denial is None else f"the settings deny {denial}"


SINCE_THEN = "it came after the tools of this conversation were set: it is shown after the next compaction"


def retain_sent_tools(now: ToolVisibility, sent: Collection[str]) -> ToolVisibility:
    """The projection `now`, with the tools that were sent since the last compaction: all of them that are still there
    and may be had, and no others.
    """
    shown = tuple(tool for tool in now.admitted if tool.name in sent)
    names = {tool.name for tool in shown}
    hidden = [tool for tool in now.hidden if tool.name not in names]
    fresh = [tool for tool in now.shown if tool.name not in names]
    hidden += [HiddenToolRecord(name=tool.name, tokens=tool.tokens, reason=SINCE_THEN) for tool in fresh]
    return now.replace(shown=shown, hidden=tuple(hidden))


def compute_tool_visibility(
    offered: Sequence[CandidateTool], phase: AgentPhase, rights: AgentPermissions, budget: int
) -> ToolVisibility:
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
    return ToolVisibility(
        phase=phase,
        budget=budget,
        admitted=tuple(tool for tool in offered if rights.find_denial_reason(tool) is None),
        shown=tuple(tool for tool in offered if tool.name not in refused),
        hidden=tuple(
            HiddenToolRecord(name=tool.name, tokens=tool.tokens, reason=refused[tool.name])
            for tool in offered
            if tool.name in refused
        ),
    )


def _why_not(tool: CandidateTool, phase: AgentPhase, rights: AgentPermissions) -> str | None:
    """By its rights, then by the phase."""
    if (refusal := rights.find_denial_reason(tool)) is not None:
        return refusal
    return None if phase in tool.urgency or tool.permission == "hand_in" else f"not while {phase}"


_TURN_MESSAGES = 2
"""A reply, and the results of its calls."""


def get_tool_phase(role: AgentRole, transcript: Transcript, ending: Collection[str]) -> AgentPhase:
    """The phase that the tools follow which are shown from the next compaction on; before the first one, from the
    beginning. `ending`: names of the tools that hand in.
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
    """How many messages there were when the first result that was handed in had come back."""
    counting = {message.id for message in get_effective_transcript(transcript).messages}
    for place, message in enumerate(transcript.messages):
        if message.id in counting and any(call.name in ending for call in message.tool_uses):
            return place + _TURN_MESSAGES
    return None
