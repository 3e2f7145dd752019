"""Limits on the values of tools' parameters, as production has them: checked before a call, and shown in its schema.

What cannot be checked is refused: a value of another type, an optional parameter that is left to the tool.
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, JsonValue, model_validator

from waystation.domain.errors import WebRefused
from waystation.domain.value import Input
from waystation.domain.web import Domains, web_address


class ParameterLimit(Input):
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
            Domains(allow=self.domains)  # refuses what is no domain
        return self

    def admits(self, value: JsonValue) -> bool:
        """Whether a call may have this value."""
        return self._in_range(value) and self._is_listed(value) and self._in_domains(value)

    @property
    def words(self) -> str:
        """What it asks for, as an agent and a person read it. Allowed values are the operator's own words."""
        said = [
            f"at least {self.min:g}" if self.min is not None else "",
            f"at most {self.max:g}" if self.max is not None else "",
            f"one of {', '.join(map(str, self.one_of))}" if self.one_of is not None else "",
            "" if self.domains is None else f"an address in {', '.join(self.domains) or 'no domain at all'}",
        ]
        return ", ".join(filter(None, said))

    def in_schema(self, plain: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
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
            limited["description"] = f"{plain.get('description', '')} Here: {self.words}.".strip()
        if (default := self._instead_of(limited.pop("default", None))) is not None:
            limited["default"] = default
        return limited

    def _instead_of(self, default: JsonValue) -> JsonValue:
        """The default itself, the bound that is next to it, or the first of the listed values; None where none fits."""
        low = default if self.min is None else max(self.min, _number(default, self.min))
        near = low if self.max is None else min(self.max, _number(low, self.max))
        stand_ins: list[JsonValue] = [default, _whole(_number(near, 0)), *(self.one_of or ())]
        return None if default is None else next((value for value in stand_ins if self.admits(value)), None)

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
            return Domains(allow=self.domains).admits(web_address(str(value)).host)
        except WebRefused:
            return False


Limits = Mapping[str, ParameterLimit]
"""By the name of the parameter."""


def unknown(schema: Mapping[str, JsonValue], limits: Limits) -> list[str]:
    """Parameters that a tool with this schema does not have: a limit on them would hold nothing."""
    return sorted(limits.keys() - _properties(schema).keys())


def limited(schema: Mapping[str, JsonValue], limits: Limits) -> dict[str, JsonValue]:
    """A tool's schema with the limits in it. What has no default that is admitted has to be given."""
    required = schema.get("required")
    parameters = _properties(schema)
    held = {name: limit.in_schema(_as_object(parameters[name])) for name, limit in limits.items()}
    asked = [*required] if isinstance(required, list) else []
    asked += [name for name, parameter in held.items() if "default" not in parameter and name not in asked]
    return {**schema, "properties": {**parameters, **held}, **({"required": asked} if asked else {})}


def with_defaults(
    arguments: Mapping[str, JsonValue], schema: Mapping[str, JsonValue], limits: Limits
) -> dict[str, JsonValue]:
    """The arguments, and for limited parameters that were left out the defaults of a schema that was `limited`."""
    properties = _properties(schema)
    left_out = [name for name in limits if name not in arguments and "default" in _as_object(properties[name])]
    return {**arguments, **{name: _as_object(properties[name])["default"] for name in left_out}}


def fault(arguments: Mapping[str, JsonValue], limits: Limits) -> str | None:
    """What is wrong with arguments that are complete, without their values; None where nothing is."""
    wrong = [name for name, limit in limits.items() if name not in arguments or not limit.admits(arguments[name])]
    return "; ".join(f"{name} has to be {limits[name].words}" for name in wrong) or None


def _properties(schema: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    return _as_object(schema.get("properties"))


def _as_object(value: JsonValue) -> dict[str, JsonValue]:
    return {**value} if isinstance(value, dict) else {}


def _number(value: JsonValue, otherwise: float) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else otherwise


def _whole(value: float) -> JsonValue:
    """As people write it: 5, and not 5.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
