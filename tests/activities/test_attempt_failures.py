import asyncio
import traceback
from dataclasses import replace
from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.testing import ActivityEnvironment

from waystation.activities.activity_errors import (
    MAX_UNEXPECTED_FAILURES,
    to_application_error,
    translating_errors,
)
from waystation.kernel.errors import (
    BadInput,
    ContentFilterError,
    MemoryUnavailable,
    ModelRejected,
    ModelUnavailable,
    RedactionAbandonedError,
    RedactionBlockedError,
    RedactionFailed,
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
from waystation.kernel.temporal_names import UNEXPECTED_FAILURE

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
    TextRedactionError("took more than 2 s"),
    RedactionBlockedError("after 6 attempts"),
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


def attempt(activity_id: str, error: Exception | None, *, gives_up: bool = True) -> ApplicationError | None:
    """Make one attempt at an activity, which raises this error; returns what the server gets."""

    def work() -> None:
        with translating_errors(gives_up=gives_up):
            if error is not None:
                raise error

    environment = ActivityEnvironment()
    environment.info = replace(environment.info, activity_id=activity_id)
    try:
        environment.run(work)
    except ApplicationError as raised:
        return raised
    return None


def list_ends(activity_id: str, error: Exception, attempts: int, *, gives_up: bool = True) -> list[bool | None]:
    """Return whether each attempt ends the activity for good."""
    raised = [attempt(activity_id, error, gives_up=gives_up) for _ in range(attempts)]
    return [one.non_retryable if one is not None else None for one in raised]


def test_an_error_of_no_known_kind_is_given_up_after_some_attempts() -> None:
    before = [False] * (MAX_UNEXPECTED_FAILURES - 1)
    assert list_ends("1", KeyError("a private text"), MAX_UNEXPECTED_FAILURES - 1) == before
    last = attempt("1", KeyError("a private text"))
    assert last is not None
    assert (last.type, last.non_retryable) == (UNEXPECTED_FAILURE, True)
    assert f"{MAX_UNEXPECTED_FAILURES} times: KeyError" in last.message
    assert "private" not in last.message


def test_an_activity_that_succeeds_in_between_starts_again() -> None:
    attempts = MAX_UNEXPECTED_FAILURES - 1
    assert list_ends("2", KeyError(), attempts) == [False] * attempts
    assert attempt("2", None) is None
    assert list_ends("2", KeyError(), attempts) == [False] * attempts


def test_attempts_at_other_activities_and_errors_that_may_pass_do_not_count() -> None:
    attempts = MAX_UNEXPECTED_FAILURES - 1
    assert list_ends("3", KeyError(), attempts) == [False] * attempts
    assert list_ends("4", KeyError(), 1) == [False]
    many = 3 * MAX_UNEXPECTED_FAILURES
    for error in (ConnectionResetError(), TimeoutError(), StoreUnavailable("away"), ModelUnavailable("busy")):
        assert list_ends("3", error, many) == [False] * many
    assert list_ends("3", KeyError(), 1) == [True]


def test_work_that_costs_nothing_to_repeat_is_never_given_up() -> None:
    many = 3 * MAX_UNEXPECTED_FAILURES
    assert list_ends("5", KeyError(), many, gives_up=False) == [False] * many
