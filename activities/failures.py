"""One table from our errors to Temporal's: what is retried, after how long, and what ends at once."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from types import TracebackType

from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, TemporalError

from waystation.domain.errors import (
    BadInput,
    ModelRejected,
    ModelUnavailable,
    RequestConflict,
    TextGivenUp,
    WaystationError,
    WebhookRefused,
    WebhookUnavailable,
    WrongStore,
)

FINAL = (BadInput, ModelRejected, RequestConflict, TextGivenUp, WebhookRefused, WrongStore)
"""Trying again changes nothing. FenceLost is none of them: the server listens only to the newest attempt, so that the
one which took the fence away was given up before, and the next attempt takes it back."""
BUSY = (ModelUnavailable, WebhookUnavailable)
"""A server elsewhere cannot now, and may say when it can."""


@contextmanager
def reported() -> Generator[None]:
    """Raise our errors as application errors. Their messages hold values, never content, so history may keep them.

    What nobody foresaw may quote anything (pydantic quotes what it validates): of that history and logs get the name
    and where it came from.
    """
    with ExitStack() as stack:
        stack.push(_raise_without_text)
        yield


def _raise_without_text(
    _kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    if isinstance(error, WaystationError):
        raise application_error(error) from None
    if isinstance(error, Exception) and not isinstance(error, TemporalError):
        kind = type(error).__name__
        raise ApplicationError(
            f"{kind}: its message is not repeated, since it may quote text", type=kind
        ).with_traceback(trace) from None


def application_error(error: WaystationError) -> ApplicationError:
    """The error as Temporal shall treat it. One retry policy, here: the SDKs below retry nothing."""
    delay = error.retry_after if isinstance(error, BUSY) else None
    return ApplicationError(
        str(error),
        type=type(error).__name__,
        non_retryable=isinstance(error, FINAL),
        next_retry_delay=timedelta(seconds=delay) if delay is not None else None,
        category=_category(error),
    )


def _category(error: WaystationError) -> ApplicationErrorCategory:
    """That another server is busy is no defect of the worker's: it is not logged as one."""
    return ApplicationErrorCategory.BENIGN if isinstance(error, BUSY) else ApplicationErrorCategory.UNSPECIFIED
