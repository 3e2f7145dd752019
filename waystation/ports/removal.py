"""Ports to the store's removal of what was said: of whole tasks, and of one person."""

from typing import Protocol

from waystation.domain.forgetting import ForgetOrder, Forgotten
from waystation.domain.persons import PersonOrder, Sought, Trace


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
