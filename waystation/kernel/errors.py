"""Every error that Waystation raises on purpose.

WaystationError
├── BadInput                        a person's input cannot be used; the message says what to do
│   ├── InvalidFieldError           one named field of the input cannot be used
│   ├── UnknownTask                 no task with that id in this store
│   └── MemoryInUse                 another process has the embedded memory open
├── InsufficientBudgetError         a reservation asks for more than the account has left
├── StoreError
│   ├── StaleFenceError             another attempt has taken over this agent run; write nothing more
│   ├── VersionConflict             the transcript changed since it was read
│   ├── RequestConflict             the request id was used before, for a different request
│   ├── TextNotFoundError           no text with that content hash in this store: forgotten, or never there
│   ├── WrongStore                  the task belongs to another store than this worker's
│   ├── RetiredKey                  a row was written with a key that `waystation store reseal` has retired
│   └── StoreUnavailable            the database does not answer; retryable; exit code 3
├── ModelError
│   ├── ModelUnavailable            retryable (rate limit, overload, connection)
│   │   └── InvalidReplyError       there was an answer, but not a complete reply (cut stream, web page, malformed)
│   ├── SpendingLimitReached        the provider's account has no money left; a person must act
│   └── ModelRejected               not retryable (credentials, bad request, too large)
│       ├── ModelAuthenticationError  the key or credentials are not accepted, or this worker has none
│       ├── BrokenEndpointError     call after call, the endpoint sends no valid reply; a person must act
│       ├── ModelNotFoundError      there is no such model at this endpoint, or not any more
│       └── ContentFilterError      the provider's content filter withheld the reply; it may have been billed
├── WrongKey                        something is encrypted with a key that is not available
├── RedactionFailed                 text could not be redacted, so it must go nowhere
│   └── TextRedactionError          this text could not be redacted; other texts may succeed
│       ├── RedactionTimeoutError   redaction took too long; after a second time-out, the text is set aside
│       ├── RedactionAbandonedError  out of attempts: the work that needs the text ends with what it has
│       └── RedactionBlockedError   out of attempts: a person must look at it
├── MemoryUnavailable               the embedder or Qdrant did not answer; passages wait in the outbox; exit code 3
│   ├── PassagesRejectedError       Qdrant does not accept one of these passages, however often it is sent
│   └── OtherEmbedder               memory was built with another embedder than the configured one
├── TableQueryError                 a calculation or a query over tables failed; its agent is shown why
├── HookFailed                      a hook before or after a compaction failed; reported, blocks only if configured to
├── ToolServerFailed                a tool server is unreachable, ended, or exceeded time or size; the agent goes on
├── WebhookUnavailable              a notification was not accepted; retryable
├── WebhookRejectedError            a notification was not accepted; not retryable
├── WebUnavailable                  a page cannot be fetched now; retryable
├── WebPageUnreadableError          a page cannot or must not be read; not retryable
└── Unreachable                     something needed (server, worker) is not there; exit code 3
    ├── StartUnknownError           no answer came in time: the task may have started, and may be submitted again
    └── Busy                        the server is there but accepts no more at the moment: nothing was accepted
"""

from typing import TYPE_CHECKING

from waystation.kernel.amount import Amount, Limit, format_amount, format_limit

if TYPE_CHECKING:
    from datetime import datetime

    from waystation.kernel.usage import Usage  # which imports this module


class WaystationError(Exception):
    """Base of all errors raised on purpose. Messages carry values, never conversation text or secrets."""


class BadInput(WaystationError):
    """A person's input cannot be used. The message names the cause and the next step."""


