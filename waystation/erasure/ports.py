"""Ports to what is erased: the content of tasks and of persons in the store, and what a task leaves outside of it."""

from collections.abc import Sequence
from typing import Protocol

from waystation.erasure.erasure import (
    ErasureMatch,
    ErasureQuery,
    ForgetCounts,
    ForgetOrder,
    MatchedHistory,
    PersonErasureOrder,
)


class ForgetRepository(Protocol):
    """Forgets the content of tasks."""

    async def forget_tasks(self, order: ForgetOrder) -> ForgetCounts:
        """Remove what the order names, in one transaction. A repetition finds nothing more.

        Passages leave the outbox; their points have to be removed from memory afterwards.

        Raises:
            WrongStore: the order is for another store.
        """
        ...


class PersonErasureRepository(Protocol):
    """Erases one person from everything that the store holds of a tenant."""

    async def find_erasure_matches(self, tenant: str, query: ErasureQuery) -> tuple[ErasureMatch, ...]:
        """Return where the tenant's tasks contain what the query looks for, and how often.

        Raises:
            WrongKey: no available key decrypts a text.
        """
        ...

    async def erase_person(self, order: PersonErasureOrder, query: ErasureQuery) -> None:
        """Replace it by `<ERASED>` in one transaction. A repetition finds nothing more.

        Passages that contained it wait again, so that memory gets them as they are now.

        Raises:
            WrongStore: the order is for another store.
            WrongKey: no available key decrypts a text.
        """
        ...


class ExternalTaskData(Protocol):
    """Data outside the store: workflow histories on the server, and reports in the home folder of this process.

    Every operation is safe to repeat. The server deletes histories with a short delay.
    """

    async def delete_histories(self, task_ids: Sequence[str]) -> int:
        """Delete every history of these tasks and return how many were left."""
        ...

    async def delete_found_histories(self, histories: Sequence[MatchedHistory]) -> int:
        """Delete these histories and return how many were left."""
        ...

    def delete_report_files(self, task_ids: Sequence[str]) -> int:
        """Delete the reports of these tasks and return how many there were."""
        ...

    def erase_from_report_files(self, task_ids: Sequence[str], query: ErasureQuery) -> int:
        """Erase the person from the reports of these tasks and return how many contained them."""
        ...
