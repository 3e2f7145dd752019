import asyncio
import traceback
from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from waystation.activities.activity_errors import to_application_error, translating_errors
from waystation.kernel.errors import (
    BadInput,
    ContentFilterError,
    MemoryUnavailable,
    ModelRejected,
    ModelUnavailable,
    RedactionAbandonedError,
    RedactionFailed,
    RedactionReviewRequiredError,
    RequestConflict,
    SpendingLimitReached,
    StaleFenceError,
    StoreError,
    StoreUnavailable,
    TextNotFoundError,
    TextRedactionError,
    UnknownTask,
    VersionConflict,
    WaystationError,
    WebhookRejectedError,
    WebhookUnavailable,
    WrongStore,
)

FINAL = [
    BadInput("no such file"),
    UnknownTask("no task x"),
    ModelRejected("no such model"),
    ContentFilterError("filtered"),
    RequestConflict("used before"),
    WrongStore("a", "b"),
    RedactionAbandonedError("after 6 attempts"),
    WebhookRejectedError("the webhook answered 404"),
]
WORTH_A_RETRY = [
    ModelUnavailable("overloaded"),
    SpendingLimitReached("no credit"),
    StoreUnavailable("the database does not answer"),
    StaleFenceError("task-1/research-1", 3),
    VersionConflict("task-1/research-1", 3, 4),
    StoreError("the database refused a statement"),
    TextNotFoundError("0" * 64),
    RedactionFailed("the redactor is down"),
    TextRedactionError("took over 2 s"),
    RedactionReviewRequiredError("after 6 attempts"),
    MemoryUnavailable("Qdrant does not answer"),
    WebhookUnavailable("the webhook answered 500"),
]


@pytest.mark.parametrize("error", FINAL, ids=lambda error: type(error).__name__)
def test_what_trying_again_cannot_change_ends_at_once(error: WaystationError) -> None:
    assert to_application_error(error).non_retryable


@pytest.mark.parametrize("error", WORTH_A_RETRY, ids=lambda error: type(error).__name__)
def test_what_may_pass_is_tried_again(error: WaystationError) -> None:
    assert not to_application_error(error).non_retryable


@pytest.mark.parametrize("error", FINAL + WORTH_A_RETRY, ids=lambda error: type(error).__name__)
def test_an_error_keeps_its_name_and_its_message(error: WaystationError) -> None:
    reported_error = to_application_error(error)
    assert (reported_error.type, reported_error.message) == (type(error).__name__, str(error))


def test_the_delay_that_a_provider_names_is_the_delay_of_the_next_attempt() -> None:
    assert to_application_error(ModelUnavailable("busy", retry_after=7.5)).next_retry_delay == timedelta(seconds=7.5)
    assert to_application_error(WebhookUnavailable("busy", retry_after=7.5)).next_retry_delay == timedelta(seconds=7.5)
    assert to_application_error(ModelUnavailable("busy")).next_retry_delay is None
    assert to_application_error(ModelRejected("no")).next_retry_delay is None


def test_a_busy_provider_is_no_defect_of_the_workers() -> None:
    assert to_application_error(ModelUnavailable("busy")).category is ApplicationErrorCategory.BENIGN
    assert to_application_error(StoreError("broken")).category is ApplicationErrorCategory.UNSPECIFIED


def fail() -> None:
    try:
        raise ValueError("a text that must not be seen")
    except ValueError as error:
        raise RedactionFailed("the redactor is down") from error


def test_our_errors_are_reported_without_their_cause() -> None:
    with pytest.raises(ApplicationError, match="the redactor is down") as caught, translating_errors():
        fail()
    assert caught.value.__suppress_context__
    assert caught.value.__cause__ is None


def test_of_errors_that_are_not_ours_there_is_the_name_and_the_place_and_not_the_message() -> None:
    with pytest.raises(ApplicationError) as caught, translating_errors():
        raise ValueError("a text that must not be seen")
    error = caught.value
    assert (error.type, error.non_retryable) == ("ValueError", False)
    told = "".join(traceback.format_exception(error))
    assert "must not be seen" not in told.replace('raise ValueError("a text that must not be seen")', "")
    assert "test_attempt_failures.py" in told


async def test_a_cancellation_passes_as_it_is() -> None:
    with pytest.raises(asyncio.CancelledError), translating_errors():
        raise asyncio.CancelledError
