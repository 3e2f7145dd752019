"""Activities that forget tasks, erase one person, and find tasks past their retention time.

The person's value is in the vault meanwhile, and never in a history.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from temporalio import activity

from waystation.activities.activity_errors import heartbeating, translating_errors
from waystation.erasure.erasure import (
    CleanupStep,
    ErasureMatches,
    ErasureQuery,
    ErasureReceipt,
    ExpiredTasks,
    ForgetCounts,
    ForgetOrder,
    PersonErasureOrder,
    split_into_forget_orders,
)
from waystation.erasure.ports import ExternalTaskData, ForgetRepository, PersonErasureRepository
from waystation.kernel.clock import Clock
from waystation.kernel.errors import BadInput
from waystation.kernel.scopes import SystemScope, TenantScope
from waystation.memory.indexing import OutboxDrainer
from waystation.privacy.ports import Vault
from waystation.tasks.ports import TaskReader

_logger = logging.getLogger(__name__)


class TaskRemovalActivities:
    """Forgets tasks: in the store, which decides, then in memory, then outside. Idempotent."""

    def __init__(self, store: ForgetRepository, archive: OutboxDrainer, outside: ExternalTaskData) -> None:
        self._store, self._archive, self._outside = store, archive, outside

    @activity.defn(name="ForgetTasks")
    async def forget_tasks(self, order: ForgetOrder) -> ForgetCounts:
        """Delete the passages of tasks or, with `everything`, all of their texts from the store."""
        async with heartbeating():
            with translating_errors():
                return await self._store.forget_tasks(order)

    @activity.defn(name="ForgetPassages")
    async def forget_passages(self) -> int:
        """Delete withdrawn passages from memory and return their number. Retried until memory answers."""
        async with heartbeating():
            with translating_errors():
                return await self._archive.erase_withdrawn_points()

    @activity.defn(name="TidyUpAfterTasks")
    async def clean_up_after_tasks(self, tidying: CleanupStep) -> ErasureReceipt:
        """Delete histories and reports, and return what was deleted. An attempt counts only what earlier ones left."""
        task_ids = tidying.order.task_ids
        async with heartbeating():
            with translating_errors():
                files = self._outside.delete_report_files(task_ids)
                histories = await self._outside.delete_histories(task_ids)
        gone = tidying.removed
        _logger.info(
            "forgot %s tasks, %s passages, %s documents, %s messages, %s histories, %s reports",
            *(gone.tasks, gone.passages, gone.documents, gone.messages, histories, files),
        )
        return ErasureReceipt(removed=gone, histories=histories, files=files)


TASKS_OF_A_TENANT = 1_000_000


class PersonErasureStore(PersonErasureRepository, TaskReader, Protocol):
    """Erasure of a person, and the tasks whose reports may name them."""


class PersonErasureActivities:
    """Erases one person. Idempotent."""

    def __init__(
        self, store: PersonErasureStore, archive: OutboxDrainer, vault: Vault, outside: ExternalTaskData
    ) -> None:
        self._store, self._archive, self._vault, self._outside = store, archive, vault, outside

    @activity.defn(name="FindPerson")
    async def find_person(self, order: PersonErasureOrder) -> ErasureMatches:
        """Count where the store mentions the person."""
        async with heartbeating():
            with translating_errors():
                return ErasureMatches(
                    matches=await self._store.find_erasure_matches(order.tenant, await self._sought(order))
                )

    @activity.defn(name="EraseFromStore")
    async def erase_from_store(self, order: PersonErasureOrder) -> None:
        """Erase the person from the store's texts."""
        async with heartbeating():
            with translating_errors():
                await self._store.erase_person(order, await self._sought(order))

    @activity.defn(name="RewritePassages")
    async def rewrite_passages(self) -> None:
        """Overwrite changed passages in memory. Retried until memory answers."""
        async with heartbeating():
            with translating_errors():
                await self._archive.replace_rewritten_points()

    @activity.defn(name="RewriteReports")
    async def rewrite_reports(self, order: PersonErasureOrder) -> int:
        """Erase the person from report files and return the number of files changed."""
        async with heartbeating():
            with translating_errors():
                rows = await self._store.list_tasks(TenantScope(tenant=order.tenant), TASKS_OF_A_TENANT)
                task_ids = [row.ref.task_id for row in rows]
                return self._outside.erase_from_report_files(task_ids, await self._sought(order))

    @activity.defn(name="DeleteHistories")
    async def delete_histories(self, order: PersonErasureOrder) -> int:
        """Delete the closed histories that mention the person and return how many still existed."""
        async with heartbeating():
            with translating_errors():
                return await self._outside.delete_found_histories(order.histories_to_delete)

    @activity.defn(name="DropOriginals")
    async def drop_originals(self, order: PersonErasureOrder) -> int:
        """Delete the person's originals and the searched value from the vault; return the number of originals."""
        async with heartbeating():
            with translating_errors():
                count = await self._vault.delete_originals(order.tenant, order.placeholders)
                await self._vault.delete_originals(order.tenant, [order.wanted_placeholder])
                return count

    async def _sought(self, order: PersonErasureOrder) -> ErasureQuery:
        originals = await self._vault.load_originals(order.tenant, [order.wanted_placeholder])
        if order.wanted_placeholder not in originals:
            raise BadInput("the vault no longer has the value of this erasure: run the command again")
        return ErasureQuery(originals[order.wanted_placeholder], order.placeholders)


TASKS_AT_ONCE = 5_000
"""Maximum number of tasks per look; the next one finds the rest."""


@dataclass(frozen=True)
class RetentionActivities:
    """Finds tasks past their retention time. Idempotent."""

    days: int | None
    store: TaskReader
    clock: Clock
    is_open: Callable[[str], Awaitable[bool]]
    """Whether the workflow of this ID is open."""

    @activity.defn(name="FindExpiredTasks")
    async def find_expired_tasks(self) -> ExpiredTasks:
        """Return the tasks of all tenants that ended more than `days` days ago.

        A task without a recorded end may still be running, so its workflow is checked.
        """
        if self.days is None:
            return ExpiredTasks(days=None)
        with translating_errors():
            before = self.clock() - timedelta(days=self.days)
            rows = await self.store.list_tasks(SystemScope(), TASKS_AT_ONCE, ended_before=before)
            over = [row.ref for row in rows if row.ended_at is not None or not await self.is_open(row.ref.task_id)]
            return ExpiredTasks(days=self.days, orders=split_into_forget_orders(over))
