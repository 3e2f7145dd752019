"""Signals that are passed to the next execution of their workflow because this one is about to continue as new."""

from pydantic import JsonValue

from waystation.kernel.value import Value

MAX_DEFERRED_BYTES = 100_000
"""Maximum size in bytes of the signals that are passed to the next execution, as JSON."""


class DeferredSignal(Value):
    """A signal that arrived while its workflow was about to continue as new. The next execution handles it first."""

    signal: str
    """Name of the signal."""
    argument: JsonValue
    """The argument as it arrived; it is validated when the signal is handled."""
    readable: bool
    """Whether it arrived encrypted if the installation requires that."""


def defer_until_next_execution(
    deferred_signals: tuple[DeferredSignal, ...], message: DeferredSignal
) -> tuple[DeferredSignal, ...] | None:
    """Return the signals with one more; None if they would be too large together."""
    together = (*deferred_signals, message)
    return together if sum(len(one.model_dump_json()) for one in together) <= MAX_DEFERRED_BYTES else None
