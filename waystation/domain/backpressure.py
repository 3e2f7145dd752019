"""Backpressure: how long a model call waits when a budget is nearly spent, so that a person can look before it is."""

WARN_SHARE = 0.80
"""Share of a budget from which on people are warned."""

_DELAYS = ((0.95, 1.5), (0.90, 0.75), (0.85, 0.3), (WARN_SHARE, 0.05))
"""From which used share on a call waits how many seconds."""


def delay_seconds(used: float) -> float:
    """The wait before a call. `used`: the highest share used at any level, from 0."""
    return next((seconds for share, seconds in _DELAYS if used >= share), 0.0)
