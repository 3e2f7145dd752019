"""Every error that Waystation raises on purpose.

WaystationError
├── BadInput                what a person gave cannot be used; the message says what to do
│   ├── UnknownTask         no task of that id in this store
│   └── MemoryInUse         another process has the embedded memory open
├── Overdrawn               a reservation asks for more than the account has left
├── StoreError
│   ├── StaleFenceError           another attempt has taken this agent run over; write nothing more
│   ├── VersionConflict     the transcript changed since it was read
│   ├── RequestConflict     the request id was used before, for a different request
│   ├── TextNotFoundError         no text of that content hash in this store: it was forgotten, or never there
│   ├── WrongStore          the task belongs to another store than this worker's
│   └── StoreUnavailable    the database does not answer; worth trying again; exit code 3
├── ModelError
│   ├── ModelUnavailable    worth trying again (rate limit, overload, connection)
│   │   └── InvalidReplyError      there was an answer, and it is no whole reply (cut stream, page, malformed)
│   ├── SpendingLimitReached  the provider's account has no money left; a person has to see to it
│   └── ModelRejected       trying again changes nothing (credentials, bad request, too large)
│       ├── ModelAuthenticationError      its key or credentials are not accepted, or this worker has none
│       ├── BrokenEndpointError  call after call it sends what is no reply; a person has to see to it
│       ├── ModelNotFoundError       there is no such model at this endpoint, or not any more
│       └── ContentFilterError    the provider's content filter took the reply away; it may have been billed
├── WrongKey                something is encrypted with a key that is not there
├── RedactionFailed         text could not be redacted, so it must go nowhere
│   └── TextRedactionError     this very text; others may pass
│       ├── RedactionTimeoutError by its time; a second time it is put aside
│       ├── RedactionAbandonedError     often enough: the work that needs it ends with what there is
│       └── RedactionReviewRequiredError    often enough: a person is to see to it
├── MemoryUnavailable       the embedder or Qdrant did not answer; passages wait in the outbox; exit code 3
│   ├── PassagesRejectedError     Qdrant does not take one of these passages, however often it is asked
│   └── OtherEmbedder       memory was made with another embedder than the one that is set
├── TableQueryError            a calculation or a query over tables cannot be carried out; its agent is told why
├── HookFailed              a hook before or after a compaction failed; it is reported, and blocks only if asked to
├── ToolServerFailed        a tool server could not be reached, ended, or took too long or too much; the agent goes on
├── WebhookUnavailable      a notice was not taken; worth trying again
├── WebhookRejectedError          a notice was not taken; trying again changes nothing
├── WebUnavailable          a page cannot be fetched now; worth trying again
├── WebFetchRejectedError              a page cannot or must not be read; trying again changes nothing
└── Unreachable             something needed (server, worker) is not there; exit code 3
    └── Busy                it is there and takes no more at the moment: nothing was accepted
"""

from typing import TYPE_CHECKING

from waystation.kernel.amount import Amount, Limit, format_amount, format_limit

if TYPE_CHECKING:
    from waystation.kernel.usage import Usage  # which imports this module


class WaystationError(Exception):
    """Base of all errors raised on purpose. Messages carry values, never conversation text or secrets."""


class BadInput(WaystationError):
    """What a person gave cannot be used. The message names the cause and the next step."""


class UnknownTask(BadInput):
    """No task of that id in this store."""


class MemoryInUse(BadInput):
    """Another process has the embedded memory open, as workers have."""


class InsufficientBudgetError(WaystationError):
    """A reservation asks for more than the account has left."""

    def __init__(self, child: str, asked: Amount, left: Limit) -> None:
        super().__init__(f"{child} asks for {format_amount(asked)}; left: {format_limit(left)}")
        self.child, self.asked, self.left = child, asked, left


class StoreError(WaystationError):
    """The store refused a write or lacks something that must be there."""


class StaleFenceError(StoreError):
    """Another attempt has taken this agent run over: this one must write nothing more."""

    def __init__(self, run_id: str, held: int) -> None:
        super().__init__(f"agent run {run_id}: fence {held} is no longer the newest; another attempt took over")
        self.run_id, self.held = run_id, held


class VersionConflict(StoreError):
    """The transcript changed since it was read."""

    def __init__(self, run_id: str, expected: int, found: int) -> None:
        super().__init__(f"agent run {run_id}: version {found}, expected {expected}")
        self.run_id, self.expected, self.found = run_id, expected, found


class RequestConflict(StoreError):
    """The request id was used before, for a request with other content."""


class TextNotFoundError(StoreError):
    """No text of that content hash in this store: it was forgotten, or never there."""

    def __init__(self, blob: str) -> None:
        super().__init__(f"no text with the content hash {blob} in this store")
        self.blob = blob


