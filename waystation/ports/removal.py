"""Ports to the removal of what was said, in the store and outside: of whole tasks, and of one person."""

from collections.abc import Sequence
from typing import Protocol

from waystation.domain.forgetting import ForgetOrder, Forgotten
from waystation.domain.persons import PersonOrder, SeenHistory, Sought, Trace


class Forgetting(Protocol):
    """Tasks without what was said in them."""

    async def forget(self, order: ForgetOrder) -> Forgotten:
        """Remove what the order names, in one transaction. Carried out again, it finds nothing more.

        Passages leave the outbox, and their points are to be taken out of memory after this. Raises WrongStore.
        """
        ...


class Persons(Protocol):
    """One person in everything that the store keeps of a tenant."""

    async def traces(self, tenant: str, sought: Sought) -> tuple[Trace, ...]:
        """Where the tenant's tasks have it, and how often. Raises WrongKey."""
        ...

    async def erase(self, order: PersonOrder, sought: Sought) -> None:
        """Put `<ERASED>` in its place, in one transaction. Carried out again, it finds nothing more.

        Passages that had it wait again, so that memory gets them as they are now. Raises WrongStore, WrongKey.
        """
        ...


class Outside(Protocol):
    """What lies outside the store: workflow histories on the server, and reports in the home folder of this process.

    All of it is safe to repeat. The server deletes histories a moment later.
    """

    async def delete_histories(self, task_ids: Sequence[str]) -> int:
        """Every history of these tasks; how many there still were."""
        ...

    async def delete_seen(self, histories: Sequence[SeenHistory]) -> int:
        """These histories; how many there still were."""
        ...

    def delete_reports(self, task_ids: Sequence[str]) -> int:
        """The reports of these tasks; how many there were."""
        ...

    def rewrite_reports(self, task_ids: Sequence[str], sought: Sought) -> int:
        """The reports of these tasks without the person; how many had them."""
        ...
