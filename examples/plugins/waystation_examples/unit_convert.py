"""A tool: lengths and masses in other units."""

from decimal import Decimal
from typing import Literal

from pydantic import Field

from waystation.plugins.api import PluginTool, ToolCallRejectedError, ToolContext, ToolInput

METRES = {"mm": "0.001", "cm": "0.01", "m": "1", "km": "1000", "in": "0.0254", "ft": "0.3048", "mi": "1609.344"}
GRAMS = {"g": "1", "kg": "1000", "t": "1000000", "oz": "28.349523125", "lb": "453.59237"}
Unit = Literal["mm", "cm", "m", "km", "in", "ft", "mi", "g", "kg", "t", "oz", "lb"]


class UnitConvertInput(ToolInput):
    value: Decimal = Field(ge=-(10**15), le=10**15, description="The number to convert.")
    unit: Unit = Field(description="Its unit.")
    to: Unit = Field(description="The unit wanted.")


class UnitConvertTool(PluginTool[UnitConvertInput]):
    name = "unit_convert"
    description = "Converts a length or a mass to another unit, exactly; use it instead of calculating yourself."
    input_model = UnitConvertInput
    permission = "compute"
    roles = ("research", "analysis")
    # It sends nothing anywhere, changes nothing, and says the same again.
    requires_approval = False
    idempotent = True
    rereadable = True

    async def run(self, arguments: UnitConvertInput, ctx: ToolContext) -> str:
        for factors in (METRES, GRAMS):
            if arguments.unit in factors and arguments.to in factors:
                result = arguments.value * Decimal(factors[arguments.unit]) / Decimal(factors[arguments.to])
                return f"{arguments.value} {arguments.unit} = {result.normalize():f} {arguments.to}"
        raise ToolCallRejectedError(f"{arguments.unit} and {arguments.to} measure different things")
