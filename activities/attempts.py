"""Which attempt at its activity the code at work belongs to."""

from temporalio import activity


def present_attempt() -> int:
    """From 1 on; Temporal counts, over crashes of workers too. Outside of activities nothing is tried again."""
    return activity.info().attempt if activity.in_activity() else 1
