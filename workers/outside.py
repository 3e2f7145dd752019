"""What is removed outside the store: histories on the Temporal server, and reports in this home folder."""

from collections.abc import Sequence
from dataclasses import dataclass

from temporalio.client import Client

from waystation.adapters.temporal.forgetting import delete_histories
from waystation.adapters.temporal.persons import delete_seen
from waystation.domain.persons import SeenHistory, Sought
from waystation.report_files import rewritten_reports, without_reports
from waystation.settings import Settings


@dataclass(frozen=True)
class TemporalAndFiles:
    """Implements the port `Outside`."""

    client: Client
    settings: Settings

    async def delete_histories(self, task_ids: Sequence[str]) -> int:
        """See `Outside`. Raises RPCError."""
        return await delete_histories(self.client, task_ids)

    async def delete_seen(self, histories: Sequence[SeenHistory]) -> int:
        """See `Outside`. Raises RPCError."""
        return await delete_seen(self.client, histories)

    def delete_reports(self, task_ids: Sequence[str]) -> int:
        """See `Outside`."""
        return without_reports(self.settings, task_ids)

    def rewrite_reports(self, task_ids: Sequence[str], sought: Sought) -> int:
        """See `Outside`."""
        return rewritten_reports(self.settings, task_ids, sought)
