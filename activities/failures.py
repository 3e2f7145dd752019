"""One table from our errors to Temporal's: what is retried, after how long, and what ends at once."""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta

from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from waystation.domain.errors import (
    BadInput,
    ModelRejected,
    ModelUnavailable,
    RequestConflict,
    WaystationError,
    WebhookRefused,
    WebhookUnavailable,
    WrongStore,
)

FINAL = (BadInput, ModelRejected, RequestConflict, WebhookRefused, WrongStore)
"""Trying again changes nothing. FenceLost is none of them: the server listens only to the newest attempt, so that the
one which took the fence away was given up before, and the next attempt takes it back."""
BUSY = (ModelUnavailable, WebhookUnavailable)
"""A server elsewhere cannot now, and may say when it can."""


@contextmanager
def reported() -> Generator[None]:
    """Raise our errors as application errors. Their messages hold values, never content, so history may keep them."""
    try:
        yield
    except WaystationError as error:
        raise application_error(error) from None


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
