"""Signals that wait for the next execution of their workflow, since this one is about to continue as new."""

from pydantic import JsonValue

from waystation.kernel.value import Value

MAX_DEFERRED_BYTES = 100_000
"""Maximum size of the signals that go along to the next execution, as JSON."""


class DeferredSignal(Value):
    """A signal that came while its workflow was about to continue as new. The next execution handles it first."""

    signal: str
    """Its name."""
    sent: JsonValue
    """As it came: validated when it is handled."""
    readable: bool
    """Whether it was encrypted where it must be."""


def add_deferred_signal(held: tuple[DeferredSignal, ...], message: DeferredSignal) -> tuple[DeferredSignal, ...] | None:
    """The signals with one more; None where they would be too large together."""
    together = (*held, message)
    return together if sum(len(one.model_dump_json()) for one in together) <= MAX_DEFERRED_BYTES else None
