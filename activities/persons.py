"""The activities by which one person is erased. The value itself is in the vault meanwhile, and not in any history."""

from temporalio import activity

from activities.failures import reported
from activities.heartbeats import beating
from waystation.agents.archive import Archive
from waystation.domain.errors import BadInput
from waystation.domain.persons import PersonOrder, Sought, Traces
from waystation.ports import Persons, Vault


class PersonActivities:
    """All are safe to repeat."""

    def __init__(self, store: Persons, archive: Archive, vault: Vault) -> None:
        self._store, self._archive, self._vault = store, archive, vault

    @activity.defn(name="FindPerson")
    async def find(self, order: PersonOrder) -> Traces:
        """Where the store has the person, and how often."""
        async with beating():
            with reported():
                return Traces(traces=await self._store.traces(order.tenant, await self._sought(order)))

    @activity.defn(name="EraseFromStore")
    async def erase(self, order: PersonOrder) -> None:
        """Take the person out of the store's texts."""
        async with beating():
            with reported():
                await self._store.erase(order, await self._sought(order))

    @activity.defn(name="RewritePassages")
    async def rewrite_passages(self) -> None:
        """Have memory write over what it has of the passages that changed. Repeated until memory answers."""
        async with beating():
            with reported():
                await self._archive.rewrite()

    @activity.defn(name="DropOriginals")
    async def drop_originals(self, order: PersonOrder) -> int:
        """Take out of the vault what the placeholders stand for, and the value of the order; how many of the former."""
        async with beating():
            with reported():
                count = await self._vault.drop(order.tenant, order.placeholders)
                await self._vault.drop(order.tenant, [order.wanted])
                return count

    async def _sought(self, order: PersonOrder) -> Sought:
        originals = await self._vault.originals(order.tenant, [order.wanted])
        if order.wanted not in originals:
            raise BadInput("the vault has the value of this order no more: give the order again")
        return Sought(originals[order.wanted], order.placeholders)
