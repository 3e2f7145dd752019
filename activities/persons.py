"""The activities by which one person is erased. The value itself is in the vault meanwhile, and not in any history."""

from temporalio import activity

from activities.failures import reported
from activities.heartbeats import beating
from waystation.agents.archive import Archive
from waystation.domain.errors import BadInput
from waystation.domain.ownership import OfTenant
from waystation.domain.persons import PersonOrder, Sought, Traces
from waystation.ports import Outside, Persons, TaskStore, Vault

MOST_TASKS = 1_000_000


class PersonActivities:
    """All are safe to repeat."""

    def __init__(self, store: Persons, tasks: TaskStore, archive: Archive, vault: Vault, outside: Outside) -> None:
        self._store, self._tasks, self._archive, self._vault, self._outside = store, tasks, archive, vault, outside

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

    @activity.defn(name="RewriteReports")
    async def rewrite_reports(self, order: PersonOrder) -> int:
        """Take the person out of files of reports; how many had them."""
        async with beating():
            with reported():
                rows = await self._tasks.tasks(OfTenant(tenant=order.tenant), MOST_TASKS)
                task_ids = [row.ref.task_id for row in rows]
                return self._outside.rewrite_reports(task_ids, await self._sought(order))

    @activity.defn(name="DeleteHistories")
    async def delete_histories(self, order: PersonOrder) -> int:
        """Delete the closed histories that have the person; how many there still were."""
        async with beating():
            with reported():
                return await self._outside.delete_seen(order.doomed)

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
