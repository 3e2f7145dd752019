"""The port to what a task leaves outside the store."""

from collections.abc import Sequence
from typing import Protocol

from waystation.erasure.erasure import ErasureQuery, MatchedHistory


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

    def erase_from_report_files(self, task_ids: Sequence[str], sought: ErasureQuery) -> int:
        """Erase the person from the reports of these tasks and return how many contained them."""
        ...