class WrongStore(StoreError):
    """The task was submitted into another store than the one this worker has open."""

    def __init__(self, wanted: str, found: str) -> None:
        super().__init__(
            f"the task lives in store {wanted}, this worker has store {found} open: "
            "use the worker's WAYSTATION_HOME or database, or start a worker on yours"
        )
        self.wanted, self.found = wanted, found


class StoreUnavailable(StoreError):
    """The database does not answer, or not now. Worth trying again: every write may be repeated."""


class ModelError(WaystationError):
    """A call to the model did not give a usable reply."""

    reported: "Usage | None" = None
    """What the call may have used at most, from what its provider reported before it failed: the input as counted, the
    output as a bound. None: nothing was reported.
    """
    asked: str = ""
    """Full name of the model that failed, if it was asked in another one's place."""


class ModelUnavailable(ModelError):
    """Worth trying again, after `retry_after` seconds where the provider named a delay.

    `possibly_billed`: the provider may have begun to answer (a cut stream, a time-out); False where it certainly
    refused (rate limit, overload, connection refused).
    """

    def __init__(self, message: str, *, retry_after: float | None = None, possibly_billed: bool = True) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.possibly_billed = possibly_billed


class InvalidReplyError(ModelUnavailable):
    """There was an answer, and it is no whole reply: a stream without its end, a page, malformed pieces."""


class SpendingLimitReached(ModelError):
    """The provider makes no call for money's sake: its spending limit is reached, or the account has no credit."""


class ModelRejected(ModelError):
    """Trying again changes nothing: credentials, a bad request, a request that is too large."""


class ModelAuthenticationError(ModelRejected):
    """The endpoint does not accept the key or credentials, or this worker has none for it."""


class BrokenEndpointError(ModelRejected):
    """What comes from there is no reply: a page, or, call after call, nothing that can be used. A person has to see to
    it, and then another attempt is worth it.

    `possibly_billed` as in `ModelUnavailable`.
    """

    def __init__(self, message: str, *, possibly_billed: bool = False) -> None:
        super().__init__(message)
        self.possibly_billed = possibly_billed


class ModelNotFoundError(ModelRejected):
    """There is no such model at this endpoint, or not any more: another one may have it."""


class ContentFilterError(ModelRejected):
    """The provider's content filter took the reply away. The same request would be blocked, and billed, again."""


class WrongKey(WaystationError):
    """Something is encrypted, and no key that is there opens it. The message says nothing of its content."""


class RedactionFailed(WaystationError):
    """Text could not be redacted. It must reach neither model, memory nor history."""


class TextRedactionError(RedactionFailed):
    """One text could not be redacted, while others may be. Another attempt at it may succeed."""


class RedactionTimeoutError(TextRedactionError):
    """The redaction of one text took longer than it may, and was ended."""


class RedactionAbandonedError(TextRedactionError):
    """A text that cannot be done without could not be redacted in as many attempts as it is given."""


class RedactionReviewRequiredError(TextRedactionError):
    """A text could not be redacted in as many attempts as it is given, and a person is to see to it."""


class MemoryUnavailable(WaystationError):
    """The embedder or Qdrant did not answer. Passages stay in the outbox and are written later."""


class PassagesRejectedError(MemoryUnavailable):
    """Qdrant does not take one of these passages at least. The message quotes none."""


class OtherEmbedder(MemoryUnavailable):
    """Memory was made with another embedder than the one that is set: their vectors cannot be compared."""


class TableQueryError(WaystationError):
    """A calculation or a query over tables cannot be carried out.

    The message may quote cells: it goes to the agent that asked, redacted like every result, and nowhere else.
    """


class HookFailed(WaystationError):
    """A hook before or after a compaction failed. The message repeats nothing that the hook said."""


class ToolServerFailed(WaystationError):
    """A tool server gave no result. The message names the server, and repeats nothing that it said."""


class WebhookUnavailable(WaystationError):
    """A notice was not taken. Worth trying again, after `retry_after` seconds where the server named a delay."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class WebhookRejectedError(WaystationError):
    """A notice was not taken, and trying again changes nothing."""


class WebUnavailable(WaystationError):
    """A page cannot be fetched now. Worth trying again. The message names the host and repeats nothing that it said."""


class WebFetchRejectedError(WaystationError):
    """A page cannot or must not be read, and trying again changes nothing: the cause, and what can be done instead."""

    def __init__(self, cause: str, next_step: str) -> None:
        super().__init__(f"{cause}. {next_step}")
        self.cause, self.next_step = cause, next_step


class Unreachable(WaystationError):
    """Something needed is not there (Temporal server, worker). The message names the next step."""


class Busy(Unreachable):
    """The server or the session takes no more requests at the moment: nothing was accepted, try again."""
