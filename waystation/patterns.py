"""Patterns that see foreign text: compiled here and nowhere else, so that one test can prove that each runs in linear time."""

import re
from typing import AnyStr

PROVEN: list[re.Pattern[str] | re.Pattern[bytes]] = []
"""Every pattern of the product that runs on the backtracking engine, in the order of import. The tests pump each."""


def proven(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """A pattern of the standard library: for lookarounds, back references and Unicode word boundaries.

    Its repetitions are bounded, possessive (`*+`) or atomic (`(?>…)`), so that the work from any position is bounded.
    """
    pattern = re.compile(source, flags)
    PROVEN.append(pattern)
    return pattern
