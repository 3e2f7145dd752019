"""Limits on parameters: what is not certainly within them is refused, and the schema says so beforehand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from pydantic import JsonValue, ValidationError

from waystation.agents.tool_visibility import (
    ParameterLimit,
    apply_parameter_limits,
    find_argument_error,
    find_unknown_parameters,
    with_defaults,
)

FIVE = ParameterLimit(max=5)
SCHEMA: dict[str, JsonValue] = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "limit": {"type": "integer", "default": 8, "minimum": 1, "maximum": 20},
    },
    "required": ["query"],
}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(json_values, st.integers(-10, 10), st.integers(0, 10))
def test_a_bounded_parameter_takes_numbers_within_its_bounds_and_nothing_else(
    value: JsonValue, low: int, width: int
) -> None:
    admitted = ParameterLimit(min=low, max=low + width).is_allowed(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    assert admitted == (is_number and low <= float(str(value)) <= low + width)


@pytest.mark.parametrize("value", ["9", True, None, [3], 6, 5.1, float("nan")])
def test_what_only_looks_like_an_allowed_number_is_none(value: JsonValue) -> None:
    assert not FIVE.is_allowed(value)


def test_a_listed_value_is_meant_with_its_type() -> None:
    limit = ParameterLimit(one_of=("read", 1))
    assert [limit.is_allowed(value) for value in ("read", 1, True, 1.0, "1", None)] == [True, True, *[False] * 4]


@pytest.mark.parametrize(
    ("address", "admitted"),
    [
        ("https://docs.python.org/3/", True),
        ("https://python.org.evil.example/", False),
        ("https://evil.example/?python.org", False),
        ("https://python.org@evil.example/", False),
        ("python.org", False),
        (7, False),
    ],
)
def test_an_address_lies_in_the_domains_or_is_refused(address: JsonValue, admitted: bool) -> None:
    assert ParameterLimit(domains=("python.org",)).is_allowed(address) == admitted
    assert not ParameterLimit(domains=()).is_allowed(address)


def test_the_schema_has_the_limit_and_a_default_within_it() -> None:
    assert apply_parameter_limits(SCHEMA, {"limit": FIVE}) == snapshot(
        {
            "type": "object",
            "properties": {
                "query": {"type": "string"},
                "limit": {"type": "integer", "default": 5, "minimum": 1, "maximum": 5},
            },
            "required": ["query"],
        }
    )


def test_a_limit_never_widens_what_the_tool_allows_itself() -> None:
    wide = apply_parameter_limits(SCHEMA, {"limit": ParameterLimit(min=0, max=99)})
    assert wide["properties"] == SCHEMA["properties"]


def test_what_would_be_left_to_the_tool_has_to_be_given() -> None:
    schema: dict[str, JsonValue] = {"type": "object", "properties": {"limit": {"type": "integer"}}}
    assert apply_parameter_limits(schema, {"limit": FIVE})["required"] == ["limit"]
    assert find_argument_error({}, {"limit": FIVE}) == "limit has to be at most 5"


@pytest.mark.parametrize(
    ("limit", "default"),
    [(ParameterLimit(min=10, max=50), 10), (ParameterLimit(max=5), 5), (ParameterLimit(one_of=(3, 4)), 3)],
)
def test_what_is_left_out_gets_the_default_that_the_schema_shows(limit: ParameterLimit, default: int) -> None:
    schema = apply_parameter_limits(SCHEMA, {"limit": limit})
    complete = with_defaults({"query": "x"}, schema, {"limit": limit})
    assert complete == {"query": "x", "limit": default}
    assert find_argument_error(complete, {"limit": limit}) is None


def test_faults_name_the_parameter_and_the_limit_and_never_the_value() -> None:
    limits = {"limit": FIVE, "query": ParameterLimit(one_of=("a", "b"))}
    assert find_argument_error({"limit": 9, "query": "a secret"}, limits) == snapshot(
        "limit has to be at most 5; query has to be one of a, b"
    )


def test_limits_on_parameters_that_are_not_there_are_found() -> None:
    assert find_unknown_parameters(SCHEMA, {"lmit": FIVE, "limit": FIVE}) == ["lmit"]


@pytest.mark.parametrize("written", [{}, {"min": 3, "max": 1}, {"one_of": []}, {"domains": ["no domain"]}, {"most": 3}])
def test_a_limit_that_says_nothing_possible_is_refused(written: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ParameterLimit.model_validate(written)
