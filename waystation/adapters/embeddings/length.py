"""Vectors of length 1: embedders give others, and only directions are compared."""

import math
from collections.abc import Sequence

Vector = tuple[float, ...]


def of_length_1(numbers: Sequence[float]) -> Vector | None:
    """The same direction; None where there is none, as in a text without words."""
    length = math.hypot(*numbers)
    return tuple(number / length for number in numbers) if length > 0 else None