class InvalidFieldError(BadInput):
    """One field of an input cannot be used: a form shows the message there."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class UnknownTask(BadInput):
    """There is no task with that id in this store."""


class NothingToDraft(BadInput):
    """No agent of the task has written anything that a draft could show."""


class MemoryInUse(BadInput):
    """Another process, such as a worker, has the embedded memory open."""


class InsufficientBudgetError(WaystationError):
    """A reservation asks for more than the account has left."""

    def __init__(self, child: str, asked: Amount, remaining: Limit) -> None:
        left = f"the budget has only {format_limit(remaining)} left"
        super().__init__(f"{child} asks for {format_amount(asked)}, but {left}")
        self.child, self.asked, self.left = child, asked, remaining


class StoreError(WaystationError):
    """The store refused a write or lacks something that must be there."""


class StaleFenceError(StoreError):
    """Another attempt has taken over this agent run: this one must not write anything more."""

    def __init__(self, run_id: str, held: int) -> None:
        super().__init__(f"agent run {run_id}: fencing token {held} is no longer the newest; another attempt took over")
        self.run_id, self.held = run_id, held


class VersionConflict(StoreError):
    """The transcript changed since it was read."""

    def __init__(self, run_id: str, expected: int, found: int) -> None:
        super().__init__(f"agent run {run_id}: the transcript has version {found}, expected {expected}")
        self.run_id, self.expected, self.found = run_id, expected, found


class RequestConflict(StoreError):
    """The request id was used before, for a request with different content."""


class TextNotFoundError(StoreError):
    """There is no text with that content hash in this store: it was forgotten, or never there."""

    def __init__(self, blob: str) -> None:
        super().__init__(f"no text with the content hash {blob} in this store")
        self.blob = blob


class WrongStore(StoreError):
    """The task was submitted into another store than the one this worker has open."""

    def __init__(self, wanted: str, found: str) -> None:
        super().__init__(
            f"the task is in store {wanted}, but this worker has store {found} open: "
            "submit with the worker's WAYSTATION_HOME or database, or start a worker with the task's store"
        )
        self.wanted, self.found = wanted, found


class RetiredKey(StoreError):
    """A row was written with a previous key, although everything was rewritten under a newer one since."""

    def __init__(self, place: str = "the store") -> None:
        super().__init__(
            f"a value in {place} was written with a previous key after `waystation store reseal` had rewritten "
            "everything with a newer key. Someone with the previous key, or a worker that was not restarted, wrote "
            "this value. Restore the database from a backup that was made after reseal, or accept the value as it is "
            "with `waystation store reseal --accept-refused`"
        )


class StoreUnavailable(StoreError):
    """The database does not answer, or not now. Retryable: every write may be repeated."""


class ModelError(WaystationError):
    """A model call did not give a usable reply."""

    reported_usage: "Usage | None" = None
    """Upper bound of what the call used, from what its provider reported before it failed: input as counted, output as
    a bound. None if nothing was reported.
    """
    called_model: str = ""
    """Full name of the model that failed, if it was called as a fallback for another one."""


class ModelUnavailable(ModelError):
    """Retryable, after `retry_after` seconds if the provider named a delay.

    `possibly_billed`: the provider may have begun to answer (a cut stream, a time-out); False if it certainly refused
    (rate limit, overload, connection refused).
    """

    def __init__(self, message: str, *, retry_after: float | None = None, possibly_billed: bool = True) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.possibly_billed = possibly_billed


class InvalidReplyError(ModelUnavailable):
    """There was an answer, but not a complete reply: a stream without its end, a web page, malformed pieces."""


class SpendingLimitReached(ModelError):
    """The provider makes no call because its spending limit is reached or the account has no credit.

    `resets_at`: when the provider makes calls again by itself; None if it did not say so.
    """

    def __init__(self, message: str, *, resets_at: "datetime | None" = None) -> None:
        super().__init__(message)
        self.resets_at = resets_at


class ModelRejected(ModelError):
    """Not retryable: credentials, a bad request, or a request that is too large."""


class ModelAuthenticationError(ModelRejected):
    """The endpoint does not accept the key or credentials, or this worker has none for it."""


class BrokenEndpointError(ModelRejected):
    """What the endpoint sends is not a reply: a web page, or, call after call, nothing usable.

    Retryable after a person has fixed it.

    `possibly_billed` as in `ModelUnavailable`.
    """

    def __init__(self, message: str, *, possibly_billed: bool = False) -> None:
        super().__init__(message)
        self.possibly_billed = possibly_billed


class ModelNotFoundError(ModelRejected):
    """There is no such model at this endpoint, or not any more. Another model may be available."""


class ContentFilterError(ModelRejected):
    """The provider's content filter withheld the reply. The same request would be blocked, and billed, again."""


class WrongKey(WaystationError):
    """Something is encrypted, and no available key decrypts it. The message says nothing about its content."""


class RedactionFailed(WaystationError):
    """Text could not be redacted. It must reach neither a model nor memory nor workflow history."""


class TextRedactionError(RedactionFailed):
    """One text could not be redacted, while others may be. Another attempt may succeed."""


class RedactionTimeoutError(TextRedactionError):
    """The redaction of one text took longer than allowed and was ended."""


class RedactionAbandonedError(TextRedactionError):
    """A text that the work cannot do without could not be redacted in the permitted number of attempts."""


class RedactionBlockedError(TextRedactionError):
    """A text could not be redacted in the permitted number of attempts, and the work stops until a person acts."""


class MemoryUnavailable(WaystationError):
    """The embedder or Qdrant did not answer. Passages stay in the outbox and are written later."""


class PassagesRejectedError(MemoryUnavailable):
    """Qdrant does not accept at least one of these passages. The message quotes none."""


class OtherEmbedder(MemoryUnavailable):
    """Memory was built with another embedder than the configured one: their vectors cannot be compared."""


class TableQueryError(WaystationError):
    """A calculation or a query over tables cannot be carried out.

    The message may quote cells: it goes to the agent that asked, redacted like every result, and nowhere else.
    """


class HookFailed(WaystationError):
    """A hook before or after a compaction failed. The message repeats nothing that the hook said."""


class ToolServerFailed(WaystationError):
    """A tool server gave no result. The message names the server and repeats nothing that it sent."""


class WebhookUnavailable(WaystationError):
    """A notification was not accepted. Retryable, after `retry_after` seconds if the server named a delay."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class WebhookRejectedError(WaystationError):
    """A notification was not accepted, and it is not retryable."""


class WebUnavailable(WaystationError):
    """A page cannot be fetched now. Retryable. The message names the host and repeats nothing that it sent."""


class WebPageUnreadableError(WaystationError):
    """A page cannot or must not be read. Not retryable; the message gives the cause and what can be done instead."""

    def __init__(self, cause: str, next_step: str) -> None:
        super().__init__(f"{cause}. {next_step}")
        self.cause, self.next_step = cause, next_step


class Unreachable(WaystationError):
    """The Temporal server, its namespace, the workers or `waystation serve` cannot be used now.

    None of them answers, one refuses access, or one cannot be started. The message names the next step.
    """


class StartUnknownError(Unreachable):
    """No answer came in time, so the task may have started. Submitting it again starts it only once."""

    def __init__(self, task_id: str, message: str) -> None:
        super().__init__(message)
        self.task_id = task_id


class Busy(Unreachable):
    """The server or the session accepts no more requests at the moment. Nothing was accepted; try again."""
