"""The tool that calculates, so that no number of a report is a model's guess."""

from pydantic import Field

from waystation.agents.tools.tool import CallSite, ToolInput, ToolRefused, TypedTool
from waystation.domain.errors import QueryRefused
from waystation.domain.projection import LAST, urgent
from waystation.ports import TableEngine

_FLOATING = frozenset({"DOUBLE", "FLOAT"})
_SEVERAL = ("STRUCT(", "TUPLE(", "MAP(", "UNION(")
"""How types of values that hold others begin; that of a list has brackets."""
_OVERFLOW = "Out of Range Error: Overflow"
_WIDER = (
    " Larger numbers are exact with a type: 99999999999::HUGEINT for whole ones, 1.5::DECIMAL(38,2) for decimals; "
    "1.5::DOUBLE is approximate."
)


class CalculateInput(ToolInput):
    """What is to be calculated."""

    expression: str = Field(
        min_length=1,
        max_length=2_000,
        description="For example (1250.40 - 1100) / 1100 * 100, round(2.5 * 19.99, 2), "
        "date_diff('day', DATE '2024-01-31', DATE '2025-03-01') or DATE '2026-03-01' + INTERVAL 6 WEEK.",
    )


class Calculate(TypedTool[CalculateInput]):
    """The value of an expression."""

    name = "calculate"
    description = (
        "Calculates one expression with numbers or dates, as SQL writes it; use it instead of calculating yourself. "
        "Sums, differences and products of decimals are exact; / and ^ are approximate beyond 15 digits. No thousands "
        "separators, no percent signs; -2^2 is (-2)^2."
    )
    permission = "compute"
    urgency = urgent(LAST)
    input_model = CalculateInput

    def __init__(self, engine: TableEngine) -> None:
        self._engine = engine

    async def run(self, arguments: CalculateInput, at: CallSite) -> str:  # noqa: ARG002 - it is the same everywhere
        """The value after `=`, or after `≈` where it is not exact."""
        # The line break ends a comment that the expression may end with.
        try:
            result = await self._engine.query(f"SELECT ({arguments.expression}\n)", (), 2)
        except QueryRefused as refused:
            more = _WIDER if str(refused).startswith(_OVERFLOW) else ""
            raise ToolRefused(f"{refused}{more}") from refused
        if len(result.columns) != 1 or len(result.rows) != 1 or _holds_others(result.columns[0].type):
            raise ToolRefused("This has several values. Ask for one, and write numbers without thousands separators.")
        value = result.rows[0][0]
        if value is None:
            raise ToolRefused("This has no value: something in it is NULL.")
        if result.columns[0].type not in _FLOATING:
            return f"= {value}"
        if not any(map(str.isdigit, value)):
            raise ToolRefused("This has no value: it divides by zero, or is too large.")
        return f"≈ {value} (floating point: exact to about 15 digits)"


def _holds_others(type_name: str) -> bool:
    return type_name.startswith(_SEVERAL) or "]" in type_name
